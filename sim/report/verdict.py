"""The top of the page: the audit's verdict in one sentence, and who saw what, can work out what, at which ε."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.roles import user_name
from protocol.schemes.base import LEVELS
from sim.audit.attacks.scoring import counted
from sim.audit.findings import goes_beyond
from sim.audit.show import in_short, name_of
from sim.audit.verdict import permitted, saw
from sim.report.material import Material
from sim.report.section import Section, render
from sim.report.verdict_cards import accuracy, facts, traffic
from sim.report.verdict_epsilon import OUTSIDER, Cell, accounted, accounted_unit, claimed, claimed_unit, measured

_EXPOSED = {"nothing": "good", "aggregate": "good", "noisy-individual": "weak", "exact-individual": "bad"}
_NO_NUMBERS = "no numbers"


@dataclass(frozen=True, slots=True)
class Row:
    who: str
    saw: str
    works_out: str
    style: str
    standing: str  # against the claim
    attack: str
    claimed: Cell
    accounted: Cell
    measured: Cell


@dataclass(frozen=True, slots=True)
class Sentence:
    style: str
    headline: str
    beyond: list[str]  # ids of findings
    gravest: str  # what the first of them says
    declared: list[str]
    notes: list[str]


def section(material: Material) -> Section:
    rows = table_rows(material)
    html = render(
        "verdict.html",
        told=sentence(material),
        rows=rows,
        claimed_unit=claimed_unit(material.case),
        accounted_unit=accounted_unit(material.audit),
        reading=how_to_read(material),
        accuracy=accuracy(material),
        traffic=traffic(material),
        facts=facts(material),
    )
    return Section("verdict", "Verdict", html)


# --- the sentence ----------------------------------------------------------------------------------------------------


def sentence(material: Material) -> Sentence:
    audit, name = material.audit, material.scheme.name
    known, found = audit["known_weaknesses"], audit["findings"]
    beyond = [finding for finding in found if goes_beyond(finding["severity"], finding["id"], known)]
    ids = list(dict.fromkeys(finding["id"] for finding in beyond))
    weak = [finding["id"] for finding in found if finding["severity"] == "weak" and finding["id"] not in ids]
    style, headline = "good", f"{name} stays within its claims"
    if exposed := [role for role, level in material.scheme.permits.items() if level == LEVELS[-1]]:
        whom = " and the ".join(exposed)  # nobody is to take this for protection
        style, headline = "weak", f"{headline}, which let the {whom} see exact numbers of single users"
    if audit["verdict"] is None:
        style, headline = "weak", "There is no verdict"
    elif audit["verdict"] == "beyond-claims":
        style, headline = "bad", f"{name} goes beyond its claims"
    elif material.summary["abort"] is not None:
        style, headline = "weak", f"{headline} until it was aborted"
    if audit["unanswered"] and audit["verdict"] is not None:
        style, headline = "bad" if style == "bad" else "weak", f"{headline}, as far as it could be asked"
    if material.summary["privacy"]["claimed_epsilon"] == "inf" and audit["verdict"] is not None:
        style, headline = "bad" if style == "bad" else "weak", f"{headline}; ε = ∞ bounds nothing"
    return Sentence(
        style, headline, ids, beyond[0]["title"] if beyond else "", list(dict.fromkeys(weak)), _notes(material)
    )


def _notes(material: Material) -> list[str]:
    """What limits the verdict: an end before time, and questions that were not asked."""
    abort, audit = material.summary["abort"], material.audit
    notes = []
    if abort is not None:
        notes.append(
            f"The run was aborted: {abort['sentence'].rstrip('.')}. All of this is about what was seen until then."
        )
    for words, questions in (("Not answered", audit["unanswered"]), ("Nothing to ask", audit["nothing_to_ask"])):
        by_reason: dict[str, list[str]] = {}
        for question, why in questions.items():
            by_reason.setdefault(why, []).append(question)
        notes += [f"{words}: {', '.join(names)}. {why.rstrip('.')}." for why, names in by_reason.items()]
    return notes


# --- the table -------------------------------------------------------------------------------------------------------


def table_rows(material: Material) -> list[Row]:
    """One for each row of the audit, and one for whoever sees the releases alone, if anything is known of that."""
    audit = material.audit
    rows = [_row(material, row) for row in audit["parties"] or _unsolved(material)]
    cells = [accounted(audit, material.case, OUTSIDER), measured(audit, OUTSIDER, None)]
    if any(cell.figure != "–" for cell in cells):
        words = ("whoever sees the releases alone", "what is released", "not asked", "", "", "")
        rows.append(Row(*words, claimed(material.case, OUTSIDER), *cells))
    return rows


def _row(material: Material, row: dict[str, Any]) -> Row:
    members, level = row["members"], row["determines"]
    told = "; ".join(row["saw"] or [_NO_NUMBERS]) if row["saw"] is not None else "not known: no view was kept"
    works_out, style, standing = "not asked", "", ""
    if level is not None:
        works_out, standing = in_short(row), _standing(row)
        style = "weak" if row["items"] and level == "aggregate" else _EXPOSED[level]
    return Row(
        name_of(row),
        told if len(members) == 1 else "these views together",
        works_out,
        style,
        standing,
        next((words for words in row["measured"] if "canary" not in words), ""),
        claimed(material.case, members),
        accounted(material.audit, material.case, members),
        measured(material.audit, members, level),
    )


def _standing(row: dict[str, Any]) -> str:
    if row["permitted"] is None:
        return "if they collude"
    if LEVELS.index(row["determines"]) <= LEVELS.index(row["permitted"]):
        return f"claimed: {row['permitted']} at most"
    words = "a declared weakness" if row["declared"] else "beyond its claim"
    return f"{words}; claimed: {row['permitted']} at most"


def _unsolved(material: Material) -> list[dict[str, Any]]:
    """Without the algebra: every server, and one user for all, with what they saw where that is known."""
    case, inventory = material.case, material.audit["inventory"]
    users = case.card.params.n_users
    rows = []
    for party, stands_for in (*((server, 1) for server in material.scheme.servers), (user_name(0), users)):
        has_view = case.path(party).is_file()
        rows.append(
            {
                "members": [party],
                "stands_for": stands_for,
                "saw": saw(case, [party], inventory) if has_view else None,
                "determines": None,
                "permitted": permitted(material.scheme, [party]),
                "measured": [],
            }
        )
    return rows


def how_to_read(material: Material) -> list[tuple[str, str]]:
    """What each of the columns with an ε is; a sentence each."""
    empirical, accounting = material.audit["empirical"], material.audit["accounting"] or {}
    words = [("Claimed", f"is what the scheme says of itself, not a measurement: “{material.scheme.claims}”")]
    if claimed_unit(material.case):
        words[0] = ("Claimed", f"{words[0][1]} Its ε is of: {material.scheme.unit}.")
    if "composed" in accounting:
        words.append(
            (
                "Accounted",
                "is computed from what this run released; it is no measurement either. The method is under Findings.",
            )
        )
    if empirical and empirical["rows"]:
        problem = empirical["problem"]
        sizes = f"{counted(problem['users'], 'user')}, {counted(problem['items'], 'item')}, dim {problem['dim']}"
        levels = " and ".join(f"{each:g}" for each in problem["epsilons"])
        words.append(
            (
                "Measured",
                f"is a lower bound from {empirical['repetitions_in_all']:,} repetitions of a small problem ({sizes}; "
                f"ε = {levels}) through the same roles: all bounds hold together with "
                f"{100 * empirical['confidence']:g} % "
                "confidence. A bound below its claim proves no claim.",
            )
        )
    return words
