"""The difference attack: two uploads of one user, whose objective noise cancels.

    y_j(t) = −2 u(t) e_j(t) + η_j (+ ρ_j(t)),   e_j(t) = r_j − u(t)·v_j(t)
    D_j = y_j(1) − y_j(0) = 2 r_j (u(0) − u(1)) + 2 u(1) (u(1)·v_j(1)) − 2 u(0) (u(0)·v_j(0))

All D_j lie in the plane of u(0) and u(1), which the singular values give. In that plane |u(0)| = 1 leaves three unknown
numbers. Given them, r_j is linear, the part of D_j across u(0) − u(1) must vanish for every item, and u(1) must follow
from u(0) and the ratings by the published rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from protocol.arithmetic.factors import step_user
from protocol.arrays import Matrix, Vector

STARTS = 16
FEW_STARTS = 3
EVALUATIONS = 60  # evaluations of the residuals per start, not counting those for the slopes
SMALL = 2.0**-26  # step of the numerical derivative: the square root of the rounding error
FLAT = 0.01  # root mean square outside the plane: above it D is noisy, and more starts do not help
EXACT = 1e-8  # squared misfit that only the truth reaches: the rounding to 32 bits
FEWEST_ITEMS = 4  # one equation each, for three unknowns


@dataclass(frozen=True, slots=True, eq=False)
class TwoUploads:
    """Two uploads of one user, for the same items; v_j as the user received them."""

    first: Matrix
    second: Matrix
    first_factors: Matrix
    second_factors: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Recovered:
    ratings: Vector  # not rounded
    misfit: float  # root mean square per coordinate of the part of D that the model does not explain


def recover(seen: TwoUploads, params: Any) -> Recovered:
    """Find the ratings that explain the difference best."""
    model = _Model(seen, params)
    angles = np.arange(STARTS) * np.pi / STARTS  # the other half of the circle is the mirrored solution
    starts = [np.array([angle, 0.97 * np.cos(angle), 0.97 * np.sin(angle)]) for angle in angles]
    starts.sort(key=lambda start: float((model.residuals(start) ** 2).sum()))
    best, cost = starts[0], np.inf
    for start in starts if model.thickness < FLAT else starts[:FEW_STARTS]:
        found = least_squares(model.residuals, start, jac=model.slopes, method="lm", max_nfev=EVALUATIONS)
        if found.cost < cost:
            best, cost = found.x, found.cost
        if cost < EXACT * len(seen.first):
            break
    # −u(0), −u(1) and −r_j explain D as well: the range of ratings tells the two apart
    mirrored = np.array([best[0] + np.pi, -best[1], -best[2]])
    middle = (params.rating_min + params.rating_max) / 2
    point = min((best, mirrored), key=lambda point: float(np.abs(model.ratings(point) - middle).mean()))
    return Recovered(model.ratings(point), model.misfit(point))


class _Model:
    def __init__(self, seen: TwoUploads, params: Any) -> None:
        self.params = params
        self.seen = seen
        self.difference = seen.second - seen.first
        self.plane: Matrix = np.linalg.svd(self.difference, full_matrices=False)[2][:2].T
        self.flat = self.difference @ self.plane
        self.thickness = float(np.sqrt(((self.difference - self.flat @ self.plane.T) ** 2).mean()))
        self.before, self.after = seen.first_factors @ self.plane, seen.second_factors @ self.plane

    def _across(self, point: Vector) -> tuple[Vector, Vector, Matrix]:
        """Return (u(0), u(1)) in the plane, and D_j less the terms that do not depend on r_j."""
        first, second = np.array([np.cos(point[0]), np.sin(point[0])]), point[1:]
        known = 2 * np.outer(self.after @ second, second) - 2 * np.outer(self.before @ first, first)
        return first, second, self.flat - known

    def ratings(self, point: Vector) -> Vector:
        first, second, left = self._across(point)
        along = first - second
        ratings: Vector = left @ along / (2 * max(float(along @ along), 1e-12))
        return ratings

    def residuals(self, point: Vector) -> Vector:
        first, second, left = self._across(point)
        along = first - second
        length = max(float(np.sqrt(along @ along)), 1e-6)
        across = left @ np.array([-along[1], along[0]]) / length
        params, profile = self.params, self.plane @ first
        errors = left @ along / (2 * length**2) - self.seen.first_factors @ profile
        stepped = step_user(
            profile, self.seen.first_factors, errors, params.learning_rate, params.user_regularisation
        )
        rule = np.sqrt(len(across)) * (stepped - self.plane @ second)
        return np.concatenate([across, rule])

    def slopes(self, point: Vector) -> Matrix:
        """Differentiate the residuals numerically, by a small step of each unknown."""
        here = self.residuals(point)
        steps = SMALL * np.maximum(1.0, np.abs(point))
        moved = [self.residuals(point + step) for step in np.diag(steps)]
        return np.stack([(there - here) / step for there, step in zip(moved, steps, strict=True)], axis=1)

    def misfit(self, point: Vector) -> float:
        first, second, left = self._across(point)
        along = 2 * np.outer(self.ratings(point), first - second)
        return float(np.sqrt(((left - along) ** 2).sum() / self.difference.size + self.thickness**2))


def round_to(ratings: Vector, scale: Vector) -> Vector:
    """Round to the nearest value that ratings take."""
    rounded: Vector = scale[np.abs(ratings[:, None] - scale[None, :]).argmin(axis=1)]
    return rounded
