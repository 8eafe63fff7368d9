"""Gradients and updates, checked by hand on two coordinates and against differences of the objective."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.basics import FALSE_ALARM

from protocol.arithmetic.factors import (
    first_factors,
    item_gradients,
    prediction_errors,
    step_items,
    step_user,
)
from protocol.arithmetic.tape import Tape

SEED = bytes(range(32))

# u = (.5, -.25) and two items: predictions .5*2 - .25*4 = 0 and .5*(-1) - .25*2 = -1, so errors 4 and 2 + 1 = 3
USER = np.array([0.5, -0.25])
ITEMS = np.array([[2.0, 4.0], [-1.0, 2.0]])
RATINGS = np.array([4.0, 2.0])
ERRORS = np.array([4.0, 3.0])


def test_errors_by_hand():
    assert prediction_errors(RATINGS, USER, ITEMS).tolist() == [4.0, 3.0]


def test_gradients_by_hand():
    """-2 u e: e = 4 gives (-4, 2), e = 3 gives (-3, 1.5)."""
    assert item_gradients(ERRORS, USER).tolist() == [[-4.0, 2.0], [-3.0, 1.5]]


def test_the_step_of_a_user_by_hand():
    """Pull (2*4 - 1*3, 4*4 + 2*3) = (5, 22); slope -(2/2) pull + 2 * .5 u = (-4.5, -22.25); rate 2^-6."""
    moved = step_user(USER, ITEMS, ERRORS, learning_rate=2.0**-6, regularisation=0.5)
    assert moved.tolist() == [0.5 + 4.5 / 64, -0.25 + 22.25 / 64]


def test_a_user_outside_the_unit_ball_is_projected():
    """Rate 1 without regularisation: u - slope = (.5 + 5, -.25 + 22), scaled back to norm 1 along itself."""
    moved = step_user(USER, ITEMS, ERRORS, learning_rate=1.0, regularisation=0.0)
    assert np.hypot(*moved) == pytest.approx(1.0, abs=1e-15)
    assert moved[1] / moved[0] == pytest.approx(21.75 / 5.5, rel=1e-14)
    assert moved[0] > 0


def test_a_user_inside_the_unit_ball_is_not_stretched():
    moved = step_user(np.array([0.25, 0.0]), ITEMS, np.zeros(2), learning_rate=0.5, regularisation=0.5)
    assert moved.tolist() == [0.125, 0.0]  # no error: regularisation alone halves it


def test_the_step_of_items_by_hand():
    """Sums (-8, 4) of 4 raters and (3, 6) of 1; slope sum / k + 2 * .25 v; rate 1/2."""
    moved = step_items(
        ITEMS, np.array([[-8.0, 4.0], [3.0, 6.0]]), np.array([4, 1]), learning_rate=0.5, regularisation=0.25
    )
    # (2, 4): slope (-2 + 1, 1 + 2) = (-1, 3); (-1, 2): slope (3 - .5, 6 + 1) = (2.5, 7)
    assert moved.tolist() == [[2.5, 2.5], [-2.25, -1.5]]


# ---- against the objective


def rated(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ratings of three users for four items, and random factors with |u| well below 1."""
    generator = np.random.default_rng(seed)
    return generator.uniform(1, 5, (3, 4)), generator.uniform(-0.3, 0.3, (3, 2)), generator.normal(size=(4, 2))


def slope(function, at: np.ndarray) -> np.ndarray:
    """Compute the slope of `function` by central differences: exact up to rounding, because it is quadratic."""
    step, found = 1e-3, np.zeros_like(at)
    for place in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        found[place] = (function(at + moved) - function(at - moved)) / (2 * step)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_user_descends_the_mean_squared_error_of_its_ratings(seed):
    ratings, users, items = rated(seed)
    rate, regularisation = 0.01, 0.1
    for r, u in zip(ratings, users, strict=True):
        expected = u - rate * slope(lambda x, r=r: np.mean((r - items @ x) ** 2) + regularisation * x @ x, u)
        found = step_user(u, items, prediction_errors(r, u, items), rate, regularisation)
        assert np.hypot(*found) < 1  # not projected; a projected step could not be compared
        assert found == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("seed", range(5))
def test_the_items_descend_the_mean_squared_error_of_their_raters(seed):
    ratings, users, items = rated(seed)
    rate, regularisation = 0.01, 0.1
    sums = sum(
        item_gradients(prediction_errors(r, u, items), u) for r, u in zip(ratings, users, strict=True)
    )
    expected = items - rate * slope(
        lambda v: np.mean((ratings - users @ v.T) ** 2, axis=0).sum() + regularisation * (v**2).sum(), items
    )
    found = step_items(items, sums, np.full(4, 3), rate, regularisation)
    assert found == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("seed", range(5))
def test_no_step_leaves_the_unit_ball(seed):
    generator = np.random.default_rng(seed)
    for _ in range(200):
        user = generator.normal(size=3)
        items, errors = 10 * generator.normal(size=(4, 3)), 10 * generator.normal(size=4)
        moved = step_user(user / np.linalg.norm(user), items, errors, learning_rate=1.0, regularisation=0.0)
        assert np.linalg.norm(moved) <= 1 + 4 * 2.0**-53


# ---- first factors


def test_first_factors_lie_on_the_unit_sphere():
    for dim in (1, 2, 10, 50):
        factors = first_factors(Tape(SEED), 300, dim, "item factors")
        assert factors.shape == (300, dim)
        assert np.sqrt((factors**2).sum(axis=1)) == pytest.approx(np.ones(300), abs=1e-14)


def angle_p(factors: np.ndarray) -> float:
    angles = np.arctan2(factors[:, 1], factors[:, 0])
    return float(stats.kstest(angles, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue)


def test_first_factors_point_everywhere_alike():
    """The angle is uniform (test of size 1e-6, fixed seed); points drawn from a square would favour the diagonals."""
    assert angle_p(first_factors(Tape(SEED), 50_000, 2, "item factors")) > FALSE_ALARM
    square = np.random.default_rng(1).uniform(-1, 1, (50_000, 2))
    assert angle_p(square) < FALSE_ALARM


def test_first_factors_follow_their_name():
    first = first_factors(Tape(SEED), 2, 2, "item factors")
    assert first_factors(Tape(SEED), 2, 2, "item factors").tolist() == first.tolist()
    assert first_factors(Tape(SEED), 2, 2, "user factors").tolist() != first.tolist()
