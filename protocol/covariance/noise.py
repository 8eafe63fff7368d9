"""Noise for both rounds, as vectors of the shape of the sums.

Noise of a symmetric matrix is symmetric. What counts is the norm of the whole matrix, in which an entry off the
diagonal stands twice: it needs σ/√2 (Gaussian, squares add) or b/2 (Laplace) where the diagonal needs σ or b.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from protocol.covariance import packing
from protocol.covariance.params import CovarianceParams
from protocol.covariance.sensitivity import covariance_scale, global_scale, item_scale
from protocol.noise import laplace
from protocol.tape import Tape

Floats = npt.NDArray[np.float64]


def off_diagonal(params: CovarianceParams) -> float:
    """Noise beside the diagonal, as a fraction of that on it."""
    return math.sqrt(0.5) if params.gaussian else 0.5


def round_length(params: CovarianceParams, round_: int) -> int:
    return 2 * params.n_items + 2 if round_ == 1 else params.items * (params.items + 1)


def scales_for(params: CovarianceParams, round_: int, spread: float = 0.0) -> Floats:
    """The scale of the noise at each place of round 1, or of round 2 (`spread` = max MAvg − min MAvg)."""
    if round_ == 1:
        overall, single = global_scale(params), item_scale(params)
        per_item = np.repeat([single.total, single.count], params.n_items)
        return np.concatenate([[overall.total, overall.count], per_item])
    pair, shape = covariance_scale(params, spread), np.full(packing.packed_length(params.items), off_diagonal(params))
    shape[packing.starts(params.items)] = 1.0
    return np.concatenate([pair.total * shape, pair.count * shape])


def unit_noise(params: CovarianceParams, round_: int, tape: Tape) -> Floats:
    """Of scale 1: N(0, 1), or Laplace(0, 1)."""
    length, name = round_length(params, round_), ("covariance noise", round_)
    drawn = tape.normal(1, length, *name) if params.gaussian else laplace(tape, 1.0, 1, length, *name)
    return drawn.reshape(length)


def noise_for(params: CovarianceParams, round_: int, tape: Tape, spread: float = 0.0) -> Floats:
    """All noise of a round, drawn by one party."""
    if math.isinf(params.epsilon):
        return np.zeros(round_length(params, round_))
    noise = unit_noise(params, round_, tape)
    noise *= scales_for(params, round_, spread)
    return noise
