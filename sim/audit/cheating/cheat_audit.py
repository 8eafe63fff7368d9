"""The audit of a party that cheats: what it learned, what it cost, and who noticed, from which message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from protocol.cheats.cheat import Cheating, parse_cheat
from protocol.errors import Reason
from protocol.party.role import RECOMMENDER, THIRD_PARTY, role_of
from protocol.party.view import REJECTED, SENT
from sim.audit.families.registry import family_of
from sim.folder.folder import has_view, read_summary
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

UNEXPLAINED = {Reason.UNKNOWN_ITEM.name, Reason.OUT_OF_RANGE.name}  # of an honest sender, no lateness explains these


def audit_cheat(case: Case) -> dict[str, Any] | None:
    """Answer the three questions about the cheat of this run; None if all its parties are honest."""
    if not case.card.cheat:
        return None
    cheating = parse_cheat(case.card.cheat)
    cheat, summary = cheating.cheat, read_summary(case.folder) or {}
    told = summary.get("cheat") or {}
    noticed = [*_named(summary), *_refused(case, cheating)]
    checks = family_of(case.card.scheme).checked_by_users(case)
    return {
        "name": case.card.cheat,
        "does": cheat.does,
        "learned": family_of(case.card.scheme).learned_by_cheating(case),
        "cost": told.get("cost"),
        "noticed": noticed,
        "checks": checks,
        "unnoticed": cheat.unnoticed or None,
    }


def _named(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List what the recommender noticed in the totals: users that lost their place, sums beyond honest reach."""
    figures = summary.get("figures") or {}
    rows = [
        {"by": RECOMMENDER, "from": user, "kind": "MaskedTotal", "why": why, "times": 1}
        for user, why in (figures.get("struck") or {}).items()
    ]
    rows += [
        {"by": THIRD_PARTY, "from": user, "kind": "MaskedGradient", "why": "a flood: it was barred", "times": 1}
        for user in figures.get("barred") or ()
    ]
    if figures.get("poisoned_sums"):
        why = "sums that no honest users can have made"
        row = {"by": RECOMMENDER, "from": None, "kind": "MaskedTotal", "why": why, "times": figures["poisoned_sums"]}
        rows.append(row)
    return rows


def _refused(case: Case, cheating: Cheating) -> list[dict[str, Any]]:
    """Count the frames that honest parties refused, by reason and kind of message.

    Of honest users only those count that no honest course of a run makes a server refuse.
    """
    there = [party for party in sorted(case.party_set) if has_view(case.folder, party)]
    kinds = {
        (party, fields[4]): (fields[0], fields[1])
        for party in there
        for fields in (record.fields for record in Exhibits(case, (party,)).records(party) if record.type == SENT)
    }
    seen = Counter[tuple[str, str, str, str]]()
    for party in there:
        for record in Exhibits(case, (party,)).records(party):
            if record.type != REJECTED:
                continue
            sender, reason, _, digest, _ = record.fields
            cheater = cheating.is_cheater(sender)
            if cheater or reason in UNEXPLAINED:
                kind = kinds.get((sender, digest), (party, "a frame"))[1]
                seen[role_of(party), sender if cheater else role_of(sender), kind, reason] += 1
    return [
        {"by": by, "from": sender, "kind": kind, "why": reason, "times": times}
        for (by, sender, kind, reason), times in sorted(seen.items())
    ]
