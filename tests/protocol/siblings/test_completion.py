"""The recovery (4), checked against an independent dense solver, by its optimality conditions, and by its answer on
matrices whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from protocol.arithmetic.tape import SEED_BYTES, Tape
from protocol.schemes.collection.completion import GAP, RESIDUAL, Path, complete
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.lowrank import Cells, Follower, first_block, largest_singular_value, nothing
from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse

STARS = Grid(1.0, 5.0, 1.0)


def tape(number: int) -> Tape:
    return Tape(number.to_bytes(SEED_BYTES, "big"))


def sparse(values: np.ndarray, present: np.ndarray) -> csr_matrix:
    """Make a sparse matrix of the `present` cells, including zeros among them."""
    rows, columns = np.nonzero(present)
    return csr_matrix((values[rows, columns].astype(np.float64), (rows, columns)), shape=values.shape)


def dense(matrix) -> np.ndarray:
    return (matrix.left * matrix.values) @ matrix.right.T


def small(seed: int, shape: tuple[int, int] = (20, 14), density: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(shape[0], 2)) @ rng.normal(size=(2, shape[1])) + 0.3 * rng.normal(size=shape)
    return values, rng.random(shape) < density


def reference(values: np.ndarray, present: np.ndarray, multiplier: float) -> np.ndarray:
    """Minimise ½‖P(M − Z)‖² + λ‖M‖_* by proximal steps with full decompositions, without momentum, to convergence."""
    found = np.zeros_like(values)
    for _ in range(20_000):
        left, lengths, right = np.linalg.svd(np.where(present, values, found), full_matrices=False)
        moved = (left * np.maximum(lengths - multiplier, 0)) @ right
        if np.abs(moved - found).max() < 1e-10:
            return moved
        found = moved
    raise AssertionError("the reference did not converge")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 3.0])
def test_for_one_multiplier_it_finds_what_the_dense_solver_finds(seed, multiplier):
    values, present = small(seed)
    path = Path(sparse(values, present))
    assert path.solve(multiplier, gap=1e-9) <= 1e-9
    expected = reference(values, present, multiplier)
    assert dense(path.matrix) == pytest.approx(expected, abs=2e-3)
    assert path.objective(multiplier) == pytest.approx(
        0.5 * ((values - expected)[present] ** 2).sum() + multiplier * np.linalg.norm(expected, "nuc"), rel=1e-7
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_the_constraint_is_met_and_the_optimality_conditions_hold(seed, part):
    """R/λ is a subgradient of the nuclear norm at M: UᵀRV = λI, ‖R‖_2 = λ; and the residual is ρ."""
    values, present = small(seed)
    radius = part * float(np.sqrt((values[present] ** 2).sum()))
    found = complete(sparse(values, present), radius)
    assert found.residual == pytest.approx(radius, rel=RESIDUAL) and found.meets and not found.is_zero
    rest = np.where(present, values - dense(found.matrix), 0)
    assert np.linalg.norm(rest) == pytest.approx(found.residual, rel=1e-9)
    inside = found.matrix.left.T @ rest @ found.matrix.right
    assert np.abs(inside - found.multiplier * np.eye(found.matrix.rank)).max() < 0.05 * found.multiplier
    assert np.linalg.norm(rest, 2) == pytest.approx(found.multiplier, rel=0.03)
    assert 0 <= found.gap < 0.02
    # the true gap of the constrained problem, by full decompositions
    bound = (rest * dense(found.matrix)).sum() / np.linalg.norm(rest, 2)
    assert found.gap == pytest.approx(1 - bound / np.linalg.norm(dense(found.matrix), "nuc"), abs=1e-6)


def test_no_other_matrix_with_that_residual_has_a_smaller_nuclear_norm():
    """All the dense solver's solutions for other multipliers with a residual of at most ρ have a larger norm."""
    values, present = small(7)
    radius = 0.4 * float(np.sqrt((values[present] ** 2).sum()))
    found = complete(sparse(values, present), radius)
    others = [reference(values, present, found.multiplier * factor) for factor in (0.5, 0.8, 0.95, 1.05, 1.3)]
    residuals = [np.linalg.norm((values - other)[present]) for other in others]
    norms = [np.linalg.norm(other, "nuc") for other in others]
    assert [residual < radius for residual in residuals] == [True, True, True, False, False]
    assert all(norm > found.matrix.nuclear_norm for norm in norms[:3])
    assert all(norm < found.matrix.nuclear_norm for norm in norms[3:])


def test_a_point_that_is_not_optimal_has_a_gap():
    values, present = small(1)
    path = Path(sparse(values, present))
    path.solve(0.5)
    assert path.gap(0.5) <= GAP
    assert path.gap(1.5) > 100 * GAP  # the solution for another λ


def test_a_radius_that_everything_meets_gives_zero_and_says_so():
    values, present = small(2)
    norm = float(np.sqrt((values[present] ** 2).sum()))
    for radius in (norm, 3 * norm):
        found = complete(sparse(values, present), radius)
        assert found.is_zero and found.meets and found.matrix.rank == 0 and math.isinf(found.multiplier)
        assert not found.matrix.row(3).any() and found.residual == found.known_norm == pytest.approx(norm)
    assert not complete(sparse(values, present), 0.99 * norm).is_zero


def test_a_radius_that_is_out_of_reach_is_told():
    values, present = small(3)
    found = complete(sparse(values, present), 1e-9)
    assert not found.meets and not found.is_zero


def test_the_same_data_give_the_same_bytes():
    values, present = small(4)
    first, second = (complete(sparse(values, present), 2.0) for _ in range(2))
    assert first.matrix.left.tobytes() == second.matrix.left.tobytes()
    assert first.multiplier == second.multiplier


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (3, 2), (2, 40), (40, 2)])
def test_thin_matrices_are_completed_too(shape):
    values = np.outer(np.arange(1.0, shape[0] + 1), np.arange(1.0, shape[1] + 1))
    found = complete(sparse(values, np.ones(shape, bool)), 0.2 * float(np.linalg.norm(values)))
    assert dense(found.matrix) == pytest.approx(0.8 * values, rel=1e-3)  # rank 1: every entry shrinks alike


def test_users_without_a_cell_and_cells_that_are_zero_do_no_harm():
    values, present = small(5)
    present[3], present[:, 2] = False, False
    values[0] = 0
    found = complete(sparse(values, present), 2.0)
    assert found.residual == pytest.approx(2.0, rel=RESIDUAL)
    assert np.abs(found.matrix.row(3)).max() < 1e-6 and np.abs(dense(found.matrix)[:, 2]).max() < 1e-6
    empty = complete(csr_matrix((4, 3)), 1.0)
    assert empty.is_zero and empty.matrix.rank == 0


def test_a_thresholding_step_is_that_of_the_full_decomposition():
    """The step acts on a sparse part plus weighted low-rank parts, and is repeated for 60 rounds."""
    values, present = small(6)
    cells = Cells(sparse(values, present))
    part = Path(sparse(values, present))
    part.solve(1.0)
    follower = Follower(first_block(14, 8))
    for _ in range(60):
        found = follower.threshold(cells.matrix(cells.values), [(1.5, part.matrix), (-0.5, nothing((20, 14)))], 0.7)
    left, lengths, right = np.linalg.svd(np.where(present, values, 0) + 1.5 * dense(part.matrix), full_matrices=False)
    assert dense(found) == pytest.approx((left * np.maximum(lengths - 0.7, 0)) @ right, abs=1e-6)
    assert largest_singular_value(cells, cells.values) == pytest.approx(
        np.linalg.norm(np.where(present, values, 0), 2), rel=1e-9
    )


# --- truth of rank 3 ----------------------------------------------------------------------------------------------


def rank_three(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make products of unit vectors in three dimensions (uniform on [−1, 1], root mean square .577), 30 % rated."""
    rng = np.random.default_rng(seed)
    left, right = (side / np.linalg.norm(side, axis=1)[:, None] for side in rng.normal(size=(2, 300, 3)))
    return left @ right.T, rng.random((300, 300)) < 0.3


def observed(truth: np.ndarray, seed: int, spread: float) -> np.ndarray:
    """Make ratings around Θ. The reference gives no `spread`; .1 (.3 stars) yields its errors, 0 yields .07 and .10."""
    return np.clip(truth + spread * np.random.default_rng(seed + 50).normal(size=truth.shape), -1, 1)


def laplace_error(epsilon: float, seed: int) -> float:
    truth, rated = rank_three(seed)
    ratings = observed(truth, seed, 0.1)
    arrived, numbers = np.zeros((300, 300), bool), np.zeros((300, 300))
    for user in range(300):
        items = np.flatnonzero(rated[user]).astype(np.uint32)
        sent, values = ModifiedLaplace(epsilon).answer(tape(1000 * seed + user), items, ratings[user, items], 300)
        arrived[user, sent], numbers[user, sent] = True, values
    oracle = float(np.linalg.norm((truth - numbers)[arrived]))
    return float(np.sqrt(((dense(complete(sparse(numbers, arrived), oracle).matrix) - truth) ** 2).mean()))


def response_error(epsilon: float, seed: int) -> float:
    truth, rated = rank_three(seed)
    stars = 2 * truth  # around the middle
    entries = np.where(rated, STARS.level_of(3 + 2 * observed(truth, seed, 0.15)), 0).astype(np.uint8)
    mechanism = RandomizedResponse(epsilon, 5)
    sent = np.stack([mechanism.answer(tape(1000 * seed + user), entries[user]) for user in range(300)])
    oracle = float(np.linalg.norm((stars - (sent - 3.0))[sent > 0]))
    found = complete(sparse(sent - 3.0, sent > 0), oracle)
    return float(np.sqrt(((dense(found.matrix) - stars) ** 2).mean()))


@pytest.mark.parametrize(
    ("error", "epsilon", "expected", "nothing_known"),
    [
        (laplace_error, 4.0, 0.391, 0.577),
        (laplace_error, 8.0, 0.175, 0.577),
        (laplace_error, 16.0, 0.085, 0.577),
        (response_error, 4.0, 0.615, 1.154),
        (response_error, 8.0, 0.188, 1.154),
        (response_error, 16.0, 0.175, 1.154),
    ],
)
def test_a_truth_of_rank_three_is_recovered_as_well_as_the_reference_does(error, epsilon, expected, nothing_known):
    found = float(np.mean([error(epsilon, seed) for seed in (1, 2, 3)]))
    print(f"{error.__name__}, ε = {epsilon:g}: {found:.4f} (reference {expected}, without data {nothing_known})")
    assert found == pytest.approx(expected, abs=0.03 if (error, epsilon) == (response_error, 4.0) else 0.015)
    assert found < 0.7 * nothing_known
