"""Parties that end at any point of any step, and disks that are full: the run ends with the same factors."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.meter import added_up, traffic_of
from support.runs import Directed, End, Staged, Witness, Witnessed, check_view, end_of, long, staged

from actors.faults import PHASES, Crash, DiskFull, Faults
from actors.journal import view_path
from actors.metering.outcome import IterationDone, Outcome
from protocol.errors import Reason
from protocol.party.view import WholeRecords
from sim.drivers.faulty import FaultyInProcess
from sim.drivers.inprocess import InProcess

RUNS = [(scheme, wire) for scheme in ("masked", "dynamic") for wire in ("compact", "paper")]
USERS, ITERATIONS = 4, 3


@pytest.fixture(scope="module", params=RUNS, ids=" ".join)
def run(request) -> Staged:
    return staged(*request.param, n_users=USERS, iterations=ITERATIONS)


# ---- crashes

Steps = list[tuple[str, str, int]]  # (party, kind, nth)


def steps_of(run: Staged, folder: Path) -> Steps:
    """List every step that is taken when nothing goes wrong."""
    steps: Steps = []

    class Listener(Witness):
        def write(self, step: Any) -> None:
            nth = sum(taken[:2] == (self.party.name, step.kind) for taken in steps)
            steps.append((self.party.name, step.kind, nth))
            super().write(step)

    class Listening(Witnessed):
        kind = Listener

    assert Listening(run, Faults(), folder).run().abort is None
    return steps


Plan = tuple[Crash, ...]


def single(steps: Steps) -> list[Plan]:
    return [(Crash(*step, phase),) for step in steps for phase in PHASES]


def double(steps: Steps, count: int, draw: random.Random) -> list[Plan]:
    """Plan two crashes: of one party twice (the second time in its second life), or of two parties."""
    plans: list[Plan] = []
    while len(plans) < count:
        first, second = (Crash(*draw.choice(steps), draw.choice(PHASES)) for _ in range(2))
        if first.party == second.party:
            kind = draw.choice(["start", "Again", second.kind])
            second = Crash(second.party, kind, 0, second.phase, incarnation=1)
        plans.append((first, second))
    return plans


def torn(steps: Steps, count: int, draw: random.Random) -> list[Plan]:
    """Plan crashes before a write is complete; every other one tears the write in the middle."""
    return [(Crash(*draw.choice(steps), PHASES[0]),) for _ in range(count)]


def crash(run: Staged, plans: list[Plan], folder: Path, record: Callable[[str, object], None]) -> tuple[int, int]:
    """Run each plan; return (crashes that happened, crashes that tore a write)."""
    whole = run.undisturbed(folder / "undisturbed")
    traffic = traffic_of(run)
    fired = cut = 0
    for number, plan in enumerate(plans):
        told: list[IterationDone] = []
        driver = Witnessed(run, Faults(number, crashes=plan), folder / "run", order=number, on_iteration=told.append)
        outcome = driver.run()
        assert outcome.abort is None, (number, plan)
        assert [done.iteration for done in told] == list(range(-1, ITERATIONS)), "each iteration is finished once"
        assert added_up(told, outcome) == traffic, (number, plan)
        assert driver.silent_rounds == 0, "who comes back asks at once, and so do its clients"
        assert end_of(outcome) == whole, (number, plan)
        assert set(outcome.rejected) <= {"REPLAYED", "GAP"}, (number, plan)
        driver.check_views()
        fired, cut = fired + outcome.restarts, cut + driver.torn
        shutil.rmtree(folder / "run")
    counts = {"runs": len(plans), "planned": sum(map(len, plans)), "fired": fired, "torn": cut}
    print(f"\n{run.card.scheme.name} {run.card.params.wire} crashes:", counts)
    for name, value in counts.items():
        record(name, value)
    return fired, cut


def test_a_crash_at_any_point_of_a_run_changes_nothing(run, tmp_path, record_property):
    draw = random.Random(1)
    steps = steps_of(run, tmp_path / "steps")
    assert {party for party, _, _ in steps} == run.everyone
    plans = [*draw.sample(single(steps), 24), *double(steps, 12, draw), *torn(steps, 12, draw)]
    fired, cut = crash(run, plans, tmp_path, record_property)
    assert fired >= 48 and cut >= 5


@long
def test_crashes_at_every_point_of_a_run_change_nothing(run, tmp_path, record_property):
    """The four runs together try more than 2,000 plans."""
    draw = random.Random(2)
    steps = steps_of(run, tmp_path / "steps")
    plans = [*single(steps), *double(steps, 200, draw), *torn(steps, 120, draw)]
    fired, cut = crash(run, plans, tmp_path, record_property)
    assert len(plans) >= 500
    assert fired >= len(plans) + 100 and cut >= 100


def test_a_party_that_ends_again_and_again_gets_there_in_the_end(run, tmp_path):
    """The recommender and a user end ten times each, in the first step of each life."""
    ends = [(party, life) for party in ("recommender", "user:1") for life in range(10)]
    crashes = tuple(Crash(party, "start", 0, PHASES[life % 3], life) for party, life in ends)
    driver = Witnessed(run, Faults(5, crashes=crashes), tmp_path / "run")
    outcome = driver.run()
    assert outcome.abort is None and outcome.restarts == 20
    assert end_of(outcome) == run.undisturbed(tmp_path / "undisturbed")
    driver.check_views()


def test_the_users_of_dynamic_do_come_and_go(run, tmp_path):
    kinds = {kind for party, kind, _ in steps_of(run, tmp_path) if party == "recommender"}
    assert {"Present", "Absent"} <= kinds or run.card.scheme.name == "masked"


# ---- disks that are full by plan


def resumed(run: Staged, folder: Path, whole: End, **options: Any) -> Outcome:
    """Resume the run once there is space again, and check that it ends with the same results."""
    outcome = InProcess(run.card, run.seats, resume=True, **run.settings(folder), **options).run()
    assert outcome.abort is None and set(outcome.rejected) <= {"REPLAYED", "GAP"}
    assert end_of(outcome) == whole
    for seat in run.seats:
        check_view(run.card, seat, folder)
    return outcome


def fill(run: Staged, disk: DiskFull, folder: Path, whole: End) -> None:
    """Fill a disk and resume the run; the witness checks that nothing is sent that is not in a view."""
    lines: list[int] = []
    driver = Witnessed(run, Faults(full=(disk,)), folder, on_iteration=lambda done: lines.append(done.iteration))
    outcome = driver.run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DISK_FULL, disk
    path = view_path(str(folder), disk.party)
    assert path in outcome.abort.detail and "No space left" in outcome.abort.detail
    if disk.part == 0:
        with open(path, "rb") as stream:
            assert not os.path.getsize(path) or sum(1 for _ in WholeRecords(stream)) <= disk.records
    told: list[IterationDone] = []
    outcome = resumed(run, folder, whole, on_iteration=told.append)
    iterations = list(range(-1, run.card.params.iterations))
    assert [done.iteration for done in told] == iterations, "each iteration is told once"
    assert {done.iteration for done in told if done.seconds is None} >= set(lines), "and timed at most once"
    assert added_up(told, outcome) == traffic_of(run)


def fill_everywhere(run: Staged, folder: Path) -> int:
    whole = run.undisturbed(folder / "undisturbed")
    ends = InProcess(run.card, run.seats, **run.settings(folder / "ends")).run().views
    disks = [DiskFull(party, n, 97 * n % 400 * (n % 2)) for party, (records, _) in ends.items() for n in range(records)]
    for disk in disks:
        fill(run, disk, folder / "full", whole)
        shutil.rmtree(folder / "full")
    return len(disks)


def test_a_disk_may_be_full_at_any_record_of_any_view(tmp_path):
    assert fill_everywhere(staged("masked", "compact", n_users=3, iterations=2), tmp_path) > 100


@long
def test_a_disk_may_be_full_at_any_record_of_any_view_of_any_run(run, tmp_path):
    assert fill_everywhere(run, tmp_path) >= 150


def test_a_party_may_be_told_of_a_full_disk_once_more(tmp_path):
    """It resumes onto a disk that is still full, and then onto one that is not."""
    run = staged("masked", "compact", n_users=3, iterations=2)
    whole = run.undisturbed(tmp_path / "undisturbed")
    outcome = Witnessed(run, Faults(full=(DiskFull("third_party", 20),)), tmp_path / "run").run()
    assert outcome.abort is not None
    with file_limit(os.path.getsize(view_path(str(tmp_path / "run"), "third_party"))):
        outcome = InProcess(run.card, run.seats, resume=True, **run.settings(tmp_path / "run")).run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DISK_FULL
    resumed(run, tmp_path / "run", whole)


# ---- going on without some of the views, and without some of the users


@pytest.mark.parametrize("records", [5, 15, 25])
def test_users_who_keep_no_view_begin_anew_and_are_told_everything_again(run, records, tmp_path):
    """They send the same frames as before, byte for byte: no frame is in conflict with an earlier one."""
    whole = run.undisturbed(tmp_path / "undisturbed")

    def settings() -> dict[str, Any]:
        return run.settings(tmp_path / "run") | {"with_view": frozenset(run.card.scheme.servers)}

    faults = Faults(full=(DiskFull("third_party", records),))
    outcome = FaultyInProcess(run.card, run.seats, faults, **settings()).run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DISK_FULL
    driver = InProcess(run.card, run.seats, resume=True, **settings())
    outcome = driver.run()
    assert outcome.abort is None and set(outcome.rejected) <= {"REPLAYED", "GAP"}
    assert end_of(outcome) == whole
    assert all(party.done for party in driver.parties.values())


@pytest.mark.parametrize("records", range(5, 45, 5))
def test_users_who_had_gone_stay_gone(records, tmp_path):
    run = staged("dynamic", "compact", {"gone": {0: frozenset({1}), 1: frozenset({3})}}, n_users=5, iterations=4)
    whole = run.undisturbed(tmp_path / "undisturbed")
    faults = Faults(full=(DiskFull("third_party", records),))
    assert Witnessed(run, faults, tmp_path / "run").run().abort is not None
    driver = Directed(run.card, run.seats, resume=True, **run.settings(tmp_path / "run"))
    outcome = driver.run()
    assert outcome.abort is None and end_of(outcome) == whole
    assert driver.parties["recommender"].role.gone == {1, 3}
    assert [name for name, party in driver.parties.items() if not party.done] == ["user:1", "user:3"]


# ---- disks that are really full


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Limit the size of the files that this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_limit_on_the_size_of_files_ends_a_run_that_can_be_resumed(run, part, tmp_path):
    whole = run.undisturbed(tmp_path / "undisturbed")
    largest = max(path.stat().st_size for path in (tmp_path / "undisturbed").rglob("*.view"))
    driver = Witnessed(run, Faults(), tmp_path / "run")
    with file_limit(int(part * largest)):
        outcome = driver.run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DISK_FULL
    assert "File too large" in outcome.abort.detail
    resumed(run, tmp_path / "run", whole)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(command, check=False, capture_output=True, timeout=10).returncode == 0

    if os.geteuid() != 0 or shutil.which("mount") is None or not mount("size=64k,mode=0700"):
        pytest.skip("Only root may mount a small disk, and here it may not or is not.")
    yield folder, mount
    subprocess.run(["umount", str(folder)], check=True, timeout=10)


def test_a_small_disk_that_fills_ends_a_run_that_can_be_resumed_when_it_has_grown(small_disk, tmp_path):
    folder, mount = small_disk
    run = staged("dynamic", "paper", n_users=5, iterations=12)
    whole = run.undisturbed(tmp_path / "undisturbed")
    outcome = Witnessed(run, Faults(), folder / "run").run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DISK_FULL
    assert "No space left" in outcome.abort.detail
    assert mount("remount,size=16m,mode=0700")
    resumed(run, folder / "run", whole)
