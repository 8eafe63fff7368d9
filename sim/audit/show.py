"""What people read of `keyhole audit`: a verdict that takes ten seconds, then the findings."""

from __future__ import annotations

import math
import sys
from collections import Counter
from typing import Any

from rich.markup import escape
from rich.table import Table

from protocol.schemes.base import LEVELS
from sim.show import err, figure, number, out, plain_table

_STYLES = {"break": "bold red", "weak": "yellow", "info": "green"}


class Asking:
    """Which question is being asked, on a terminal alone."""

    def __init__(self, enabled: bool) -> None:
        self._status = err.status("reading") if enabled and sys.stderr.isatty() else None

    def __enter__(self) -> Asking:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._status:
            self._status.stop()

    def __call__(self, question: str) -> None:
        if self._status:
            self._status.update(f"asking: {question}")


def show_audit(document: dict[str, Any], everything: bool) -> None:
    """`everything`: harmless findings too, and the evidence."""
    show_verdict(document)
    _show_findings(document, everything)
    if document["accounting"]:
        _show_accounting(document["accounting"])
    if document["empirical"]:
        _show_empirical(document["empirical"], everything)
    asked = ", ".join(f"{question} {seconds:.1f}" for question, seconds in document["questions"].items())
    total = sum(document["questions"].values())
    out.print(f"Asked in {total:.1f} s ({asked}). Everything, with its evidence: --all or --json.", markup=False)


def show_verdict(document: dict[str, Any]) -> None:
    """What is understood in ten seconds."""
    known, found = document["known_weaknesses"], document["findings"]
    ids = dict.fromkeys(finding["id"] for finding in found if goes_beyond(finding, known))
    weak = dict.fromkeys(finding["id"] for finding in found if finding["severity"] == "weak" and finding["id"] in known)
    scheme = f"[bold]{escape(document['scheme'])}[/]"
    if ids:
        out.print(f"{scheme} goes [bold red]beyond its claims[/]: {escape(', '.join(ids))}.")
    else:
        shown = f"{len(weak)} weaknesses that it declares were found" if weak else "No weakness was found"
        asked = escape(", ".join(document["questions"]))
        out.print(f"{scheme} stays [bold green]within its claims[/]. {shown} (asked: {asked}).")
    if document["parties"]:
        out.print(party_table(document["parties"]))


def goes_beyond(finding: dict[str, Any], known: list[str]) -> bool:
    return finding["severity"] == "break" or (finding["severity"] == "weak" and finding["id"] not in known)


def party_table(rows: list[dict[str, Any]]) -> Table:
    with_measured = any(row["measured"] for row in rows)
    columns = ("who", "saw", "can work out (exact algebra)", "claimed", *(("measured",) if with_measured else ()))
    table = plain_table("Who can work out what", *columns)
    for row in rows:
        beyond = row["permitted"] is not None and LEVELS.index(row["determines"]) > LEVELS.index(row["permitted"])
        works_out = escape(in_short(row))
        table.add_row(
            escape(name_of(row)),
            escape("; ".join(row["saw"]) if len(row["members"]) == 1 else "these views together"),
            f"[bold]{works_out}[/]" if beyond else works_out,
            escape(row["permitted"] or "no collusion"),
            *([escape("; ".join(row["measured"][:1]) or "–")] if with_measured else []),
        )
    return table


def in_short(row: dict[str, Any]) -> str:
    level, users = row["determines"], row["individuals"]
    whose = f"{users} user{'s' if users != 1 else ''}"
    words = {
        "nothing": "nothing",
        "aggregate": f"sums of ≥ {row['smallest_group']} users" if row["smallest_group"] else "published figures",
        "noisy-individual": f"noisy {row['of']}s of {whose}",
        "exact-individual": f"exact {row['of']}s of {whose}",
    }[level]
    return words + (f", {row['items']} items of one contributor" if row["items"] else "")


def name_of(row: dict[str, Any]) -> str:
    name = " + ".join(row["members"])
    return name if row["stands_for"] == 1 else f"{row['stands_for']} users such as {name}"


def _show_findings(document: dict[str, Any], everything: bool) -> None:
    """One of each id, the gravest; or all."""
    known, by_id = document["known_weaknesses"], Counter(finding["id"] for finding in document["findings"])
    shown = [finding for finding in document["findings"] if everything or finding["severity"] != "info"]
    if not everything:
        first: dict[str, dict[str, Any]] = {}
        for finding in shown:
            first.setdefault(finding["id"], finding)
        shown = list(first.values())
    harmless = sum(finding["severity"] == "info" for finding in document["findings"])
    hidden = "" if everything else f" (the gravest of each kind; {harmless} checks that found nothing are not shown)"
    table = plain_table(f"Findings{hidden}", "", "id", "finding", *(("confidence", "evidence") if everything else ()))
    for finding in shown:
        word = finding["severity"] if goes_beyond(finding, known) or finding["severity"] == "info" else "declared"
        cells = [finding["id"], finding["title"]]
        if everything:
            by = "+".join(finding["coalition"])
            cells = [finding["id"], f"{by}: {finding['title']}", finding["confidence"] or "", finding["evidence"]]
        elif by_id[finding["id"]] > 1:
            cells[0] += f" ({by_id[finding['id']]})"
        table.add_row(f"[{_STYLES[finding['severity']]}]{word}[/]", *map(escape, cells))
    if shown:
        out.print(table)


def _show_accounting(accounting: dict[str, Any]) -> None:
    claimed = accounting.get("claimed")
    if claimed is None or "one_release" not in accounting or math.isinf(claimed):
        return
    table = plain_table(
        f"ε of a rating's value, claimed {figure(claimed)} per release (at δ = {accounting['delta']:g})",
        "to whom", "median item", "99 %", "worst item",
    )  # fmt: skip
    composed = accounting["composed"]
    tight = f"{figure(composed['tight'])} (basic {figure(composed['basic'])}, advanced {figure(composed['advanced'])})"
    table.add_row(f"without envelopes, {composed['releases']} releases", tight, "", "")
    lines = {"with the envelopes, one release": accounting["one_release"]["even"]}
    lines["with the envelopes, all releases"] = accounting["all_releases"]["even"]
    for count, figures in accounting["colluders"].items():
        if figures is not None:
            lines[f"and {count} colluding, one release"] = figures["one_release"]
    for words, row in lines.items():
        if row is not None:
            table.add_row(words, *(figure(row[key]) for key in ("median", "p99", "worst")))
    out.print(table)


def _show_empirical(empirical: dict[str, Any], everything: bool) -> None:
    if not empirical["rows"]:
        out.print(f"No canary was run: {empirical.get('note', 'nothing is claimed')}", markup=False)
        return
    title = (
        f"ε measured on a canary: lower bounds at {empirical['confidence']:.0%}, jointly "
        f"({empirical['repetitions_in_all']} runs of the roles, {empirical['repetitions_per_second']:.0f} per second)"
    )
    table = plain_table(title, "who", "from", "ε at least", "claimed", "could show")
    for row in empirical["rows"]:
        if not everything and row["arm"] != "release" and not row["exceeds"]:
            continue
        who = "+".join(row["coalition"]) or "whoever sees item factors"
        bound = f"[bold]{row['lower_bound']:.2f}[/]" if row["exceeds"] else f"{row['lower_bound']:.2f}"
        most = number(row["certifiable"], 1)
        words = f"{row['statistic']} ({row['arm']})" if everything else row["statistic"]
        table.add_row(escape(who), escape(words), bound, figure(row["claimed"]), most)
    out.print(table)
