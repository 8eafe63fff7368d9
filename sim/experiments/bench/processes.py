"""Runs of real processes against the least that moving their frames costs: `iteration`, `packed`, `startup`, `views`.

A round is a whole run of `masked` over tcp with CURVE and, directly after or before it, the other side with fresh
processes, so that other load on the machine affects both. All users have rated equally many items. There are twelve
times as many items as users.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from actors.bare_frames import KINDS
from protocol.params import require
from sim.experiments.bench.bare_frames_bench import BareRun, compare, frames_of, moved_by, run_floor
from sim.experiments.bench.measuring import Real, Seconds, interleaved, run_real
from sim.plan.config import RunConfig

USERS, DIM, ITEMS, ITERATIONS, ROUNDS, HOSTS = 1000, 50, 20, 25, 3, 2
CATALOGUE = 12  # items of the data per user: 12,000 for 1000 users
WARM = 3  # first iterations that are left out; so is the last one, in which users end
WARM_UP = f"the first {WARM} iterations and the last one are left out"
SEED = 1
MOST_HOSTS = 8

FLOOR = (
    "the same forked processes with blocking sockets and CURVE, moving frames of the same sizes: "
    "no roles, no messages, no views"
)
Measured = tuple[Real, Seconds, Seconds]  # a real run, its seconds that count, and those of the floor


@dataclass(frozen=True, slots=True)
class Load:
    users: int
    dim: int
    items: int  # of each user
    iterations: int
    users_per_process: int = 1

    @property
    def data(self) -> str:
        items = max(self.items, CATALOGUE * self.users)
        return f"synthetic:{self.users}x{items}:{self.items / items:.10g}"

    def config(self, views: str = "full") -> RunConfig:
        return RunConfig(
            scheme="masked",
            data=self.data,
            dim=self.dim,
            iterations=self.iterations,
            users_per_process=self.users_per_process,
            views=views,
            test_fraction=0.0,
            seed=SEED,
        )


def warm(seconds: Sequence[float]) -> Seconds:
    """Leave out the first iterations and the last one; of very few, keep the last but one, and of one that one."""
    return list(seconds[WARM:-1] or seconds[-2:-1] or seconds)


# --- the benchmarks --------------------------------------------------------------------------------------------------


def bench_iteration(
    users: int = USERS, dim: int = DIM, items: int = ITEMS, iterations: int = ITERATIONS, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Seconds of an iteration, one process per user."""
    return _against_the_floor(Load(users, dim, items, iterations), rounds, FLOOR)


def bench_packed(
    users: int = USERS,
    dim: int = DIM,
    items: int = ITEMS,
    iterations: int = ITERATIONS,
    rounds: int = ROUNDS,
    hosts: int = HOSTS,
) -> dict[str, Any]:
    """Seconds of an iteration, the users in a few processes."""
    most = min(MOST_HOSTS, users)
    require(1 <= hosts <= most, f"--hosts must be from 1 to {most}, not {hosts}.")
    load = Load(users, dim, items, iterations, users_per_process=-(-users // hosts))
    result = _against_the_floor(load, rounds, f"{FLOOR}; users packed alike, each with its own connections")
    result["config"]["hosts"] = -(-users // load.users_per_process)
    return result


def bench_startup(users: int = USERS, dim: int = DIM, items: int = ITEMS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Seconds until every user's process has been started and authenticated and has joined."""
    load = Load(users, dim, items, iterations=1)
    floors: list[BareRun] = []

    def once() -> Measured:
        real = run_real(load.config())
        floors.append(run_floor(users, 1, []))
        return real, [real.summary["seconds"]["startup"]], [floors[-1].startup]

    words = "processes forked from the same kind of interpreter, connected with CURVE, one frame from each"
    result = of_rounds(rounds, once, words, "seconds until everyone has joined")
    loading = statistics.median(floor.loading for floor in floors)
    return result | {"loading": {"seconds": loading, "of": "the floor, until its first fork"}}


def bench_views(
    users: int = USERS, dim: int = DIM, items: int = ITEMS, iterations: int = ITERATIONS, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Seconds of an iteration in which every party keeps a view, over one in which none does."""
    load = Load(users, dim, items, iterations)
    order = ["full", "none"]

    def once() -> Measured:
        pair = {views: run_real(load.config(views)) for views in order}
        order.reverse()  # so that a machine that slows down does not count against one side only
        compare(moved_by(pair["none"].lines), moved_by(pair["full"].lines))
        return pair["full"], warm(pair["full"].seconds), warm(pair["none"].seconds)

    return of_rounds(rounds, once, "the same runs in which no party keeps a view", "seconds per iteration")


# --- what they share -------------------------------------------------------------------------------------------------


def _against_the_floor(load: Load, rounds: int, words: str) -> dict[str, Any]:
    sizes: dict[str, int] = {}  # of the frames of the last iteration

    def once() -> Measured:
        real = run_real(load.config())
        frames = frames_of(real.lines)
        floor = run_floor(load.users, load.users_per_process, frames)
        compare(floor.received, moved_by(real.lines))
        sizes.update(zip(KINDS, frames[-1], strict=True))
        return real, warm(real.seconds), warm(floor.seconds)

    result = of_rounds(rounds, once, words, "seconds per iteration")
    result["config"]["frame_bytes"] = sizes
    return result


def of_rounds(rounds: int, once: Callable[[], Measured], floor: str, unit: str) -> dict[str, Any]:
    runs: list[Real] = []

    def both() -> tuple[Seconds, Seconds]:
        real, samples, floors = once()
        runs.append(real)
        return samples, floors

    result = interleaved({}, both, rounds, whole_runs=True)
    summaries = [real.summary for real in runs]
    result["config"] = {
        **runs[0].about,
        "warm_up": WARM_UP,
        "rounds": rounds,
        "transport": "tcp with CURVE",
        "ring_bits": summaries[0]["ring"]["bits"],
        "cores": len(os.sched_getaffinity(0)),
        "floor": floor,
        "unit": unit,
    }
    return result | {
        "startup": statistics.median(summary["seconds"]["startup"] for summary in summaries),
        "memory": {  # the largest of all rounds
            name: max(summary["memory"][name] or 0 for summary in summaries) or None
            for name in ("user_process_uss_mean", "user_process_uss_max")
        },
    }
