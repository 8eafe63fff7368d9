"""Lower bounds on ε from a statistic of many repetitions.

For any statistic of an adversary and any threshold, (ε, δ)-differential privacy requires of the event S that its
probability under one data set is at most e^ε times that under the neighbouring data set, plus δ. So

    ε ≥ ln( (P(S | one) − δ) / P(S | other) ),

with the lower Clopper–Pearson limit of the first and the upper limit of the second, each at half of the allowed error.
The threshold and the direction are chosen on the first half of the repetitions; the limits come from the second, so
that the choice costs no confidence. A poor statistic gives a low bound, never a false one.

A claim of Gaussian noise says more: that no test beats the one that tells N(0, 1) from N(μ, 1), at any rates. So

    μ ≥ Φ⁻¹(P(S | one)) − Φ⁻¹(P(S | other)),

from the same limits, and the ε at δ of this μ is compared with the claimed one. (At a δ of 1e-5 the rates alone show
nothing of the tail in which that ε lies; `at_delta` says what they show without the claim about the noise.) There the
statistic is a log likelihood ratio and its threshold is 0, where both rates tell most about μ: nothing has to be
chosen, so all repetitions count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from protocol.arrays import Counts, Flags, Floats
from protocol.schemes.composition import gaussian_epsilon

THRESHOLDS = 100  # candidate thresholds, at even steps of rank
CAUTION = 10  # divides the error for choosing the threshold: a lucky tail of the first half does not recur


@dataclass(frozen=True, slots=True)
class Bound:
    epsilon: float  # at δ = 0; 0 if nothing is shown
    at_delta: float  # at the requested δ
    true_rate: float  # lower limit of P(S | one)
    false_rate: float  # upper limit of P(S | other)
    event: str  # S, in words
    certifiable: float  # the bound if S always happened under one and never under the other
    mu: float | None = None  # set if Gaussian noise is claimed: `epsilon` is its ε at δ


def lower_limit(hits: Counts, trials: int, error: float) -> Floats:
    """Compute the one-sided Clopper–Pearson limit."""
    limits: Floats = np.where(hits > 0, stats.beta.ppf(error, np.maximum(hits, 1), trials - hits + 1), 0.0)
    return limits


def upper_limit(hits: Counts, trials: int, error: float) -> Floats:
    limits: Floats = np.where(hits < trials, stats.beta.ppf(1 - error, hits + 1, np.maximum(trials - hits, 1)), 1.0)
    return limits


def lower_bound(
    statistic: Floats, greatest: Flags, confidence: float = 0.95, delta: float = 0.0
) -> Bound:
    """Bound ε; `statistic` should be larger for the greatest rating, and `greatest` says where it was given."""
    half, error = len(statistic) // 2, (1 - confidence) / 2
    above, threshold = _choose(statistic[:half], greatest[:half], error / CAUTION)
    true_rate, false_rate, trials = _rates(statistic[half:], greatest[half:], threshold, above, error)
    return Bound(
        epsilon=_log_ratio(true_rate, false_rate),
        at_delta=_log_ratio(true_rate - delta, false_rate),
        true_rate=true_rate,
        false_rate=false_rate,
        event=f"statistic {'≥' if above else '<'} {threshold:.6g}",
        certifiable=certifiable(trials, confidence),
    )


def gaussian_bound(ratio: Floats, greatest: Flags, confidence: float, delta: float) -> Bound:
    """Bound ε by a log likelihood ratio if Gaussian noise is claimed."""
    true_rate, false_rate, trials = _rates(ratio, greatest, 0.0, True, (1 - confidence) / 2)
    mu = max(0.0, float(ndtri(true_rate) - ndtri(false_rate)))
    return Bound(
        epsilon=gaussian_epsilon(mu, delta),
        at_delta=_log_ratio(true_rate - delta, false_rate),
        true_rate=true_rate,
        false_rate=false_rate,
        event="statistic ≥ 0",
        certifiable=gaussian_certifiable(trials, confidence, delta),
        mu=mu,
    )


def certifiable(trials: int, confidence: float = 0.95) -> float:
    """Compute the largest bound that `trials` of either data set can show: S in all of one, in none of the other."""
    error = (1 - confidence) / 2
    always, never = np.array(trials), np.array(0)
    return _log_ratio(float(lower_limit(always, trials, error)), float(upper_limit(never, trials, error)))


def gaussian_certifiable(trials: int, confidence: float, delta: float) -> float:
    return gaussian_attainable(math.inf, trials, confidence, delta)


def gaussian_attainable(mu: float, trials: int, confidence: float, delta: float) -> float:
    """Compute the bound for Gaussian noise of exactly `mu`, at the expected rates Φ(μ/2) and Φ(−μ/2)."""
    error, hits = (1 - confidence) / 2, round(trials * float(ndtr(mu / 2)))
    lower, upper = lower_limit(np.array(hits), trials, error), upper_limit(np.array(trials - hits), trials, error)
    return gaussian_epsilon(max(0.0, float(ndtri(lower) - ndtri(upper))), delta)


def attainable(epsilon: float, trials: int, confidence: float = 0.95) -> float:
    """Compute the bound for a Laplace mechanism of exactly `epsilon`, at the expected rates.

    With S = {x ≥ t}, t = ε + s in units of the noise's scale, and a shift of ε:

        P(S | one) = e^(−s)/2, or 1 − e^s/2 for s < 0,     P(S | other) = e^(−ε−s)/2.
    """
    error = (1 - confidence) / 2
    place = np.linspace(-min(epsilon, 10.0), 5.0, THRESHOLDS)
    one = np.where(place >= 0, np.exp(-place) / 2, 1 - np.exp(np.minimum(place, 0)) / 2)
    hits_one, hits_other = (np.rint(trials * rate).astype(np.int64) for rate in (one, np.exp(-epsilon - place) / 2))
    best = np.max(lower_limit(hits_one, trials, error) / upper_limit(hits_other, trials, error))
    return max(0.0, math.log(best)) if best > 0 else 0.0


def _log_ratio(one: float, other: float) -> float:
    return math.log(one / other) if one > other else 0.0


def _choose(statistic: Floats, greatest: Flags, error: float) -> tuple[bool, float]:
    """Choose (whether S lies above, the threshold) for the best bound on these repetitions."""
    ordered, high, low = np.sort(statistic), np.sort(statistic[greatest]), np.sort(statistic[~greatest])
    # between two draws; always include the threshold of a perfect statistic
    ranks = np.unique(np.append(np.linspace(1, len(ordered) - 1, THRESHOLDS).astype(np.int64), len(low)))
    lines = (ordered[ranks - 1] + ordered[ranks]) / 2
    over_high, over_low = len(high) - np.searchsorted(high, lines), len(low) - np.searchsorted(low, lines)
    upward = lower_limit(over_high, len(high), error) / upper_limit(over_low, len(low), error)
    downward = lower_limit(len(low) - over_low, len(low), error) / upper_limit(len(high) - over_high, len(high), error)
    best_up, best_down = int(np.argmax(upward)), int(np.argmax(downward))
    above = bool(upward[best_up] >= downward[best_down])
    return above, float(lines[best_up if above else best_down])


def _rates(
    statistic: Floats, greatest: Flags, threshold: float, above: bool, error: float
) -> tuple[float, float, int]:
    """Return (lower limit of P(S | one), upper limit of P(S | other), the smaller number of trials)."""
    inside = statistic >= threshold if above else statistic < threshold
    one = greatest if above else ~greatest
    trials_one, trials_other = int(one.sum()), int((~one).sum())
    true_rate = float(lower_limit(inside[one].sum(), trials_one, error))
    false_rate = float(upper_limit(inside[~one].sum(), trials_other, error))
    return true_rate, false_rate, min(trials_one, trials_other)
