"""`laplace-ratings` and `randomized-response`: every user randomizes each entry of its rating vector and sends it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.params import Params
from protocol.party.role import RECOMMENDER, UserInput
from protocol.schemes.base import Scheme
from protocol.schemes.collection import laplace_ratings, randomized_response
from protocol.schemes.collection.collecting import CollectingParams
from sim.audit.accounting.epsilon_cells import EpsilonEntry, epsilon, uploads_cell
from sim.audit.attacks.channels import RandomizedChannel
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.perturbed import attack_perturbed
from sim.audit.canary.bound_rows import Asked, BoundRow, joint_rows
from sim.audit.coalitions import Coalition
from sim.audit.families.collection import own_entries
from sim.audit.families.collection.collection_account import account_collection
from sim.audit.families.collection.entry_channels import LaplaceEntries, ResponseEntries
from sim.audit.families.collection.randomized_entries import entry_problem, of_entries
from sim.audit.families.family import AccountedBound, Attack, Family
from sim.audit.findings import Audited, Finding
from sim.audit.pairs.exposure import Exposure, Loss
from sim.audit.pairs.twice import Twice
from sim.console.console import figure
from sim.views.evidence import Case


class CollectionFamily(Family):
    noise_follows = True
    rating_axis = "rating scaled to −1…1 (0: not rated)"

    def account_claim(self, case: Case, head: dict[str, Any]) -> Audited:
        return account_collection(case, head)

    def exposure(self, case: Case) -> Exposure | None:
        return EntryExposure(self.scheme, CollectingParams.of(case.card.params))

    def accounted(self, accounting: Mapping[str, Any], members: Sequence[str]) -> EpsilonEntry:
        composed = accounting["composed"]
        whole = f"{epsilon(composed.get('vector'))} for a whole vector"
        return uploads_cell(accounting, members, whole, unit=" per entry")

    def bound(self, accounting: Mapping[str, Any], findings: Sequence[Finding]) -> AccountedBound | None:
        epsilon = accounting["composed"]["entry"]
        return AccountedBound(epsilon, f"Every entry is randomized once, with ε = {figure(epsilon)}.")

    def numbers_of(self, case: Case) -> int:
        return CollectingParams.of(case.card.params).cells

    def attacks(self, scene: Scene, apart: frozenset[str]) -> Iterator[Attack]:
        """Yield the attack on answers alone: users also report items that they did not rate."""
        if RECOMMENDER in apart:
            yield attack_perturbed

    def channel(self, params: Params, scale: Floats) -> RandomizedChannel | None:
        params = CollectingParams.of(params)
        if math.isinf(params.epsilon):
            return None
        if isinstance(self.scheme, laplace_ratings.LaplaceRatings):
            return LaplaceEntries(scale, laplace_ratings.law(params), params.grid)
        return ResponseEntries(scale, randomized_response.law(params), params.grid)

    def measure(self, asked: Asked) -> tuple[list[BoundRow], dict[str, Any]]:
        return joint_rows(list(of_entries(asked)), asked.confidence, alone=asked.alone), entry_problem(asked)

    def measure_own(self, case: Case, canaries: int, seed: bytes) -> tuple[list[BoundRow], dict[str, Any]]:
        return own_entries.measure_own(case, canaries, seed)

    def levels(self, params: Params, own: UserInput) -> Floats:
        return CollectingParams.of(params).grid.vector(own.items, own.ratings, params.n_items).astype(np.float64)


class EntryExposure(Exposure):
    """The recommender holds every entry, randomized once."""

    def __init__(self, scheme: Scheme, params: CollectingParams) -> None:
        self.params, self.laplace = params, isinstance(scheme, laplace_ratings.LaplaceRatings)

    def coalitions(self) -> list[Coalition]:
        return [(RECOMMENDER,)]

    def loss(self, members: Coalition, twice: Twice) -> Loss | None:
        """Compute the largest log likelihood ratio of what is sent with either rating."""
        moved = np.concatenate([shift.rows.ravel() for shift in twice.shifts if shift.what == "rating"])
        if not moved.any():
            return None
        if self.laplace:
            return Loss(members, 1, pure=float(np.abs(moved).sum()) / laplace_ratings.law(self.params).scale)
        keep, other = randomized_response.law(self.params).weights()
        return Loss(members, 1, pure=np.count_nonzero(moved) * math.log(keep / other))

    def limit(self, members: Coalition) -> tuple[float, str] | None:
        return self.params.epsilon, "pair-epsilon"
