"""`keyhole bench algebra`: solve the algebra for all default coalitions of a run, beside a replay of its views."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from sim.audit.algebra.solve import solve
from sim.experiments.bench.measuring import Seconds, apart, interleaved, movielens_or, run_real, wall_seconds
from sim.plan.config import RunConfig
from sim.views.evidence import open_case
from sim.views.replay import replay

STAND_IN = "synthetic:943x1682:.063"
ITERATIONS, EPSILON, SEED = 20, 1.0, 1


def bench_algebra(data: str | None = None, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Seconds and memory of the algebra for a `dynamic` run with all views, over a replay of all roles."""
    chosen, note = (data, None) if data else movielens_or(STAND_IN)
    sizes: dict[str, Any] = {"data": chosen, "epsilon": EPSILON, "iterations": iterations, "test_fraction": 0.0}
    memory = 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        real = run_real(RunConfig(scheme="dynamic", **sizes, transport="inprocess", seed=SEED), out)

        def both() -> tuple[Seconds, Seconds]:
            nonlocal memory
            replayed, _ = apart(wall_seconds, replay, out)
            solved, memory = apart(wall_seconds, _solve, out)
            return [solved], [replayed]

        result = interleaved({}, both)
    result["config"] = {
        **real.about,
        "note": f"{f'{note} ' if note else ''}All default coalitions; peak memory {memory >> 20} MB.",
        "floor": "keyhole replay of all views",
        "unit": "seconds",
        "peak_memory_bytes": memory,
    }
    return result


def _solve(out: Path) -> None:
    solve(open_case(out))
