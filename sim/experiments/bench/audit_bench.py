"""`keyhole bench audit`: how fast a canary is played, beside the same runs through frames, and what an audit costs."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from protocol.arithmetic.tape import derive
from protocol.card import Card, Seat, all_parties, make_run_id
from protocol.schemes import find_scheme
from sim.audit.canary.canary import CanaryProblem, Stage
from sim.audit.canary.repeat import play_once
from sim.audit.families.factorization.arms import RELEASE
from sim.drivers.inprocess import InProcess
from sim.experiments.bench.audit_times import DATA, audit_times

SCHEME, EPSILON, SEED = "masked", 1.0, bytes(32)
SAMPLES, REPETITIONS = 20, 100  # of each side in turn


def bench_audit(
    scheme: str = SCHEME, samples: int = SAMPLES, repetitions: int = REPETITIONS, data: str = DATA
) -> dict[str, Any]:
    """CPU seconds of one repetition with messages as objects, over one with the parties, frames and codec of a run.

    Beside it, of a run on `data`: CPU seconds of the first audit, of the second and of the page.
    """
    times = audit_times(data)
    problem = RELEASE.problem(find_scheme(scheme), EPSILON, None)
    stage = Stage(problem, derive(SEED, "run"))
    own, framed = [], []
    for sample in range(samples):
        numbers = range(sample * repetitions, (sample + 1) * repetitions)
        began = time.process_time()
        for repetition in numbers:
            play_once(stage, SEED, repetition, repetition % 2 == 1)
        middle = time.process_time()
        for repetition in numbers:
            play_framed(problem, derive(SEED, repetition))
        own.append((middle - began) / repetitions)
        framed.append((time.process_time() - middle) / repetitions)
    median, floor_median = statistics.median(own), statistics.median(framed)
    return {
        "config": {
            "data": "a canary",
            "note": f"{1 / median:.0f} repetitions per second and process; {1 / floor_median:.0f} through frames. "
            f"CPU seconds on {data}: {', '.join(f'{words} {seconds:.1f}' for words, seconds in times.items())}.",
            "scheme": scheme,
            "users": problem.params.n_users,
            "items": 1,
            "dim": problem.params.dim,
            "items_per_user": 1,
            "iterations": problem.params.iterations,
            "epsilon": EPSILON,
            "views": "none",
            "floor": "the same through parties, frames and codec",
            "unit": "CPU seconds per repetition",
            "repetitions_per_second": 1 / median,
            "audited": data,
            "audit_seconds": times,
        },
        "samples": own,
        "median": median,
        "floor_median": floor_median,
        "ratio": median / floor_median,
    }


def play_framed(problem: CanaryProblem, seed: bytes) -> np.ndarray | None:
    """Play `problem` once as `keyhole run --transport inprocess` would run it, without views."""
    names = all_parties(problem.scheme, problem.params.n_users)
    card = Card(problem.scheme, problem.params, make_run_id(problem.params, names, seed), simulation=True)
    stage = Stage(problem, card.run_id)
    seats = [Seat(name, derive(seed, name), stage.inputs(name, greatest=False)) for name in names]
    return InProcess(card, seats).run().item_factors
