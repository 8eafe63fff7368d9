"""Many canaries among the run's own ratings, in one run of the scheme's roles: the ε shown on the person's own data.

The families say how (`Family.measure_own`). Its rows come before those of the small problem, whose arms have other
questions (noise that is drawn once, or again), and its findings replace those of the small problem that say no more.
"""

from __future__ import annotations

import hashlib
from typing import Any

from protocol.schemes.base import Scheme
from sim.audit.findings import Finding
from sim.console.console import counted, figure
from sim.views.evidence import Case

OWN = "own ratings"  # the name of the arm
OWN_CONFIDENCE = 0.999  # jointly over its rows, beside the level of the small problem

_WEIGHT = {"break": 2, "weak": 1, "info": 0}


def add_own(
    case: Case, canaries: int, document: dict[str, Any], found: list[Finding]
) -> tuple[dict[str, Any], list[Finding]]:
    """Add to the `empirical` part of an audit the rows and findings of the run's own ratings."""
    from sim.audit.canary.bound_rows import findings_of  # slow to import
    from sim.audit.canary.canary import CannotBeMeasured
    from sim.audit.families.registry import family_of

    scheme = case.card.scheme
    if not document["rows"]:
        return {**document, "own_ratings": None}, found
    if not canaries:
        return {**document, "own_ratings": {"canaries": 0, "note": "No canaries were asked for."}}, found
    try:
        rows, own = family_of(scheme).measure_own(case, canaries, _seed(case, scheme))
    except CannotBeMeasured as refusal:
        return {**document, "own_ratings": {"canaries": 0, "note": str(refusal)}}, found
    document = {**document, "own_ratings": own, "rows": [*(row.document() for row in rows), *document["rows"]]}
    return document, _headlines(findings_of(rows, OWN_CONFIDENCE), found)


def own_in_words(own: dict[str, Any] | None) -> str:
    """Say what was played among the run's own ratings, and what the law of the envelopes shows of it."""
    if not own or not own["canaries"]:
        return ""
    text = (
        f"Own ratings: {own['canaries']} canaries of {counted(own['users'], 'user')} in one run of one release "
        f"({own['neighbours']}); none can lose more than ε = {figure(own['largest_loss']['most'])}."
    )
    if law := own["known_law"]:
        text += (
            f" To the recommender, whose noise is Gaussian, the means show {law['shown_share']:.0%} of the shifts "
            f"({100 * law['confidence']:g} %): ε ≥ {figure(law['shown']['median'])} for the median item and ≥ "
            f"{figure(law['shown']['worst'])} for the worst, at δ = {law['delta']:g}."
        )
    return text


def _seed(case: Case, scheme: Scheme) -> bytes:
    return hashlib.sha256(b"canaries among own ratings " + case.card.run_id + scheme.name.encode()).digest()


def _headlines(own: list[Finding], small: list[Finding]) -> list[Finding]:
    """Keep of two findings with the same id and coalition the graver; of two equals the own ratings'."""
    kept = {(one.id, one.coalition): one for one in small}
    for one in own:
        other = kept.get((one.id, one.coalition))
        if other is None or _WEIGHT[one.severity] >= _WEIGHT[other.severity]:
            kept[one.id, one.coalition] = one
    return list(kept.values())
