"""The distance by which one record moves each sum, the noise that this requires, and the ε of the whole release.

Neighbours: one rating is added or removed (`unit_of` rating), or one user with all ratings (user). h is half the span,
plus γ where ratings are perturbed; w_u falls with c_u, the number of ratings of user u.

    per rating   sums h, counts 1; w = c^−½ and L2: Cov 2B max(√2 B, √(α²/4β_p + B²)) + B², Wgt √2
                                   w = 1/c and L1: Cov 2Bα + 3B², Wgt 3
    per user     sums h, counts 1, Cov B², Wgt 1, each with the weight that makes it so (`weights`)

α bounds |x − r̄_u| of a rating x that is centred by item: Δ + 2γ + max MAvg − min MAvg, at most 2Δ without γ. It needs
every MAvg inside the range. The published bound takes α = Δ, which is too small if item averages are at both ends of
the range.

A (sum, count) pair is one measurement of budget θ_i, so that each of the two gets θ_i/κ with κ = √2 (Gaussian: the two
add in squares) or 2 (Laplace). With κ = 1, as printed, a pair spends more than θ_i.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from protocol.arrays import Floats, Ints
from protocol.schemes.covariance.options import CovarianceParams

MEASUREMENTS = 3  # G, M and the covariance


@dataclass(frozen=True, slots=True)
class Pair:
    """One number for a sum, and one for its count."""

    total: float
    count: float

    def times(self, factor: float) -> Pair:
        return Pair(self.total * factor, self.count * factor)


def weights(params: CovarianceParams, n_rated: Ints) -> tuple[Floats, Floats, Floats]:
    """Compute the weight of each user in the sums (G, items, covariance). Every user has at least one rating."""
    counts = n_rated.astype(np.float64)
    if not params.per_user:
        even = np.ones(len(counts))
        return even, even, counts**-0.5 if params.gaussian else 1 / counts
    return 1 / counts, counts**-0.5 if params.gaussian else 1 / counts, 1 / counts if params.gaussian else counts**-2


def alpha(params: CovarianceParams, spread: float) -> float:
    """Compute α, the bound of |x − r̄_u|; `spread` is max MAvg − min MAvg, which is public by then."""
    return params.rating_span + 2 * params.perturbation + (0.0 if params.printed_bound else spread)


def sum_sensitivity(params: CovarianceParams) -> Pair:
    """Compute the sensitivity of the global sum and count, which is also that of the item sums and counts."""
    slack = rounded(params, 1, params.n_items if params.per_user else 1)
    return Pair(params.rating_span / 2 + params.perturbation + slack, 1.0 + slack)


def rounded(params: CovarianceParams, round_: int, entries: int) -> float:
    """Compute how much farther a record moves a part of `entries` numbers (L2 or L1) because each one is rounded."""
    return params.resolutions[round_ - 1] * (math.sqrt(entries) if params.gaussian else entries)


def covariance_sensitivity(params: CovarianceParams, spread: float) -> Pair:
    """Compute the sensitivity of Cov and Wgt: L2 for Gaussian noise (with the largest α), L1 for Laplace noise."""
    exact, slack = _exact_sensitivity(params, spread), rounded(params, 2, params.items**2)
    return Pair(exact.total + slack, exact.count + slack)


def _exact_sensitivity(params: CovarianceParams, spread: float) -> Pair:
    clamp = params.clamp
    if params.per_user:
        return Pair(clamp**2, 1.0)
    if not params.gaussian:
        return Pair(2 * clamp * alpha(params, spread) + 3 * clamp**2, 3.0)
    reach = alpha(params, params.rating_span)
    moved = max(math.sqrt(2) * clamp, math.sqrt(reach**2 / (4 * params.shrink_user) + clamp**2))
    return Pair(2 * clamp * moved + clamp**2, math.sqrt(2))


def kappa(params: CovarianceParams) -> float:
    if not params.joint:
        return 1.0
    return math.sqrt(2) if params.gaussian else 2.0


def global_scale(params: CovarianceParams) -> Pair:
    """Compute κΔ/θ_i, the standard deviation (Gaussian) or scale (Laplace) of the noise."""
    return sum_sensitivity(params).times(kappa(params) / params.budgets[0])


def item_scale(params: CovarianceParams) -> Pair:
    return sum_sensitivity(params).times(kappa(params) / params.budgets[1])


def covariance_scale(params: CovarianceParams, spread: float) -> Pair:
    """Compute κΔ/θ_i for a diagonal entry; `round_noise.off_diagonal` gives the fraction for the others."""
    return covariance_sensitivity(params, spread).times(kappa(params) / params.budgets[2])


# --- ε of the whole release ------------------------------------------------------------------------------------------


def moves(params: CovarianceParams) -> list[float]:
    """Compute how far one record can move each of the six sums, in scales of its noise.

    This is θ_i/κ, except for a covariance whose noise follows the printed bound: it moves by as much as the true
    bound allows.
    """
    steps = [budget / kappa(params) for budget in params.budgets for _ in ("sum", "count")]
    honest = dataclasses.replace(params, printed_bound=False)
    largest = covariance_sensitivity(honest, params.rating_span).total  # the averages may be at both ends
    used = covariance_sensitivity(params, params.rating_span).total
    steps[4] *= largest / used
    return steps


def gaussian_mu(params: CovarianceParams) -> float:
    """Compute μ: all Gaussian releases together equal the release of one number that moves by μ standard deviations."""
    return math.sqrt(math.fsum(step**2 for step in moves(params)))


def whole_epsilon(params: CovarianceParams, delta: float) -> float:
    """Compute ε of the whole release, exact at `delta` (Gaussian) or pure (Laplace), for sums that move by `moves`."""
    from protocol.schemes.composition import gaussian_epsilon  # not needed by any role

    if math.isinf(params.epsilon):
        return math.inf
    return gaussian_epsilon(gaussian_mu(params), delta) if params.gaussian else math.fsum(moves(params))


def published_epsilon(params: CovarianceParams, delta: float) -> float:
    """Compute ε by the paper's formula: Σ θ_i √(2 ln(2/δ_i)) with δ_i = δ/3, or Σ θ_i."""
    return params.epsilon * (math.sqrt(2 * math.log(2 * MEASUREMENTS / delta)) if params.gaussian else 1.0)
