"""Print the result of `keyhole audit`: a verdict that takes ten seconds to read, then the findings."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from sim.audit.canary.looks import looks_in_words
from sim.audit.canary.own_run import OWN, own_in_words
from sim.audit.claim import HOLDS, NOT_TESTED, REFUTED
from sim.audit.findings import word_of
from sim.console.console import counted, figure, number, out, plain_table, print_table
from sim.console.progress import PERCENT, Progress
from sim.tables.cheat_tables import show_cheat
from sim.tables.pair_tables import show_losses
from sim.tables.party_rows import BEYOND, DECLARED, NOT_ASKED, name_of, named, party_rows

_UNITS = {"empirical": PERCENT, "algebra": "users"}  # of the progress of a question
MOST_NOT_SHOWN = 10  # lines
WIDE = 120  # columns of a terminal that a table with five columns of words needs
_STYLES = {"break": "bold red", "weak": "yellow", "info": "green"}


class Asking(Progress):
    """A display of the question that is being asked, and of how much of it is answered."""

    def __init__(self, quiet: bool) -> None:
        super().__init__("reading the views", quiet=quiet)

    def __call__(self, question: str) -> None:
        self.begin(f"asking: {question}", unit=_UNITS.get(question, ""))


def show_audit(document: dict[str, Any], everything: bool) -> None:
    """Print an audit; `everything` adds harmless findings and the evidence."""
    if document["verdict"] is None:
        _show_undecoded(document)
        return
    show_verdict(document)
    if document.get("cheat"):
        show_cheat(document["cheat"])
    if "about" in document:
        show_about(document["about"])
    _show_findings(document, everything)
    if document["accounting"]:
        _show_accounting(document["accounting"])
    if document.get("pairs"):
        show_losses(document["pairs"]["epsilon"], "ε of the worst pairs found")
    if document["empirical"]:
        _show_empirical(document["empirical"], everything)
    reused = document.get("reused", [])
    new = {question: seconds for question, seconds in document["questions"].items() if question not in reused}
    asked = ", ".join(f"{question} {seconds:.1f}" for question, seconds in new.items())
    total = sum(new.values())
    percent = f"{100 * document['false_alarm']:.1g} %"
    level = f"A correct run fails with a probability of {percent} at most."
    parts = [f"Asked in {total:.1f} s ({asked})."] if new else []
    parts += [f"Taken from {document['run']}/audit.json: {', '.join(reused)}."] if reused else []
    parts += [level] if document["false_alarm"] else []
    out.print(" ".join([*parts, "Everything, with its evidence: --all or --json."]), markup=False)


def _show_undecoded(document: dict[str, Any]) -> None:
    """Print the audit of a scheme that is not loaded: its frames by kind and size."""
    out.print(f"[bold]{escape(document['scheme'])}[/] was [bold red]not audited[/]: there is no verdict.")
    for question, why in document["unanswered"].items():
        out.print(f"{question}: {why}", markup=False)
    columns = ("receiver", "frames", "as told by", "number", "bytes")
    table = plain_table("Frames by kind and size; their fields are not known", *columns)
    told = {"message": "receiver", "sent": "sender", "rejected": "receiver: refused"}
    for row in document["inventory"] or ():
        cells = (row["party"], row["kind"], told[row["plane"]], f"{row['count']:,}", f"{row['bytes']:,}")
        table.add_row(*map(escape, cells))
    out.print(table)


def show_verdict(document: dict[str, Any]) -> None:
    """Print the part that takes ten seconds to read."""
    if document.get("abort"):
        text = f"[bold red]This run was aborted[/] ({escape(document['abort'])}): all of this is of what came before."
        out.print(text)
    show_claim(document)
    found = document["findings"]
    ids = dict.fromkeys(finding["id"] for finding in found if finding["beyond"])
    weak = dict.fromkeys(finding["id"] for finding in found if word_of(finding) == "declared")
    scheme = escape(document["scheme"])
    if ids:
        out.print(f"This run leaked [bold red]beyond[/] what {scheme} declares: {escape(', '.join(ids))}.")
    else:
        were = counted(len(weak), "declared weakness", "declared weaknesses")
        shown = f"{were} found" if weak else "no weakness was found"
        idle = {**document["unanswered"], **document["nothing_to_ask"]}
        asked = escape(", ".join(name for name in document["questions"] if name not in idle))
        style = "green" if document["published_claim"]["status"] != REFUTED else "yellow"
        text = f"[{style}]This run leaked nothing beyond what {scheme} declares[/]"
        if document["not_shown"]:
            text = f"[bold yellow]Not everything was shown[/]; nothing beyond what {scheme} declares was found"
        out.print(f"{text} ({shown}; asked: {asked}).")
    if document.get("part"):
        out.print(f"This was asked of a part of this large run: {document['part']}.", markup=False)
    for question, why in document["nothing_to_ask"].items():
        out.print(f"Nothing to ask: {question}. {escape(why)}")
    for line in not_shown_lines(document):
        out.print(line)
    if document["parties"]:
        show_parties(document["parties"])


def not_shown_lines(document: dict[str, Any]) -> list[str]:
    """Put into words what the audit could not show, one line for each reason."""
    lines = []
    for row in document["not_shown"][:MOST_NOT_SHOWN]:
        whose = f" ({' + '.join(row['coalition'])})" if row["coalition"] else ""
        lines.append(f"[bold yellow]Not shown[/]: {row['question']}{escape(whose)}. {escape(row['reason'])}")
    rest = len(document["not_shown"]) - len(lines)
    return [*lines, f"[bold yellow]Not shown[/]: {rest} more; --json has all of them."] if rest else lines


_CLAIMS = {  # status -> style, and the verb
    HOLDS: ("bold green", "holds"),
    REFUTED: ("bold yellow", "is refuted"),
    NOT_TESTED: ("bold", "was not tested"),
}


def show_claim(document: dict[str, Any]) -> None:
    """Print whether the published claim holds, a different question from whether this run leaked more than declared."""
    claim = document["published_claim"]
    style, verb = _CLAIMS[claim["status"]]
    what = f" {escape(claim['claim'])}" if claim["claim"] else ""
    what = f",{what}," if "," in what else what
    out.print(f"The published claim{what} [{style}]{verb}[/]: {escape(claim['why'])}")


def show_about(about: dict[str, Any]) -> None:
    """Print what each coalition knows of one user."""
    who = about["user"] if about["user"] == about["party"] else f"{about['user']} ({about['party']})"
    if about["rows"] is None:
        out.print(f"What is known of {who} was not asked: it is the algebra that says so.", markup=False)
        return
    table = plain_table(f"What each coalition knows of {who}", "who", "knows")
    for row in about["rows"]:
        style = {"exact": "bold red", "noisy": "yellow"}.get(row["knows"], "")
        words = f"[{style}]{escape(row['words'])}[/]" if style else escape(row["words"])
        one_of = "" if row["stands_for"] == 1 else f", alone as {row['stands_for'] - 1} others at its level"
        table.add_row(escape(" + ".join(named(row)) + one_of), words)
    out.print(table)


def show_parties(rows: list[dict[str, Any]]) -> None:
    """Print what each party can work out; on a narrow terminal, sentences below the table say what each one saw."""
    narrow = out.width < WIDE
    out.print(party_table(rows, with_saw=not narrow))
    for sample in dict.fromkeys(row["sample"] for row in rows if row.get("sample")):
        out.print(f"The algebra was {sample}.", markup=False)
    for row in rows if narrow else ():
        if len(row["members"]) == 1 and row["saw"] is not None:
            out.print(f"{name_of(row)} saw: {'; '.join(row['saw'] or ['no numbers'])}.", markup=False)


def party_table(rows: list[dict[str, Any]], with_saw: bool = True) -> Table:
    shown = party_rows(rows)
    with_measured = any(row.measured for row in shown)
    with_saw = with_saw and any(row["saw"] is not None for row in rows)
    columns = ["who", *(["saw"] if with_saw else []), "can work out (exact algebra)", "permitted"]
    table = plain_table("Who can work out what", *columns, *(["measured"] if with_measured else []))
    for row in shown:
        works_out = escape(row.learned)
        cells = [escape(row.saw or NOT_ASKED)] if with_saw else []
        cells.append(f"[bold]{works_out}[/]" if row.standing in (DECLARED, BEYOND) else works_out)
        measured = [escape(next(iter(row.measured), "–"))] if with_measured else []
        table.add_row(escape(row.who), *cells, escape(row.permitted), *measured)
    return table


def _show_findings(document: dict[str, Any], everything: bool) -> None:
    """Print the gravest finding of each id, or with `everything` all findings and their evidence."""
    found = document["findings"]
    if everything:
        for finding in found:
            _show_in_full(finding)
        return
    grave = [finding for finding in found if finding["severity"] != "info"]
    by_id = Counter(finding["id"] for finding in grave)
    others = len(found) - len(grave)
    hidden = f"; not shown: {counted(others, 'check')} that found nothing grave" if others else ""
    table = plain_table(f"Findings (the gravest of each kind{hidden})", "", "id", "finding")
    for id_, number_ in by_id.items():
        first = next(finding for finding in grave if finding["id"] == id_)
        cells = [f"{id_} ({number_})" if number_ > 1 else id_, first["title"]]
        table.add_row(f"[{_STYLES[first['severity']]}]{word_of(first)}[/]", *map(escape, cells))
    if grave:
        out.print(table)


def _show_in_full(finding: dict[str, Any]) -> None:
    """Print a finding as a paragraph, as columns would be too narrow for sentences."""
    style, by = _STYLES[finding["severity"]], " + ".join(finding["coalition"]) or "a reader of the releases"
    out.print(f"[{style}]{word_of(finding)}[/] [bold]{finding['id']}[/] ({escape(by)})")
    for name in ("title", "confidence", "evidence"):
        if finding[name]:
            text = finding[name] if name == "title" else f"{name}: {finding[name]}"
            out.print(Padding(escape(text), (0, 0, 0, 4)))


QUANTILES = ("median", "p99", "worst")


def _show_accounting(accounting: dict[str, Any]) -> None:
    claimed = accounting.get("claimed")
    if claimed is None or math.isinf(claimed):
        return
    if not accounting.get("rows"):
        _show_composed(accounting)
        show_colluders(accounting)
        _show_to_a_user(accounting)
        return
    table = plain_table(
        f"ε of a {accounting['unit']}, claimed {figure(claimed)} (at δ = {accounting['delta']:g})",
        "to whom", "median item", "99 %", "worst item",
    )  # fmt: skip
    for row in accounting["rows"]:
        table.add_row(escape(row["to"]), *(figure(row[key]) if row[key] is not None else "" for key in QUANTILES))
    out.print(table)
    _show_to_a_user(accounting)


def show_colluders(accounted: dict[str, Any]) -> None:
    """Print what is left of ε if users give their shares of the noise away, where that is one figure."""
    left = accounted.get("colluders") or {}
    if not left or not all(isinstance(epsilon, float | int | str) for epsilon in left.values()):
        return
    rows = [(users if users != "0" else "none", figure(epsilon)) for users, epsilon in left.items()]
    print_table("If users collude", ("users that tell their shares of the noise", "ε left"), rows, numbers=1)


def _show_to_a_user(accounting: dict[str, Any]) -> None:
    """Print in one line the ε of a rating to other users."""
    found = accounting.get("to_a_user")
    if found is None:
        return
    rated = found["rated"]["all_releases"]
    if isinstance(rated, dict):
        rated = f"{figure(rated['median'])} of the median item, {figure(rated['worst'])} of the worst"
    else:
        rated = f"{figure(rated)} at most"
    others = "nothing, by --publish rated" if found["published"] == "rated" else f"{figure(found['not_rated'])} at most"
    if found.get("committed"):
        others += f" ({figure(found['committed']['median'])} where it committed to the noise, median item)"
    out.print(
        f"To another user, all releases: ε {rated}, if it rated the item too; from the published factors of an item "
        f"that it did not rate: {others}.",
        markup=False,
    )


_COMPOSED = {  # figures of `composed` that a person should see
    "claimed": "what the budget says",
    "published_formula": "by the paper's formula",
    "tight": "accounted",
    "vector": "of a whole vector",
    "two_users_most": "between the two users with the most ratings",
}


def _show_composed(accounting: dict[str, Any]) -> None:
    """Print the figures of a scheme that releases nothing repeatedly."""
    composed = accounting.get("composed", {})
    parts = [f"{words} {figure(composed[key])}" for key, words in _COMPOSED.items() if composed.get(key) is not None]
    if not parts:
        return
    at = f" (at δ = {composed['delta']:g})" if composed.get("delta") else ""
    out.print(f"ε per {accounting['unit']}{at}: {', '.join(parts)}.", markup=False)


def _show_empirical(empirical: dict[str, Any], everything: bool) -> None:
    if not empirical["rows"]:
        out.print(f"No canary was run: {empirical.get('note', 'nothing is claimed')}", markup=False)
        return
    together, runs = f"{100 * empirical['confidence']:g} %", empirical["repetitions_in_all"]
    title = (
        f"ε measured on a canary: lower bounds at 95 % (each row alone) and at {together} (all rows together) "
        f"({runs} repetitions, {empirical['repetitions_per_processor_second']:,.0f} per second of processor time)"
    )
    if empirical.get("cached"):
        title += ", played before for this scheme and ε and taken from this account's cache"
    table = plain_table(title, "who", "from", "ε ≥, alone", "ε ≥, jointly", "claimed", "could show")
    for row in empirical["rows"]:
        if not everything and row["arm"] not in ("release", OWN) and not row["exceeds"]:
            continue
        who = "+".join(row["coalition"]) or "a reader of the releases"
        bound = f"[bold]{row['lower_bound']:.2f}[/]" if row["exceeds"] else f"{row['lower_bound']:.2f}"
        most = number(row["certifiable_95"], 1)
        words = f"{row['statistic']} ({row['arm']})"
        table.add_row(escape(who), escape(words), f"{row['lower_bound_95']:.2f}", bound, figure(row["claimed"]), most)
    out.print(table)
    for words in filter(None, (looks_in_words(empirical.get("looks")), own_in_words(empirical.get("own_ratings")))):
        out.print(words, markup=False)
