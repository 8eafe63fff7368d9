"""Privacy loss under composition, to be set beside the claim of a scheme. No figure here replaces a claim.

One release of an item is Σ∇ + noise; changing one rating moves it by 2 u (r − r'), whose length is at most 2Δ.

* To a party without the envelopes each coordinate carries Laplace(0, b), b = 2Δ√d/ε. The change that attains ε has
  2Δ/√d in every coordinate, so T releases are T·d Laplace mechanisms of ε/d each (`tight_laplace`).
* To the recommender, which dealt H, the noise is Gaussian with known variance 2b²H_l(t). A change in the fixed
  direction w is then μ-Gaussian-private with μ² = Σ_t Σ_l (2Δ w_l)² / (2b² H_l(t)) (`envelope_mu`): no pure ε holds.

Neighbouring data differ in one rating's value; neither bound covers the reaction of u_i itself to it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from protocol.arithmetic.noise import floor_of
from protocol.arithmetic.tape import Tape, exponential
from protocol.arrays import Floats
from protocol.params import Params
from protocol.schemes.base import DELTA
from protocol.schemes.factorization.factorization import FactorizationParams, MaskedParams

MOST_ENVELOPE_VALUES = 50_000_000  # about ten seconds; beyond it a sample of the items is accounted

MOST_SHARE = 50.0  # ε per coordinate above which the loss is its maximum up to e^-50: the basic bound is as good
MOST_CELLS = 2_000_000  # cells of the composed privacy loss distribution



def basic_composition(epsilon: float, releases: int) -> float:
    return epsilon * releases


def advanced_composition(epsilon: float, releases: int, delta: float = DELTA) -> float:
    """Compute ε √(2T ln 1/δ) + T ε (e^ε − 1), or the basic bound where it is smaller: for large ε or few releases."""
    basic = basic_composition(epsilon, releases)
    if epsilon > 50:  # e^ε may overflow
        return basic
    return min(basic, epsilon * math.sqrt(2 * releases * math.log(1 / delta)) + basic * math.expm1(epsilon))


def tight_laplace(epsilon: float, dim: int, releases: int, delta: float = DELTA) -> float:
    """Compute ε at δ of T releases of a d-vector with Lemma-1 noise, through the privacy loss distribution.

    A long run gets a coarser grid, so that it fits into memory; the grid rounds up, so the figure stays a bound.
    """
    share, basic = epsilon / dim, basic_composition(epsilon, releases)
    if share > MOST_SHARE:
        return basic
    from dp_accounting.pld import privacy_loss_distribution as pld  # takes seconds to import

    grid = max(min(1e-3, share / 100), basic / MOST_CELLS)
    one = pld.from_laplace_mechanism(parameter=1 / share, sensitivity=1.0, value_discretization_interval=grid)
    return min(basic, float(one.self_compose(dim * releases).get_epsilon_for_delta(delta)))


HUGE_MU = 1e8  # from here on the bound is the answer up to one part in ten million


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Compute δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2), which holds for a μ-Gaussian-private release."""
    upper = float(log_ndtr(-epsilon / mu + mu / 2))
    lower = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    if lower >= upper:  # equal up to rounding: nothing left
        return 0.0
    return math.exp(upper) * -math.expm1(lower - upper)


def gaussian_epsilon(mu: float, delta: float = DELTA) -> float:
    """Solve δ = δ(μ, ε) of `gaussian_delta` for ε."""
    if mu <= 0:
        return 0.0
    if math.isinf(mu):
        return math.inf

    def excess(epsilon: float) -> float:
        return gaussian_delta(mu, epsilon) - delta

    if excess(0.0) <= 0:
        return 0.0
    largest = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    if mu > HUGE_MU:
        return largest
    from scipy.optimize import brentq  # slow to import
    return float(brentq(excess, 0.0, largest, xtol=1e-9))


def envelope_mu(inverse_sums: Floats, noise_scale: float, rating_span: float, direction: str | Floats) -> Floats:
    """Compute μ per item from `inverse_sums`, Σ_t 1/H_l(t) (rows are items, columns coordinates).

    `direction` is "even": w_l = 1/√d, for which Lemma 1 holds with equality; "worst": along the least noisy coordinate;
    or the directions themselves, one row w of length 1 for each item.
    """
    if isinstance(direction, np.ndarray):
        pick = np.einsum("jl,jl->j", direction**2, inverse_sums)
    else:
        pick = {"even": inverse_sums.mean(axis=1), "worst": inverse_sums.max(axis=1)}[direction]
    mu: Floats = 2 * rating_span * np.sqrt(pick / 2) / noise_scale
    return mu


def inverse_envelope_sums(item_keys: list[bytes], dim: int, iterations: int) -> Floats:
    """Compute Σ_t 1/H_l(t), one row per item, from the keys with which the recommender deals the envelopes of ρ."""
    sums = np.zeros((len(item_keys), dim))
    for iteration in range(iterations):
        sums += 1 / exponential(item_keys, dim, "rho", iteration).astype(np.float64)
    return sums


def composed(params: FactorizationParams, releases: int, delta: float = DELTA) -> dict[str, Any]:
    """Compose `releases` of one rating, to a party that knows nothing of their noise."""
    if not releases:
        return {"releases": 0, "basic": 0.0, "advanced": 0.0, "tight": 0.0}
    return {
        "releases": releases,
        "basic": basic_composition(params.epsilon, releases),
        "advanced": advanced_composition(params.epsilon, releases, delta),
        "tight": tight_laplace(params.epsilon, params.dim, releases, delta),
    }


def account_envelopes(
    params: MaskedParams, recommender_tape: Tape, raters: npt.NDArray[np.int64], delta: float = DELTA
) -> dict[str, Any]:
    """Report the claim of a scheme that deals envelopes, and what T releases of every item leave of it, as JSON."""
    claim, releases = params.epsilon, params.iterations
    if math.isinf(claim):
        return {"epsilon": math.inf, "delta": delta, "method": "no noise (ε = ∞), so nothing bounds what is released"}
    items, sampled = accounted_items(params, recommender_tape, raters)
    keys = [recommender_tape.key("item", int(item)) for item in items]
    recommender = recommender_epsilons(params, inverse_envelope_sums(keys, params.dim, releases), delta)
    return {
        "epsilon": recommender["worst"],
        "delta": delta,
        "method": _method(params, len(items), sampled),
        "claimed": claim,
        **composed(params, releases, delta),
        "recommender": recommender,
        "items": len(items),
    }


def recommender_epsilons(
    params: FactorizationParams, inverse_sums: Floats, delta: float = DELTA
) -> dict[str, float | None]:
    """Compute quantiles of ε over the items; ε grows with μ, so they are found at the quantiles of μ."""
    if not len(inverse_sums):
        return dict.fromkeys(("median", "p99", "worst", "direction_worst"))
    even, worst = (
        envelope_mu(inverse_sums, params.noise_scale, params.rating_span, direction) for direction in ("even", "worst")
    )
    picked = {
        "median": np.quantile(even, 0.5, method="higher"),
        "p99": np.quantile(even, 0.99, method="higher"),
        "worst": even.max(),
        "direction_worst": worst.max(),
    }
    return {name: gaussian_epsilon(float(mu), delta) for name, mu in picked.items()}


def accounted_items(
    params: MaskedParams, tape: Tape, raters: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], bool]:
    """Find the items that can be released, or draw a sample from `tape` if they are too many; tell which of the two."""
    floors = floor_of(raters, params.dropout_allowance, params.min_contributors)
    items = np.flatnonzero((raters > 0) & (raters >= floors))
    most = max(1, MOST_ENVELOPE_VALUES // (params.dim * params.iterations))
    if len(items) <= most:
        return items, False
    order = np.argsort(tape.normal(1, len(items), "accounted items")[0])
    return np.sort(items[order[:most]]), True


def _method(params: Params, n_items: int, sampled: bool) -> str:
    which = f"a random sample of {n_items} released items" if sampled else f"{n_items} released items"
    return (
        f"to the recommender, who knows the envelopes of the iteration noise: {params.iterations} Gaussian releases of "
        f"one rating's value, the worst of {which}, for a change that is even over the coordinates "
        "(recommender.direction_worst: the worst direction too); the constant objective noise is not counted on"
    )
