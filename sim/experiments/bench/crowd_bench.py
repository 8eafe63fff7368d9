"""`keyhole bench crowd`: what offline users cost. All users of `netflix-shaped`, against a few of them.

Both runs are `dynamic`, packed into two hosts, with equally many users online on average (the probability to come
online follows from that) and the same limit of users in an iteration. The small run is made before and after the large
one.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from protocol.errors import Aborted, Reason
from sim.experiments.bench.processes import WARM, warm
from sim.plan.config import RunConfig
from sim.run import run as running

DATA, USERS, FEW = "netflix-shaped", 191_668, 2_000
ONLINE, DIM, ITERATIONS, HOSTS, SEED = 1000, 50, 100, 2, 1
LEAVE = 0.01  # the paper's probability to leave


def bench_crowd(users: int = USERS, dim: int = DIM, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Seconds of an iteration with all users, over those with few of them; and the servers' memory."""
    few = min(FEW, users)
    before, large, after = (_run(number, dim, iterations) for number in (few, users, few))
    samples = warm(large["samples"])
    floors = warm(before["samples"]) + warm(after["samples"])
    median, floor_median = statistics.median(samples), statistics.median(floors)
    return {
        "config": {
            "data": DATA,
            "note": None,
            "scheme": "dynamic",
            "users": users,
            "few": few,
            "online": ONLINE,
            "dim": dim,
            "items_per_user": large["items_per_user"],
            "iterations": iterations,
            "warm_up": f"the first {WARM} iterations and the last one are left out",
            "users_per_process": -(-users // HOSTS),
            "views": "servers",
            "floor": f"the same with {few:,} users in all, before and after",
            "unit": "seconds per iteration",
        },
        "samples": samples,
        "floor_samples": floors,
        "median": median,
        "floor_median": floor_median,
        "ratio": median / floor_median,
        "contributors": {"median": large["contributors"], "floor_median": before["contributors"]},
        "startup": large["startup"],
        "peak": large["peak"],
    }


def _run(users: int, dim: int, iterations: int) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    online = min(ONLINE, users / 2)
    config = RunConfig(
        scheme="dynamic",
        data=DATA,
        users=users,
        online=min(ONLINE, users),
        join=LEAVE * online / (users - online),  # so that join / (join + leave) of them are online
        leave=LEAVE,
        dim=dim,
        iterations=iterations,
        users_per_process=-(-users // HOSTS),
        views="servers",
        seed=SEED,
    )
    with tempfile.TemporaryDirectory() as folder:
        summary = running.run(config, out=Path(folder) / "run", on_line=lines.append)
    if not summary["completed"]:
        raise Aborted(Reason[summary["abort"]["reason"]], f"{users} users")
    turns = [line for line in lines if line["iteration"] >= 0]
    return {
        "samples": [line["seconds"] for line in turns],
        "contributors": statistics.median(line["contributors"] for line in turns),
        "items_per_user": summary["ratings"]["train"] / users,
        "startup": summary["seconds"]["startup"],
        "peak": summary["memory"]["peak"],
    }
