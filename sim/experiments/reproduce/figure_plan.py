"""The figures of the paper: what each shows, on which data, in which sizes, and the cells that it is made of."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sim.data.generate import NETFLIX_USERS
from sim.data.ratings import NETFLIX_SHAPED
from sim.experiments.reference import reference
from sim.experiments.reproduce.byte_figures import BytesCell
from sim.experiments.reproduce.scenario_cells import DYNAMIC, MASKED, PLAIN, TRUSTED, FigureCell

MOVIELENS = "ml-100k"
DIM = 50  # as in the paper
PAPER_ITERATIONS = 10_000  # of S3 in the paper
JOIN, LEAVE = 0.005, 0.01
CDF, INCREASE, CHURN, BYTES = "cdf", "increase", "churn", "bytes"
SCENARIOS = {TRUSTED: "S1", MASKED: "S2", DYNAMIC: "S3", PLAIN: "no protection"}
WORDS = {
    TRUSTED: "S1, the recommender is trusted",
    MASKED: "S2, untrusted recommender, static users",
    DYNAMIC: "S3, untrusted recommender, dynamic users",
}
INF = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The sizes of the runs behind the figures of one data set."""

    users: int | None = None
    epsilons: tuple[float, ...]
    checkpoints: tuple[int, ...] = (10, 40, 70, 100)
    dynamic_epsilons: tuple[float, ...]
    dynamic_checkpoints: tuple[int, ...] = (100, 1000, 3000, 10_000)
    online: int
    joins: tuple[float, ...] = (0.005, 0.01, 0.015, 0.02)
    leaves: tuple[float, ...] = (0.005, 0.01, 0.015, 0.02)
    churn_epsilons: tuple[float, ...]
    seeds: int
    held_out: float = 0.0  # share of each user's ratings, in further cells of the baseline, S1 and S2

    def of(self, scenario: str) -> tuple[float, ...]:
        """Return every ε of `scenario`. S1 and S3 have ε = ∞ too; S2 without noise is the baseline."""
        if scenario == TRUSTED:
            return (*self.epsilons, INF)
        return self.dynamic_epsilons if scenario == DYNAMIC else self.epsilons

    def together(self, scenario: str) -> list[tuple[float, ...]]:
        """Return the ε of each cell of `scenario`: in S1 all of them share the training."""
        return [self.of(scenario)] if scenario == TRUSTED else [(epsilon,) for epsilon in self.of(scenario)]

    def steps(self, scenario: str) -> tuple[int, ...]:
        return self.dynamic_checkpoints if scenario == DYNAMIC else self.checkpoints


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    kind: str
    data: str
    scenario: str  # of a distribution function; in the other figures, S3 stands for all scenarios
    marked: float  # the ε that the paper's text names

    @property
    def generated(self) -> bool:
        return self.data == NETFLIX_SHAPED

    @property
    def data_words(self) -> str:
        return "generated data, Netflix-shaped" if self.generated else "MovieLens-100k"

    @property
    def title(self) -> str:
        if self.kind == BYTES:
            return "Bytes of one iteration of S3, at the size that the paper names"
        what = {
            CDF: f"Prediction errors in {WORDS[self.scenario]}",
            INCREASE: "Mean increase of prediction errors over the unprotected baseline",
            CHURN: "Mean increase of prediction errors as users come and go, S3",
        }[self.kind]
        return f"{what}: {self.data_words}"


_PLAN = reference(__file__)
FIGURES = {row["name"]: Figure(**row) for row in _PLAN["figures"]}
_FULL, _QUICK = ({data: Size(**size) for data, size in _PLAN[which].items()} for which in ("full", "quick"))


def size_of(data: str, quick: bool) -> Size:
    return (_QUICK if quick else _FULL)[data]


def cells_of(figure: Figure, quick: bool) -> list[FigureCell | BytesCell]:
    """List the cells of a figure; figures share cells."""
    if figure.kind == BYTES:
        return [BytesCell(wire=wire) for wire in (("compact",) if quick else ("compact", "paper"))]
    size = size_of(figure.data, quick)
    return [cell for seed in range(1, size.seeds + 1) for cell in _of_seed(figure, size, seed)]


def _of_seed(figure: Figure, size: Size, seed: int) -> Iterator[FigureCell]:
    cell = functools.partial(_cell, figure.data, size, seed)
    yield cell(PLAIN, (INF,))
    if figure.kind == CHURN:
        for epsilon, (join, leave) in itertools.product(size.churn_epsilons, crossing(size)):
            yield cell(DYNAMIC, (epsilon,), join=join, leave=leave)
        return
    for scenario in (figure.scenario,) if figure.kind == CDF else (TRUSTED, MASKED, DYNAMIC):
        churn = {"join": JOIN, "leave": LEAVE} if scenario == DYNAMIC else {}
        yield from (cell(scenario, epsilons, **churn) for epsilons in size.together(scenario))
    if figure.kind == INCREASE and size.held_out:
        yield cell(PLAIN, (INF,), size.held_out)
        for scenario in (TRUSTED, MASKED):
            yield from (cell(scenario, epsilons, size.held_out) for epsilons in size.together(scenario))


def crossing(size: Size) -> list[tuple[float, float]]:
    """List the pairs (join, leave) of which one varies and the other is the paper's."""
    pairs = [(join, LEAVE) for join in size.joins] + [(JOIN, leave) for leave in size.leaves]
    return list(dict.fromkeys(pairs))


def _cell(
    data: str,
    size: Size,
    seed: int,
    scenario: str,
    epsilons: tuple[float, ...],
    test_fraction: float = 0.0,
    **churn: Any,
) -> FigureCell:
    return FigureCell(
        scenario=scenario,
        data=data,
        users=size.users,
        epsilons=epsilons,
        dim=DIM,
        checkpoints=_measured_at(scenario, size.steps(scenario), test_fraction),
        seed=seed,
        test_fraction=test_fraction,
        online=size.online if scenario == DYNAMIC else None,
        **churn,
    )


def _measured_at(scenario: str, checkpoints: tuple[int, ...], test_fraction: float) -> tuple[int, ...]:
    """Choose the iterations to measure.

    For held-out ratings and for the baseline, only the last iteration counts. On the training ratings, the baseline is
    also measured before it has learned.
    """
    if scenario == PLAIN and not test_fraction:
        return (0, checkpoints[-1])
    return checkpoints[-1:] if test_fraction else checkpoints


def said(figure: Figure, quick: bool) -> str:
    """Describe the sizes of a figure in words."""
    size = size_of(figure.data, quick)
    users = "all users" if size.users is None else f"only the first {size.users:,} of {NETFLIX_USERS:,} users"
    plain, dynamic = f"{size.checkpoints[-1]} iterations", f"{size.dynamic_checkpoints[-1]:,} iterations"
    churns = f"S3: {dynamic} with at most {size.online:,} users each, baseline: {plain}"
    length = churns if figure.scenario == DYNAMIC else plain
    length = f"S1 and S2: {plain}, {churns}" if figure.kind == INCREASE else length
    seeds = f"{size.seeds} seed{'s' * (size.seeds > 1)}"
    return f"{'quick: ' if quick else ''}{users}, dim {DIM}; {length}; {seeds}"


def comparable(size: Size, scenario: str) -> bool:
    """Tell whether runs of this `size` can be compared with the paper's: all users and, in S3, 10,000 iterations."""
    return size.users is None and (scenario != DYNAMIC or size.dynamic_checkpoints[-1] >= PAPER_ITERATIONS)
