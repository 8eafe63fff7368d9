"""The posterior of ratings given the noisy gradients of one user in one iteration: Bayes with the population's prior.

    y_j = −2 u (r_j − u·v_j) + noise,   u uniform on the unit sphere, noise normal with known variances

Given u the ratings are independent, and with s_jr = 2 (r − u·v_j)

    log P(y_j | u, r) = −A_j s_jr²/2 − B_j s_jr + const,   A_j = Σ_l u_l²/σ_jl²,   B_j = Σ_l u_l y_jl/σ_jl²

u is drawn by importance sampling: as the direction of a weighted mean of −y_j, disturbed by the noise of that mean. The
density of a direction is an integral over the discarded length. Without noise the ratings are determined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import logsumexp

from protocol.arrays import Matrix, Vector

DRAWS = 400
_NODES, _WEIGHTS = hermegauss(24)


class SharedGradients(NamedTuple):
    """Gradients that share one u."""

    values: Matrix
    variance: Matrix
    factors: Matrix


def posterior(rows: SharedGradients, scale: Vector, prior: Vector, rng: np.random.Generator) -> Matrix:
    """Compute P(r_j | all y), one row per gradient and one column per value of `scale`."""
    profiles, log_density = _draw(rows, rng)
    precision = 1 / rows.variance
    slope, cross = profiles**2 @ precision.T, profiles @ (rows.values * precision).T
    lengths = 2 * (scale[None, None, :] - (profiles @ rows.factors.T)[:, :, None])
    logs = -0.5 * slope[:, :, None] * lengths**2 - cross[:, :, None] * lengths + np.log(prior)
    each = np.asarray(logsumexp(logs, axis=2))
    weights = each.sum(axis=1) - log_density
    weights = np.exp(weights - logsumexp(weights))
    found: Matrix = np.einsum("k,kjr->jr", weights, np.exp(logs - each[:, :, None]))
    return found


def _draw(rows: SharedGradients, rng: np.random.Generator) -> tuple[Matrix, Vector]:
    """Draw unit vectors; return them with the log density of each, up to a constant."""
    weights = 1 / rows.variance.mean(axis=1)
    weights = weights / weights.sum()
    centre, spread = weights @ rows.values, weights**2 @ rows.variance
    dim = len(centre)
    drawn = centre + np.sqrt(spread) * rng.standard_normal((DRAWS, dim))
    signs = np.where(rng.random(DRAWS) < 0.5, 1.0, -1.0)  # an error r − u·v may be negative
    profiles: Matrix = drawn * (signs / np.sqrt((drawn**2).sum(axis=1)))[:, None]
    slope, cross = (profiles**2 / spread).sum(axis=1), (profiles * centre / spread).sum(axis=1)
    # ∫ |s|^(d−1) exp(−A s²/2 − B s) ds = exp(B²/2A) sqrt(2π/A) E|−B/A + N/√A|^(d−1)
    reached = np.abs(-(cross / slope)[:, None] + _NODES / np.sqrt(slope)[:, None])
    moment = np.asarray(logsumexp((dim - 1) * np.log(np.maximum(reached, 1e-300)), axis=1, b=_WEIGHTS))
    return profiles, cross**2 / (2 * slope) - 0.5 * np.log(slope) + moment
