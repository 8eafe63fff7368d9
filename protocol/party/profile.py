"""A user's profile, fitted locally to its training ratings and the published item factors.

    A = V_R^T V_R + λ' I,   u = A^-1 V_R^T r,   prediction of item j: u·v_j, clipped to the rating range

λ' is a parameter of the run, or the user chooses it from `RIDGES` by the exact leave-one-out error of its own ratings:
with S = V_R A^-1 V_R^T the prediction of r_j by the other ratings is r_j − (r − V_R u)_j / (1 − S_jj). Nothing of this
leaves the user, so the choice costs no privacy and no byte.

The factorization A = L L^T is written out: LAPACK would give other last bits on another machine. All λ' are computed
at once (the axis k), which costs little more than one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.arithmetic.factors import einsum
from protocol.arrays import Floats, Matrix, Vector

RIDGES = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
PRINTED_RIDGE = RIDGES[0]  # λ of the paper's equation (1)
_ROWS_AT_ONCE = 1024  # ratings: bounds the memory for eight λ' and a user with many ratings
_LEAST_REST = 1e-12  # of 1 − S_jj, which is above 0 except for rounding


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The factors that a user has fitted: with its own choice of λ', and with the printed one."""

    ridge: float
    factors: Vector
    as_printed: Vector


def fit_profile(
    item_factors: Matrix, ratings: Vector, rating_range: tuple[float, float], ridge: float = 0.0
) -> Profile:
    """Fit u to the `ratings` of the items with these `item_factors`; with a `ridge` of 0 the user chooses λ'."""
    ridges = (ridge, PRINTED_RIDGE) if ridge else RIDGES
    fitted, scores = fit_and_score(item_factors, ratings, rating_range, ridges)
    printed = ridges.index(PRINTED_RIDGE)
    if ridge:
        return Profile(ridge, fitted[0], fitted[printed])
    best = int(np.flatnonzero(scores == scores.min())[-1])  # of equal scores the largest λ'
    return Profile(ridges[best], fitted[best], fitted[printed])


def fit_and_score(
    item_factors: Matrix, ratings: Vector, rating_range: tuple[float, float], ridges: tuple[float, ...]
) -> tuple[Floats, Vector]:
    """Compute (u, one row for each λ' of `ridges`; the mean squared leave-one-out error of each)."""
    weights = np.array(ridges)
    with np.errstate(over="ignore", invalid="ignore"):  # only with factors that no honest recommender sends
        lower = _cholesky(einsum("nd,ne->de", item_factors, item_factors), weights)
        pull = einsum("nd,n->d", item_factors, ratings)
        right = np.broadcast_to(pull[None, :, None], (len(weights), len(pull), 1))
        fitted = np.nan_to_num(_backward(lower, _forward(lower, right)), posinf=0.0, neginf=0.0)
        errors = ratings - einsum("kd,nd->kn", fitted, item_factors)
        rest = np.maximum(1.0 - _leverages(lower, item_factors), _LEAST_REST)
        left_out = ratings - _clipped(ratings - errors / rest, rating_range)
    scores: Vector = einsum("kn,kn->k", left_out, left_out) / len(ratings)
    return fitted, scores


def predict(item_factors: Matrix, profile: Vector, rating_range: tuple[float, float]) -> Vector:
    """Predict the rating of each item whose factors are given."""
    return _clipped(score(item_factors, profile), rating_range)


def score(item_factors: Matrix, profile: Vector) -> Vector:
    """Compute u·v_j of each item: the predictions before clipping, by which items are ranked."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores: Vector = einsum("jd,d->j", item_factors, profile)
    return scores


def _clipped(scores: Floats, rating_range: tuple[float, float]) -> Floats:
    """Clip `scores` to the rating range; NaN becomes its upper end."""
    low, high = rating_range
    within: Floats = np.fmax(np.fmin(scores, high), low)
    return within


def _cholesky(gram: Matrix, ridges: Vector) -> Floats:
    """Compute L of `gram` + λ' I by columns. A squared pivot is at least λ' except for rounding, and is clamped."""
    dim = len(gram)
    lower: Floats = np.zeros((len(ridges), dim, dim))
    for column in range(dim):
        known = einsum("krj,kj->kr", lower[:, column:, :column], lower[:, column, :column])
        rest = gram[column:, column] - known
        pivots = np.sqrt(np.maximum(rest[:, 0] + ridges, ridges))
        lower[:, column:, column] = rest / pivots[:, None]
        lower[:, column, column] = pivots
    return lower


def _forward(lower: Floats, right: Floats) -> Floats:
    """Solve L X = `right`, which has several columns for each λ'."""
    found: Floats = np.empty(right.shape)
    for row in range(right.shape[1]):
        known = einsum("kj,kjn->kn", lower[:, row, :row], found[:, :row])
        found[:, row] = (right[:, row] - known) / lower[:, row, row, None]
    return found


def _backward(lower: Floats, right: Floats) -> Floats:
    """Solve L^T x = `right`, which has one column for each λ'."""
    found: Floats = np.empty(right.shape[:2])
    for row in reversed(range(right.shape[1])):
        known = einsum("kj,kj->k", lower[:, row + 1 :, row], found[:, row + 1 :])
        found[:, row] = (right[:, row, 0] - known) / lower[:, row, row]
    return found


def _leverages(lower: Floats, item_factors: Matrix) -> Floats:
    """Compute S_jj = |L^-1 v_j|², one row for each λ'."""
    parts = []
    for start in range(0, len(item_factors), _ROWS_AT_ONCE):
        columns = item_factors[start : start + _ROWS_AT_ONCE].T
        solved = _forward(lower, np.broadcast_to(columns, (len(lower), *columns.shape)))
        parts.append(einsum("kdn,kdn->kn", solved, solved))
    return np.concatenate(parts, axis=1)
