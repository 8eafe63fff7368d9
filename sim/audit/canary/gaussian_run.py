"""Lower bounds on μ where a mechanism is claimed to be μ-Gaussian-private, from one run or from many.

One run, m canaries (Mahloujifar, Melis, Chaudhuri 2024, arXiv 2410.22235): if c of c' guesses are right with a
probability of α or more, then so are, step by step, c − 1, c − 2, … of them; `refutes_mu` follows the two smallest
masses that this needs, and refutes μ if they exceed what there is.

Many runs: no test tells two μ-Gaussian-private cases apart better than N(0, 1) from N(μ, 1), so

    μ ≥ Φ⁻¹(1 − FPR) − Φ⁻¹(FNR),

with the upper Clopper–Pearson limit of either rate, each at half of the allowed error.
"""

from __future__ import annotations

from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from sim.audit.scoring import upper_limit

TOLERANCE = 1e-10
MOST_MU = 64.0  # Φ⁻¹ of a float64 ends at 38


def refutes_mu(canaries: int, guesses: int, right: int, mu: float, error: float) -> float:
    """Compute by how much `right` of `guesses` exceed what μ allows; positive means that μ is refuted."""
    told, missed = error * right / canaries, error * (guesses - right) / canaries
    for left in range(right - 1, -1, -1):
        further = float(ndtr(ndtri(told) - mu))
        if further <= missed:  # nothing changes from here on
            break
        told, missed = min(1.0, told + left / (guesses - left) * (further - missed)), further
    return told + missed - guesses / canaries


def one_run_mu(canaries: int, guesses: int, right: int, confidence: float) -> float:
    """Compute the largest μ that the guesses of one run refute; 0 if they refute none."""

    def excess(mu: float) -> float:
        return refutes_mu(canaries, guesses, right, mu, 1 - confidence)

    if guesses == 0 or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, MOST_MU, xtol=TOLERANCE))


def many_runs_mu(missed: int, positives: int, false: int, negatives: int, confidence: float) -> float:
    """Compute the largest μ that the two error rates refute: `missed` of `positives`, `false` of `negatives`."""
    error = (1 - confidence) / 2
    if missed >= positives or false >= negatives:
        return 0.0
    unseen, alarms = (
        float(upper_limit(hits, trials, error))
        for hits, trials in ((missed, positives), (false, negatives))
    )
    return max(0.0, float(-ndtri(alarms) - ndtri(unseen)))
