"""Small parameters, averages and norms for the tests of `covariance` and `hybrid`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import Averages
from protocol.schemes.covariance.options import CovarianceParams, HybridParams
from protocol.schemes.covariance.parts import second_part
from support.basics import params_with


def of_size(n_users: int, n_items: int, theta: float = 1.0, **options: Any) -> CovarianceParams:
    return params_with("covariance", n_users=n_users, n_items=n_items, epsilon=theta, **options)[0]


def hybrid_of_size(n_users: int, n_items: int, epsilon: float = 1.0, **options: Any) -> HybridParams:
    return params_with("hybrid", n_users=n_users, n_items=n_items, epsilon=epsilon, **options)[0]


def known(params: CovarianceParams, item_means: np.ndarray, user_shrink: float = 20.0) -> Averages:
    """Make averages with these item means and all items covered."""
    count = np.zeros(params.n_items)
    return Averages(params.middle, np.asarray(item_means, float), count, np.arange(params.n_items), user_shrink)


def norms(params: CovarianceParams, packed: np.ndarray) -> tuple[float, float]:
    """Compute (L1, L2) of the whole symmetric matrix, in which entries off the diagonal occur twice."""
    twice = np.full(len(packed), 2.0)
    twice[triangle.starts(params.items)] = 1.0
    return float(np.abs(packed) @ twice), math.sqrt(float(packed**2 @ twice))


def change(params: CovarianceParams, averages: Averages, items: np.ndarray, ratings: np.ndarray) -> np.ndarray:
    """Compute how far the sums move when the last rating (per user: all of them) is added: (Cov, Wgt) × (L1, L2)."""
    after = second_part(params, averages, items, ratings)
    few = params.per_user or len(items) == 1  # without any rating a user adds nothing
    before = np.zeros_like(after) if few else second_part(params, averages, items[:-1], ratings[:-1])
    half = triangle.packed_length(params.items)
    moved = after - before
    return np.array([norms(params, moved[:half]), norms(params, moved[half:])])
