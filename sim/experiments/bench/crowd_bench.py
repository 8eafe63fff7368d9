"""`keyhole bench crowd`: what offline users cost. All users of `netflix-shaped`, against a few of them.

Both runs are `dynamic`, packed into two hosts, with equally many users online on average (the probability to come
online follows from that) and the same limit of users in an iteration. The small run is made before and after the large
one.
"""

from __future__ import annotations

import statistics
from typing import Any

from sim.experiments.bench.measuring import Real, interleaved, run_real
from sim.experiments.bench.processes import WARM_UP, warm
from sim.plan.config import RunConfig

DATA, USERS, FEW = "netflix-shaped", 191_668, 2_000
ONLINE, DIM, ITERATIONS, HOSTS, SEED = 1000, 50, 100, 2, 1
LEAVE = 0.01  # the paper's probability to leave


def bench_crowd(users: int = USERS, dim: int = DIM, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Seconds of an iteration with all users, over those with few of them; and the servers' memory."""
    few = min(FEW, users)
    before, large, after = (run_real(_config(number, dim, iterations)) for number in (few, users, few))
    config = {
        **large.about,
        "few": few,
        "online": ONLINE,
        "warm_up": WARM_UP,
        "floor": f"the same with {few:,} users in all, before and after",
        "unit": "seconds per iteration",
    }
    result = interleaved(config, lambda: (warm(large.seconds), warm(before.seconds) + warm(after.seconds)))
    return result | {
        "contributors": {"median": _contributors(large), "floor_median": _contributors(before)},
        "startup": large.summary["seconds"]["startup"],
        "peak": large.summary["memory"]["peak"],
    }


def _config(users: int, dim: int, iterations: int) -> RunConfig:
    online = min(ONLINE, users / 2)
    return RunConfig(
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


def _contributors(real: Real) -> float:
    return float(statistics.median(line["contributors"] for line in real.turns))
