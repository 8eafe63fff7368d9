"""The claimed ε beside what known envelopes, known shares and composition leave, from the recommender's view."""

from __future__ import annotations

from protocol.party.role import RECOMMENDER
from protocol.schemes.base import DELTA
from sim.audit.families.registry import family_of
from sim.audit.findings import Audited
from sim.views.evidence import Case


def account(case: Case) -> Audited:
    """Return (the `accounting` of `audit --json`, findings). Infinite figures are `math.inf`."""
    scheme = case.card.scheme
    head = {"unit": scheme.unit, "claimed": case.config.epsilon, "delta": DELTA}
    if not case.path(RECOMMENDER).is_file():
        return {**head, "method": "the recommender kept no view, so nothing can be accounted: see --views"}, []
    return family_of(scheme).account(case, head)
