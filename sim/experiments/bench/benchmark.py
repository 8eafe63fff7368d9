"""`keyhole bench NAME`: a measurement and its floor in the same run, interleaved. The ratio is what counts."""

from __future__ import annotations

import dataclasses
import inspect
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from actors.metering.outcome import IterationDone
from protocol.errors import BadInput
from protocol.params import require
from sim.drivers.inprocess import InProcess
from sim.experiments.bench.algebra_bench import bench_algebra
from sim.experiments.bench.array_loops import bench_masks, bench_sum
from sim.experiments.bench.audit_bench import bench_audit
from sim.experiments.bench.command_start import bench_cli
from sim.experiments.bench.crowd_bench import bench_crowd
from sim.experiments.bench.growth import bench_growth
from sim.experiments.bench.processes import bench_iteration, bench_packed, bench_startup, bench_views
from sim.experiments.bench.secagg import bench_secagg
from sim.experiments.bench.siblings_bench import bench_covariance, bench_randomized_response
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.baseline import start_baseline

DATA, STAND_IN = "ml-100k", "synthetic:943x1682:.05"
DIM, ITERATIONS, SEED = 10, 20, 1
FLOORS_EACH = 2  # unprotected iterations after each protected one


def run_bench(name: str, options: Mapping[str, int] | None = None) -> dict[str, Any]:
    """`options` are the flags that a person gave; a benchmark takes those that its function has arguments for."""
    if name not in BENCHES:
        raise BadInput(f"There is no benchmark {name!r}: use {', '.join(BENCHES)}.")
    given, takes = (
        options or {},
        [option for option in OPTIONS if option in inspect.signature(BENCHES[name]).parameters],
    )
    for option, value in given.items():
        if option not in takes:
            words = ", ".join(f"--{taken}" for taken in takes) or "no options"
            raise BadInput(f"The benchmark {name} does not take --{option}: leave it out (it takes {words}).")
        require(value >= 1, f"--{option} must be 1 or more, not {value}.")
    busy = os.getloadavg()[0]
    result = BENCHES[name](**given)
    result["config"]["load_average"] = busy  # of the minute before: others slow the busier side down more
    return {"name": name, **result}


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


OPTIONS = ("users", "dim", "items", "iterations", "rounds", "hosts")
BENCHES: dict[str, Callable[..., dict[str, Any]]] = {
    "iteration": bench_iteration,
    "packed": bench_packed,
    "startup": bench_startup,
    "views": bench_views,
    "sum": bench_sum,
    "masks": bench_masks,
    "iteration-secagg": bench_secagg,
    "inprocess": bench_inprocess,
    "covariance": bench_covariance,
    "randomized-response": bench_randomized_response,
    "algebra": bench_algebra,
    "growth": bench_growth,
    "crowd": bench_crowd,
    "audit": bench_audit,
    "cli": bench_cli,
}
