"""Item covariances A and their factors V, from the noisy sums of round 2.

With cleaning, every entry is shrunk to the average of its kind, and more so the larger its noise is,

    A_ij = clip((Cov_ij + K t_off) / (max(Wgt_ij, 0) + K), ±B²),   A_ii likewise with K_d, t_d, at least .1 B²

then scaled to equal noise by q_i = √max(MCnt_i, 5 + σ_MSum), cut to its largest positive eigenvalues and scaled back:
V = U√Λ / q. Without cleaning, A is Cov/Wgt where the weight stands out of its noise, else 0.

The eigenvectors come from LAPACK. They are the one result of the protocol whose last bits may differ on another
machine; on one machine, with one thread, they repeat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from protocol.arrays import Floats
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import Averages, relative_item_noise
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.covariance.round_noise import off_diagonal
from protocol.schemes.covariance.sensitivity import Pair, covariance_scale

LEAST_COUNT = 5.0  # least count that an item is given when entries are scaled to equal noise
STANDS_OUT = 3.0  # standard deviations of its noise that a weight must exceed
SHRINK_NOISE = 10.0  # increase of K for each unit of noise


@dataclass(frozen=True, slots=True, eq=False)
class Similarity:
    """Covariances and weights of the covered items, in their order."""

    covariances: Floats  # A, rounded to the float32 in which it travels
    weights: Floats  # noisy Wgt
    noise: float  # σ_o in stars²


def similarity_of(params: CovarianceParams, averages: Averages, noisy: Floats) -> Similarity:
    half = triangle.packed_length(params.items)
    products, weights = (triangle.unpack(part, params.items) for part in (noisy[:half], noisy[half:]))
    scale = noise_scale_of(params, averages)
    clean = _shrunk if params.cleaning else _divided
    covariances = clean(params, products, weights, scale).astype(np.float32).astype(np.float64)
    return Similarity(covariances, weights, relative_noise(params, scale))


def noise_scale_of(params: CovarianceParams, averages: Averages) -> Pair:
    return Pair(0.0, 0.0) if math.isinf(params.epsilon) else covariance_scale(params, averages.spread)


def relative_noise(params: CovarianceParams, scale: Pair) -> float:
    """Compute σ_o = σ_Cov/√2 in stars², the noise of an entry off the diagonal."""
    return scale.total / math.sqrt(2) / params.unit**2


def first_shrink(params: CovarianceParams) -> float:
    """Return K0, the value of K without noise: 4, .5, .005 for the weights c^−½, 1/c, 1/c²."""
    if params.per_user:
        return 0.5 if params.gaussian else 0.005
    return 4.0 if params.gaussian else 0.5


def _shrunk(params: CovarianceParams, products: Floats, weights: Floats, scale: Pair) -> Floats:
    bound, noise = params.clamp**2, relative_noise(params, scale)
    shrink = first_shrink(params) + SHRINK_NOISE * noise
    shrink_diagonal = first_shrink(params) + SHRINK_NOISE * math.sqrt(2) * noise
    of_products, of_weights = np.diagonal(products), np.diagonal(weights)
    trace, weight_trace = float(of_products.sum()), float(of_weights.sum())
    rest, weight_rest = float(products.sum()) - trace, float(weights.sum()) - weight_trace
    typical = _clip(rest / weight_rest, 0.05 * bound) if weight_rest > 0 else 0.0
    typical_diagonal = min(max(trace / weight_trace, 0.25 * bound), bound) if weight_trace > 0 else 0.5 * bound
    shrunk = (products + shrink * typical) / (np.maximum(weights, 0.0) + shrink)
    shrunk = np.minimum(np.maximum(shrunk, -bound), bound)
    diagonal = (of_products + shrink_diagonal * typical_diagonal) / (np.maximum(of_weights, 0.0) + shrink_diagonal)
    np.fill_diagonal(shrunk, np.minimum(np.maximum(diagonal, 0.1 * bound), bound))
    return shrunk


def _clip(value: float, bound: float) -> float:
    return min(max(value, -bound), bound)


def _divided(params: CovarianceParams, products: Floats, weights: Floats, scale: Pair) -> Floats:
    # a Laplace variable of scale b has the standard deviation √2 b
    deviation = scale.count * (1.0 if params.gaussian else math.sqrt(2))
    least = np.full(weights.shape, STANDS_OUT * deviation * off_diagonal(params))
    np.fill_diagonal(least, STANDS_OUT * deviation)
    known = weights > least
    bound = params.clamp**2
    ratios = np.divide(products, weights, out=np.zeros_like(products), where=known)
    return np.minimum(np.maximum(ratios, -bound), bound)


def item_factors(params: CovarianceParams, averages: Averages, similarity: Similarity) -> Floats:
    """Compute V with V Vᵀ ≈ A: one row for each covered item, rounded to the float32 in which it travels."""
    from scipy.linalg import eigh  # only a recommender needs it

    covariances, size = similarity.covariances, params.items
    scale = np.ones(size)
    if params.cleaning:
        scale = np.sqrt(np.maximum(averages.item_counts[averages.covered], LEAST_COUNT + relative_item_noise(params)))
    scaled = scale[:, None] * covariances * scale
    values, vectors = eigh(scaled, subset_by_index=(size - params.rank, size - 1), overwrite_a=True)
    # the sign of an eigenvector is arbitrary: its largest entry is made positive
    peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    vectors = vectors * np.where(peaks < 0, -1.0, 1.0)
    factors = (vectors * np.sqrt(np.maximum(values, 0.0)) / scale[:, None])[:, ::-1]
    return factors.astype(np.float32).astype(np.float64)
