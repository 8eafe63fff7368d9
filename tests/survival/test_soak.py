"""Many iterations with users who come and go: memory and open files stay flat, and the factors are the in-process ones.

    KEYHOLE_LONG=1 pytest tests/survival/test_soak.py -s        10,000 iterations, about ten minutes and 4 GB of views
"""

from __future__ import annotations

import statistics
from pathlib import Path

import psutil
import pytest
from support.runs import long

from actors.launch.launcher import Launch, Staff
from actors.metering.outcome import IterationDone
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import make_roster

MEGABYTE = 1 << 20


class Watch:
    """Looks at every process of a run every few iterations: its own memory, and its open files."""

    def __init__(self, every: int) -> None:
        self.launch: Launch
        self.every = every
        self.samples: dict[str, list[tuple[int, int]]] = {}

    def __call__(self, done: IterationDone) -> None:
        if done.iteration % self.every:
            return
        for pid, parties in list(self.launch._alive.items()):
            process = psutil.Process(pid)
            name = parties[0] if len(parties) == 1 else f"{parties[0]} and {len(parties) - 1} more"
            self.samples.setdefault(name, []).append((process.memory_full_info().uss, process.num_fds()))
        own = psutil.Process()
        self.samples.setdefault("launcher", []).append((own.memory_full_info().uss, own.num_fds()))

    def growth(self, name: str) -> tuple[float, int, int]:
        """Return (bytes grown from the second quarter to the last, fewest and most files after the first quarter)."""
        later = self.samples[name][len(self.samples[name]) // 4 :]
        third = len(later) // 3
        early, late = (statistics.median(m for m, _ in part) for part in (later[:third], later[-third:]))
        files = [files for _, files in later]
        return late - early, min(files), max(files)


def soak(folder: Path, iterations: int, every: int) -> Watch:
    config = RunConfig(scheme="dynamic", data="synthetic:200x100", dim=10, iterations=iterations, seed=1)
    plan = make_plan(config)
    secrets, roster = make_roster(plan)
    folder.mkdir()
    watch = Watch(every)
    staff = Staff(folder, plan.views, 60.0, users_per_process=50)
    watch.launch = Launch(roster, secrets, staff, watch, plan.churn().events)
    outcome = watch.launch.run()
    assert outcome.abort is None and set(outcome.rejected) <= {"REPLAYED"} and outcome.restarts == 0
    same = InProcess(plan.card, plan.seats(), events_for=plan.churn().events).run()
    assert outcome.item_factors.tobytes() == same.item_factors.tobytes()
    return watch


def check_flat(watch: Watch, most_bytes: float) -> None:
    for name, samples in watch.samples.items():
        grown, fewest, most = watch.growth(name)
        print(
            f"{name}: {samples[-1][0] / MEGABYTE:.1f} MiB at the end, {grown / MEGABYTE:+.2f} MiB from the second "
            f"quarter to the last; {fewest} to {most} open files"
        )
        assert grown < most_bytes, name
        assert most - fewest <= 2, name


@pytest.mark.slow
def test_a_few_hundred_iterations_leave_memory_and_files_flat(tmp_path):
    check_flat(soak(tmp_path / "run", 400, 10), 3 * MEGABYTE)


@long
def test_ten_thousand_iterations_leave_memory_and_files_flat(tmp_path):
    check_flat(soak(tmp_path / "run", 10_000, 100), 10 * MEGABYTE)
