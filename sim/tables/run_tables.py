"""Print the results of `keyhole ls`, `diff`, `watch`, `explain` and `schemes`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from protocol.schemes import LISTED
from sim.audit.findings import QUESTIONS
from sim.console.console import count_the_rest, figure, number, out, plain_table, size
from sim.console.glossary import BASICS, FINDINGS, TERMS, Term

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
    table = _open("Runs, newest first", "run", "scheme", "data", "ε", "RMSE", "verdict", "age")
    for row in rows:
        state = row["state"] if row["state"] != "completed" else verdict_words(row)
        name, scheme, data = (_short(row[key], 26) for key in ("run", "scheme", "data"))
        rmse = number(row["test_rmse"])
        table.add_row(name, scheme, data, escape(_short(_epsilon(row["epsilon"]), 8)), escape(_short(rmse, 8)), state,
                      age(row["age_seconds"]))  # fmt: skip
    out.print(table)
    for row in rows:
        if row["problem"]:
            out.print(row["problem"], markup=False, soft_wrap=True)
    if any(row["verdict"] is None and row["state"] == "completed" for row in rows):
        out.print("A verdict comes from: keyhole audit RUN", markup=False)


def verdict_words(row: dict[str, Any]) -> str:
    claim = _CLAIMS.get(row["published_claim"] or "")
    asked = row.get("asked")
    some = f" ({', '.join(asked)} only)" if asked is not None and len(asked) < len(QUESTIONS) else ""
    return ", ".join([_VERDICTS[row["verdict"]] + some, *([claim] if claim else [])])


def _epsilon(value: Any) -> str:
    return "∞" if isinstance(value, float) and math.isinf(value) else figure(value)


def age(seconds: float) -> str:
    """Format an age in a fitting unit: "3 min", "2 days"."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if 2 * length <= seconds < math.inf or (unit != "days" and length <= seconds < math.inf):
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if math.isfinite(seconds) else "–"


def _short(value: Any, most: int = MOST_CELL) -> str:
    """Shorten `value` to its first `most` characters, or a path to its last; escape any markup in it."""
    text = "–" if value is None else str(value)
    if len(text) > most:
        text = f"…{text[1 - most:]}" if "/" in text else f"{text[: most - 1]}…"
    return escape(text)


def _open(title: str, *columns: str) -> Table:
    """Make a table without lines between its columns, so that it fits a terminal of 80 columns."""
    table = plain_table(title, *columns)
    table.box, table.padding = box.SIMPLE_HEAD, (0, 1, 0, 0)
    return table


# --- two runs --------------------------------------------------------------------------------------------------------


def show_diff(document: dict[str, Any]) -> None:
    one, other = (row["run"] for row in document["runs"])
    out.print(f"[bold]first[/]  {escape(one)}", soft_wrap=True)
    out.print(f"[bold]second[/] {escape(other)}", soft_wrap=True)
    if not document["configuration"]:
        out.print("Both have the same configuration.")
    else:
        _show_pairs("Configured differently", document["configuration"], _short)
    _show_pairs("Accuracy", document["accuracy"], lambda value: escape(number(value)), signed=True)
    _show_pairs("ε", _labelled(document["epsilon"]), lambda value: _short(figure(value)))
    _show_bytes(document["bytes"])
    if document["knowledge"]:
        _show_pairs("Who learns what", document["knowledge"], _knows)
    for note in document["notes"]:
        out.print(note, markup=False, soft_wrap=True)


def _show_pairs(title: str, rows: list[dict[str, Any]], cell: Any, signed: bool = False) -> None:
    if not rows:
        return
    table = _open(title, "", "first", "second", *(["difference"] if signed else []))
    for row in rows:
        difference = row.get("difference")
        last = ["–" if difference is None else f"{difference:+.3g}"] if signed else []
        table.add_row(_short(row["what"]), cell(row["first"]), cell(row["second"]), *last)
    out.print(table)


def _labelled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Label the accounted ε in plain words: with envelopes it is the figure of `summary.json`, not of an audit."""
    by_item = any(str(row["what"]).startswith("to the recommender") for row in rows)
    words = "accounted, as if every sum were released" if by_item else "accounted, whole run"
    return [{**row, "what": words} if row["what"] == "accounted epsilon" else row for row in rows]


def _knows(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    number_of = f"{row['stands_for']} such users: " if row["stands_for"] > 1 else ""
    return escape(number_of + "; ".join([row["works_out"] or row["determines"] or "–", *row["measured"][:1]]))


def _show_bytes(document: dict[str, Any]) -> None:
    table = _open("Wire bytes (iterations: mean of one)", "when", "from → to", "first", "second", "second / first")
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "right", True
    for row in document["edges"]:
        edge = f"{row['sender']} → {row['receiver']}"
        table.add_row(row["when"], edge, size(row["first"]), size(row["second"]), _ratio(row))
    total = document["total"]
    table.add_section()
    table.add_row("in all", "", size(total["first"]), size(total["second"]), _ratio(total))
    out.print(table)
    _show_kinds([row for row in document["kinds"] if _differs(row["first"], row["second"])])


def _show_kinds(changed: list[dict[str, Any]]) -> None:
    if not changed:
        return
    table = _open("Kinds whose bytes differ", "when", "from → to", "kind", "first", "second")
    for column in table.columns[3:]:
        column.justify, column.no_wrap = "right", True
    for row in changed[:MOST_KINDS]:
        edge = f"{row['sender']} → {row['receiver']}"
        table.add_row(row["when"], edge, _short(row["kind"]), *_sizes(row["first"], row["second"]))
    out.print(table)
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
    so_far = f"so far {size(line['bytes_so_far'])}, ε added up {_epsilon(epsilon)}"
    return f"{done} · {_turnout(line, watched)}{error} · {so_far}"


def _turnout(line: Line, watched: Watched) -> str:
    return f"{number(line['online'])} of {watched.params.n_users} online, {number(line['contributors'])} contributed"


def watch_table(watched: Watched) -> Table:
    """Draw the current state of a run, for a terminal."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("[bold]run[/]", escape(str(watched.folder)))
    line = watched.latest
    if line is None:
        table.add_row("iterations", f"0 of {watched.params.iterations}: the parties are joining")
        return table
    seconds = number(line["seconds"])
    table.add_row("iterations", f"{watched.done} of {watched.params.iterations}, the last in {seconds} s")
    table.add_row("online", escape(f"{_turnout(line, watched)}, {number(line['dropouts'])} too late"))
    for name, words in (("invited", "who"), ("present", "came"), ("absent", "went")):
        if line["course"].get(name):
            table.add_row(words, f"users {_short(line['course'][name], 60)}")
    table.add_row("train MAE of the iterate", escape(number(line["train_mae"])))
    table.add_row("bytes", f"{size(watched.bytes)} so far, {size(line['bytes'])} in the last iteration")
    epsilon, words = watched.epsilon(watched.done)
    table.add_row("ε so far", escape(f"{_epsilon(epsilon)} ({words})"))
    return table


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
    table = _open("Schemes", "name", "what it is", "parties")
    table.columns[0].no_wrap = True
    for name, one in LISTED.items():
        table.add_row(escape(name), escape(one.title), ", ".join(one.parties))
    out.print(table)
    out.print("Claims, weaknesses and options of one: keyhole schemes NAME")


def show_scheme(row: dict[str, Any]) -> None:
    out.print(f"[bold]{escape(row['name'])}[/]: {escape(row['title'])}")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    options = [f"{name}={'auto' if value is None else value}" for name, value in row["options"].items()]
    for label, words in (
        ("parties", ", ".join(row["parties"])),
        ("claims", row["claims"]),
        ("ε is per", row["unit"]),
        ("known weaknesses", ", ".join(row["known_weaknesses"]) or "none declared"),
        ("options", ", ".join(options) or "none"),
        ("source", row["source"]),
    ):
        table.add_row(label, escape(words))
    out.print(table)
    out.print(f"Run it: keyhole run --scheme {row['run_as']}", markup=False, soft_wrap=True)
    if row["known_weaknesses"]:
        out.print(f"A weakness is explained by: keyhole explain ID, such as {row['known_weaknesses'][0]}", markup=False)
