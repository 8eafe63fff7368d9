"""The time of a whole run of a sibling scheme, beside the time in which its recommender computes.

The run goes from flags to summary, in one process with all views. The recommender computes sums and eigenvectors, or a
matrix completion. The rest of the time goes into parties, frames, views and figures.
"""

from __future__ import annotations

import time
from typing import Any

from protocol.party.role import RECOMMENDER, Effects, Role
from protocol.play import make_roles, play
from protocol.wire.messages import Message
from sim.experiments.bench.measuring import (
    Seconds,
    apart,
    described,
    interleaved,
    movielens_or,
    run_real,
    wall_seconds,
)
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan

ROUNDS, SEED, DENSITY = 3, 1, 0.0447  # the density of MovieLens-1M
STAND_IN = "synthetic:943x1682:.05"


def bench_sibling(
    scheme: str, users: int | None = None, items: int | None = None, rounds: int = ROUNDS
) -> dict[str, Any]:
    data, note = movielens_or(STAND_IN)
    if users is not None or items is not None:
        data, note = f"synthetic:{users or 943}x{items or 1682}:{DENSITY}", None
    config = RunConfig(scheme=scheme, data=data, seed=SEED, transport="inprocess")
    peaks = []

    def both() -> tuple[Seconds, Seconds]:
        seconds, peak = apart(wall_seconds, run_real, config)
        peaks.append(peak)
        return [seconds], [apart(_recommender, config)[0]]

    result = interleaved({}, both, rounds)
    result["config"] = {
        **described(make_plan(config)),
        "note": note,
        "peak_memory_bytes": max(peaks),
        "floor": "what the recommender computes",
        "unit": "seconds of a whole run, the one without protection beside it included",
    }
    return result | {"floors": result["floor_samples"]}


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
