"""`keyhole bench audit`: how fast canaries are played, beside runs of one each through frames, and an audit's cost.

`keyhole bench algebra`: solve the algebra for all default coalitions of a run, beside a replay of its views.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from protocol.arithmetic.tape import derive
from protocol.card import Card, Seat, all_parties, make_run_id
from protocol.schemes import find_scheme
from sim.audit.algebra.solve import solve
from sim.audit.canary.canary import CanaryProblem, Stage
from sim.audit.families.factorization.arms import RELEASE
from sim.audit.families.factorization.repeat import ITEMS, play_chunk
from sim.drivers.inprocess import InProcess
from sim.experiments.bench.measuring import (
    Seconds,
    apart,
    command_seconds,
    interleaved,
    movielens_or,
    processor_seconds,
    run_real,
    wall_seconds,
)
from sim.plan.config import RunConfig
from sim.views.evidence import open_case
from sim.views.replay import replay

SCHEME, EPSILON, SEED, DATA = "masked", 1.0, bytes(32), "demo"
SAMPLES, REPETITIONS = 20, 100  # of the slow side in turn; the other plays ITEMS canaries in one run
STAND_IN = "synthetic:943x1682:.063"  # for MovieLens-100k
COMMANDS = {"first audit": "audit", "second audit": "audit", "page": "report"}


def bench_audit(
    scheme: str = SCHEME, samples: int = SAMPLES, repetitions: int = REPETITIONS, data: str = DATA
) -> dict[str, Any]:
    """CPU seconds of one canary among many in a run, over a run of its own with parties, frames and codec.

    Beside it, of a run on `data`: CPU seconds of the first audit, of the second and of the page.
    """
    times = audit_times(data)
    problem = RELEASE.problem(find_scheme(scheme), EPSILON, None)
    first = itertools.count(0, repetitions)

    def both() -> tuple[Seconds, Seconds]:
        start = next(first)
        numbers = range(start, start + repetitions)
        own = processor_seconds(lambda: play_chunk(problem, derive(SEED, start), 0, ITEMS))
        framed = processor_seconds(lambda: [play_framed(problem, derive(SEED, number)) for number in numbers])
        return [own / ITEMS], [framed / repetitions]

    result = interleaved({}, both, samples)
    fast, slow = 1 / result["median"], 1 / result["floor_median"]
    result["config"] = {
        "data": "a canary",
        "note": f"{fast:,.0f} repetitions per second and process; {slow:,.0f} through frames. "
        f"CPU seconds on {data}: {', '.join(f'{words} {seconds:.1f}' for words, seconds in times.items())}.",
        "scheme": scheme,
        "users": problem.params.n_users,
        "items": ITEMS,
        "dim": problem.params.dim,
        "items_per_user": ITEMS,
        "iterations": problem.params.iterations,
        "epsilon": EPSILON,
        "views": "none",
        "floor": "a run for each through parties, frames and codec",
        "unit": "CPU seconds per repetition",
        "repetitions_per_second": fast,
        "audited": data,
        "audit_seconds": times,
    }
    return result


def audit_times(data: str = DATA, iterations: int | None = None, scheme: str = "dynamic") -> dict[str, float]:
    """Measure processor seconds of each command, workers included, beginning with an empty cache.

    By default, `data`, `iterations` and `scheme` are those of a bare `keyhole run`.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run_real(RunConfig(scheme=scheme, data=data, iterations=iterations, seed=1, transport="inprocess"), folder)
        return {
            words: command_seconds(["-m", "sim", command, str(folder)], XDG_CACHE_HOME=f"{place}/cache")
            for words, command in COMMANDS.items()
        }


def play_framed(problem: CanaryProblem, seed: bytes) -> np.ndarray | None:
    """Play `problem` once as `keyhole run --transport inprocess` would run it, without views."""
    names = all_parties(problem.scheme, problem.params.n_users)
    card = Card(problem.scheme, problem.params, make_run_id(problem.params, names, seed), simulation=True)
    stage = Stage(problem, card.run_id)
    seats = [Seat(name, derive(seed, name), stage.inputs(name, greatest=False)) for name in names]
    return InProcess(card, seats).run().item_factors


def bench_algebra(data: str | None = None, iterations: int = 20) -> dict[str, Any]:
    """Seconds and memory of the algebra for a `dynamic` run with all views, over a replay of all roles."""
    chosen, note = (data, None) if data else movielens_or(STAND_IN)
    sizes: dict[str, Any] = {"data": chosen, "epsilon": 1.0, "iterations": iterations, "test_fraction": 0.0}
    memory = 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        real = run_real(RunConfig(scheme="dynamic", **sizes, transport="inprocess", seed=1), out)

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
