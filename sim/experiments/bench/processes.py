"""Runs of real processes against the least that moving their frames costs: `iteration`, `packed`, `startup`, `views`.

A round is a whole run of `masked` over tcp with CURVE and, directly after or before it, the other side with fresh
processes, so that other load on the machine affects both. All users have rated equally many items. There are twelve
times as many items as users.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.bare_frames import KINDS
from protocol.errors import Aborted, Reason
from protocol.params import require
from sim.console import console
from sim.experiments.bench.bare_frames_bench import Frames, compare, frames_of, moved_by, run_floor
from sim.plan.config import RunConfig
from sim.run import run as running

USERS, DIM, ITEMS, ITERATIONS, ROUNDS, HOSTS = 1000, 50, 20, 25, 3, 2
CATALOGUE = 12  # items of the data per user: 12,000 for 1000 users
WARM = 3  # first iterations that are left out; so is the last one, in which users end
SEED = 1
MOST_HOSTS = 8

FLOOR = (
    "the same forked processes with blocking sockets and CURVE, moving frames of the same sizes: "
    "no roles, no messages, no views"
)


@dataclass(frozen=True, slots=True)
class Load:
    users: int
    dim: int
    items: int  # of each user
    iterations: int
    views: str = "full"
    users_per_process: int = 1

    @property
    def data(self) -> str:
        items = max(self.items, CATALOGUE * self.users)
        return f"synthetic:{self.users}x{items}:{self.items / items:.10g}"


@dataclass(frozen=True, slots=True)
class Real:
    lines: list[dict[str, Any]]  # of iterations.jsonl
    summary: dict[str, Any]

    @property
    def seconds(self) -> list[float]:
        return [line["seconds"] for line in self.lines if line["iteration"] >= 0]


@dataclass(frozen=True, slots=True)
class BenchRound:
    """A run of each side: the seconds that count, and the whole real run."""

    samples: list[float]
    floors: list[float]
    real: Real

    def medians(self) -> dict[str, float]:
        median, floor_median = statistics.median(self.samples), statistics.median(self.floors)
        return {"median": median, "floor_median": floor_median, "ratio": median / floor_median}


def config_of(load: Load) -> RunConfig:
    return RunConfig(
        scheme="masked",
        data=load.data,
        dim=load.dim,
        iterations=load.iterations,
        users_per_process=load.users_per_process,
        views=load.views,
        test_fraction=0.0,
        seed=SEED,
    )


def run_real(load: Load) -> Real:
    """Run `load` as `keyhole run` does, in a temporary folder."""
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        summary = running.run(config_of(load), out=Path(folder) / "run", on_line=lines.append)
    if not summary["completed"]:
        raise Aborted(Reason[summary["abort"]["reason"]], f"{load.users} users, dim {load.dim}")
    return Real(lines, summary)


def warm(seconds: Sequence[float]) -> list[float]:
    """Leave out the first iterations and the last one; of very few, keep the last but one, and of one that one."""
    return list(seconds[WARM:-1] or seconds[-2:-1] or seconds)


# --- the benchmarks --------------------------------------------------------------------------------------------------


def bench_iteration(
    users: int = USERS, dim: int = DIM, items: int = ITEMS, iterations: int = ITERATIONS, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Seconds of an iteration, one process per user."""
    load = Load(users, dim, items, iterations)
    return _against_the_floor(load, rounds, FLOOR)


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
    loading: list[float] = []

    def once() -> BenchRound:
        real, floor = run_real(load), run_floor(users, 1, [])
        loading.append(floor.loading)
        return BenchRound([real.summary["seconds"]["startup"]], [floor.startup], real)

    words = "processes forked from the same kind of interpreter, connected with CURVE, one frame from each"
    result = result_of(load, rounds_of(rounds, once), words, "seconds until everyone has joined")
    return result | {"loading": {"seconds": statistics.median(loading), "of": "the floor, until its first fork"}}


def bench_views(
    users: int = USERS, dim: int = DIM, items: int = ITEMS, iterations: int = ITERATIONS, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Seconds of an iteration in which every party keeps a view, over one in which none does."""
    kept = Load(users, dim, items, iterations)
    without = Load(users, dim, items, iterations, views="none")
    swap = False

    def once() -> BenchRound:
        nonlocal swap
        pair = {load.views: run_real(load) for load in ((without, kept) if swap else (kept, without))}
        swap = not swap  # so that a machine that slows down does not count against one side only
        compare(moved_by(pair["none"].lines), moved_by(pair["full"].lines))
        return BenchRound(warm(pair["full"].seconds), warm(pair["none"].seconds), pair["full"])

    return result_of(
        kept, rounds_of(rounds, once), "the same runs in which no party keeps a view", "seconds per iteration"
    )


# --- what they share -------------------------------------------------------------------------------------------------


def _against_the_floor(load: Load, rounds: int, words: str) -> dict[str, Any]:
    frames: Frames = []

    def once() -> BenchRound:
        nonlocal frames
        real = run_real(load)
        frames = frames_of(real.lines)
        floor = run_floor(load.users, load.users_per_process, frames)
        compare(floor.received, moved_by(real.lines))
        return BenchRound(warm(real.seconds), warm(floor.seconds), real)

    result = result_of(load, rounds_of(rounds, once), words, "seconds per iteration")
    result["config"]["frame_bytes"] = dict(zip(KINDS, frames[-1], strict=True))  # of the last iteration
    return result


def rounds_of(rounds: int, once: Callable[[], BenchRound]) -> list[BenchRound]:
    made = []
    for number in range(1, rounds + 1):
        if sys.stderr.isatty():
            console.err.print(f"round {number} of {rounds}")
        made.append(once())
    return made


def result_of(load: Load, made: list[BenchRound], floor: str, unit: str) -> dict[str, Any]:
    summaries = [each.real.summary for each in made]
    together = BenchRound(
        [s for each in made for s in each.samples], [s for each in made for s in each.floors], made[0].real
    )
    return {
        "config": {
            "data": load.data,
            "note": None,
            "scheme": "masked",
            "users": load.users,
            "items": summaries[0]["items"],
            "dim": load.dim,
            "items_per_user": load.items,
            "iterations": load.iterations,
            "warm_up": f"the first {WARM} iterations and the last one are left out",
            "rounds": len(made),
            "users_per_process": load.users_per_process,
            "transport": "tcp with CURVE",
            "ring_bits": summaries[0]["ring"]["bits"],
            "views": load.views,
            "cores": len(os.sched_getaffinity(0)),
            "floor": floor,
            "unit": unit,
        },
        "samples": together.samples,
        "floor_samples": together.floors,
        **together.medians(),
        "by_round": [each.medians() for each in made],
        "startup": statistics.median(summary["seconds"]["startup"] for summary in summaries),
        "memory": {  # the largest of all rounds
            name: max(summary["memory"][name] or 0 for summary in summaries) or None
            for name in ("user_process_uss_mean", "user_process_uss_max")
        },
    }
