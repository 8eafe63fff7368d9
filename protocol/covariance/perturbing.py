"""`hybrid`: what a user adds to its ratings before they leave it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.covariance.params import HybridParams
from protocol.tape import Tape, _unit_interval, keystream

Floats = npt.NDArray[np.float64]


def perturbation(params: HybridParams, tape: Tape, count: int) -> Floats:
    """v ~ U[−γ, γ], one for each rating, drawn once."""
    words = np.frombuffer(keystream(tape.key("perturbation"), 8 * count, "uniform"), "<u8")
    return params.gamma * (2 * _unit_interval(words) - 1)


def perturbed(params: HybridParams, tape: Tape, ratings: Floats) -> Floats:
    """r' = r + v, as float32 numbers: that is how they travel."""
    return within_reach(params, (ratings + perturbation(params, tape, len(ratings))).astype(np.float32))


def within_reach(params: HybridParams, received: npt.NDArray[np.floating]) -> Floats:
    """r' as the recommender uses it: rounding may have led beyond the range for which the noise is made."""
    low, high = params.rating_min - params.gamma, params.rating_max + params.gamma
    return np.minimum(np.maximum(received.astype(np.float64), low), high)
