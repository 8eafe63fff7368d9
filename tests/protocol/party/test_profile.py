"""The user's own profile, checked against a ridge regression in plain Python that refits without each rating."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.party.profile import PRINTED_RIDGE, RIDGES, fit_and_score, fit_profile, predict, score

STARS = (1.0, 5.0)


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve `matrix` x = `right` by Gauss–Jordan elimination with pivoting."""
    n = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for at in range(n):
        best = max(range(at, n), key=lambda row: abs(rows[row][at]))
        rows[at], rows[best] = rows[best], rows[at]
        rows[at] = [value / rows[at][at] for value in rows[at]]
        for other in range(n):
            if other != at:
                factor = rows[other][at]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[at], strict=True)]
    return [row[n] for row in rows]


def ridge_fit(items: list[list[float]], ratings: list[float], ridge: float) -> list[float]:
    """Solve (V^T V + λ' I) u = V^T r."""
    dim = len(items[0]) if items else 0
    gram = [[sum(row[a] * row[b] for row in items) + ridge * (a == b) for b in range(dim)] for a in range(dim)]
    return solve(gram, [sum(row[a] * rating for row, rating in zip(items, ratings, strict=True)) for a in range(dim)])


def clipped(value: float) -> float:
    return min(max(value, STARS[0]), STARS[1])


def leave_one_out(items: list[list[float]], ratings: list[float], ridge: float) -> float:
    """Compute the mean squared error of each rating's prediction after a fit to all the others."""
    total = 0.0
    for at, rating in enumerate(ratings):
        rest, values = items[:at] + items[at + 1 :], ratings[:at] + ratings[at + 1 :]
        profile = ridge_fit(rest, values, ridge) if rest else [0.0] * len(items[0])
        total += (rating - clipped(sum(a * b for a, b in zip(profile, items[at], strict=True)))) ** 2
    return total / len(ratings)


def draw(n: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    items = random.normal(size=(n, dim))
    return items, np.clip(np.round(3 + 1.2 * random.normal(size=n)), *STARS)


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (1, 4), (2, 5), (3, 3), (7, 3), (20, 4), (40, 10)])
@pytest.mark.parametrize("seed", [1, 2])
def test_profiles_and_leave_one_out_errors_are_those_of_explicit_refits(n, dim, seed):
    """The cases include fewer ratings than coordinates, and a single rating."""
    items, ratings = draw(n, dim, seed)
    fitted, scores = fit_and_score(items, ratings, STARS, RIDGES)
    for place, ridge in enumerate(RIDGES):
        expected = ridge_fit(items.tolist(), ratings.tolist(), ridge)
        assert fitted[place] == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert scores[place] == pytest.approx(leave_one_out(items.tolist(), ratings.tolist(), ridge), rel=1e-6)
        by_lapack = np.linalg.solve(items.T @ items + ridge * np.eye(dim), items.T @ ratings)
        assert fitted[place] == pytest.approx(by_lapack, rel=1e-6, abs=1e-6)


def test_leverages_are_the_same_for_more_ratings_than_are_worked_on_at_once(monkeypatch):
    items, ratings = draw(50, 3, 5)
    _, whole = fit_and_score(items, ratings, STARS, RIDGES)
    monkeypatch.setattr("protocol.party.profile._ROWS_AT_ONCE", 7)
    _, parts = fit_and_score(items, ratings, STARS, RIDGES)
    assert parts.tobytes() == whole.tobytes()


@pytest.mark.parametrize("seed", range(8))
def test_the_user_chooses_the_ridge_with_the_least_error(seed):
    items, ratings = draw(6, 3, seed)
    errors = {ridge: leave_one_out(items.tolist(), ratings.tolist(), ridge) for ridge in RIDGES}
    profile = fit_profile(items, ratings, STARS)
    least = min(errors.values())
    assert profile.ridge == max(ridge for ridge, error in errors.items() if error <= least * (1 + 1e-9))
    assert profile.factors == pytest.approx(ridge_fit(items.tolist(), ratings.tolist(), profile.ridge))
    assert profile.as_printed == pytest.approx(ridge_fit(items.tolist(), ratings.tolist(), PRINTED_RIDGE), rel=1e-6)


def test_users_choose_different_ridges():
    """The test above would be empty if all of them chose the same."""
    assert len({fit_profile(*draw(6, 3, seed), STARS).ridge for seed in range(8)}) > 1


def test_of_equal_errors_the_largest_ridge_is_taken():
    """Without the only rating the prediction is 1 for every λ', so all eight errors are (4 − 1)²."""
    items, ratings = np.array([[0.5, -1.0]]), np.array([4.0])
    _, scores = fit_and_score(items, ratings, STARS, RIDGES)
    assert scores.tolist() == [9.0] * len(RIDGES)
    assert fit_profile(items, ratings, STARS).ridge == max(RIDGES)


def test_a_given_ridge_is_used_and_the_printed_one_stands_beside_it():
    items, ratings = draw(9, 3, 4)
    for ridge in (PRINTED_RIDGE, 0.7, 1e-9, 1e6):
        profile = fit_profile(items, ratings, STARS, ridge)
        assert profile.ridge == ridge
        assert profile.factors == pytest.approx(ridge_fit(items.tolist(), ratings.tolist(), ridge), rel=1e-6)
        assert profile.as_printed == pytest.approx(ridge_fit(items.tolist(), ratings.tolist(), PRINTED_RIDGE), rel=1e-6)


def test_predictions_are_clipped_and_scores_are_not():
    items = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 3.0], [-1.0, 0.0]])
    profile = np.array([2.0, 4.5])
    assert score(items, profile).tolist() == [2.0, 4.5, 19.5, -2.0]
    assert predict(items, profile, STARS).tolist() == [2.0, 4.5, 5.0, 1.0]


def test_zero_factors_give_a_zero_profile():
    items, ratings = np.zeros((3, 2)), np.array([1.0, 3.0, 5.0])
    profile = fit_profile(items, ratings, STARS)
    assert profile.factors.tolist() == profile.as_printed.tolist() == [0.0, 0.0]
    assert profile.ridge == max(RIDGES)  # all are equal
    assert predict(items, profile.factors, STARS).tolist() == [1.0] * 3


@pytest.mark.parametrize("size", [1e-30, 1e10, 2.0**60])
def test_tiny_and_huge_factors_give_finite_profiles_and_predictions_in_range(size):
    items, ratings = draw(6, 3, 3)
    profile = fit_profile(size * items, ratings, STARS)
    for factors in (profile.factors, profile.as_printed):
        assert np.isfinite(factors).all()
        found = predict(size * items, factors, STARS)
        assert ((found >= STARS[0]) & (found <= STARS[1])).all()


def test_equal_rows_of_the_largest_factors_give_finite_profiles():
    """The matrix has rank 1, and λ' is lost in its rounding: only the lower limit of the pivots keeps it solvable."""
    items, ratings = np.full((4, 3), 2.0**60), np.array([1.0, 2.0, 4.0, 5.0])
    profile = fit_profile(items, ratings, STARS)
    assert np.isfinite(profile.factors).all() and np.isfinite(profile.as_printed).all()


def test_nothing_that_was_given_is_changed():
    items, ratings = draw(5, 3, 6)
    before = items.tobytes(), ratings.tobytes()
    profile = fit_profile(items, ratings, STARS)
    predict(items, profile.factors, STARS)
    assert (items.tobytes(), ratings.tobytes()) == before
