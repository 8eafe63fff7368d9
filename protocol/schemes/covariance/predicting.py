"""Prediction at the user, from what was published and from its own ratings. No result of it is ever sent.

    base   MAvg_i + r̄_u
    SVD    base + V_i (V_JᵀV_J + λI)⁻¹ V_Jᵀ t_J                          J: the covered items that the user rated
    kNN    base + a·t_N,  a = (A_NN + λI)⁻¹ A_iN, A_NN without its negative eigenvalues
                                                                          N: the k of J with the largest Wgt_ij

An item that is not covered has the base alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.arrays import Floats, Ints, Places
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import Averages, centre
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.covariance.parts import covered_places
from protocol.schemes.covariance.similarity import Similarity, noise_scale_of, relative_noise


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The public values that every prediction needs; `strength` is λ."""

    item_means: Floats
    user_shrink: float
    covered: Ints
    strength: float


def by_factors(known: Known, factors: Floats, items: Places, ratings: Floats, targets: Places) -> Floats:
    """Predict `targets` by SVD; `factors` has a row for each covered item."""
    from numpy.linalg import solve

    mean, centred = centre(known.item_means, known.user_shrink, items, ratings)
    predicted = known.item_means[targets] + mean
    own, inside = covered_places(known.covered, items)
    wanted, there = covered_places(known.covered, targets)
    square = np.einsum("jk,jl->kl", factors[own], factors[own])
    square[np.diag_indices(len(square))] += known.strength
    profile = solve(square, np.einsum("jk,j->k", factors[own], centred[inside]))
    predicted[there] += np.einsum("jk,k->j", factors[wanted], profile)
    return predicted


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """The covariances that kNN needs for one user, whose items are numbered in their order."""

    among: Floats  # A_JJ packed: 0 at items that are not covered, which thus have no influence
    nearest: Ints  # for each covered item, its nearest among the user's items, in increasing order
    towards: Floats  # the covariances of each covered item with its nearest


def neighbourhood(
    similarity: Similarity, covered: Ints, items: Places, count: int, rows: Ints | None = None
) -> Neighbourhood:
    """Find the `count` nearest of the user's `items` for every covered item, or for those in `rows`.

    One of `items` that is not covered is farther than any other.
    """
    own, inside = covered_places(covered, items)
    places, size = np.flatnonzero(inside), len(items)
    rows = np.arange(len(covered)) if rows is None else rows
    weights, among = np.full((len(rows), size), -np.inf), np.zeros((size, size))
    weights[:, places] = similarity.weights[own].T[rows]  # symmetric: rows are read faster than columns
    among[np.ix_(places, places)] = similarity.covariances[np.ix_(own, own)]
    nearest = largest(weights, count)
    where = np.zeros(size, np.int64)
    where[places] = own
    towards = np.where(inside[nearest], similarity.covariances[rows[:, None], where[nearest]], 0.0)
    return Neighbourhood(triangle.pack(among), nearest, towards)


def largest(weights: Floats, count: int) -> Ints:
    """Find in each row the columns of the `count` largest numbers, in increasing order; of equal ones the first."""
    count = min(count, weights.shape[1])
    least = -np.partition(-weights, count - 1, axis=1)[:, count - 1 : count]
    above, equal = weights > least, weights == least
    missing = count - np.count_nonzero(above, axis=1)[:, None]
    chosen = above | (equal & (np.cumsum(equal, axis=1) <= missing))
    return np.nonzero(chosen)[1].reshape(len(weights), count)


def by_neighbours(known: Known, around: Neighbourhood, items: Places, ratings: Floats, targets: Places) -> Floats:
    from numpy.linalg import eigh

    mean, centred = centre(known.item_means, known.user_shrink, items, ratings)
    predicted = known.item_means[targets] + mean
    wanted, there = covered_places(known.covered, targets)
    nearest, towards = around.nearest[wanted], around.towards[wanted]
    if not nearest.size:
        return predicted
    among = triangle.unpack(around.among, len(items))
    values, vectors = eigh(among[nearest[:, :, None], nearest[:, None, :]])
    turned = np.einsum("nji,nj->ni", vectors, towards) / (np.maximum(values, 0.0) + known.strength)
    predicted[there] += np.einsum("ni,nji,nj->n", turned, vectors, centred[nearest])
    return predicted


def ridge(params: CovarianceParams, noise: float) -> float:
    """Compute λ, which is 1 + min(2, σ_o) in stars²; `noise` is σ_o."""
    return (1 + min(2.0, noise)) * params.unit**2


def known_of(params: CovarianceParams, averages: Averages) -> Known:
    """Make the public values: λ follows from the noise, and the noise from the averages (`sensitivity.alpha`)."""
    strength = ridge(params, relative_noise(params, noise_scale_of(params, averages)))
    return Known(averages.item_means, averages.user_shrink, averages.covered, strength)
