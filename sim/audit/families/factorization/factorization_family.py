"""Any factorization: how far one rating moves a user's gradients, and canaries of one item."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from protocol.arithmetic.tape import derive
from protocol.params import Params
from protocol.schemes.base import Scheme
from sim.audit.canary.bound_rows import Asked, BoundRow, joint_rows
from sim.audit.canary.canary import CanaryProblem, Stage
from sim.audit.families.factorization.arms import PUBLICATION, RELEASE, SUMS, Arm
from sim.audit.families.factorization.own_ratings import measure_own
from sim.audit.families.factorization.reacting_factors import gradients_moved
from sim.audit.families.factorization.repeat import plays_sums, repeat
from sim.audit.families.family import Family, ReleaseBound
from sim.audit.findings import Audited
from sim.views.evidence import Case

# Below this range some arm has too few repetitions to tell too little noise from enough; above it, too few to show such
# an ε at all. The noise is proportional to 1/ε, so the same roles are then also measured at ε = 1.
MEASURABLE = (0.7, 2.0)
STAND_IN = 1.0


class FactorizationFamily(Family):
    def release_bound(self, params: Params) -> ReleaseBound | None:
        """Return 2Δ√d, the L1 bound of Lemma 1 for all of a user's gradients together."""
        most = 2 * params.rating_span * math.sqrt(params.dim)
        return ReleaseBound("gradient", most, 1, "2Δ√d", 2.0**-params.fraction_bits, "reacting-user-factors")

    def sensitivity(self, case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
        return gradients_moved(case, sample, draw)

    def measure(self, asked: Asked) -> tuple[list[BoundRow], dict[str, Any]]:
        rows = measure_arms(asked, arms_of(asked.scheme, asked.params, asked.claim))
        return rows, problem_of(rows)

    def measure_own(self, case: Case, canaries: int, seed: bytes) -> tuple[list[BoundRow], dict[str, Any]]:
        return measure_own(case, canaries, seed)

    def canary_settings(self, params: Params) -> Any:
        """Return the settings of the arms: the size of a canary does not depend on the run."""
        arms = arms_of(self.scheme, params, params.epsilon)
        problems = [(arm, arm.problem(self.scheme, epsilon, params)) for arm, epsilon in arms]
        return [[arm.name, arm.part, dataclasses.asdict(problem.params)] for arm, problem in problems]


def measure_arms(asked: Asked, arms: Sequence[tuple[Arm, float]]) -> list[BoundRow]:
    """Measure every statistic of `arms`, each arm at its ε, with its bound."""
    scheme, n = asked.scheme, asked.repetitions
    played = [(arm, arm.problem(scheme, epsilon, asked.params)) for arm, epsilon in arms]
    work = [
        (problem, derive(asked.seed, "canary", arm.name, repr(problem.params.epsilon)), round(arm.part * n))
        for arm, problem in played
    ]
    found = [
        (arm.name, problem, observed, statistic)
        for (arm, problem), observed in zip(played, repeat(work, asked.workers, asked.tell, asked.played), strict=True)
        for statistic in arm.statistics(problem, observed)
    ]
    steps = 1 if "rating value" in scheme.unit else 2  # a changed value is one rating removed and another added
    return joint_rows(
        found, asked.confidence, lambda one: one[1].params.epsilon * one[3].releases * steps, asked.alone
    )


def arms_of(scheme: Scheme, params: Params | None, claim: float) -> list[tuple[Arm, float]]:
    """Choose every arm at the claimed ε if that is measurable; else all at ε = 1, and one release at the claim."""
    sums = plays_sums(Stage(PUBLICATION.problem(scheme, claim, params), bytes(32)))
    arms: Sequence[Arm] = SUMS if sums else (PUBLICATION,)
    if MEASURABLE[0] <= claim <= MEASURABLE[1]:
        return [(arm, claim) for arm in arms]
    return [(arm, STAND_IN) for arm in arms] + [(RELEASE if sums else PUBLICATION, claim)]


def problem_of(rows: Sequence[BoundRow]) -> dict[str, Any]:
    problem = rows[0].problem
    assert isinstance(problem, CanaryProblem)
    least, greatest = problem.ratings
    return {
        "users": problem.params.n_users,
        "items": 1,
        "dim": 1,
        "neighbours": f"the rating of user 0 is {least:g} or {greatest:g}",
        "other_rating": problem.other_rating,
        "unit": problem.scheme.unit,
    }
