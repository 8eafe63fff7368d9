"""The section "Who learns what": one sentence about each adversary, and a folded table of all that were asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.party.role import user_index, user_name
from sim.audit.accounting.epsilon_cells import OUTSIDER, EpsilonEntry
from sim.audit.verdict import permitted, saw
from sim.console.console import counted
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render
from sim.report.verdict.three_epsilons import accounted, accounted_unit, claimed, claimed_unit, measured
from sim.tables.first_screen import chosen, known_words
from sim.tables.party_rows import BEYOND, COLLUSION, DECLARED, WITHIN, party_rows, standing_of

ID, TITLE = "parties", "Who learns what"
EXPOSED = {"nothing": "good", "aggregate": "good", "noisy-individual": "weak", "exact-individual": "bad"}
_STANDS = {
    COLLUSION: "The scheme assumes that they do not collude.",
    WITHIN: "That is no more than the scheme lets it see.",
    DECLARED: "That is more than the scheme lets it see, and declared as a weakness.",
    BEYOND: "That is more than the scheme lets it see.",
}
_STANDING = {  # the same in the table; {} is the level that is permitted
    COLLUSION: "if they collude",
    WITHIN: "claimed: {} at most",
    DECLARED: "a declared weakness; claimed: {} at most",
    BEYOND: "beyond its claim; claimed: {} at most",
}


@dataclass(frozen=True, slots=True)
class PartyLine:
    who: str
    saw: str
    works_out: str
    style: str
    standing: str  # against the claim
    attack: str
    claimed: EpsilonEntry
    accounted: EpsilonEntry
    measured: EpsilonEntry


@dataclass(frozen=True, slots=True)
class Adversary:
    """One line about a party or a coalition: its name, what it learns, and how that compares with the claim."""

    who: str
    verb: str
    style: str
    learns: str
    measured: str  # the best attack
    standing: str


def section(run: ReportedRun) -> Section:
    html = render(
        "parties.html",
        adversaries=adversaries(run),
        rows=table_rows(run),
        claimed_unit=claimed_unit(run.case),
        accounted_unit=accounted_unit(run.audit),
        reading=how_to_read(run),
    )
    return Section(ID, TITLE, html, "Adversaries")


# --- one sentence each -----------------------------------------------------------------------------------------------


def adversaries(run: ReportedRun) -> list[Adversary]:
    """List the adversaries of the terminal's first screen, in its words; without the algebra, every kind of party."""
    rows = run.audit["parties"]
    if not rows:
        unsolved = [" + ".join(row["members"]) for row in _unsolved(run)]
        return [Adversary(_who(name), "", "", "", "", "") for name in unsolved]
    found = []
    for name, row in chosen(rows):
        verb, words = "learns" if len(row["members"]) == 1 else "learn", known_words(row, run.summary["users"])
        attack = next(iter(row["measured"]), "")
        found.append(Adversary(_who(name), verb, style_of(row), words, attack, _STANDS[standing_of(row)]))
    return found


def _who(name: str) -> str:
    """Begin `name` with a capital letter, unless it is the name of a user."""
    if user_index(name.partition(" + ")[0]) >= 0:
        return name
    return {"both servers": "Both servers together", "a user alone": "A user alone"}.get(name, f"The {name}").replace(
        "_", " "
    )


def style_of(row: Mapping[str, Any]) -> str:
    """Colour `row` by how close its knowledge is to a single user."""
    level = row["determines"]
    told = row["items"] or (row.get("support") and len(row["members"]) == 1)
    return "weak" if told and EXPOSED[level] == "good" else EXPOSED[level]


# --- the table -------------------------------------------------------------------------------------------------------


def table_rows(run: ReportedRun) -> list[PartyLine]:
    """Make one row for each row of the audit, and one for an observer of the releases alone, if it has a figure."""
    audit = run.audit
    rows = [_row(run, row) for row in audit["parties"] or _unsolved(run)]
    cells = [accounted(audit, run.case, OUTSIDER), measured(audit, OUTSIDER, None)]
    if any(cell.figure != "–" for cell in cells):
        words = ("a reader of the releases alone", "what is released", "not asked", "", "", "")
        rows.append(PartyLine(*words, claimed(run.case, OUTSIDER), *cells))
    return rows


def _row(run: ReportedRun, row: dict[str, Any]) -> PartyLine:
    (shown,), members, level = party_rows([row]), row["members"], row["determines"]
    asked = level is not None
    return PartyLine(
        shown.who,
        shown.saw or "not known: no view was kept",
        shown.works_out,
        style_of(row) if asked else "",
        _STANDING[shown.standing].format(row["permitted"]) if asked else "",
        next((words for words in row["measured"] if "canary" not in words), ""),
        claimed(run.case, members),
        accounted(run.audit, run.case, members),
        measured(run.audit, members, level),
    )


def _unsolved(run: ReportedRun) -> list[dict[str, Any]]:
    """Make rows without the algebra: every server, and one user for all, with what they saw if that is known."""
    case, inventory = run.case, run.audit["inventory"]
    users = case.card.params.n_users
    rows = []
    for party, stands_for in (*((server, 1) for server in run.scheme.servers), (user_name(0), users)):
        has_view = case.path(party).is_file()
        rows.append(
            {
                "members": [party],
                "stands_for": stands_for,
                "saw": saw(case, [party], inventory) if has_view else None,
                "determines": None,
                "permitted": permitted(run.scheme, [party]),
                "measured": [],
            }
        )
    return rows


def how_to_read(run: ReportedRun) -> list[tuple[str, str]]:
    """Explain each column of ε in a sentence."""
    empirical, accounting = run.audit["empirical"], run.audit["accounting"] or {}
    words = [("Claimed", f"is what the scheme says of itself, not a measurement: “{run.scheme.claims}”")]
    if claimed_unit(run.case):
        words[0] = ("Claimed", f"{words[0][1]} Its ε is of: {run.scheme.unit}.")
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
