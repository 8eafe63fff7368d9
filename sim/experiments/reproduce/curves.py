"""Turn the lines of finished cells into the rows of a figure, which are drawn and written to its CSV."""

from __future__ import annotations

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sim.experiments.grid.grid_cells import GRID
from sim.experiments.reproduce.figure_plan import CDF, CHURN, INCREASE, JOIN, LEAVE, SCENARIOS, Figure, Size
from sim.experiments.reproduce.paper_claims import CLAIMED, JOINING, LEAVING, MEASURED, PaperClaim, claims_of
from sim.experiments.reproduce.scenario_cells import DYNAMIC, ITERATE, MASKED, PLAIN, READINGS, SOLVED, TRUSTED

ERROR, SHARE, GAIN = "|r − u·v| (stars)", "share of the training ratings", "mean increase (stars)"
HELD_OUT_GAIN = "mean increase on held-out ratings (stars)"
GAIN_OVER_ITERATE = "mean increase over the baseline's last iterate (stars)"
UNLEARNED_GAIN = "mean increase with a V that has learned nothing (stars)"
READING_WORDS = {ITERATE: "u_i of the last iteration", SOLVED: "u_i solved for V"}
EPSILON, ITERATIONS = "ε", "iterations"
JOINED, LEFT = "joining probability", "leaving probability"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One point; `y` is the mean over the seeds."""

    panel: str
    series: str
    x_name: str
    x: float | None
    quantity: str
    y: float | None
    low: float | None
    high: float | None
    seeds: int
    source: str = MEASURED
    relation: str = "="
    note: str = ""
    reading: str = ""  # empty for a claim: the paper does not say which


def shown(epsilon: float) -> str:
    return "∞ (no noise)" if math.isinf(epsilon) else f"{epsilon:g}"


class Results:
    """The measured points, by everything that decides them; one point for each seed."""

    def __init__(self, lines: Iterable[dict[str, Any]]) -> None:
        self._points: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = defaultdict(dict)
        for line in lines:
            cell = line["cell"]
            for point in line.get("points", ()):
                epsilon = float(point["epsilon"])
                place = (cell["scenario"], epsilon, point["iteration"], cell["join"], cell["leave"])
                self._points[(*place, cell["test_fraction"])][cell["seed"]] = point

    def points(
        self, scenario: str, epsilon: float, step: int, join: float | None = None, leave: float | None = None,
        test_fraction: float = 0.0,
    ) -> dict[int, dict[str, Any]]:  # fmt: skip
        if scenario == DYNAMIC:
            join, leave = JOIN if join is None else join, LEAVE if leave is None else leave
        return self._points[(scenario, epsilon, step, join, leave, test_fraction)]

    def increases(
        self, baseline: int, scenario: str, epsilon: float, step: int, reading: str = ITERATE, over: str = "",
        **where: Any,
    ) -> list[float]:  # fmt: skip
        """Compute, for each seed, the increase of the error over the unprotected baseline at iteration `baseline`.

        The baseline is read like the scenario, unless `over` names another reading.
        """
        name = "test_mae" if where.get("test_fraction") else "train_mae"
        plain = self.points(PLAIN, math.inf, baseline, test_fraction=where.get("test_fraction", 0.0))
        found = self.points(scenario, epsilon, step, **where)
        return [_read(found[seed], reading)[name] - _read(plain[seed], over or reading)[name] for seed in sorted(found)]


def _read(point: dict[str, Any], reading: str) -> dict[str, Any]:
    return point if reading == ITERATE else point[reading]


def panel_of(panel: str, reading: str) -> str:
    """Name the panel of a `reading`; the panel of the iterate keeps the plain name."""
    return panel if reading == ITERATE else f"{panel}, {reading}"


Found = tuple[str, str, str, float | None, str, list[float]]  # panel, series, x_name, x, quantity, a value per seed


def rows_of(figure: Figure, size: Size, results: Results) -> list[CurvePoint]:
    """Make the points of a figure, and those of the paper's claims; what was not run has no point."""
    found = {CDF: _distribution, CHURN: _churn, INCREASE: _increase}[figure.kind]
    measured = [
        CurvePoint(
            panel=panel_of(panel, reading),
            series=series,
            x_name=x_name,
            x=x,
            quantity=quantity,
            y=statistics.fmean(values),
            low=min(values),
            high=max(values),
            seeds=len(values),
            reading=reading,
        )
        for reading in READINGS
        for panel, series, x_name, x, quantity, values in found(figure, size, results, reading)
        if values
    ]
    return [*measured, *_claimed(figure)]


@dataclass(frozen=True, slots=True)
class ComparedClaim:
    """A claim, and our figures for its scenario and ε at the end of the run; None if this size has no such cell."""

    claim: PaperClaim
    iterate: float | None
    solved: float | None  # over a baseline that is solved as well
    solved_over_iterate: float | None
    unlearned: float | None = None  # like `solved`, for the V before the first iteration
    unlearned_over_iterate: float | None = None

    @property
    def tells(self) -> bool:
        """Tell whether the claim could fail for `solved`: not if it holds even for a V that has learned nothing."""
        return self.unlearned is None or not self.claim.holds(self.unlearned)

    @property
    def tells_over_iterate(self) -> bool:
        return self.unlearned_over_iterate is None or not self.claim.holds(self.unlearned_over_iterate)

    @classmethod
    def of(cls, claim: PaperClaim, size: Size, results: Results) -> ComparedClaim:
        at = (size.checkpoints[-1], claim.scenario, claim.epsilon, size.steps(claim.scenario)[-1])
        pairs = ((ITERATE, ITERATE), (SOLVED, SOLVED), (SOLVED, ITERATE))
        first = (size.checkpoints[-1], PLAIN, math.inf, 0, SOLVED)
        found = [results.increases(*at, reading, over) for reading, over in pairs]
        found += [results.increases(*first, over) for over in (SOLVED, ITERATE)]
        return cls(claim, *(statistics.fmean(values) if values else None for values in found))


def without_noise(size: Size, results: Results, reading: str = ITERATE) -> dict[str, float]:
    """Compute the increase of S1 and S3 at ε = ∞: the cost of the scenario itself, after its last iteration."""
    made = {}
    for scenario in (TRUSTED, DYNAMIC):
        found = results.increases(size.checkpoints[-1], scenario, math.inf, size.steps(scenario)[-1], reading)
        made.update({scenario: statistics.fmean(found)} if found else {})
    return made


def _distribution(figure: Figure, size: Size, results: Results, reading: str) -> Iterator[Found]:
    steps, epsilons = size.steps(figure.scenario), size.of(figure.scenario)
    base = (f"no protection, {size.checkpoints[-1]} iterations", PLAIN, math.inf, size.checkpoints[-1])
    by_epsilon = [(f"ε = {shown(epsilon)}", figure.scenario, epsilon, steps[-1]) for epsilon in epsilons]
    by_step = [(f"{step:,} iterations", figure.scenario, figure.marked, step) for step in steps]
    for panel, series in (
        (f"by ε, after {steps[-1]:,} iterations", [base, *by_epsilon]),
        (f"by iterations, ε = {figure.marked:g}", [base, *by_step]),
    ):
        for name, scenario, epsilon, step in series:
            points = results.points(scenario, epsilon, step).values()
            for at, error in enumerate(GRID):
                yield panel, name, ERROR, error, SHARE, [_read(point, reading)["cdf"][at] for point in points]


def _increase(figure: Figure, size: Size, results: Results, reading: str) -> Iterator[Found]:
    for scenario in (TRUSTED, MASKED, DYNAMIC):
        dynamic, steps, name = scenario == DYNAMIC, size.steps(scenario), SCENARIOS[scenario]
        side = "(b)" if dynamic else "(a)"
        panel = f"{side} by ε"
        for epsilon in size.of(scenario):
            increases = functools.partial(results.increases, size.checkpoints[-1], scenario, epsilon)
            last = functools.partial(increases, steps[-1], reading)
            yield panel, name, EPSILON, epsilon, GAIN, last()
            if size.held_out and not dynamic:
                held = last(test_fraction=size.held_out)
                yield panel, f"{name}, held out", EPSILON, epsilon, HELD_OUT_GAIN, held
            if reading != ITERATE:
                series = f"{name}, over the baseline's iterate"
                yield panel, series, EPSILON, epsilon, GAIN_OVER_ITERATE, last(ITERATE)
            series = f"{name}, ε = {shown(epsilon)}"
            for step in steps:
                yield f"{side} by iterations", series, ITERATIONS, step, GAIN, increases(step, reading)
        if reading == SOLVED and scenario != TRUSTED:  # once in each panel
            found = results.increases(size.checkpoints[-1], PLAIN, math.inf, 0, reading)
            yield panel, "a V that has learned nothing", "whatever ε is", None, UNLEARNED_GAIN, found


def _churn(figure: Figure, size: Size, results: Results, reading: str) -> Iterator[Found]:
    for epsilon in size.churn_epsilons:
        at = (size.checkpoints[-1], DYNAMIC, epsilon, size.dynamic_checkpoints[-1], reading)
        for join in size.joins:
            found = results.increases(*at, join=join, leave=LEAVE)
            yield "by joining", f"ε = {shown(epsilon)}", JOINED, join, GAIN, found
        for leave in size.leaves:
            found = results.increases(*at, join=JOIN, leave=leave)
            yield "by leaving", f"ε = {shown(epsilon)}", LEFT, leave, GAIN, found


def _claimed(figure: Figure) -> list[CurvePoint]:
    nothing: dict[str, Any] = {"low": None, "high": None, "seeds": 0, "source": CLAIMED}
    if figure.kind == CHURN:
        return [
            CurvePoint(panel=panel, series="the paper", x_name=name, x=None, quantity=GAIN, y=None, relation="in words",
                note=words, **nothing)
            for panel, name, words in (("by joining", JOINED, JOINING), ("by leaving", LEFT, LEAVING))
        ]  # fmt: skip
    rows = []
    for claim in claims_of(figure):
        side = "(b)" if claim.scenario == DYNAMIC else "(a)"
        rows.append(
            CurvePoint(
                panel="in the text" if figure.kind == CDF else f"{side} by ε",
                series=f"the paper, {SCENARIOS[claim.scenario]}, {claim.iterations}",
                x_name=EPSILON,
                x=claim.epsilon,
                quantity=GAIN,
                y=claim.value,
                relation=claim.relation,
                note=claim.words,
                **nothing,
            )
        )
    return rows
