"""Turn the lines of finished cells into the rows of a figure, which are drawn and written to its CSV."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sim.experiments.grid.grid_cells import GRID
from sim.experiments.reproduce.figure_plan import CDF, CHURN, JOIN, LEAVE, SCENARIOS, Figure, Size
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


def rows_of(figure: Figure, size: Size, results: Results) -> list[CurvePoint]:
    measured: list[CurvePoint] = []
    for reading in READINGS:
        if figure.kind == CDF:
            measured += _distribution(figure, size, results, reading)
        elif figure.kind == CHURN:
            measured += _churn(size, results, reading)
        else:
            measured += _increase(size, results, reading)
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


def _row(values: Sequence[float], **what: Any) -> list[CurvePoint]:
    """Make the point of `values`, one value for each seed; return no point if nothing was run."""
    if not values:
        return []
    mean = statistics.fmean(values)
    return [CurvePoint(y=mean, low=min(values), high=max(values), seeds=len(values), **what)]


def _distribution(figure: Figure, size: Size, results: Results, reading: str) -> list[CurvePoint]:
    steps, epsilons = size.steps(figure.scenario), size.of(figure.scenario)
    base = (f"no protection, {size.checkpoints[-1]} iterations", PLAIN, math.inf, size.checkpoints[-1])
    by_epsilon = [(f"ε = {shown(epsilon)}", figure.scenario, epsilon, steps[-1]) for epsilon in epsilons]
    by_step = [(f"{step:,} iterations", figure.scenario, figure.marked, step) for step in steps]
    rows: list[CurvePoint] = []
    for panel, series in (
        (f"by ε, after {steps[-1]:,} iterations", [base, *by_epsilon]),
        (f"by iterations, ε = {figure.marked:g}", [base, *by_step]),
    ):
        for name, scenario, epsilon, step in series:
            points = results.points(scenario, epsilon, step).values()
            for at, error in enumerate(GRID):
                shares = [_read(point, reading)["cdf"][at] for point in points]
                place = {"panel": panel_of(panel, reading), "reading": reading}
                rows += _row(shares, series=name, x_name=ERROR, x=error, quantity=SHARE, **place)
    return rows


def _increase(size: Size, results: Results, reading: str) -> list[CurvePoint]:
    baseline, rows = size.checkpoints[-1], []
    for scenario in (TRUSTED, MASKED, DYNAMIC):
        dynamic = scenario == DYNAMIC
        steps, name = size.steps(scenario), SCENARIOS[scenario]
        side = "(b)" if dynamic else "(a)"
        by_epsilon = {"panel": panel_of(f"{side} by ε", reading), "reading": reading, "x_name": EPSILON}
        by_step = {"panel": panel_of(f"{side} by iterations", reading), "reading": reading, "x_name": ITERATIONS}
        for epsilon in size.of(scenario):
            at = (baseline, scenario, epsilon)
            found = results.increases(*at, steps[-1], reading)
            rows += _row(found, series=name, x=epsilon, quantity=GAIN, **by_epsilon)
            if size.held_out and not dynamic:
                held = results.increases(*at, steps[-1], reading, test_fraction=size.held_out)
                rows += _row(held, series=f"{name}, held out", x=epsilon, quantity=HELD_OUT_GAIN, **by_epsilon)
            if reading != ITERATE:
                unlike = results.increases(*at, steps[-1], reading, ITERATE)
                series = f"{name}, over the baseline's iterate"
                rows += _row(unlike, series=series, x=epsilon, quantity=GAIN_OVER_ITERATE, **by_epsilon)
            for step in steps:
                found = results.increases(*at, step, reading)
                rows += _row(found, series=f"{name}, ε = {shown(epsilon)}", x=step, quantity=GAIN, **by_step)
        if reading == SOLVED and scenario != TRUSTED:  # once in each panel
            found = results.increases(baseline, PLAIN, math.inf, 0, reading)
            place = by_epsilon | {"x_name": "whatever ε is"}
            rows += _row(found, series="a V that has learned nothing", x=None, quantity=UNLEARNED_GAIN, **place)
    return rows


def _churn(size: Size, results: Results, reading: str) -> list[CurvePoint]:
    baseline, step, rows = size.checkpoints[-1], size.dynamic_checkpoints[-1], []
    for epsilon in size.churn_epsilons:
        at, what = (baseline, DYNAMIC, epsilon, step, reading), {"series": f"ε = {shown(epsilon)}", "quantity": GAIN}
        for join in size.joins:
            found = results.increases(*at, join=join, leave=LEAVE)
            place = {"panel": panel_of("by joining", reading), "reading": reading}
            rows += _row(found, x_name=JOINED, x=join, **what, **place)
        for leave in size.leaves:
            found = results.increases(*at, join=JOIN, leave=leave)
            place = {"panel": panel_of("by leaving", reading), "reading": reading}
            rows += _row(found, x_name=LEFT, x=leave, **what, **place)
    return rows


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
