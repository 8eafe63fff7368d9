"""`keyhole bench NAME`: a measurement and its floor in the same run, interleaved. The ratio is what counts."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from protocol.errors import BadInput
from protocol.params import require
from sim.experiments.bench.array_loops import bench_masks, bench_sum
from sim.experiments.bench.audit_bench import bench_algebra, bench_audit
from sim.experiments.bench.command_start import bench_cli
from sim.experiments.bench.crowd_bench import bench_crowd
from sim.experiments.bench.growth import bench_growth
from sim.experiments.bench.inprocess_bench import bench_inprocess
from sim.experiments.bench.norm_bench import bench_norm
from sim.experiments.bench.processes import bench_iteration, bench_packed, bench_startup, bench_views
from sim.experiments.bench.restart_bench import bench_restart
from sim.experiments.bench.secagg import bench_secagg
from sim.experiments.bench.siblings_bench import bench_sibling

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
    "covariance": functools.partial(bench_sibling, "covariance"),
    "randomized-response": functools.partial(bench_sibling, "randomized-response"),
    "norm-proof": bench_norm,
    "algebra": bench_algebra,
    "growth": bench_growth,
    "crowd": bench_crowd,
    "audit": bench_audit,
    "cli": bench_cli,
    "restart": bench_restart,
}


def run_bench(name: str, options: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Run the benchmark `name` with the flags in `options`; refuse a flag that its function has no argument for."""
    if name not in BENCHES:
        raise BadInput(f"There is no benchmark {name!r}: use {', '.join(BENCHES)}.")
    given = options or {}
    takes = [option for option in OPTIONS if option in inspect.signature(BENCHES[name]).parameters]
    for option, value in given.items():
        if option not in takes:
            words = ", ".join(f"--{taken}" for taken in takes) or "no options"
            raise BadInput(f"The benchmark {name} does not take --{option}: leave it out (it takes {words}).")
        require(value >= 1, f"--{option} must be 1 or more, not {value}.")
    busy = os.getloadavg()[0]
    result = BENCHES[name](**given)
    result["config"]["load_average"] = busy  # of the minute before: other processes slow the busier side down more
    return {"name": name, **result}
