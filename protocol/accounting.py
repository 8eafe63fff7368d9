"""What a scheme claims, and what composition really gives. Nothing here replaces a claim: the figures stand beside it.

One release of an item is Σ∇ + noise; changing one rating moves it by 2 u (r − r'), whose length is at most 2Δ.

* To a party without the envelopes each coordinate carries Laplace(0, b), b = 2Δ√d/ε. The change that attains ε has
  2Δ/√d in every coordinate, so T releases are T·d Laplace mechanisms of ε/d each (`tight_laplace`).
* To the recommender, who dealt H, the noise is Gaussian with known variance 2b²H_l(t). A change in the fixed direction
  w is then μ-Gaussian-private with μ² = Σ_t Σ_l (2Δ w_l)² / (2b² H_l(t)) (`envelope_mu`): no pure ε holds.

The neighbouring data change one rating's value; that u_i itself reacts to it is not covered by either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr

DELTA = 1e-5
LARGEST_EPSILON = 1e6

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Accounted:
    """An ε at a δ, and how it was found, in words."""

    epsilon: float | None
    delta: float
    method: str


def basic_composition(epsilon: float, releases: int) -> float:
    return epsilon * releases


def advanced_composition(epsilon: float, releases: int, delta: float = DELTA) -> float:
    """ε √(2T ln 1/δ) + T ε (e^ε − 1); no better than the basic bound for a large ε."""
    if epsilon > 50:
        return basic_composition(epsilon, releases)
    return epsilon * math.sqrt(2 * releases * math.log(1 / delta)) + releases * epsilon * math.expm1(epsilon)


def tight_laplace(epsilon: float, dim: int, releases: int, delta: float = DELTA) -> float:
    """ε at δ of T releases of a d-vector with Lemma-1 noise, through the privacy loss distribution."""
    from dp_accounting.pld import privacy_loss_distribution as pld  # takes seconds to import

    share = epsilon / dim
    grid = min(1e-3, share / 100)
    one = pld.from_laplace_mechanism(parameter=1 / share, sensitivity=1.0, value_discretization_interval=grid)
    return float(one.self_compose(dim * releases).get_epsilon_for_delta(delta))


def gaussian_epsilon(mu: float, delta: float = DELTA) -> float:
    """The ε at δ of a μ-Gaussian-private release: δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2), solved for ε."""
    if mu <= 0:
        return 0.0
    if math.isinf(mu):
        return math.inf

    def excess(epsilon: float) -> float:
        upper = float(log_ndtr(-epsilon / mu + mu / 2))
        lower = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
        if lower >= upper:  # equal up to rounding: nothing left
            return -delta
        return math.exp(upper) * -math.expm1(lower - upper) - delta

    if excess(0.0) <= 0:
        return 0.0
    largest = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    return float(brentq(excess, 0.0, largest, xtol=1e-9))


def envelope_mu(inverse_sums: Floats, noise_scale: float, rating_span: float, direction: str) -> Floats:
    """μ per item from Σ_t 1/H_l(t) (rows are items, columns coordinates).

    `even`: w_l = 1/√d, the direction for which Lemma 1 holds with equality. `worst`: along the least noisy coordinate.
    """
    pick = {"even": inverse_sums.mean(axis=1), "worst": inverse_sums.max(axis=1)}[direction]
    mu: Floats = 2 * rating_span * np.sqrt(pick / 2) / noise_scale
    return mu
