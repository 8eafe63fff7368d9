"""An empirical lower bound on ε, from thousands of repetitions of a canary through the roles of a scheme.

A bound above the claim shows that the claim does not hold for that party. A bound below it shows nothing more than
itself: each row says what its repetitions would show of a mechanism that keeps exactly its claim (`attainable`), and of
a mechanism that hides nothing (`certifiable`).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from typing import Any

from protocol.arithmetic.tape import derive
from protocol.errors import BadInput
from protocol.params import Params
from protocol.schemes.base import DELTA, Scheme
from sim.audit.canary.arms import PUBLICATION, RELEASE, SUMS, Arm
from sim.audit.canary.bound_rows import CONFIDENCE, BoundRow, findings_of, make_row
from sim.audit.canary.canary import CanaryProblem, CannotBeMeasured, Stage
from sim.audit.canary.repeat import plays_sums, repeat
from sim.audit.canary.sibling_arms import Asked, measure_sibling
from sim.audit.findings import Finding
from sim.console.progress import Tell
from sim.views.evidence import Case

__all__ = ["CONFIDENCE", "arms_of", "findings_of", "measure", "measure_arms"]

REPETITIONS = 20_000
LEAST_REPETITIONS = 400  # of the largest arm: fewer could not show any fault of interest
# Below this range some arm has too few repetitions to tell too little noise from enough; above it, too few to show such
# an ε at all. The noise is proportional to 1/ε, so the same roles are then also measured at ε = 1.
MEASURABLE = (0.7, 2.0)
STAND_IN = 1.0


def measure(
    case: Case | None,
    scheme: Scheme,
    params: Params | None = None,
    *,
    epsilon: float | None = None,
    repetitions: int = REPETITIONS,
    seed: bytes | None = None,
    workers: int | None = None,
    confidence: float = CONFIDENCE,
    tell: Tell = lambda done, total: None,
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the `empirical` part of an audit and its findings; ε, options and seed default to those of the run."""
    if repetitions < LEAST_REPETITIONS:
        raise BadInput(f"An empirical bound needs {LEAST_REPETITIONS} repetitions or more, not {repetitions}.")
    params = case.card.params if case is not None and params is None else params
    claim = epsilon if epsilon is not None else (math.inf if params is None else params.epsilon)
    if "epsilon" not in scheme.flags or math.isinf(claim):
        return _nothing("Nothing is claimed (no ε), so nothing is measured.")
    seed = seed or hashlib.sha256(case.card.run_id if case is not None else scheme.name.encode()).digest()
    began = time.perf_counter()
    try:
        if scheme.factorizes:
            arms = arms_of(scheme, params, claim)
            rows = measure_arms(scheme, arms, params, repetitions, seed, workers, confidence, tell)
            problem = _problem(rows)
        else:
            asked = Asked(scheme, params, claim, repetitions, seed, workers, confidence, tell)
            rows, problem = measure_sibling(asked)
    except CannotBeMeasured as refusal:
        return _nothing(str(refusal))
    document = _document(rows, problem, claim, repetitions, confidence, time.perf_counter() - began)
    return document, findings_of(rows, confidence)


def _nothing(note: str) -> tuple[dict[str, Any], list[Finding]]:
    return {"problem": None, "claimed": None, "repetitions": 0, "rows": [], "note": note}, []


def measure_arms(
    scheme: Scheme,
    arms: Sequence[tuple[Arm, float]],
    params: Params | None,
    repetitions: int,
    seed: bytes,
    workers: int | None = None,
    confidence: float = CONFIDENCE,
    tell: Tell = lambda done, total: None,
) -> list[BoundRow]:
    """Measure every statistic of `arms`, each arm at its ε, with its bound."""
    played = [(arm, arm.problem(scheme, epsilon, params)) for arm, epsilon in arms]
    work = [
        (problem, derive(seed, "canary", arm.name, repr(problem.params.epsilon)), round(arm.part * repetitions))
        for arm, problem in played
    ]
    found = [
        (arm, problem, observed, statistic)
        for (arm, problem), observed in zip(played, repeat(work, workers, tell), strict=True)
        for statistic in arm.statistics(problem, observed)
    ]
    each = 1 - (1 - confidence) / len(found)  # so that all rows hold jointly with the stated confidence
    steps = 1 if "rating value" in scheme.unit else 2  # a changed value is one rating removed and another added
    return [make_row(one, one[1].params.epsilon * one[3].releases * steps, each) for one in found]


def arms_of(scheme: Scheme, params: Params | None, claim: float) -> list[tuple[Arm, float]]:
    """Choose every arm at the claimed ε if that is measurable; else all at ε = 1, and one release at the claim."""
    sums = plays_sums(Stage(PUBLICATION.problem(scheme, claim, params), bytes(32)))
    arms: Sequence[Arm] = SUMS if sums else (PUBLICATION,)
    if MEASURABLE[0] <= claim <= MEASURABLE[1]:
        return [(arm, claim) for arm in arms]
    return [(arm, STAND_IN) for arm in arms] + [(RELEASE if sums else PUBLICATION, claim)]


def _problem(rows: Sequence[BoundRow]) -> dict[str, Any]:
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
        "epsilons": sorted({row.problem.params.epsilon for row in rows}),
    }


def _document(
    rows: Sequence[BoundRow], problem: dict[str, Any], claim: float, repetitions: int, confidence: float, seconds: float
) -> dict[str, Any]:
    played = {id(row.observed): row.observed for row in rows}.values()  # several rows may share repetitions
    total = sum(len(observed) for observed in played)
    processor = sum(observed.seconds for observed in played)
    return {
        "problem": problem,
        "claimed": claim,
        "repetitions": repetitions,
        "repetitions_in_all": total,
        "repetitions_per_second": total / seconds,
        "repetitions_per_processor_second": total / processor,
        "seconds": seconds,
        "confidence": confidence,
        "method": "Clopper–Pearson limits of both rates, jointly over all rows (Bonferroni); statistic and line were "
        "chosen before, the line on the other half of the repetitions; where Gaussian noise is claimed, the line is 0, "
        "and ε at δ is that of the μ that parts the two rates",
        "delta": DELTA,
        "certifiable": max(row.bound.certifiable for row in rows),
        "rows": [row.document() for row in rows],
    }
