"""`keyhole bench inprocess`: an iteration of `masked` with all roles in one process, beside the unprotected one."""

from __future__ import annotations

import time
from typing import Any

from actors.metering.outcome import IterationDone
from sim.drivers.inprocess import InProcess
from sim.experiments.bench.measuring import Seconds, described, interleaved, movielens_or, processor_seconds
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.baseline import start_baseline

STAND_IN = "synthetic:943x1682:.05"
DIM, ITERATIONS, SEED = 10, 20, 1
FLOORS_EACH = 2  # unprotected iterations after each protected one


def bench_inprocess(data: str | None = None, iterations: int = ITERATIONS) -> dict[str, Any]:
    """CPU seconds of a `masked` iteration with all roles in one process, over the vectorised unprotected one."""
    chosen, note = (data, None) if data else movielens_or(STAND_IN)
    sizes: dict[str, Any] = {"data": chosen, "dim": DIM, "iterations": iterations}
    plan = make_plan(RunConfig(scheme="masked", **sizes, seed=SEED, transport="inprocess", views="none"))
    config = {
        **described(plan),
        "note": note,
        "wire": plan.card.params.wire,
        "floor": "vectorised unprotected iteration",
        "unit": "CPU seconds per iteration",
    }
    return interleaved(config, lambda: _both(plan))


def _both(plan: Plan) -> tuple[Seconds, Seconds]:
    """Measure CPU seconds of every protected iteration but the first, and of unprotected ones in between.

    Both use one thread and never wait, so CPU time is fair. On a busy machine, wall time would favour the shorter one.
    """
    baseline = start_baseline(plan.card.params, plan.data, plan.run_seed)
    samples: Seconds = []
    floors: Seconds = []
    began = 0.0

    def on_iteration(done: IterationDone) -> None:
        nonlocal began
        if done.iteration > 0:  # the first one includes the set-up
            samples.append(time.process_time() - began)
        floors.extend(processor_seconds(baseline.iterate) for _ in range(FLOORS_EACH))
        began = time.process_time()

    outcome = InProcess(plan.card, plan.seats(), on_iteration=on_iteration).run()
    if outcome.abort is not None:
        raise outcome.abort
    return samples, floors
