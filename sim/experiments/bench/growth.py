"""How bytes and seconds of an iteration grow with users, items and dimension: real processes at a few sizes, and fits.

Every size is a run of `masked` over tcp with views and encryption, and every user has exactly 20 items. On the axis
`users`, the users are packed into two processes, so that only one thing grows; sizes above those that are fitted are
packed as `--users-per-process auto` says. The axis `processes` has one process per user. On the axis `users`, the
fitted sizes are run upwards and then downwards, so that a drift of the machine cancels.

There are two fits for each: a power law y = c x^b with the 95 % interval of b (of a straight line through the
logarithms, by Student's t), and a line y = a + b x; each with its largest relative residual. `bytes` are all bytes of
an iteration. What the servers exchange grows with items, not with users, so `user_bytes`, to and from users alone, are
fitted beside them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

import numpy as np

from protocol.errors import BadInput
from sim.experiments.bench.measuring import run_real
from sim.plan.config import RunConfig

Sizes = dict[str, tuple[int, ...]]

SIZES: Sizes = {
    "users": (10, 30, 100, 250, 600, 1500, 4000, 10_000),
    "processes": (10, 100, 300, 1000),
    "items": (500, 1000, 2000, 4000),
    "dim": (10, 20, 50, 100),
}
FITTED = {"users": (100, 4000), "processes": (100, 1000)}  # on the other axes, all sizes
HOSTS = 2
BASE = {"users": 50, "items": 1000, "dim": 20}
RATED, HELD_OUT = 25, 0.2  # ratings of a user, and the part of them that is held out
SEED = 1
FEWEST, MOST, ANSWERS = 6, 40, 15_000  # iterations of a run: from FEWEST to MOST, for about ANSWERS answers of users
WARM = 1  # first iterations, which are left out
FIGURES = ("bytes", "user_bytes", "seconds")


def bench_growth(sizes: Sizes | None = None, iterations: int | None = None) -> dict[str, Any]:
    samples: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for axis, values in (sizes or SIZES).items():
        runs, refused = _run_all(axis, values, iterations)
        for value in values:
            about = {"axis": axis, "size": value}
            if runs[value]:
                fitted = {"fitted": _is_fitted(axis, value)}
                samples.append({**about, **fitted, **_size(axis, value), **_together(runs[value])})
            else:
                skipped.append({**about, "why": refused[value]})
    fits = {axis: fits_of([row for row in samples if row["axis"] == axis and row["fitted"]]) for axis in sizes or SIZES}
    return {
        "config": {
            **BASE,
            "items_per_user": round(RATED * (1 - HELD_OUT)),
            "scheme": "masked",
            "views": "full",
            "hosts": HOSTS,
            "fitted": {axis: list(ends) for axis, ends in FITTED.items()},
        },
        "samples": samples,
        "skipped": skipped,
        "fits": {axis: found for axis, found in fits.items() if found},
        "median": None,  # nothing is compared with a floor here: the fits are the result
        "floor_median": None,
        "ratio": None,
    }


def _run_all(
    axis: str, values: tuple[int, ...], iterations: int | None
) -> tuple[dict[int, list[dict[str, Any]]], dict[int, str]]:
    """Run every size; return its runs by size, and the reason by size if this machine refused one."""
    runs: dict[int, list[dict[str, Any]]] = {value: [] for value in values}
    refused: dict[int, str] = {}
    downwards = [value for value in reversed(values) if axis == "users" and _is_fitted(axis, value)]
    for value in (*values, *downwards):
        size = _size(axis, value)
        turns = iterations or _iterations(size["users"])
        try:
            runs[value].append(measure(**size, iterations=turns, per_process=_pack(axis, value)))
        except BadInput as too_small:
            refused[value] = str(too_small)
    return runs, refused


def _size(axis: str, value: int) -> dict[str, int]:
    return {**BASE, "users" if axis == "processes" else axis: value}


def _iterations(users: int) -> int:
    return WARM + max(FEWEST, min(MOST, ANSWERS // users))


def _is_fitted(axis: str, value: int) -> bool:
    low, high = FITTED.get(axis, (0, math.inf))
    return low <= value <= high


def _pack(axis: str, value: int) -> int | None:
    """Return the users per process: one layout for all sizes that are fitted together; None: whatever fits."""
    if axis != "users":
        return 1
    return -(-value // HOSTS) if value <= FITTED["users"][1] else None


def measure(users: int, items: int, dim: int, iterations: int, per_process: int | None) -> dict[str, Any]:
    """Make one run, and return the bytes and seconds of each iteration that counts."""
    config = RunConfig(
        scheme="masked",
        data=f"synthetic:{users}x{items}:{RATED / items!r}",
        test_fraction=HELD_OUT,
        dim=dim,
        iterations=iterations,
        seed=SEED,
        users_per_process=per_process,
    )
    real = run_real(config)
    lines, user = real.turns[min(WARM, iterations - 1) :], real.summary["bytes"]["per_user_iteration"]
    return {
        "processes": real.summary["processes"]["user"],
        "bytes": [line["bytes"] for line in lines],
        "user_bytes": [_user_bytes(line) for line in lines],
        "seconds": [line["seconds"] for line in lines],
        "user_down": user["down_median"],
        "user_up": user["up_median"],
    }


def _together(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Compute the medians over the iterations of all `runs` of one size."""
    medians = {what: statistics.median(amount for one in runs for amount in one[what]) for what in FIGURES}
    iterations = sum(len(one["seconds"]) for one in runs)
    kept = {name: runs[0][name] for name in ("processes", "user_down", "user_up")}
    return {**kept, "runs": len(runs), "iterations": iterations, **medians}


def _user_bytes(line: dict[str, Any]) -> int:
    """Add up the wire bytes to and from users in the iteration of `line`."""
    own = (row for row in line["rows"] if row[0] == line["iteration"])
    return sum(wire for _, sender, receiver, *_, wire in own if "user" in (sender, receiver))


def fits_of(samples: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Fit every figure over the sizes; return None if fewer than two sizes are left."""
    if len(samples) < 2:
        return None
    return {what: fit([row["size"] for row in samples], [row[what] for row in samples]) for what in FIGURES}


def fit(sizes: Iterable[float], values: Iterable[float]) -> dict[str, Any]:
    """Fit a power law, by least squares of the logarithms, and a line, by least squares of relative errors.

    With relative errors, small sizes count as much as large ones.
    """
    x, y = np.array(list(sizes), np.float64), np.array(list(values), np.float64)
    from scipy import stats  # slow to import
    power = stats.linregress(np.log(x), np.log(y))
    slope, fixed = np.polyfit(x, y, 1, w=1 / y)
    reach = stats.t.ppf(0.975, len(x) - 2) * power.stderr if len(x) > 2 else None
    return {
        "exponent": float(power.slope),
        "exponent_interval": None if reach is None else [float(power.slope - reach), float(power.slope + reach)],
        "exponent_residual": _residual(y, np.exp(power.intercept) * x**power.slope),
        "fixed": float(fixed),
        "slope": float(slope),
        "line_residual": _residual(y, fixed + slope * x),
    }


def _residual(measured: Any, fitted: Any) -> float:
    return float(np.max(np.abs(measured / fitted - 1)))
