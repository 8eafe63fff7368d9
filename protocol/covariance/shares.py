"""Noise that no party draws alone: each of k users adds a share, and only the sum has the law.

    Gaussian   N(0, σ²) is the sum of k independent N(0, σ²/k)
    Laplace    of scale b is the sum of k independent G − G', both Gamma(1/k, b): the law is infinitely divisible,
               so no envelope has to be dealt, and a server that deals nothing knows nothing
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from protocol.covariance.noise import scales_for
from protocol.covariance.params import CovarianceParams
from protocol.tape import Tape

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST = 1e-12  # of a Gamma variable, in scales: what is smaller rounds to 0 in any ring


def noise_share(
    params: CovarianceParams, round_: int, tape: Tape, places: Ints, counts: Floats, spread: float = 0.0
) -> Floats:
    """One user's, at these places of a round; `counts`: how many users add a share to each."""
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
    """P(N > n): most shares are 0, and the large ones come from the tail, where this has all digits."""
    from scipy.special import ndtr

    tail: Floats = ndtr(-normal)
    return tail


def _gamma(shape: Floats, tail: Floats) -> Floats:
    """Gamma(a, 1) with P(G > g) = `tail`; where it would be below `LEAST`, 0."""
    from scipy.special import gammaincc, gammainccinv

    drawn = np.zeros(len(tail))
    large = tail < gammaincc(shape, LEAST)
    drawn[large] = gammainccinv(shape[large], tail[large])
    return drawn


def reach_of(params: CovarianceParams, round_: int, failure: float) -> Floats:
    """q at each place of a round: P(|noise| > q anywhere) ≤ `failure`, wherever in the range item averages are."""
    from scipy.special import ndtri

    scales = scales_for(params, round_, params.rating_span)
    each = failure / len(scales)
    factor = -float(ndtri(each / 2)) if params.gaussian else -math.log(each)
    return scales * factor
