"""The time of a whole run of a sibling scheme, beside the time in which its recommender computes.

The run goes from flags to summary, in one process with all views. The recommender computes sums and eigenvectors, or a
matrix completion. The rest of the time goes into parties, frames, views and figures.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.metering.recorder import peak_memory
from protocol.errors import Bug
from protocol.party.role import RECOMMENDER, Effects, Role
from protocol.play import make_roles, play
from protocol.wire.messages import Message
from sim.data.ratings import find
from sim.drivers.workers import worker_pool
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import run

ROUNDS, SEED, DENSITY = 3, 1, 0.0447  # the density of MovieLens-1M
DATA, STAND_IN = "ml-100k", "synthetic:943x1682:.05"


def bench_covariance(users: int | None = None, items: int | None = None, rounds: int = ROUNDS) -> dict[str, Any]:
    return _bench("covariance", users, items, rounds)


def bench_randomized_response(
    users: int | None = None, items: int | None = None, rounds: int = ROUNDS
) -> dict[str, Any]:
    return _bench("randomized-response", users, items, rounds)


def _bench(scheme: str, users: int | None, items: int | None, rounds: int) -> dict[str, Any]:
    data, note = _data(users, items)
    config = RunConfig(scheme=scheme, data=data, seed=SEED, transport="inprocess")
    plan = make_plan(config)
    samples, floors, peaks = [], [], []
    for _ in range(rounds):
        seconds, peak = _apart(functools.partial(_whole, config))
        samples.append(seconds)
        peaks.append(peak)
        floors.append(_apart(functools.partial(_recommender, config))[0])
    median, floor_median, shape = statistics.median(samples), statistics.median(floors), plan.shape
    return {
        "config": {
            "scheme": scheme,
            "data": data,
            "note": note,
            "users": shape.n_users,
            "items": shape.n_items,
            "dim": plan.card.params.dim,
            "items_per_user": sum(shape.support_sizes) / shape.n_users,
            "epsilon": plan.card.params.epsilon,
            "views": config.views,
            "peak_memory_bytes": max(peaks),
            "floor": "what the recommender computes",
            "unit": "seconds of a whole run, the one without protection beside it included",
        },
        "samples": samples,
        "floors": floors,
        "median": median,
        "floor_median": floor_median,
        "ratio": median / floor_median,
    }


def _data(users: int | None, items: int | None) -> tuple[str, str | None]:
    if users is not None or items is not None:
        return f"synthetic:{users or 943}x{items or 1682}:{DENSITY}", None
    if find(DATA) is None:
        return STAND_IN, f"{DATA} is not here (keyhole fetch {DATA}), so this is {STAND_IN}."
    return DATA, None


def _apart(measure: Callable[[], float]) -> tuple[float, int]:
    """Run `measure` in a fresh process, as a peak never falls; return (its result, the peak of its memory)."""
    with worker_pool(1) as pool:
        return next(pool.completed([pool.submit(_with_peak, measure)]))


def _with_peak(measure: Callable[[], float]) -> tuple[float, int]:
    return measure(), peak_memory()


def _whole(config: RunConfig) -> float:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="keyhole-bench-") as folder:
        summary = run(dataclasses.replace(config), out=Path(folder) / "run")
        if not summary["completed"]:
            raise Bug(f"the benchmark's run was aborted: {summary['abort']}")
        return time.perf_counter() - began


class _TimedRole(Role):
    def __init__(self, role: Role) -> None:
        self._role, self.busy = role, 0.0

    def receive(self, sender: str, message: Message) -> Effects:
        began = time.perf_counter()
        effects = self._role.receive(sender, message)
        self.busy += time.perf_counter() - began
        return effects


def _recommender(config: RunConfig) -> float:
    """Measure the seconds that the recommender's role is busy, in the same run without views."""
    plan = make_plan(config)
    roles = make_roles(plan.card, plan.seats())
    roles[RECOMMENDER] = timed = _TimedRole(roles[RECOMMENDER])
    for _ in play(roles):
        pass
    return timed.busy
