"""`covariance`, `covariance-masked` and `hybrid`: everything that is published is made of noisy sums over users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.params import Params
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.schemes.covariance.options import CovarianceParams, HybridParams
from protocol.wire.messages import MaskedPart
from sim.audit.accounting.epsilon_cells import EpsilonEntry, published_cell
from sim.audit.accounting.neighbours import FLIPS
from sim.audit.attacks.channels import RandomizedChannel, UniformNoise
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.perturbed import attack_perturbed
from sim.audit.canary.bound_rows import Asked, BoundRow, joint_rows
from sim.audit.families.covariance.covariance_account import account_covariance, budget_name
from sim.audit.families.covariance.exact_totals import read_totals
from sim.audit.families.covariance.neighbour_sums import sums_moved
from sim.audit.families.covariance.sum_arms import of_totals, total_problem
from sim.audit.families.covariance.sum_exposure import SumExposure
from sim.audit.families.covariance.unmasked_parts import attack_parts
from sim.audit.families.family import AccountedBound, Attack, Family
from sim.audit.findings import Audited, Finding
from sim.audit.pairs.exposure import Exposure
from sim.console.console import figure
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits


class CovarianceFamily(Family):
    hides_items = True
    shares_vanish = True

    def account(self, case: Case, head: dict[str, Any]) -> Audited:
        return account_covariance(case, head)

    def accounted(self, accounting: Mapping[str, Any], members: Sequence[str]) -> EpsilonEntry:
        return published_cell(self.scheme, accounting, members)

    def bound(self, accounting: Mapping[str, Any], findings: Sequence[Finding]) -> AccountedBound | None:
        composed, tight = accounting["composed"], accounting["composed"]["tight"]
        words = [finding for finding in findings if finding.id == "composition" and finding.coalition == ("user",)]
        claimed = float(words[0].claimed) if words else composed["claimed"]
        text = f"All that is published has together ε = {figure(tight)}, where {figure(claimed)} is claimed."
        return AccountedBound(tight, text, claimed)

    def sensitivity(self, case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
        return sums_moved(case, FLIPS if sample is None else sample, draw)

    def exposure(self, case: Case) -> Exposure | None:
        totals = read_totals(case) if case.path(RECOMMENDER).is_file() else ""
        return None if isinstance(totals, str) else SumExposure(totals)

    def rating_step(self, params: Params) -> float:
        assert isinstance(params, CovarianceParams)
        return params.rating_step

    def is_randomized(self, params: Params) -> bool:
        """Tell whether values carry noise before they are opened: in `hybrid`, by the perturbation and not by ε."""
        return params.gamma > 0 if isinstance(params, HybridParams) else super().is_randomized(params)

    def numbers_of(self, case: Case) -> int:
        if MaskedPart not in self.scheme.messages or not case.path(THIRD_PARTY).is_file():
            return 0
        parts = Exhibits(case, (THIRD_PARTY,)).received(THIRD_PARTY, MaskedPart.__name__)
        return sum(len(seen.message.values) for seen in parts)

    def attacks(self, scene: Scene, apart: frozenset[str]) -> Iterator[Attack]:
        yield from super().attacks(scene, apart)
        if RECOMMENDER in apart:
            yield attack_perturbed
        if scene.has_recommender and scene.has_third_party:
            yield attack_parts

    def channel(self, params: Params, scale: Floats) -> RandomizedChannel | None:
        perturbed = isinstance(params, HybridParams) and params.gamma
        return UniformNoise(scale, perturbed) if perturbed else None

    def measure(self, asked: Asked) -> tuple[list[BoundRow], dict[str, Any]]:
        return joint_rows(list(of_totals(asked)), asked.confidence, alone=asked.alone), total_problem(asked)

    def promised(self, params: Params) -> str:
        assert isinstance(params, CovarianceParams)
        of = f"of all that is published, for a {params.unit_of} added or removed"
        return f"{budget_name(params)} = {params.epsilon:g} {of}"
