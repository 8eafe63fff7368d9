"""One row per party and coalition: what it saw, can work out, was claimed to learn, and was measured to learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from protocol.party.role import role_of, user_index
from protocol.schemes import Scheme
from protocol.schemes.base import LEVELS
from protocol.wire.fields import field_kinds
from sim.audit.algebra.solve import Solved, detail
from sim.audit.families.registry import family_of
from sim.audit.findings import SUPPORT, Finding
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

FEW = 10  # with fewer ratings than this, no figure is shown
MOST_MEASURED = 2  # figures in one row; the findings have all of them

_TOLD_SUPPORT = "which items each user rated"  # wording of the schemes' leakage policies
_WEIGHT = {"break": 0, "weak": 1, "info": 2}
# the most telling findings about a coalition come first
_ORDER = (
    "difference-attack",
    "unmasking",
    "uniform-noise",
    "rating-inference",
    "missing-noise",
    "known-envelope",
    "known-shares",
    "released-sums",
)


def verdict_rows(
    case: Case, solved: Sequence[Solved], inventory: Sequence[dict[str, Any]] | None, findings: Sequence[Finding]
) -> list[dict[str, Any]]:
    return [
        {
            "members": list(one.members),
            "stands_for": one.stands_for,
            "saw": saw(case, one.members, inventory, findings),
            "support": knows_support(one.members, inventory, findings),
            "determines": one.answer.determines,
            "works_out": detail(one),
            "sample": one.sample or None,
            "individuals": one.answer.individuals,
            "smallest_group": one.answer.smallest_group,
            "items": one.answer.single_items,
            "of": one.answer.what,
            "permitted": permitted(case.card.scheme, one.members),
            "claimed": claimed(case, one.members),
            "measured": measured(one, findings),
            "declared": _is_declared(case, one, findings),
        }
        for one in solved
    ]


def saw(
    case: Case, members: Sequence[str], inventory: Sequence[dict[str, Any]] | None, findings: Sequence[Finding] = ()
) -> list[str] | None:
    """List the fields with numbers that reached `members`, in the scheme's own words.

    The support is added if an attack found it.
    """
    if inventory is None:
        return None
    scheme, roles = case.card.scheme, {role_of(member) for member in members}
    kinds = None
    if len(members) == 1 and user_index(members[0]) >= 0:  # the inventory merges all users
        kinds = {type(seen.message).__name__ for seen in Exhibits(case, tuple(members)).received(members[0])}
    telling = {(kind.__name__, name) for kind in scheme.messages for name, form in field_kinds(kind) if form.is_number}
    words = []
    for row in inventory:
        theirs = row["plane"] == "message" and row["count"] and role_of(row["party"]) in roles
        theirs = theirs and (kinds is None or row["kind"] in kinds)
        if theirs and ((row["kind"], row["field"]) in telling or row["declared"] is False):
            words.append(row["words"] or f"{row['kind']}.{row['field']}, not declared")
    if knows_support(members, inventory, findings):
        words.append(SUPPORT)
    return list(dict.fromkeys(words))


def knows_support(
    members: Sequence[str], inventory: Sequence[dict[str, Any]] | None, findings: Sequence[Finding] = ()
) -> bool:
    """Tell whether a member alone knows which users rated which items, by an attack or a declared message."""
    found = {each.coalition for each in findings if each.id == "support" and each.severity != "info"}
    if any((member,) in found for member in members):
        return True
    told = {row["party"] for row in inventory or () if row["count"] and row["words"] == _TOLD_SUPPORT}
    return not told.isdisjoint(members)


def permitted(scheme: Scheme, members: Sequence[str]) -> str | None:
    """Return the level permitted to a party alone; None for coalitions, which schemes assume not to exist."""
    return scheme.permits.get(role_of(members[0]), LEVELS[0]) if len(members) == 1 else None


def claimed(case: Case, members: Sequence[str]) -> str:
    level = permitted(case.card.scheme, members)
    noise = f", {promise}" if (promise := promised(case)) else ""
    return "that these do not collude" if level is None else f"{level} at most{noise}"


def promised(case: Case) -> str:
    """Format ε, or the budget θ, in the unit that the scheme uses."""
    params = case.card.params
    return "" if math.isinf(params.epsilon) else family_of(case.card.scheme).promised(params)


def _is_declared(case: Case, solved: Solved, findings: Sequence[Finding]) -> bool:
    """Tell whether the party learns more than its role is permitted and the scheme itself says so."""
    level = permitted(case.card.scheme, solved.members)
    if level is None or LEVELS.index(solved.answer.determines) <= LEVELS.index(level):
        return False
    return all(finding.severity != "break" for finding in findings if finding.coalition == solved.members)


def measured(solved: Solved, findings: Sequence[Finding]) -> list[str]:
    """Pick the figures that say most.

    Figures that a canary measured for a role are included only for members that can work out something.
    """
    members = solved.members
    roles = tuple(dict.fromkeys(role_of(member) for member in members))
    known_as = (members,) if solved.answer.determines == "nothing" else (members, roles)
    mine = [finding for finding in findings if finding.coalition in known_as]
    mine.sort(key=lambda finding: (_WEIGHT[finding.severity], _rank(finding.id)))
    words = [words for finding in mine if (words := in_words(finding))]
    return list(dict.fromkeys(words))[:MOST_MEASURED]


def _rank(id_: str) -> int:
    return _ORDER.index(id_) if id_ in _ORDER else len(_ORDER)


def in_words(finding: Finding) -> str | None:
    """Shorten what an attack or a canary measured; None if nothing fits into a table."""
    found, chance = finding.measured, finding.chance
    if isinstance(found, float) and finding.confidence and "lower bound" in finding.confidence:
        return f"canary at ε = {finding.claimed:g} shows ε ≥ {found:.2g}" if finding.claimed else None
    if not isinstance(found, dict):
        return None
    if "accuracy" in found and isinstance(chance, dict) and "accuracy" in chance and "ratings" in found:
        if found["ratings"] < FEW:
            return None
        how = "difference of uploads" if finding.id == "difference-attack" else "one gradient each"
        how = found.get("from", how)
        better = "chance" if found["accuracy"] > chance["accuracy"] else "no better than chance,"
        return f"{how}: {found['accuracy']:.0%} of {found['ratings']} ratings, {better} {chance['accuracy']:.0%}"
    if "max_error_ring_units" in found and found.get("rows_exact", found.get("sums_exact")):
        number = found.get("rows_exact", found.get("sums_exact"))
        return f"{number} noisy gradients read, error {found['max_error_ring_units']} ring units"
    if "sums_recovered" in found:
        return f"{found['sums_recovered']} of {found['sums']} sums read from item factors"
    if isinstance(found.get("rows_exact"), dict):
        return f"{max(found['rows_exact'].values())} of {found['rows']} masked rows read"
    return None
