"""A run that stalls names the parties that it waits for, and the command ends with a typed reason."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.basics import small_run

from actors import timers as module
from actors.launch import launcher as launching
from actors.launch.launcher import Launch, Staff
from actors.launch.reports import Alive, Finished, Happens, Replaying, Resumed, Waits
from actors.launch.standstill import Standstill
from protocol.errors import Bug, Reason
from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_name
from protocol.schemes import SCHEMES
from protocol.wire.messages import Churn, Due
from sim.drivers.inprocess import InProcess
from sim.run.run import make_roster
from tests.actors.test_deaths import plan_of

ROOT = Path(__file__).parents[2]


# --- the parties that a role waits for -------------------------------------------------------------------------------


class WithoutOne(InProcess):
    """A run in which only the first `heard` frames of `user:1` arrive."""

    def __init__(self, *arguments, heard: int, **options) -> None:
        super().__init__(*arguments, **options)
        self._heard = heard

    def put(self, edge, frame) -> None:
        if edge[0] == "user:1":
            self._heard -= 1
            if self._heard < 0:
                return
        super().put(edge, frame)

    def _expire(self) -> None:
        self.timers.clear()  # no deadline closes an iteration without it


def blamed(run: InProcess, party: str = RECOMMENDER) -> set[str]:
    """Find the users that `party` waits for, directly or through another server."""
    found: set[str] = set()
    asked, names = set(), [party]
    while names:
        name = names.pop()
        if name in asked:
            continue
        asked.add(name)
        awaited = list(run.parties[name].role.awaited())
        if name.startswith("user:"):
            found.add(name)
        else:
            names += awaited
    return found


@pytest.mark.parametrize("heard", range(5))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_servers_know_which_user_keeps_them_waiting(scheme, heard):
    card, seats = small_run(scheme, n_users=5, iterations=3)
    run = WithoutOne(card, seats, heard=heard)
    try:
        run.run()
    except Bug:  # no frame is left, and not every role has finished
        assert blamed(run) == {"user:1"}
        assert list(run.parties["user:2"].role.awaited()) == [RECOMMENDER]
    else:
        assert heard > 1, "it cannot end without a word from each"


def test_a_recommender_waits_for_those_whose_coming_was_announced():
    card, seats = small_run("dynamic", n_users=5, iterations=3)

    def events(iteration: int):
        if iteration == 0:
            everyone = range(5)
            return [*((user_name(user), Churn(0, True)) for user in everyone), (RECOMMENDER, Due(0, tuple(everyone)))]
        return [(RECOMMENDER, Due(iteration, (4,)))]  # but user:4 is not told that it leaves

    run = InProcess(card, seats, events_for=events)
    with pytest.raises(Bug):
        run.run()
    assert list(run.parties[RECOMMENDER].role.awaited()) == ["user:4"]
    assert list(run.parties[THIRD_PARTY].role.awaited()) == [RECOMMENDER]


# --- the launcher ----------------------------------------------------------------------------------------------------


def stopped_run(folder: Path, scheme: str, party: str):
    """Stop the process of `party` for ever after iteration 2, and give the abort of the run."""
    folder.mkdir()
    plan = plan_of(scheme, iterations=100_000)
    secrets, roster = make_roster(plan)

    def strike(done) -> None:
        if done.iteration == 2:
            [process] = [pid for pid, parties in launch._alive.items() if party in parties]
            os.kill(process, signal.SIGSTOP)
            launch._watchdog.patience = 4.0  # from now on: a busy machine may take longer to start

    churn = plan.churn()
    staff = Staff(folder, plan.views, 0.5)
    launch = Launch(roster, secrets, staff, strike, churn.events if churn else None)
    return launch.run().abort


@pytest.mark.parametrize("scheme", ["plain", "direct"])
def test_a_run_that_waits_for_a_user_says_for_whom_and_what_is_the_matter_with_it(tmp_path, scheme):
    abort = stopped_run(tmp_path / "run", scheme, "user:5")
    assert abort.reason is Reason.STALLED
    assert "for 4 s: recommender is in iteration" in abort.detail and "and waits for user:5;" in abort.detail
    assert "of user:5 is stopped" in abort.detail


@pytest.mark.parametrize(("scheme", "server"), [("masked", THIRD_PARTY), ("dynamic", RECOMMENDER)])
def test_a_run_that_waits_for_a_server_says_so(tmp_path, scheme, server):
    abort = stopped_run(tmp_path / "run", scheme, server)
    assert abort.reason is Reason.STALLED
    assert f"{server} does not answer" in abort.detail and f"of {server} is stopped" in abort.detail
    other = {THIRD_PARTY: RECOMMENDER, RECOMMENDER: THIRD_PARTY}[server]
    assert f"{other} is in iteration" in abort.detail and f"waits for {server}" in abort.detail


def test_a_server_that_computes_for_long_is_given_time_and_then_no_more(tmp_path, monkeypatch):
    """Such a server is a recommender that does everything in one step, on much data."""
    plan = plan_of("masked", iterations=100_000)
    secrets, roster = make_roster(plan)
    monkeypatch.setattr(launching, "_MOST_COMPUTED", 2)
    monkeypatch.setattr(launching, "_STATUS_SECONDS", 1.0)
    computed: list[float] = []

    def is_computing(standstill: Standstill, statuses) -> bool:
        computed.append(0.0)
        return True

    def strike(done) -> None:
        if done.iteration == 2:
            [process] = [pid for pid, parties in launch._alive.items() if THIRD_PARTY in parties]
            os.kill(process, signal.SIGSTOP)
            launch._watchdog.patience = 1.0

    monkeypatch.setattr(Standstill, "is_computing", is_computing)
    launch = Launch(roster, secrets, Staff(tmp_path, plan.views, 0.5), strike)
    abort = launch.run().abort
    assert abort.reason is Reason.STALLED and "for 3 s" in abort.detail and len(computed) == 3


def test_who_computes_is_told_by_the_time_that_its_process_takes():
    code = "import os, sys, time\nprint(flush=True)\nwhile len(sys.argv) > 1: pass\ntime.sleep(600)"
    command = [sys.executable, "-S", "-c", code]
    with (
        subprocess.Popen([*command, "compute"], stdout=subprocess.PIPE) as busy,
        subprocess.Popen(command, stdout=subprocess.PIPE) as idle,
    ):
        busy.stdout.readline()
        idle.stdout.readline()
        processes = {busy.pid: [RECOMMENDER], idle.pid: [THIRD_PARTY]}
        standstill = Standstill([RECOMMENDER, THIRD_PARTY], processes)
        until = time.monotonic() + 60
        while not standstill.is_computing({}) and time.monotonic() < until:
            time.sleep(0.05)
        status = Waits(RECOMMENDER, 3, False, ["user:1"], 0)
        assert standstill.is_computing({}) and not standstill.is_computing({RECOMMENDER: status})
        said = standstill.describe({})
        idle.kill()
        busy.kill()
    assert said == ["recommender computes and does not answer", "third_party does not answer"]


class Listening:
    """A nursery that records the orders that it should pass on."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Happens]] = []

    def tell(self, party, order) -> None:
        self.told.append((party, order))


def test_nobody_is_told_of_what_is_only_replayed(tmp_path):
    """Users not yet started are told their latest event when they start; the recommender once, when it is back."""
    plan = plan_of("dynamic")
    secrets, roster = make_roster(plan)
    launch = Launch(roster, secrets, Staff(tmp_path, plan.views, 1.0, resume=True), events_for=plan.churn().events)
    launch._nursery = nursery = Listening()
    launch._replaying[RECOMMENDER] = -1
    reports = [Finished(RECOMMENDER, iteration, None, 0, 0, {}, [[], {}]) for iteration in range(21)]
    for iteration in range(20):
        launch._hear(reports[iteration])
        launch._hear(Replaying(RECOMMENDER, iteration))
    assert nursery.told == []
    launch._hear(Resumed(RECOMMENDER, 20, {}, {}))
    assert {order.fields[0] for _, order in nursery.told} == {20}, "what happens before the iteration that it is in"
    assert [party for party, order in nursery.told if order.kind == "Due"] == [RECOMMENDER]
    changes, expected = plan.churn(), {}
    for iteration in range(21):
        expected |= dict(changes.events(iteration))
    assert launch._latest == expected
    told = len(nursery.told)
    launch._hear(reports[20])
    assert {order.fields[0] for _, order in nursery.told[told:]} == {21}, "from here on it is told as it happens"


class Chattering:
    """A nursery whose hosts report that they are alive, and nothing else."""

    def __init__(self, heard) -> None:
        self._heard = heard

    def listen(self, timeout):
        return [Alive("user:0", next(self._heard))], []

    def tell(self, party, order) -> None:
        pass


def test_signs_of_life_are_no_movement_but_what_they_tell_of_is(tmp_path, monkeypatch):
    plan = plan_of("masked")
    secrets, roster = make_roster(plan)

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            self.now += 1.0
            return self.now

    clock = Clock()
    for each in (module, launching):
        monkeypatch.setattr(each, "time", clock)
    launch = Launch(roster, secrets, Staff(tmp_path, plan.views, 1.0))
    launch._nursery = Chattering(iter(range(1000)))
    for _ in range(200):
        launch._pump(0)
    launch._nursery = Chattering(iter([7] * 1000))
    with pytest.raises(launching.Aborted, match=r"STALLED.*recommender does not answer; third_party does not answer"):
        all(launch._pump(0) is None for _ in range(200))


# --- parties that were started by hand -------------------------------------------------------------------------------


def by_hand(folder: Path, *parties: str, patience: str = "3") -> subprocess.CompletedProcess[str]:
    place = ["--roster", str(folder / "roster.json"), "--keys", str(folder / "keys")]
    waits = ["--deadline", "1", "--patience", patience]
    command = [sys.executable, "-m", "sim", "actor", *parties, *place, *waits]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.fixture
def prepared(tmp_path) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(min(free.getsockname()[1], 65_000))
    flags = ["--scheme", "masked", "--data", "synthetic:6x5:.8", "--iterations", "3", "--seed", "1", "--port", port]
    command = [sys.executable, "-m", "sim", "prepare", *flags, "--out", str(tmp_path / "run")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return tmp_path / "run"


def test_a_party_that_nobody_answers_gives_up_and_says_on_whom_it_waited(prepared):
    ended = by_hand(prepared, "recommender")
    assert ended.returncode == 5 and "STALLED" in ended.stderr
    waits = "recommender is in the set-up and waits for user:0, user:1, user:2, user:3, user:4 and 1 others"
    assert waits in ended.stderr
    ended = by_hand(prepared, "user:3")
    assert ended.returncode == 5 and "user:3 is in the set-up and waits for recommender" in ended.stderr


def test_its_patience_must_be_longer_than_an_iteration_may_take(prepared):
    ended = by_hand(prepared, "recommender", patience="1")
    assert ended.returncode == 2 and "--patience must be longer than the deadline" in ended.stderr
