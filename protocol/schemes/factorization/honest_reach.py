"""The bounds that honest item factors and envelopes keep, so that a party can refuse others.

With errors clipped to ±C, a step of the recommender is

    v' = ((1 − 2γμ) I − (2γ/k) Σ_i a_i u_i u_iᵀ) v + (2γ/k) Σ_i a_i u_i r_i − (γ/k) (η + ρ),   0 < a_i ≤ 1, |u_i| ≤ 1

where a_i is the clipped error over the error. The matrix does not lengthen v unless the learning rate is above 1, so v
grows only by the ratings, r ≤ max |r|, and by the noise, |η + ρ| ≤ q in each coordinate except with probability 2^-40
in the whole run:

    |v(t+1)| ≤ g |v(t)| + γ (2 max|r| + sqrt(d) q/k),   g = max(|1 − 2γμ|, |1 − 2γμ − 2γ|),   |v(0)| = 1

C is not in it. The bound is loose for items with few raters late in a run, where honest noise itself carries factors
far; and a server that sends a factor of that length learns u_i from the error that it causes.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.factors import einsum
from protocol.arithmetic.fixedpoint import WRAP_PROBABILITY, noise_reach
from protocol.arithmetic.ring import everywhere
from protocol.arrays import Matrix, Vector
from protocol.schemes.factorization.factorization import GradientParams

MOST_ENVELOPE = 37.0  # an Exp(1) value from 52 random bits is at most 53 ln 2 = 36.74
_ROUNDING = 2.0**-9  # more than the rounding of a factor to 16 bits, twice
_STEPS = 200


class HonestReach:
    """The greatest length of v_j(t) in a run in which all parties follow the protocol."""

    def __init__(self, params: GradientParams, sources: int = 1) -> None:
        """Compute the bound once; `sources` counts the noises of full strength that one sum may carry."""
        self.params = params
        rate = params.learning_rate
        shrunk = 1 - 2 * rate * params.item_regularisation
        rounded = 2.0**-11 if params.factor_bits == 16 else 2.0**-24
        self.growth = max(abs(shrunk), abs(shrunk - 2 * rate)) + 2 * rate * rounded
        draws = params.iterations * params.n_items * params.dim * sources
        self.noise = math.sqrt(params.dim) * noise_reach(params.widest_noise, draws)
        self.pull = 2 * max(abs(params.rating_min), abs(params.rating_max)) + math.sqrt(params.dim) * params.rounding

    def lengths(self, iteration: int, raters: npt.NDArray[np.integer]) -> Vector:
        """Bound |v_j| at the start of `iteration`, for items with so many `raters`."""
        steps, grown = self._powers(iteration)
        per_step = self.params.learning_rate * (self.pull + self.noise / np.maximum(raters, 1).astype(np.float64))
        bounds: Vector = (grown + steps * per_step) * (1 + _ROUNDING)
        return bounds

    def within(self, iteration: int, factors: Matrix, raters: npt.NDArray[np.integer] | None) -> npt.NDArray[np.bool_]:
        """Tell which rows of `factors` an honest run may have reached; None: each may have one of `raters`."""
        squared = einsum("jd,jd->j", factors, factors)
        steps, grown = self._powers(iteration)
        least = grown + steps * self.params.learning_rate * self.pull  # below every bound: as if there were no noise
        inside: npt.NDArray[np.bool_] = squared <= least * least
        if not everywhere(inside):
            inside = np.sqrt(squared) <= self.lengths(iteration, np.ones(1, np.int64) if raters is None else raters)
        return inside

    def _powers(self, iteration: int) -> tuple[float, float]:
        """Return (1 + g + … + g^(t-1), g^t), which may be infinite."""
        try:
            grown = self.growth**iteration
        except OverflowError:
            return math.inf, math.inf
        steps = float(iteration) if self.growth == 1 else (grown - 1) / (self.growth - 1)
        return steps, grown


def least_envelope_sum(dim: int, rows: int) -> float:
    """Find a sum that `dim` independent Exp(1) values stay above, but for one run in 2^40 with so many `rows`.

    By Chernoff P(sum < d y) ≤ exp(−d (y − 1 − ln y)) for y < 1.
    """
    wanted = -math.log(WRAP_PROBABILITY / rows) / dim
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle > 0 and middle - 1 - math.log(middle) < wanted:
            high = middle
        else:
            low = middle
    return dim * low


def plausible_envelopes(envelope: npt.NDArray[np.float32], rows: int) -> bool:
    """Tell whether the rows can be Exp(1) vectors of a run that deals `rows` of them."""
    if not everywhere((envelope > 0) & (envelope <= MOST_ENVELOPE)):
        return False
    sums = einsum("jd->j", envelope.astype(np.float64))
    return everywhere(sums >= least_envelope_sum(envelope.shape[1], rows))
