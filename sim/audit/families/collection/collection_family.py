"""`laplace-ratings` and `randomized-response`: every user randomizes each entry of its rating vector and sends it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.params import Params
from protocol.party.role import RECOMMENDER, UserInput
from protocol.schemes.collection import laplace_ratings, randomized_response
from protocol.schemes.collection.collecting import CollectingParams
from sim.audit.attacks.channels import RandomizedChannel
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.perturbed import attack_perturbed
from sim.audit.canary.bound_rows import Asked, BoundRow, joint_rows
from sim.audit.families.collection.collection_account import account_collection
from sim.audit.families.collection.entry_channels import LaplaceEntries, ResponseEntries
from sim.audit.families.collection.randomized_entries import entry_problem, of_entries
from sim.audit.families.family import AccountedBound, Attack, Family
from sim.audit.findings import Audited, Finding
from sim.console.console import figure
from sim.views.evidence import Case


class CollectionFamily(Family):
    rating_axis = "rating scaled to −1…1 (0: not rated)"

    def account_claim(self, case: Case, head: dict[str, Any]) -> Audited:
        return account_collection(case, head)

    def bound(self, accounting: Mapping[str, Any], findings: Sequence[Finding]) -> AccountedBound | None:
        epsilon = accounting["composed"]["entry"]
        return AccountedBound(epsilon, f"Every entry is randomized once, with ε = {figure(epsilon)}.")

    def numbers_of(self, case: Case) -> int:
        return _collecting(case.card.params).cells

    def attacks(self, scene: Scene, apart: frozenset[str]) -> Iterator[Attack]:
        """Yield the attack on answers alone: users also report items that they did not rate."""
        if RECOMMENDER in apart:
            yield attack_perturbed

    def channel(self, params: Params, scale: Floats) -> RandomizedChannel | None:
        params = _collecting(params)
        if math.isinf(params.epsilon):
            return None
        if isinstance(self.scheme, laplace_ratings.LaplaceRatings):
            return LaplaceEntries(scale, laplace_ratings.law(params), params.grid)
        return ResponseEntries(scale, randomized_response.law(params), params.grid)

    def measure(self, asked: Asked) -> tuple[list[BoundRow], dict[str, Any]]:
        return joint_rows(list(of_entries(asked)), asked.confidence), entry_problem(asked)

    def levels(self, params: Params, own: UserInput) -> Floats:
        return _collecting(params).grid.vector(own.items, own.ratings, params.n_items).astype(np.float64)


def _collecting(params: Params) -> CollectingParams:
    assert isinstance(params, CollectingParams)
    return params
