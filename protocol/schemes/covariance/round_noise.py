"""Noise for both rounds, as vectors of the shape of the sums.

Noise of a symmetric matrix is symmetric. Sensitivity is measured by the norm of the whole matrix, which counts an entry
off the diagonal twice: it needs σ/√2 (Gaussian, squares add) or b/2 (Laplace) where the diagonal needs σ or b.
"""

from __future__ import annotations

import math

import numpy as np

from protocol.arithmetic.noise import laplace
from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Ints
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.covariance.sensitivity import covariance_scale, global_scale, item_scale


def off_diagonal(params: CovarianceParams) -> float:
    """Return the scale of the noise off the diagonal, as a fraction of that on the diagonal."""
    return math.sqrt(0.5) if params.gaussian else 0.5


def round_length(params: CovarianceParams, round_: int) -> int:
    return 2 * params.n_items + 2 if round_ == 1 else params.items * (params.items + 1)


def scales_for(params: CovarianceParams, round_: int, spread: float = 0.0) -> Floats:
    """Compute the scale of the noise at each place of a round; round 2 needs `spread`, max MAvg − min MAvg."""
    if round_ == 1:
        overall, single = global_scale(params), item_scale(params)
        per_item = np.repeat([single.total, single.count], params.n_items)
        return np.concatenate([[overall.total, overall.count], per_item])
    pair, shape = covariance_scale(params, spread), np.full(triangle.packed_length(params.items), off_diagonal(params))
    shape[triangle.starts(params.items)] = 1.0
    return np.concatenate([pair.total * shape, pair.count * shape])


def unit_noise(params: CovarianceParams, round_: int, tape: Tape) -> Floats:
    """Draw noise of scale 1 for a round: N(0, 1), or Laplace(0, 1)."""
    length, name = round_length(params, round_), ("covariance noise", round_)
    drawn = tape.normal(1, length, *name) if params.gaussian else laplace(tape, 1.0, 1, length, *name)
    return drawn.reshape(length)


def noise_for(params: CovarianceParams, round_: int, tape: Tape, spread: float = 0.0) -> Floats:
    """Draw all noise of a round, at one party."""
    if math.isinf(params.epsilon):
        return np.zeros(round_length(params, round_))
    noise = unit_noise(params, round_, tape)
    noise *= scales_for(params, round_, spread)
    return noise


def total_label(iteration: int, length: int) -> Label:
    """Name the noisy sums of the round of `iteration`, of which everything is made that is published."""
    return Label("total", iteration, np.arange(length, dtype=np.uint32))


LEAST = 1e-12  # least value of a Gamma variable, in scales: a smaller one rounds to 0 in any ring


def noise_share(
    params: CovarianceParams, round_: int, tape: Tape, places: Ints, counts: Floats, spread: float = 0.0
) -> Floats:
    """Draw one user's share of the noise at `places` of a round; `counts` users add a share at each place."""
    if math.isinf(params.epsilon):
        return np.zeros(len(places))
    scales = scales_for(params, round_, spread)[places]
    name = ("covariance share", round_)
    if params.gaussian:
        share: Floats = scales * tape.normal(1, len(places), *name)[0] / np.sqrt(counts)
        return share
    uniform = _uniform(tape.normal(2, len(places), *name))
    return scales * (_gamma(1 / counts, uniform[0]) - _gamma(1 / counts, uniform[1]))


def _uniform(normal: Floats) -> Floats:
    """Compute P(N > n) of each n in `normal`: uniform, with all digits of small values, which make large shares."""
    from scipy.special import ndtr

    tail: Floats = ndtr(-normal)
    return tail


def _gamma(shape: Floats, tail: Floats) -> Floats:
    """Find g of Gamma(`shape`, 1) with P(G > g) = `tail`, or 0 where g would be below `LEAST`."""
    from scipy.special import gammaincc, gammainccinv

    drawn = np.zeros(len(tail))
    large = tail < gammaincc(shape, LEAST)
    drawn[large] = gammainccinv(shape[large], tail[large])
    return drawn


def reach_of(params: CovarianceParams, round_: int, failure: float) -> Floats:
    """Find q at each place of a round with P(|noise| > q anywhere) ≤ `failure`, for any item averages in the range."""
    from scipy.special import ndtri

    scales = scales_for(params, round_, params.rating_span)
    each = failure / len(scales)
    factor = -float(ndtri(each / 2)) if params.gaussian else -math.log(each)
    return scales * factor
