"""`keyhole bench algebra`: solve the algebra for all default coalitions of a run, beside a replay of its views."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from sim.audit.algebra.solve import solve
from sim.data.ratings import find
from sim.drivers.workers import worker_pool
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.views.evidence import open_case
from sim.views.replay import replay

DATA, STAND_IN = "ml-100k", "synthetic:943x1682:.063"
ITERATIONS, EPSILON, SEED = 20, 1.0, 1


def bench_algebra(data: str | None = None, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Seconds and memory of the algebra for a `dynamic` run with all views, over a replay of all roles."""
    there = data or (DATA if find(DATA) is not None else STAND_IN)
    note = "" if there != STAND_IN else f"{DATA} is not here (keyhole fetch {DATA}), so this is {STAND_IN}. "
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        config = RunConfig(
            scheme="dynamic",
            data=there,
            epsilon=EPSILON,
            iterations=iterations,
            test_fraction=0.0,
            transport="inprocess",
            seed=SEED,
        )
        summary = run(config, out=out)
        replayed, _ = _alone(_replay, out)
        solved, memory = _alone(_solve, out)
    return {
        "config": {
            "data": there,
            "note": f"{note}All default coalitions; peak memory {memory >> 20} MB.",
            "scheme": "dynamic",
            "users": summary["users"],
            "items": summary["items"],
            "dim": summary["dim"],
            "items_per_user": summary["ratings"]["train"] / summary["users"],
            "iterations": summary["iterations"],
            "epsilon": EPSILON,
            "views": "full",
            "floor": "keyhole replay of all views",
            "unit": "seconds",
            "peak_memory_bytes": memory,
        },
        "samples": [solved],
        "median": solved,
        "floor_median": replayed,
        "ratio": solved / replayed,
    }


def _alone(work: Any, out: Path) -> tuple[float, int]:
    """Run `work` in a fresh process, so that only its own memory is counted; return (seconds, bytes)."""
    with worker_pool(1) as pool:
        seconds, memory = next(pool.completed([pool.submit(work, out)]))
    return float(seconds), int(memory)


def _solve(out: Path) -> tuple[float, int]:
    started = time.perf_counter()
    solve(open_case(out))
    return time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _replay(out: Path) -> tuple[float, int]:
    started = time.perf_counter()
    replay(out)
    return time.perf_counter() - started, 0
