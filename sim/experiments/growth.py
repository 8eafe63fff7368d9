"""How bytes and seconds of an iteration grow with users, items and dimension: real processes at a few sizes, and fits.

Every size is a run of `masked` over tcp with one process per user, views and encryption on, every user with exactly 20
items. Two fits for each: a power law y = c x^b and a line y = a + b x, each with its largest relative residual. Where a
part of the cost does not grow at all, the line fits and the exponent is below 1.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from protocol.errors import Aborted, Reason
from sim import run as running
from sim.config import RunConfig

SIZES: dict[str, tuple[int, ...]] = {
    "users": (25, 50, 100, 200),
    "items": (500, 1000, 2000, 4000),
    "dim": (10, 20, 50, 100),
}
BASE = {"users": 50, "items": 1000, "dim": 20}
RATED, HELD_OUT = 25, 0.2  # ratings of a user, and the part of them that is held out
ITERATIONS, SEED = 20, 1


def bench_growth(sizes: dict[str, tuple[int, ...]] | None = None, iterations: int = ITERATIONS) -> dict[str, Any]:
    samples: list[dict[str, Any]] = []
    for axis, values in (sizes or SIZES).items():
        for value in values:
            size = {**BASE, axis: value}
            samples.append({"axis": axis, **size, **measure(**size, iterations=iterations)})
    fits = {axis: _fits(axis, [sample for sample in samples if sample["axis"] == axis]) for axis in sizes or SIZES}
    rated = round(RATED * (1 - HELD_OUT))
    return {
        "config": {**BASE, "items_per_user": rated, "iterations": iterations, "scheme": "masked"},
        "samples": samples,
        "fits": fits,
        "median": None,  # nothing is compared with a floor here: the fits are the result
        "floor_median": None,
        "ratio": None,
    }


def measure(users: int, items: int, dim: int, iterations: int) -> dict[str, Any]:
    """Medians over the iterations of one run."""
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(
            scheme="masked",
            data=f"synthetic:{users}x{items}:{RATED / items!r}",
            test_fraction=HELD_OUT,
            dim=dim,
            iterations=iterations,
            seed=SEED,
        )
        summary = running.run(config, out=Path(folder) / "run", on_line=lines.append)
    if not summary["completed"]:
        raise Aborted(Reason[summary["abort"]["reason"]], f"{users} users, {items} items, dim {dim}")
    lines = [line for line in lines if line["iteration"] >= 0]
    user = summary["bytes"]["per_user_iteration"]
    return {
        "bytes": statistics.median(line["bytes"] for line in lines),
        "seconds": statistics.median(line["seconds"] for line in lines),
        "user_down": user["down_median"],
        "user_up": user["up_median"],
    }


def _fits(axis: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    sizes = [sample[axis] for sample in samples]
    return {what: fit(sizes, [sample[what] for sample in samples]) for what in ("bytes", "seconds")}


def fit(sizes: Iterable[float], values: Iterable[float]) -> dict[str, float]:
    """Least squares of the logarithms, and of relative errors for the line, so that small sizes count as much."""
    x, y = np.array(list(sizes), np.float64), np.array(list(values), np.float64)
    exponent, logarithm = np.polyfit(np.log(x), np.log(y), 1)
    slope, fixed = np.polyfit(x, y, 1, w=1 / y)
    return {
        "exponent": float(exponent),
        "exponent_residual": _residual(y, np.exp(logarithm) * x**exponent),
        "fixed": float(fixed),
        "slope": float(slope),
        "line_residual": _residual(y, fixed + slope * x),
    }


def _residual(measured: Any, fitted: Any) -> float:
    return float(np.max(np.abs(measured / fitted - 1)))
