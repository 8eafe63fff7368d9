"""The coalition explorer: tick parties, and read what that set can work out and what its attacks achieved."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

from protocol.errors import BadInput
from protocol.schemes.base import LEVELS
from sim.audit.coalitions import Coalition
from sim.audit.findings import Finding, goes_beyond, word_of
from sim.report.explorer.about_user import known_of_each
from sim.report.explorer.party_sets import MOST_TURNS, Answered, Document, Explored, explore, weight
from sim.report.explorer.set_attacks import add_attacks
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render
from sim.tables.party_rows import BEYOND, COLLUSION, DECLARED, WITHIN, in_short, standing_of

TITLE = "Who can work out what together"
ROUNDING = 1e-6  # of a fraction of noise
_NOISE = {"eta": "η", "rho": "ρ"}
_NOT_CLAIMED = "that these do not collude"
_SEVERITY = {"break": "bad", "weak": "weak", "info": "good"}
_KEPT = {
    COLLUSION: ("", ""),
    WITHIN: ("good", "no more than that"),
    DECLARED: ("weak", "more than that, as the scheme declares"),
    BEYOND: ("bad", "more than that"),
}


def section(run: ReportedRun) -> Section:
    missing = _missing(run.audit)
    if not missing:
        try:
            solves = run.live.turns <= MOST_TURNS
            return _shown(run, run.live.remember("explorer", lambda: _told(run)) if solves else _told(run))
        except BadInput as reason:
            missing = str(reason)
    return Section("explorer", TITLE, render("explorer.html", missing=missing), "Coalitions")


def _told(run: ReportedRun) -> Document:
    explored = explore(run.live, run.audit)
    add_attacks(run.live, run.audit, explored.sets)
    return _words(run, explored)


def _words(run: ReportedRun, explored: Explored) -> Document:
    return {
        "choices": [dataclasses.asdict(choice) for choice in explored.choices],
        "first": _first(explored),
        "notes": explored.notes,
        "rows": [_row(one, explored, run.scheme.known_weaknesses) for one in explored.sets.values()],
        "attacked": sum(bool(one.attacks) for one in explored.sets.values()),
    }


def _shown(run: ReportedRun, told: Document) -> Section:
    html = render(
        "explorer.html",
        missing="",
        **told,
        command=f"keyhole audit {shlex.quote(str(run.folder))} --coalition ",
        about=known_of_each(run.folder, run.audit, run.params.n_users),
    )
    return Section("explorer", TITLE, html, "Coalitions")


def _missing(document: Document) -> str:
    """Say why there is nothing to explore; empty if there is something."""
    if document.get("coalitions"):
        return ""
    for reasons in ("unanswered", "nothing_to_ask"):
        if why := document.get(reasons, {}).get("algebra"):
            return str(why)
    return "The audit was not asked what the views tell (algebra): it needs the view of every party, --views full."


def _first(explored: Explored) -> str:
    names = [choice.party for choice in explored.choices]
    return "recommender" if "recommender" in names else names[0]


def _row(one: Answered, explored: Explored, known: Sequence[str]) -> dict[str, Any]:
    row = one.row
    return {
        "key": "+".join(one.members),
        "who": " + ".join(one.members),
        "tone": tone(row),
        "level": row["determines"],
        "short": in_short(row),
        "least": " + ".join(one.least),
        "detail": row["works_out"],
        "facts": facts(row),
        "claimed": _NOT_CLAIMED if one.least and len(one.members) > 1 else row["claimed"],
        "kept": ("", "") if one.least and len(one.members) > 1 else kept(row),
        "together": together(one.members, explored.sets),
        "attacks": None if one.attacks is None else [_attack(finding, known) for finding in one.attacks],
        "unattacked": one.unattacked,
    }


def tone(row: Document) -> str:
    """Colour `row` by how close its knowledge is to a single user; the text beside it says if that was claimed."""
    if row["determines"] in ("noisy-individual", "exact-individual"):
        return "weak" if row["determines"] == "noisy-individual" else "bad"
    bare = row["sums"] > 0 and not row["noise_left"]
    return "weak" if row["single_contributor_sums"] or bare else "good"


def facts(row: Document) -> str:
    group, sums = row["smallest_group"], row["single_contributor_sums"]
    parts = [f"smallest group {'none' if group is None else group}", f"sums of one contributor {sums}"]
    left = [f"{100 * part:.3g} % of {_NOISE.get(kind, kind)}" for kind, part in row["noise_left"].items()]
    if row["determines"] != "nothing":
        parts.append(f"noise left {' and '.join(left) or 'none that is followed'}")
    return ", ".join(parts).capitalize() + "."


def kept(row: Document) -> tuple[str, str]:
    """Give (tone, words) on the claim about a party; about a coalition, only its not colluding is claimed."""
    return _KEPT[standing_of(row)]


def together(members: Coalition, sets: dict[Coalition, Answered]) -> str:
    """Say whether `members` learn more together than each of them alone."""
    if len(members) == 1:
        return "One party alone."
    if sets[members].least:
        return f"Not computed for this page: at least what {' + '.join(sets[members].least)} knows."
    alone = [sets[(name,)].row for name in members if (name,) in sets]
    if len(alone) < len(members):
        left_out = ", ".join(name for name in members if (name,) not in sets)
        return f"Not known: {left_out} alone was not asked about."
    most = max(alone, key=weight)
    best = f"{most['members'][0]} alone works out {in_short(most)}"
    row = sets[members].row
    ours, theirs = LEVELS.index(row["determines"]), LEVELS.index(most["determines"])
    if ours < theirs:
        return f"No: {best}, but whom it reads is a member here."
    if ours > theirs:
        return f"Yes, a higher level: {best} at most."
    peers = [other for other in alone if other["determines"] == row["determines"]]
    if gain := _gain(row, peers):
        return f"Yes, at the same level {gain}: {best}."
    return f"No, neither by level nor by users, groups or noise: {best}. (Members do not count as read.)"


def _gain(row: Document, peers: list[Document]) -> str:
    """Name what a set gains over all of `peers`, its members that reach the same level alone."""
    if row["individuals"] > max(peer["individuals"] for peer in peers):
        return "more users"
    groups = [peer["smallest_group"] for peer in peers if peer["smallest_group"]]
    if row["smallest_group"] and (not groups or row["smallest_group"] < min(groups)):
        return "smaller groups"
    return "less noise" if all(_less_noise(row["noise_left"], peer["noise_left"]) for peer in peers) else ""


def _less_noise(ours: dict[str, float], theirs: dict[str, float]) -> bool:
    pairs = [(ours.get(kind, 0.0), theirs.get(kind, 0.0)) for kind in {*ours, *theirs}]
    return all(one <= other + ROUNDING for one, other in pairs) and any(one < other - ROUNDING for one, other in pairs)


def _attack(finding: Finding, known: Sequence[str]) -> dict[str, str]:
    chance = _chance(finding.chance)
    words = [f"chance: {chance}" if chance else "no chance to compare with", finding.confidence or "no confidence"]
    return {
        "tone": _SEVERITY[finding.severity],
        "word": word_of(dataclasses.asdict(finding) | {"beyond": goes_beyond(finding, known)}),
        "id": finding.id,
        "title": finding.title,
        "beside": "; ".join(words),
    }


def _chance(chance: Any) -> str:
    if isinstance(chance, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_figure(value)}" for name, value in chance.items())
    return "" if chance is None else _figure(chance)


def _figure(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
