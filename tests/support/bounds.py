"""The bounds of the canaries once more, straight down the page: sums of terms, and bisection instead of a solver."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

NORMAL = NormalDist()


def tails(guesses: int, rate: float) -> list[float]:
    """List P[Bin ≥ k] for k = 0, 1, …, by adding the terms from the last one on."""
    found, total = [], 0.0
    for k in range(guesses, -1, -1):
        ways = math.lgamma(guesses + 1) - math.lgamma(k + 1) - math.lgamma(guesses - k + 1)
        total += math.exp(ways + k * math.log(rate) + (guesses - k) * math.log1p(-rate))
        found.append(total)
    return found[::-1]


def largest(refuted: Callable[[float], bool], top: float) -> float:
    """Bisect for the largest value that is refuted; 0 if none is."""
    low, high = 0.0, top
    if not refuted(0.0):
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def one_run(canaries: int, guesses: int, right: int, confidence: float, delta: float) -> float:
    def refuted(epsilon: float) -> bool:
        rate = math.exp(epsilon) / (1 + math.exp(epsilon))
        each = tails(guesses, rate)
        alpha = max((each[right - i] - each[right]) / i for i in range(1, right + 1))
        return each[right] + 2 * canaries * delta * max(alpha, 0.0) <= 1 - confidence

    return largest(refuted, 16.0)


def one_run_gaussian(canaries: int, guesses: int, right: int, confidence: float) -> float:
    def refuted(mu: float) -> bool:
        r, h = (1 - confidence) * right / canaries, (1 - confidence) * (guesses - right) / canaries
        for i in range(right - 1, -1, -1):
            higher = max(h, NORMAL.cdf(NORMAL.inv_cdf(r) - mu) if r < 1 else 1.0)
            r = min(1.0, r + i / (guesses - i) * (higher - h))
            h = higher
        return r + h > guesses / canaries

    return largest(refuted, 16.0)


def share(values: list[float], truth: list[bool], mus: list[float], confidence: float) -> float:
    """Bound the share of the shifts by least squares: `values` have a deviation of 1 and the means ±c μ/2."""
    signs = [1 if greatest else -1 for greatest in truth]
    fitted = sum(sign * mu / 2 * value for sign, mu, value in zip(signs, mus, values, strict=True))
    information = sum(mu * mu / 4 for mu in mus)
    return max(0.0, fitted / information - NORMAL.inv_cdf(confidence) / math.sqrt(information))


def many_runs(missed: int, positives: int, false: int, negatives: int, confidence: float) -> float:
    def limit(hits: int, trials: int) -> float:
        return largest(lambda rate: rate == 0 or 1 - tails(trials, rate)[hits + 1] > (1 - confidence) / 2, 1 - 1e-12)

    return max(0.0, NORMAL.inv_cdf(1 - limit(false, negatives)) - NORMAL.inv_cdf(limit(missed, positives)))
