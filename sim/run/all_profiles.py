"""Fit the profiles of all users at once, as `protocol/party/profile.py` does for one user, but with LAPACK.

    u = (V_R^T V_R + λ' I)^-1 V_R^T r = V_R^T (V_R V_R^T + λ' I)^-1 r

The second form is smaller, and better conditioned, for a user with fewer ratings than there are dimensions. Users with
equally many ratings are solved together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocol.arrays import Matrix, Places
from protocol.party.profile import PRINTED_RIDGE, RIDGES
from sim.data.ratings import Column

_AT_ONCE = 1 << 22  # numbers gathered in one batch
_LEAST_REST = 1e-12  # lower bound of 1 − S_jj, as on a device
_EQUAL = 1e-12  # relative difference of scores that rounding alone can cause


def solve_profiles(item_factors: Matrix, train: Column, ridge: float = PRINTED_RIDGE) -> Matrix:
    """Fit one row for each user to the factors of the items that it rated; a user without ratings gets zeros."""
    solved: Matrix = np.zeros((len(train.counts), item_factors.shape[1]))
    for users, rated, ratings in _alike(item_factors, train):
        solved[users] = _solve(rated, ratings, ridge)
    return solved


def choose_profiles(item_factors: Matrix, train: Column, rating_range: tuple[float, float]) -> Matrix:
    """Fit the profiles with the λ' that each user would choose by the exact leave-one-out error of its own ratings."""
    ridges: Matrix = np.array(RIDGES)
    chosen: Matrix = np.zeros((len(train.counts), item_factors.shape[1]))
    for users, rated, ratings in _alike(item_factors, train):
        chosen[users] = _choose(rated, ratings, ridges, rating_range)
    return chosen


def _alike(item_factors: Matrix, train: Column) -> Iterator[tuple[Places, Matrix, Matrix]]:
    """Yield batches of users with equally many ratings: (users, V_R of each, ratings of each)."""
    dim, counts = item_factors.shape[1], train.counts
    for n in np.unique(counts[counts > 0]).tolist():
        alike = np.flatnonzero(counts == n)
        size = max(1, _AT_ONCE // (max(n, dim) * dim))
        for start in range(0, len(alike), size):
            users = alike[start : start + size]
            rows = train.starts[users][:, None] + np.arange(n)
            yield users, item_factors[train.items[rows]], train.values[rows]


def _choose(rated: Matrix, ratings: Matrix, ridges: Matrix, rating_range: tuple[float, float]) -> Matrix:
    """Try all λ' in `ridges` with one decomposition: V_R = P diag(s) Q^T, so S = P diag(s²/(s²+λ')) P^T."""
    left, sizes, right = np.linalg.svd(rated, full_matrices=False)
    pulled = np.einsum("unk,un->uk", left, ratings)
    best, chosen = np.full(len(rated), np.inf), np.zeros((len(rated), rated.shape[2]))
    for ridge in ridges.tolist():
        shrunk = sizes * sizes / (sizes * sizes + ridge)
        fitted = np.einsum("unk,uk->un", left, shrunk * pulled)
        rest = np.maximum(1.0 - np.einsum("unk,uk->un", left * left, shrunk), _LEAST_REST)
        left_out = np.clip(ratings - (ratings - fitted) / rest, *rating_range)
        score = np.mean((ratings - left_out) ** 2, axis=1)
        better = score <= best * (1 + _EQUAL)  # among equal scores the largest λ' wins
        weights = sizes / (sizes * sizes + ridge) * pulled
        chosen[better] = np.einsum("ukd,uk->ud", right[better], weights[better])
        best = np.where(better, np.minimum(score, best), best)
    return chosen


def _solve(rated: Matrix, ratings: Matrix, ridge: float) -> Matrix:
    """Solve for users with equally many ratings: `rated` has one matrix V_R for each."""
    n, dim = rated.shape[1:]
    across = rated.transpose(0, 2, 1)
    right = ratings[:, :, None]
    if n < dim:
        found = across @ np.linalg.solve(rated @ across + ridge * np.eye(n), right)
    else:
        found = np.linalg.solve(across @ rated + ridge * np.eye(dim), across @ right)
    return found[:, :, 0]
