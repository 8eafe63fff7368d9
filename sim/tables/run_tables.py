"""Print the results of `keyhole ls`, `diff`, `watch`, `explain` and `schemes`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from protocol.schemes import LISTED
from sim.audit.findings import QUESTIONS
from sim.console.console import count_the_rest, figure, number, out, pairs_table, print_table, size
from sim.console.glossary import BASICS, FINDINGS, TERMS, Term
from sim.folder.traffic import edge_of

if TYPE_CHECKING:
    from sim.runs.following import Line, Watched

MOST_CELL = 40  # characters of foreign text in a table cell
MOST_KINDS = 20  # rows of a table by kind
_VERDICTS = {"within-claims": "as declared", "beyond-claims": "beyond claims", None: "not audited"}
_CLAIMS = {"refuted": "claim refuted", "holds": "claim holds", "not-tested": "claim not tested"}


def show_list(rows: list[dict[str, Any]], folder: str) -> None:
    if not rows:
        out.print(f"There are no runs in {folder}: keyhole run makes one.", markup=False, soft_wrap=True)
        return
    cells = []
    for row in rows:
        state = row["state"] if row["state"] != "completed" else verdict_words(row)
        names = (_short(row[key], 26) for key in ("run", "scheme", "data"))
        figures = (_short(value, 8) for value in (figure(row["epsilon"]), number(row["test_rmse"])))
        cells.append((*names, *figures, state, age(row["age_seconds"])))
    columns = ("run", "scheme", "data", "ε", "RMSE", "verdict", "age")
    print_table("Runs, newest first", columns, cells, narrow=True)
    for row in rows:
        if row["problem"]:
            out.print(row["problem"], markup=False, soft_wrap=True)
    if any(row["verdict"] is None and row["state"] == "completed" for row in rows):
        out.print("A verdict comes from: keyhole audit RUN", markup=False)


def verdict_words(row: dict[str, Any]) -> str:
    claim = _CLAIMS.get(row["published_claim"] or "")
    asked = row.get("asked")
    some = f" ({', '.join(asked)} only)" if asked is not None and len(asked) < len(QUESTIONS) else ""
    open_ = ["not all shown"] if row.get("not_shown") and row["verdict"] == "within-claims" else []
    return ", ".join([_VERDICTS[row["verdict"]] + some, *open_, *([claim] if claim else [])])


def age(seconds: float) -> str:
    """Format an age in a fitting unit: "3 min", "2 days"."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if 2 * length <= seconds < math.inf or (unit != "days" and length <= seconds < math.inf):
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if math.isfinite(seconds) else "–"


def _short(value: Any, most: int = MOST_CELL) -> str:
    """Shorten `value` to its first `most` characters, or a path to its last."""
    text = "–" if value is None else str(value)
    if len(text) > most:
        text = f"…{text[1 - most:]}" if "/" in text else f"{text[: most - 1]}…"
    return text


# --- two runs --------------------------------------------------------------------------------------------------------


def show_diff(document: dict[str, Any]) -> None:
    one, other = (row["run"] for row in document["runs"])
    out.print(f"[bold]first[/]  {escape(one)}", soft_wrap=True)
    out.print(f"[bold]second[/] {escape(other)}", soft_wrap=True)
    if not document["configuration"]:
        out.print("Both have the same configuration.")
    else:
        _show_pairs("Configured differently", document["configuration"], _short)
    _show_pairs("Accuracy", document["accuracy"], number, signed=True)
    _show_pairs("ε", _labelled(document["epsilon"]), lambda value: _short(figure(value)))
    _show_bytes(document["bytes"])
    if document["knowledge"]:
        _show_pairs("Who learns what", document["knowledge"], _knows)
    for note in document["notes"]:
        out.print(note, markup=False, soft_wrap=True)


def _show_pairs(title: str, rows: list[dict[str, Any]], cell: Any, signed: bool = False) -> None:
    if not rows:
        return
    cells = []
    for row in rows:
        difference = row.get("difference")
        last = ["–" if difference is None else f"{difference:+.3g}"] if signed else []
        cells.append((_short(row["what"]), cell(row["first"]), cell(row["second"]), *last))
    print_table(title, ("", "first", "second", *(["difference"] if signed else [])), cells, narrow=True)


def _labelled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Label the accounted ε in plain words: with envelopes it is the figure of `summary.json`, not of an audit."""
    by_item = any(str(row["what"]).startswith("to the recommender") for row in rows)
    words = "accounted, as if every sum were released" if by_item else "accounted, whole run"
    return [{**row, "what": words} if row["what"] == "accounted epsilon" else row for row in rows]


def _knows(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    number_of = f"{row['stands_for']} such users: " if row["stands_for"] > 1 else ""
    return number_of + "; ".join([row["works_out"] or row["determines"] or "–", *row["measured"][:1]])


def _show_bytes(document: dict[str, Any]) -> None:
    def sizes(row: dict[str, Any]) -> tuple[str, str, str]:
        return size(row["first"]), size(row["second"]), _ratio(row)

    edges = [(row["when"], edge_of(row), *sizes(row)) for row in document["edges"]]
    columns = ("when", "from → to", "first", "second", "second / first")
    rows = [*edges, None, ("in all", "", *sizes(document["total"]))]
    print_table("Wire bytes (iterations: mean of one)", columns, rows, numbers=3, narrow=True)
    if changed := [row for row in document["kinds"] if _differs(row["first"], row["second"])]:
        kinds = [
            (row["when"], edge_of(row), _short(row["kind"]), *_sizes(row["first"], row["second"]))
            for row in changed[:MOST_KINDS]
        ]
        columns = ("when", "from → to", "kind", "first", "second")
        print_table("Kinds whose bytes differ", columns, kinds, numbers=2, narrow=True)
        count_the_rest(changed, MOST_KINDS)


def _differs(first: float | None, second: float | None) -> bool:
    """Tell whether two byte counts differ by more than the rounding of a mean."""
    if first is None or second is None:
        return first is not second
    return not math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-6)


def _sizes(first: float | None, second: float | None) -> tuple[str, str]:
    """Format two sizes that differ so that they also look different."""
    short = size(first), size(second)
    if first is None or second is None or short[0] != short[1]:
        return short
    return f"{first:,.2f} B", f"{second:,.2f} B"


def _ratio(row: dict[str, Any]) -> str:
    return f"{row['second'] / row['first']:.3g}" if row["first"] and row["second"] is not None else "–"


# --- a run that goes on ----------------------------------------------------------------------------------------------


def watch_line(watched: Watched, line: Line) -> str:
    """Describe one iteration in one line."""
    if line["iteration"] < 0:
        return f"set-up done · {size(line['bytes'])}"
    error = "" if line["train_mae"] is None else f" · iterate's MAE {number(line['train_mae'])}"
    done = f"iteration {line['iteration'] + 1} of {watched.params.iterations}"
    epsilon, _ = watched.epsilon(line["iteration"] + 1)
    so_far = f"so far {size(line['bytes_so_far'])}, ε added up {figure(epsilon)}"
    return f"{done} · {_turnout(line, watched)}{error} · {so_far}"


def _turnout(line: Line, watched: Watched) -> str:
    return f"{number(line['online'])} of {watched.params.n_users} online, {number(line['contributors'])} contributed"


def watch_table(watched: Watched) -> Table:
    """Draw the current state of a run, for a terminal."""
    rows, line, most = [("run", str(watched.folder))], watched.latest, watched.params.iterations
    if line is None:
        return pairs_table([*rows, ("iterations", f"0 of {most}: the parties are joining")])
    rows.append(("iterations", f"{watched.done} of {most}, the last in {number(line['seconds'])} s"))
    rows.append(("online", f"{_turnout(line, watched)}, {number(line['dropouts'])} too late"))
    for name, words in (("invited", "who"), ("present", "came"), ("absent", "went")):
        if line["course"].get(name):
            rows.append((words, f"users {_short(line['course'][name], 60)}"))
    rows.append(("train MAE of the iterate", number(line["train_mae"])))
    rows.append(("bytes", f"{size(watched.bytes)} so far, {size(line['bytes'])} in the last iteration"))
    epsilon, words = watched.epsilon(watched.done)
    return pairs_table([*rows, ("ε so far", f"{figure(epsilon)} ({words})")])


def show_end(watched: Watched) -> None:
    """Print the final figures of a run that has completed."""
    summary = watched.summary
    assert summary is not None
    accuracy, accounted = summary["accuracy"], summary["privacy"]["accounted"]
    rmse = f"test RMSE {number(accuracy['test_rmse'])} (unprotected {number(accuracy['plain']['test_rmse'])})"
    claimed = figure(summary["privacy"]["claimed_epsilon"])
    epsilon = f"ε claimed {claimed}, accounted {figure(accounted['epsilon'])} (as if every sum were released)"
    total = f"{size(summary['bytes']['total'])} in all"
    out.print(f"Completed: {rmse}; {total}; {epsilon}.", markup=False, soft_wrap=True)


# --- words and schemes -----------------------------------------------------------------------------------------------


def show_terms() -> None:
    listed = TERMS | BASICS
    width = max(map(len, listed))
    for term in listed.values():
        out.print(f"[bold]{term.name:{width}}[/]  {escape(term.line)}")
    out.print("More about one of them: keyhole explain TERM")
    out.print(f"Findings of an audit are explained too: {', '.join(FINDINGS)}.", markup=False)


def show_term(term: Term) -> None:
    out.print(f"[bold]{term.name}[/]: {escape(term.line)}")
    out.print(term.meaning, markup=False)
    out.print(f"For you: {term.for_you}", markup=False)
    out.print(f"See it: {term.command}", markup=False)


def list_schemes() -> None:
    """Print Keyhole's schemes, one line each, without importing any of them."""
    rows = [(name, one.title, ", ".join(one.parties)) for name, one in LISTED.items()]
    print_table("Schemes", ("name", "what it is", "parties"), rows, whole=1, narrow=True)
    out.print("Claims, weaknesses and options of one: keyhole schemes NAME")


def _weakness(row: dict[str, Any]) -> str:
    """Write a declared weakness with the parties that it is about, its bound and its first iteration."""
    whose = " or ".join(parties.replace("+", " + ") for parties in row["parties"])
    most = "" if row["most"] is None else f"at most {row['most']:g}"
    since = f"from iteration {row['since']} on" if row["since"] else ""
    about = ", ".join(filter(None, (whose, most, since)))
    return f"{row['id']} ({about})" if about else str(row["id"])


def show_scheme(row: dict[str, Any]) -> None:
    out.print(f"[bold]{escape(row['name'])}[/]: {escape(row['title'])}")
    options = [f"{name}={'auto' if value is None else value}" for name, value in row["options"].items()]
    pairs = [
        ("parties", ", ".join(row["parties"])),
        ("claims", row["claims"]),
        ("ε is per", row["unit"]),
        ("known weaknesses", ", ".join(map(_weakness, row["weaknesses"])) or "none declared"),
        ("options", ", ".join(options) or "none"),
        ("source", row["source"]),
    ]
    out.print(pairs_table(pairs))
    out.print(f"Run it: keyhole run --scheme {row['run_as']}", markup=False, soft_wrap=True)
    if row["known_weaknesses"]:
        out.print(f"A weakness is explained by: keyhole explain ID, such as {row['known_weaknesses'][0]}", markup=False)
