"""What metering costs: one run of real processes in which the servers count in every other pair of iterations."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from actors.launch.launcher import Launch, Staff
from actors.metering.meter import BARE, METERED
from actors.metering.outcome import IterationDone
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import make_roster

USERS, ITEMS, DIM, RATED, HELD_OUT = 25, 1000, 10, 25, 0.2  # small messages: little other work for each
ITERATIONS, SEED = 6000, 1
WARM = 12  # first iterations, which are left out: a multiple of 4
RESAMPLES = 2000


def bench_metering(users: int = USERS, iterations: int = ITERATIONS) -> dict[str, Any]:
    """Seconds of an iteration with metering over one without; neighbours are compared, so that a drift cancels."""
    config = RunConfig(
        scheme="masked",
        data=f"synthetic:{users}x{ITEMS}:{RATED / ITEMS!r}",
        test_fraction=HELD_OUT,
        dim=DIM,
        iterations=iterations,
        seed=SEED,
    )
    plan = make_plan(config)
    secrets, roster = make_roster(plan)
    seconds: dict[int, float] = {}

    def on_iteration(done: IterationDone) -> None:
        assert done.seconds is not None
        seconds[done.iteration] = done.seconds

    with tempfile.TemporaryDirectory() as folder:
        staff = Staff(Path(folder), plan.views, config.deadline, metering="pairs")
        outcome = Launch(roster, secrets, staff, on_iteration).run()
    if outcome.abort is not None:
        raise outcome.abort
    metered, bare = ([seconds[t] for t in range(WARM + first, iterations - 2, 4)] for first in (METERED, BARE))
    bare = bare[: len(metered)]
    metered = metered[: len(bare)]
    low, high = interval(np.array(metered), np.array(bare))
    return {
        "config": {
            "data": config.data,
            "note": None,
            "users": users,
            "items": ITEMS,
            "dim": DIM,
            "items_per_user": round(RATED * (1 - HELD_OUT)),
            "iterations": iterations,
            "views": "full",
            "floor": "iterations between them without metering",
            "unit": "seconds per iteration",
            "interval": [low, high],
        },
        "samples": metered,
        "median": statistics.median(metered),
        "floor_median": statistics.median(bare),
        "ratio": float(np.median(np.array(metered) / np.array(bare))),
    }


def interval(metered: np.ndarray, bare: np.ndarray) -> tuple[float, float]:
    """Compute the 95 % interval of the median ratio of neighbours, by resampling the pairs."""
    ratios = metered / bare
    random = np.random.default_rng(1)
    medians = [np.median(random.choice(ratios, len(ratios))) for _ in range(RESAMPLES)]
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)
