"""From the lines of finished cells to the rows of a figure: what is drawn, and what its CSV holds."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sim.experiments.cells import GRID
from sim.experiments.reproduce_cells import DYNAMIC, MASKED, PLAIN, TRUSTED
from sim.experiments.reproduce_claims import CLAIMED, JOINING, LEAVING, MEASURED, Claim, claims_of
from sim.experiments.reproduce_plan import CDF, CHURN, JOIN, LEAVE, SCENARIOS, Figure, Size

ERROR, SHARE, GAIN = "|r − u·v| (stars)", "share of the training ratings", "mean increase (stars)"
HELD_OUT_GAIN = "mean increase on held-out ratings (stars)"
EPSILON, ITERATIONS = "ε", "iterations"
JOINED, LEFT = "joining probability", "leaving probability"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
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


def shown(epsilon: float) -> str:
    return "∞ (no noise)" if math.isinf(epsilon) else f"{epsilon:g}"


class Results:
    """Points by what decides them; of each one per seed."""

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

    def increases(self, baseline: int, scenario: str, epsilon: float, step: int, **where: Any) -> list[float]:
        """Over the unprotected baseline of the same seed, at its last iteration."""
        name = "test_mae" if where.get("test_fraction") else "train_mae"
        plain = self.points(PLAIN, math.inf, baseline, test_fraction=where.get("test_fraction", 0.0))
        found = self.points(scenario, epsilon, step, **where)
        return [found[seed][name] - plain[seed][name] for seed in sorted(found)]


def rows_of(figure: Figure, size: Size, results: Results) -> list[Row]:
    if figure.kind == CDF:
        measured = _distribution(figure, size, results)
    elif figure.kind == CHURN:
        measured = _churn(size, results)
    else:
        measured = _increase(size, results)
    return [*measured, *_claimed(figure)]


def measured_claim(claim: Claim, size: Size, results: Results) -> float | None:
    """Our figure for the same scenario and ε, at the end of the run; None if no such cell is in this size."""
    step = size.steps(claim.scenario)[-1]
    found = results.increases(size.checkpoints[-1], claim.scenario, claim.epsilon, step)
    return statistics.fmean(found) if found else None


def without_noise(size: Size, results: Results) -> dict[str, float]:
    """The increase of S1 and S3 at ε = ∞: what the scenario costs by itself, after so many iterations."""
    made = {}
    for scenario in (TRUSTED, DYNAMIC):
        found = results.increases(size.checkpoints[-1], scenario, math.inf, size.steps(scenario)[-1])
        made.update({scenario: statistics.fmean(found)} if found else {})
    return made


def _row(values: Sequence[float], **what: Any) -> list[Row]:
    """None where nothing was run."""
    if not values:
        return []
    mean = statistics.fmean(values)
    return [Row(y=mean, low=min(values), high=max(values), seeds=len(values), **what)]


def _distribution(figure: Figure, size: Size, results: Results) -> list[Row]:
    steps, epsilons = size.steps(figure.scenario), size.of(figure.scenario)
    base = (f"no protection, {size.checkpoints[-1]} iterations", PLAIN, math.inf, size.checkpoints[-1])
    by_epsilon = [(f"ε = {shown(epsilon)}", figure.scenario, epsilon, steps[-1]) for epsilon in epsilons]
    by_step = [(f"{step:,} iterations", figure.scenario, figure.marked, step) for step in steps]
    rows: list[Row] = []
    for panel, series in (
        (f"by ε, after {steps[-1]:,} iterations", [base, *by_epsilon]),
        (f"by iterations, ε = {figure.marked:g}", [base, *by_step]),
    ):
        for name, scenario, epsilon, step in series:
            points = results.points(scenario, epsilon, step).values()
            for at, error in enumerate(GRID):
                shares = [point["cdf"][at] for point in points]
                rows += _row(shares, panel=panel, series=name, x_name=ERROR, x=error, quantity=SHARE)
    return rows


def _increase(size: Size, results: Results) -> list[Row]:
    baseline, rows = size.checkpoints[-1], []
    for scenario in (TRUSTED, MASKED, DYNAMIC):
        dynamic = scenario == DYNAMIC
        steps, epsilons = size.steps(scenario), size.of(scenario)
        side, name = ("(b)" if dynamic else "(a)"), SCENARIOS[scenario]
        for epsilon in epsilons:
            found = results.increases(baseline, scenario, epsilon, steps[-1])
            rows += _row(found, panel=f"{side} by ε", series=name, x_name=EPSILON, x=epsilon, quantity=GAIN)
            held = [] if dynamic or not size.held_out else results.increases(
                baseline, scenario, epsilon, steps[-1], test_fraction=size.held_out
            )  # fmt: skip
            rows += _row(
                held, panel=f"{side} by ε", series=f"{name}, held out", x_name=EPSILON, x=epsilon,
                quantity=HELD_OUT_GAIN,
            )  # fmt: skip
            for step in steps:
                found = results.increases(baseline, scenario, epsilon, step)
                series = f"{name}, ε = {shown(epsilon)}"
                rows += _row(
                    found, panel=f"{side} by iterations", series=series, x_name=ITERATIONS, x=step, quantity=GAIN
                )
    return rows


def _churn(size: Size, results: Results) -> list[Row]:
    baseline, step, rows = size.checkpoints[-1], size.dynamic_checkpoints[-1], []
    for epsilon in size.churn_epsilons:
        series = f"ε = {shown(epsilon)}"
        for join in size.joins:
            found = results.increases(baseline, DYNAMIC, epsilon, step, join=join, leave=LEAVE)
            rows += _row(found, panel="by joining", series=series, x_name=JOINED, x=join, quantity=GAIN)
        for leave in size.leaves:
            found = results.increases(baseline, DYNAMIC, epsilon, step, join=JOIN, leave=leave)
            rows += _row(found, panel="by leaving", series=series, x_name=LEFT, x=leave, quantity=GAIN)
    return rows


def _claimed(figure: Figure) -> list[Row]:
    nothing: dict[str, Any] = {"low": None, "high": None, "seeds": 0, "source": CLAIMED}
    if figure.kind == CHURN:
        return [
            Row(panel=panel, series="the paper", x_name=name, x=None, quantity=GAIN, y=None, relation="in words",
                note=words, **nothing)
            for panel, name, words in (("by joining", JOINED, JOINING), ("by leaving", LEFT, LEAVING))
        ]  # fmt: skip
    rows = []
    for claim in claims_of(figure):
        side = "(b)" if claim.scenario == DYNAMIC else "(a)"
        rows.append(
            Row(
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
