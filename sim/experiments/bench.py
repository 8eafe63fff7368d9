"""`keyhole bench NAME`: a measurement and its floor in the same run, interleaved. The ratio is what counts."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

from actors.outcome import IterationDone
from protocol.errors import BadInput
from sim.baseline import start_baseline
from sim.config import RunConfig
from sim.experiments.algebra_bench import bench_algebra
from sim.experiments.audit_bench import bench_audit
from sim.experiments.growth import bench_growth
from sim.experiments.metering import bench_metering
from sim.inprocess import InProcess
from sim.plan import Plan, make_plan

DATA, STAND_IN = "ml-100k", "synthetic:943x1682:.05"
DIM, ITERATIONS, SEED = 10, 20, 1
FLOORS_EACH = 2  # unprotected iterations after each protected one


def run_bench(name: str) -> dict[str, Any]:
    if name not in BENCHES:
        raise BadInput(f"There is no benchmark {name!r}: use {', '.join(BENCHES)}.")
    return {"name": name, **BENCHES[name]()}


def bench_inprocess(data: str | None = None, iterations: int = ITERATIONS) -> dict[str, Any]:
    """CPU seconds of a `masked` iteration with all roles in one process, over the vectorised unprotected one."""
    plan, note = _plan(data, iterations)
    samples, floors = _interleaved(plan)
    shape, params = plan.shape, plan.card.params
    median, floor_median = statistics.median(samples), statistics.median(floors)
    return {
        "config": {
            "data": plan.config.data,
            "note": note,
            "users": shape.n_users,
            "items": shape.n_items,
            "dim": params.dim,
            "items_per_user": sum(shape.support_sizes) / shape.n_users,
            "iterations": params.iterations,
            "epsilon": params.epsilon,
            "wire": params.wire,
            "views": "none",
            "floor": "vectorised unprotected iteration",
            "unit": "CPU seconds per iteration",
        },
        "samples": samples,
        "median": median,
        "floor_median": floor_median,
        "ratio": median / floor_median,
    }


def _plan(data: str | None, iterations: int) -> tuple[Plan, str | None]:
    """(the run, a sentence if it is not on the real ratings)."""
    config = RunConfig(
        scheme="masked",
        data=data or DATA,
        dim=DIM,
        iterations=iterations,
        seed=SEED,
        transport="inprocess",
        views="none",
    )
    try:
        return make_plan(config), None
    except BadInput:
        if data is not None:
            raise
        note = f"{DATA} is not here (keyhole fetch {DATA}), so this is {STAND_IN}."
        return make_plan(dataclasses.replace(config, data=STAND_IN)), note


def _interleaved(plan: Plan) -> tuple[list[float], list[float]]:
    """CPU seconds of every protected iteration, and of unprotected ones in between.

    CPU time, because both use one thread and never wait: a busy machine would stretch the longer one more often.
    """
    baseline = start_baseline(plan.card.params, plan.data, plan.run_seed)
    samples: list[float] = []
    floors: list[float] = []
    began = 0.0

    def on_iteration(done: IterationDone) -> None:
        nonlocal began
        now = time.process_time()
        if done.iteration > 0:  # the first one includes the set-up
            samples.append(now - began)
        for _ in range(FLOORS_EACH):
            before = time.process_time()
            baseline.iterate()
            floors.append(time.process_time() - before)
        began = time.process_time()

    outcome = InProcess(plan.card, plan.seats(), on_iteration=on_iteration).run()
    if outcome.abort is not None:
        raise outcome.abort
    return samples, floors


BENCHES: dict[str, Callable[[], dict[str, Any]]] = {
    "inprocess": bench_inprocess,
    "algebra": bench_algebra,
    "metering": bench_metering,
    "growth": bench_growth,
    "audit": bench_audit,
}
