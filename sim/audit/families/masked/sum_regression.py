"""Estimate single ratings from the sums of all iterations, by regression on who took part in which of them.

A sum adds the gradients of those that took part, p_i(t) = 1, and two noises:

    S_j(t) = Σ_i p_i(t) (−2 (r_ij − u_i·v_j) u_i) + η_j + ρ_j(t)

Given u_i(t), it is linear in the ratings. The recommender does not know u_i, but users move it by a public rule from
their ratings and the v_j that they were sent, and soon forget where it began. So ratings and paths are estimated in
turn, from the mean rating on. What is then unknown of u_i counts as noise: much in a user's first answers, little
later (`FORGOTTEN`, `DRIFT`). Each item is a regression with a normal prior, the law of the population for a rating and
that of the envelopes for η_j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.factors import prediction_errors, step_user
from protocol.arrays import Counts, Flags, Floats, Matrix, Vector
from protocol.schemes.factorization.factorization import GradientParams

PASSES = 3
MOST_RATERS = 200  # sums of more users are left alone: a regression of so many is slow, and tells little of each
LITTLE = 0.1  # of a rating's precision in the population: if sums cannot add more, even if all else is known, they wait
FORGOTTEN = 0.85  # of what is unknown of u_i at first, so much is left after each answer
DRIFT = 0.006  # variance of a coordinate of a gradient that the path of u_i leaves open, over the square of the span
_EXACT = 1e-9  # variance of noise that is not there


class SumHistory(NamedTuple):
    """What a party that opens sums knows of them; iterations come first, then users or items."""

    factors: npt.NDArray[np.float64]  # v_j(t), as users were sent it
    sums: npt.NDArray[np.float64]  # 0 where nothing was released
    released: Flags  # iterations, items
    present: Flags  # iterations, users
    held: Flags  # users, items
    objective: Matrix  # variance of η_j
    iteration: npt.NDArray[np.float64]  # variance of ρ_j(t)


class Population(NamedTuple):
    """The public law of ratings."""

    mean: float
    variance: float


class Estimate(NamedTuple):
    """Means and variances of ratings, users × items; what no sum is about keeps those of the population."""

    mean: Matrix
    variance: Matrix
    of_items: Vector  # the mean of all raters of each item


def estimate_ratings(history: SumHistory, params: GradientParams, population: Population) -> Estimate:
    """Estimate the ratings of all users from `history`."""
    shape = history.held.shape
    ratings = np.full(shape, population.mean)
    for _ in range(PASSES):
        paths, unknown = _paths(history, params, ratings, population)
        mean, variance = np.full(shape, population.mean), np.full(shape, population.variance)
        for item in range(shape[1]):
            users = np.flatnonzero(history.held[:, item] & history.present.any(axis=0))
            seen = 0 < len(users) <= MOST_RATERS and history.released[:, item].any()
            if seen and (found := _of_item(history, item, users, paths, unknown, population)):
                mean[users, item], variance[users, item] = found
        ratings = mean
    raters = history.held.sum(axis=0)
    means = np.where(raters > 0, (mean * history.held).sum(axis=0) / np.maximum(raters, 1), population.mean)
    return Estimate(mean, variance, means)


def _paths(
    history: SumHistory, params: GradientParams, ratings: Matrix, population: Population
) -> tuple[Floats, Matrix]:
    """Follow u_i(t) of each user from 0; return it, and the variance that is left open in a coordinate of a gradient.

    A path is right only in iterations in which the user took part.
    """
    n_iterations, n_users = history.present.shape
    paths, unknown = np.zeros((n_iterations, n_users, params.dim)), np.zeros((n_iterations, n_users))
    at_first = 4 * (population.variance + population.mean**2) / params.dim
    low, high = params.rating_min, params.rating_max
    for user in range(n_users):
        items, own, left = np.flatnonzero(history.held[user]), np.zeros(params.dim), at_first
        rated = np.clip(ratings[user, items], low, high)
        for t in np.flatnonzero(history.present[:, user]):
            paths[t, user], unknown[t, user] = own, left + DRIFT * params.rating_span**2
            factors = history.factors[t, items]
            errors = np.clip(prediction_errors(rated, own, factors), -params.clip, params.clip)
            own = step_user(own, factors, errors, params.learning_rate, params.user_regularisation)
            left *= FORGOTTEN
    return paths, unknown


def _of_item(
    history: SumHistory, item: int, users: Counts, paths: Floats, unknown: Matrix, population: Population
) -> tuple[Vector, Vector] | None:
    """Return the means and variances of the ratings of one item, after its sums; None if they tell too little."""
    rows = np.flatnonzero(history.released[:, item])
    there = history.present[np.ix_(rows, users)]
    own = paths[np.ix_(rows, users)] * there[:, :, None]
    noise = history.iteration[rows, item] + (unknown[np.ix_(rows, users)] * there).sum(axis=1)[:, None] + _EXACT
    most = 4 * np.einsum("tkd,td->k", own**2, 1 / noise)
    if most.max() * population.variance < LITTLE:
        return None
    predicted = np.einsum("tkd,td->tk", own, history.factors[rows, item])
    known = 2 * np.einsum("tk,tkd->td", predicted, own)
    dim = own.shape[2]
    design = np.concatenate(
        [-2 * own.transpose(0, 2, 1).reshape(-1, len(users)), np.tile(np.eye(dim), (len(rows), 1))], axis=1
    )
    start = np.concatenate([np.full(len(users), population.mean), np.zeros(dim)])
    trust = np.concatenate([np.full(len(users), 1 / population.variance), 1 / (history.objective[item] + _EXACT)])
    weighted = design * (1 / noise).reshape(-1)[:, None]
    spread = np.linalg.inv(weighted.T @ design + np.diag(trust))
    left = (history.sums[rows, item] - known).reshape(-1) - design @ start
    found = start + spread @ (weighted.T @ left)
    k = len(users)
    return found[:k], np.diag(spread)[:k]
