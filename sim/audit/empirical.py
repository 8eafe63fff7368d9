"""An empirical lower bound on ε, from thousands of repetitions of a canary through the roles of a scheme.

A bound above the claim shows that the claim does not hold for that party. A bound below it shows nothing more than
itself: each row says what its repetitions would show of a mechanism that keeps exactly its claim (`attainable`), and of
one that hides nothing (`certifiable`).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import BadInput
from protocol.params import Params
from protocol.schemes.base import DELTA, Scheme
from protocol.tape import derive
from sim.audit.canary import CannotBeMeasured, Problem, Stage
from sim.audit.empirical_arms import PUBLICATION, RELEASE, SUMS, Arm, Kind, Statistic
from sim.audit.empirical_bound import Bound, attainable, lower_bound
from sim.audit.empirical_repeat import Observed, plays_sums, repeat
from sim.audit.findings import Finding
from sim.evidence import Case

REPETITIONS = 20_000
LEAST_REPETITIONS = 400  # of the largest arm: with fewer no fault of interest could be shown
ALONE = 0.95  # of a row by itself, as bounds are usually given
CONFIDENCE = 0.995  # one row above its claim breaks a scheme, so a correct one must hardly ever have one
# Outside of this range some arm of so many repetitions cannot tell too little noise from enough (below), or cannot show
# so large an ε at all (above). The noise is proportional to 1/ε, so the same roles are then also measured at ε = 1.
MEASURABLE = (0.7, 2.0)
STAND_IN = 1.0

_FINDINGS: dict[Kind, tuple[str, str]] = {
    "noise": ("missing-noise", "There is less noise than is claimed"),
    "mask": ("mask-uniformity", "A masked upload tells its receiver something"),
    "envelope": ("known-envelope", "Who dealt the envelopes learns more than is claimed"),
    "shares": ("known-shares", "A rater who knows the envelope and its own share learns more than is claimed"),
}
_BREAKS: frozenset[Kind] = frozenset({"noise", "mask"})  # the claim counts on it; the others are weaknesses


@dataclass(frozen=True)
class Row:
    arm: Arm
    problem: Problem
    observed: Observed
    statistic: Statistic
    claimed: float
    bound: Bound
    attainable: float  # what exactly the claimed ε would show
    alone: Bound  # at 95 % for this row, whatever the others say

    @property
    def exceeds(self) -> bool:
        return self.bound.epsilon > self.claimed

    def document(self) -> dict[str, Any]:
        return {
            "coalition": list(self.statistic.coalition),
            "knows": self.statistic.knows,
            "statistic": self.statistic.name,
            "lower_bound": self.bound.epsilon,
            "lower_bound_at_delta": self.bound.at_delta,
            "lower_bound_95": self.alone.epsilon,
            "certifiable_95": self.alone.certifiable,
            "claimed": self.claimed,
            "exceeds": self.exceeds,
            "attainable": self.attainable,
            "certifiable": self.bound.certifiable,
            "epsilon": self.problem.params.epsilon,
            "releases": self.statistic.releases,
            "arm": self.arm.name,
            "repetitions": len(self.observed),
            "event": self.bound.event,
            "true_rate": self.bound.true_rate,
            "false_rate": self.bound.false_rate,
            "seconds": self.observed.seconds,
        }


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
) -> tuple[dict[str, Any], list[Finding]]:
    """The `empirical` part of an audit, and its findings; ε, options and seed are those of the run if it has them."""
    if repetitions < LEAST_REPETITIONS:
        raise BadInput(f"An empirical bound needs {LEAST_REPETITIONS} repetitions or more, not {repetitions}.")
    params = case.card.params if case is not None and params is None else params
    claim = epsilon if epsilon is not None else (math.inf if params is None else params.epsilon)
    if "epsilon" not in scheme.flags or math.isinf(claim):
        return _nothing("Nothing is claimed (no ε), so nothing is measured.")
    seed = seed or hashlib.sha256(case.card.run_id if case is not None else scheme.name.encode()).digest()
    began = time.perf_counter()
    try:
        rows = measure_arms(scheme, arms_of(scheme, params, claim), params, repetitions, seed, workers, confidence)
    except CannotBeMeasured as refusal:
        return _nothing(str(refusal))
    document = _document(rows, claim, repetitions, confidence, time.perf_counter() - began)
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
) -> list[Row]:
    """Every statistic of these arms, each arm at its ε, with its bound."""
    played = [(arm, arm.problem(scheme, epsilon, params)) for arm, epsilon in arms]
    work = [
        (problem, derive(seed, "canary", arm.name, repr(problem.params.epsilon)), round(arm.part * repetitions))
        for arm, problem in played
    ]
    found = [
        (arm, problem, observed, statistic)
        for (arm, problem), observed in zip(played, repeat(work, workers), strict=True)
        for statistic in arm.statistics(problem, observed)
    ]
    each = 1 - (1 - confidence) / len(found)  # all rows hold together with the confidence that is stated
    steps = 1 if "rating value" in scheme.unit else 2  # a changed value is a rating removed and another added
    return [_row(arm, problem, observed, statistic, steps, each) for arm, problem, observed, statistic in found]


def _row(
    arm: Arm, problem: Problem, observed: Observed, statistic: Statistic, steps: int, confidence: float
) -> Row:
    claimed = problem.params.epsilon * statistic.releases * steps
    bound = lower_bound(statistic.values, observed.greatest, confidence, DELTA)
    shown = attainable(claimed, len(observed) // 4, confidence)  # half choose, and half of the rest has either rating
    alone = lower_bound(statistic.values, observed.greatest, ALONE, DELTA)
    return Row(arm, problem, observed, statistic, claimed, bound, shown, alone)


def arms_of(scheme: Scheme, params: Params | None, claim: float) -> list[tuple[Arm, float]]:
    """Every arm at the claimed ε where that can be measured; else all at ε = 1, and one release at the claim."""
    sums = plays_sums(Stage(PUBLICATION.problem(scheme, claim, params), bytes(32)))
    arms: Sequence[Arm] = SUMS if sums else (PUBLICATION,)
    if MEASURABLE[0] <= claim <= MEASURABLE[1]:
        return [(arm, claim) for arm in arms]
    return [(arm, STAND_IN) for arm in arms] + [(RELEASE if sums else PUBLICATION, claim)]


def _document(
    rows: Sequence[Row], claim: float, repetitions: int, confidence: float, seconds: float
) -> dict[str, Any]:
    params, (least, greatest) = rows[0].problem.params, rows[0].problem.ratings
    arms = {(row.arm.name, row.problem.params.epsilon): row.observed for row in rows}
    total = sum(len(observed) for observed in arms.values())
    processor = sum(observed.seconds for observed in arms.values())
    return {
        "problem": {
            "users": params.n_users,
            "items": 1,
            "dim": 1,
            "neighbours": f"the rating of user 0 is {least:g} or {greatest:g}",
            "other_rating": rows[0].problem.other_rating,
            "unit": rows[0].problem.scheme.unit,
            "epsilons": sorted({epsilon for _, epsilon in arms}),
        },
        "claimed": claim,
        "repetitions": repetitions,
        "repetitions_in_all": total,
        "repetitions_per_second": total / seconds,
        "repetitions_per_processor_second": total / processor,
        "seconds": seconds,
        "confidence": confidence,
        "method": "Clopper–Pearson limits of both rates, jointly over all rows (Bonferroni); statistic and line were "
        "chosen before, the line on the other half of the repetitions",
        "delta": DELTA,
        "certifiable": max(row.bound.certifiable for row in rows),
        "rows": [row.document() for row in rows],
    }


def findings_of(rows: Sequence[Row], confidence: float = CONFIDENCE) -> list[Finding]:
    """One for each kind of knowledge and coalition: the row that exceeds its claim most, or comes nearest to it."""
    worst: dict[tuple[Kind, tuple[str, ...]], Row] = {}
    for row in rows:
        key = (row.statistic.kind, row.statistic.coalition)
        if key not in worst or _excess(row) > _excess(worst[key]):
            worst[key] = row
    return [_finding(row, kind, confidence) for (kind, _), row in worst.items()]


def _excess(row: Row) -> float:
    """As a ratio, because the claims differ."""
    return row.bound.epsilon / row.claimed if row.claimed else row.bound.epsilon


def _finding(row: Row, kind: Kind, confidence: float) -> Finding:
    statistic, bound, n = row.statistic, row.bound, len(row.observed)
    known_as, words = _FINDINGS[kind]
    shows = f"a canary at ε = {row.problem.params.epsilon:g} ({statistic.name}) shows ε ≥ {bound.epsilon:.2f}"
    title = f"{words}: {shows}, where it claims {row.claimed:g}."
    if not row.exceeds:
        title = (
            f"{shows[0].upper()}{shows[1:]}, which does not contradict its claim of {row.claimed:g} "
            f"(of exactly that, it would show {row.attainable:.2f})."
        )
    return Finding(
        known_as,
        title,
        statistic.coalition,
        ("break" if kind in _BREAKS else "weak") if row.exceeds else "info",
        claimed=row.claimed,
        measured=bound.epsilon,
        chance=0.0,
        confidence=f"{100 * confidence:g} % lower bound, Clopper–Pearson, jointly over all rows",
        evidence=f"{n} repetitions of the canary `{row.arm.name}` through the roles; the adversary knows "
        f"{statistic.knows}; {bound.event} has a rate of at least {bound.true_rate:.4g} with one rating and of at most "
        f"{bound.false_rate:.4g} with the other; so many repetitions would show {row.attainable:.2f} of exactly the "
        f"claimed ε, and {bound.certifiable:.1f} at most",
    )
