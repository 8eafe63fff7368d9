"""One cell of a figure: one run of a scenario, with errors measured at its checkpoints, in two readings.

The paper publishes V and does not say which u_i its figures use. `iterate` is the u_i that the last iteration left;
`solved` is the u_i that minimises the paper's own objective for the V that users are sent (`sim/run/all_profiles.py`).
For a user with fewer ratings than dimensions, some u_i fits the ratings with any V. So the baseline is also measured
before its first iteration.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.factors import as_sent
from protocol.arithmetic.tape import derive
from sim.data.ratings import Ratings, load, split
from sim.experiments.cells import KeyedCell
from sim.experiments.grid.grid_cells import GRID, shares
from sim.experiments.reproduce.engine import (
    ENGINE,
    LearningProblem,
    Noise,
    OnlineUsers,
    learn,
    publish,
    stream,
    unit_rows,
)
from sim.plan.plan import run_seed_of
from sim.run.all_profiles import solve_profiles
from sim.run.baseline import Baseline, mean_errors

PLAIN, TRUSTED, MASKED, DYNAMIC = "plain", "trusted", "masked", "dynamic"
ITERATE, SOLVED = READINGS = ("iterate", "solved")
Point = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureCell(KeyedCell):
    """A run of a scenario."""

    scenario: str
    data: str
    users: int | None  # only this number of users, the first ones; None: all
    epsilons: tuple[float, ...]  # several in S1 only, where they share the training
    dim: int
    checkpoints: tuple[int, ...]  # iterations after which errors are measured, in increasing order; 0: before the first
    seed: int
    test_fraction: float = 0.0
    online: int | None = None
    join: float | None = None
    leave: float | None = None
    engine: int = ENGINE

    @property
    def steps(self) -> int:
        return self.checkpoints[-1]


_loaded = functools.lru_cache(maxsize=2)(load)  # a worker has many cells of one data set


def ratings_of(data: str, users: int | None) -> Ratings:
    ratings = _loaded(data)
    return ratings if users is None else ratings.first_users(users)


def problem_of(cell: FigureCell) -> LearningProblem:
    ratings = ratings_of(cell.data, cell.users)
    dealt = split(ratings, cell.test_fraction, derive(run_seed_of(cell.seed), "split"))
    return LearningProblem(ratings, dealt, cell.dim, cell.seed)


def run_figure_cell(cell: FigureCell) -> dict[str, Any]:
    """Run this `cell`, and return its line."""
    started = time.perf_counter()
    problem = problem_of(cell)
    points = list(_trusted(cell, problem) if cell.scenario == TRUSTED else _learned(cell, problem))
    return {"cell": cell.describe(), "seconds": round(time.perf_counter() - started, 3), "points": points}


def _learned(cell: FigureCell, problem: LearningProblem) -> Iterator[Point]:
    (epsilon,) = cell.epsilons
    model = problem.start(epsilon)
    n_users, n_items = len(model.user_factors), len(model.item_factors)
    noise = Noise(problem.scale(epsilon), n_items, cell.dim, cell.seed)
    if cell.scenario == DYNAMIC:
        assert cell.online is not None and cell.join is not None and cell.leave is not None
        active: Any = OnlineUsers(n_users, cell.online, cell.join, cell.leave, cell.seed).draw
    else:
        active = _everybody
    if 0 in cell.checkpoints:
        yield _measure(problem, model, epsilon, 0)
    for step in learn(model, cell.steps, noise, active):
        if step in cell.checkpoints:
            yield _measure(problem, model, epsilon, step)


def _everybody() -> None:
    return None


def _trusted(cell: FigureCell, problem: LearningProblem) -> Iterator[Point]:
    """Measure S1: T training steps and T publishing steps for each checkpoint T. All checkpoints share the training."""
    model = problem.start(clip=math.inf)  # S1 never clips
    n_items = len(model.item_factors)
    fresh = unit_rows(stream(cell.seed, "published item factors"), n_items, cell.dim)
    eta = stream(cell.seed, "eta").laplace(size=(n_items, cell.dim))
    noises = [problem.scale(epsilon) * eta for epsilon in cell.epsilons]
    for step in learn(model, cell.steps, lambda: None, _everybody):
        if step in cell.checkpoints:
            made = publish(problem.data.train, model.user_factors, fresh, noises, model.params, step)
            for epsilon, items in zip(cell.epsilons, made, strict=True):
                released = Baseline(model.params, model.user_factors, items, problem.data.train)
                yield _measure(problem, released, epsilon, step)


def _measure(problem: LearningProblem, model: Baseline, epsilon: float, step: int) -> Point:
    sent = as_sent(model.item_factors, model.params.factor_bits).astype(np.float64)
    solved = Baseline(model.params, solve_profiles(sent, problem.data.train), sent, problem.data.train)
    return {
        "epsilon": "inf" if math.isinf(epsilon) else epsilon,
        "iteration": step,
        **_errors(problem, model),  # the reading `iterate`
        SOLVED: _errors(problem, solved),
    }


def _errors(problem: LearningProblem, model: Baseline) -> Point:
    train, test = np.abs(model.errors(problem.data.train)), model.errors(problem.data.held_out)
    return {
        "train_mae": float(train.mean()),
        "test_mae": mean_errors(test)[0],
        "cdf": [round(share, 6) for share in shares(train, GRID)],
    }
