"""`hardened`: everything that is published follows from noisy sums on integers, whose noise all users make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from protocol.params import Params
from protocol.party.role import THIRD_PARTY, role_of
from protocol.schemes.hardened.hardened_params import HardenedParams
from sim.audit.accounting.epsilon_cells import EpsilonEntry, published_cell
from sim.audit.attacks.coalition_views import Scene
from sim.audit.canary.bound_rows import Asked, BoundRow, joint_rows
from sim.audit.families.family import AccountedBound, Attack, Family, ReleaseBound, SomePlaces
from sim.audit.families.hardened.hardened_account import account_hardened, known_shares_left
from sim.audit.families.hardened.hardened_canary import of_unit_sums, unit_sum_problem
from sim.audit.families.hardened.own_presence import measure_own
from sim.audit.families.hardened.told_apart import attack_totals
from sim.audit.families.hardened.unit_exposure import UnitExposure, exchange_bound, value_bound
from sim.audit.families.hardened.unit_sensitivity import vectors_moved
from sim.audit.families.hardened.unmasked_vectors import attack_vectors
from sim.audit.findings import Audited, Finding
from sim.audit.pairs.exposure import Exposure
from sim.audit.scoring import generator
from sim.console.console import figure
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

FOLLOWED = 200_000  # numbers in uploads that the algebra follows whole: some seconds
PLACES = 16  # of every vector, where it does not
PROVED = 3  # times as many numbers with proofs: shares apart, digits and answers


class HardenedFamily(Family):
    hides_items = True

    def account_claim(self, case: Case, head: dict[str, Any]) -> Audited:
        return account_hardened(case, head)

    def accounted(self, accounting: Mapping[str, Any], members: Sequence[str]) -> EpsilonEntry:
        known = sum(role_of(member) == "user" for member in members)
        left = {str(known): known_shares_left(accounting, known)} if known else {}
        return published_cell(self.scheme, {**accounting, "colluders": left}, members)

    def bound(self, accounting: Mapping[str, Any], findings: Sequence[Finding]) -> AccountedBound | None:
        composed = accounting["composed"]
        text = f"The whole run has ε = {figure(composed['tight'])}, where {figure(composed['claimed'])} is claimed."
        return AccountedBound(composed["tight"], text, composed["claimed"])

    def sensitivity(self, case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
        return vectors_moved(case, sample, draw)

    def exposure(self, case: Case) -> Exposure | None:
        return UnitExposure(case)

    def release_bound(self, params: Params) -> ReleaseBound | None:
        assert isinstance(params, HardenedParams)
        return value_bound(params)

    def exchange_bound(self, params: Params) -> ReleaseBound | None:
        return exchange_bound(HardenedParams.of(params))

    def numbers_at_first(self, case: Case) -> int:
        params = HardenedParams.of(case.card.params)
        return params.n_users * params.lengths[0] * (PROVED if params.ring_is_prime else 1)

    def numbers_of(self, case: Case) -> int:
        if not case.path(THIRD_PARTY).is_file():
            return 0
        params = HardenedParams.of(case.card.params)
        parts = Exhibits(case, (THIRD_PARTY,)).received(THIRD_PARTY, params.upload_kind)
        return sum(len(seen.message.values) for seen in parts) * (PROVED if params.ring_is_prime else 1)

    def sample(self, case: Case) -> SomePlaces | None:
        """Choose places by the run id: every role adds, masks and opens all places of a round in the same way."""
        params = HardenedParams.of(case.card.params)
        shortest = min(params.lengths)
        if params.ring_is_prime:  # noise is added at other places than it was sent for
            return None
        if params.n_users * sum(params.lengths) <= FOLLOWED or shortest <= PLACES:
            return None
        places = np.sort(generator(case, "places").choice(shortest, PLACES, replace=False))
        words = f"asked of {PLACES} places, drawn by the run id, of {shortest}: all are treated alike"
        return SomePlaces(places, words)

    def attacks(self, scene: Scene, apart: frozenset[str]) -> Iterator[Attack]:
        yield from super().attacks(scene, apart)
        if scene.has_recommender and scene.has_third_party:
            yield attack_vectors
        elif scene.has_recommender and len(scene.users) <= HardenedParams.of(scene.params).spare:
            yield attack_totals

    def measure(self, asked: Asked) -> tuple[list[BoundRow], dict[str, Any]]:
        return joint_rows(list(of_unit_sums(asked)), asked.confidence, alone=asked.alone), unit_sum_problem(asked)

    def measure_own(self, case: Case, canaries: int, seed: bytes) -> tuple[list[BoundRow], dict[str, Any]]:
        return measure_own(case, canaries, seed)

    def promised(self, params: Params) -> str:
        assert isinstance(params, HardenedParams)
        return f"ε = {params.epsilon:g} of the whole run, for {params.neighbour}"
