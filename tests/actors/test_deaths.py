"""User processes that are killed while a run goes on: restarted from their views, or left out for good."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import msgpack
import psutil
import pytest
from support.runs import Directed, end_of

from actors.faults import Crash, Faults
from actors.launch.forkserver import Nursery
from actors.launch.launcher import Launch, Staff
from actors.launch.reports import Started, read
from actors.pipes import Orders, receive_order
from protocol.errors import BadInput
from protocol.party.view import EVENT, RECEIVED, SENT, read_records
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.run import make_roster

ITERATIONS = 40


def plan_of(scheme: str, **changes) -> Plan:
    flags = {"join": 0.1, "leave": 0.05} if scheme == "dynamic" else {}
    settings = {"data": "synthetic:14x10:.5", "dim": 3, "iterations": ITERATIONS, "seed": 5, **flags, **changes}
    return make_plan(RunConfig(scheme=scheme, **settings))


class Killer:
    """Kills users at random moments after the first iteration: some between two steps, some in the middle of one."""

    def __init__(self, seed: int, every: int, most: int) -> None:
        self.launch: Launch
        self.killed: list[str] = []
        self._random = random.Random(seed)
        self._every, self._most = every, most
        self._timers: list[threading.Timer] = []

    def __call__(self, done) -> None:
        if done.iteration % self._every or len(self._timers) >= self._most:
            return
        timer = threading.Timer(0.03 * self._random.random(), self.strike)
        self._timers.append(timer)
        timer.start()

    def strike(self) -> None:
        users = [(pid, parties) for pid, parties in list(self.launch._alive.items()) if parties[0].startswith("user:")]
        waiting = [(pid, parties) for pid, parties in users if parties[0] in self.launch._waiting]
        if waiting:
            pid, parties = self._random.choice(waiting)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed += parties

    def rest(self) -> None:
        for timer in self._timers:
            timer.join()


def run_with_deaths(plan: Plan, folder: Path, on_death: str, killer: Killer, deadline: float = 5.0):
    folder.mkdir()
    secrets, roster = make_roster(plan)
    churn = plan.churn()
    staff = Staff(folder, plan.views, deadline, on_death=on_death)
    killer.launch = Launch(roster, secrets, staff, killer, churn.events if churn else None)
    outcome = killer.launch.run()
    killer.rest()
    return outcome


def in_process(plan: Plan, **options):
    churn = plan.churn()
    return Directed(plan.card, plan.seats(), events_for=churn.events if churn else None, **options).run()


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_a_restarted_user_goes_on_from_its_view_and_nothing_is_missing(tmp_path, scheme, wire):
    plan = plan_of(scheme, wire=wire, iterations=150)
    killer = Killer(seed=1, every=3, most=10)
    outcome = run_with_deaths(plan, tmp_path / "run", "restart", killer)
    assert outcome.abort is None and outcome.gone == []
    assert len(killer.killed) >= 5 and outcome.restarts >= 5
    assert set(outcome.rejected) <= {"REPLAYED"}  # the same bytes once more, and nothing else
    assert end_of(outcome) == end_of(in_process(plan))


def losses(plan: Plan, folder: Path) -> tuple[dict[int, frozenset[int]], dict[int, frozenset[int]]]:
    """Read (silent, gone) by iteration from the servers' views: the users that were invited and did not contribute, and
    those that the recommender learned are gone."""
    decode = plan.card.codec.decode
    invited, contributed, gone, current = {}, {}, {}, -1
    with open(folder / "views" / "third_party.view", "rb") as stream:
        for record in read_records(stream):
            if record.type == RECEIVED:
                message = decode(record.fields[1])[1]
                if type(message).__name__ == "OpenSum":
                    invited[message.iteration] = {int(user) for user in message.users}
    with open(folder / "views" / "recommender.view", "rb") as stream:
        for record in read_records(stream):
            if record.type == SENT and record.fields[1] == "OpenSum":
                current = record.fields[2]
            elif record.type == EVENT and record.fields[0] == "Gone":
                gone.setdefault(current, set()).add(record.fields[1])
            elif record.type == RECEIVED:
                message = decode(record.fields[1])[1]
                if type(message).__name__ == "Contributors":
                    contributed[message.iteration] = {int(user) for user in message.users}
    silent = {t: frozenset(users - contributed[t]) for t, users in invited.items()}
    return silent, {t: frozenset(users) for t, users in gone.items()}


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_a_vanished_user_costs_its_contribution_and_nothing_else(tmp_path, wire):
    """The factors are those of an in-process run with the same contributor sets, bit for bit."""
    plan = plan_of("dynamic", wire=wire, options={"dropout_allowance": 0.5})
    killer = Killer(seed=2, every=8, most=4)
    outcome = run_with_deaths(plan, tmp_path / "run", "drop", killer)
    assert outcome.abort is None
    assert sorted(outcome.gone) == sorted(killer.killed) and len(outcome.gone) >= 3
    silent, gone = losses(plan, tmp_path / "run")
    assert sum(len(users) for users in gone.values()) == len(outcome.gone)
    same = in_process(plan, silent=silent, gone=gone)
    assert end_of(outcome) == end_of(same)


def test_nobody_waits_for_a_vanished_user_of_masked(tmp_path):
    """The iteration in which it goes and all that follow are closed when everyone else has answered."""
    plan = plan_of("masked", options={"dropout_allowance": 0.5})
    outcome = run_with_deaths(plan, tmp_path / "run", "drop", Killer(seed=2, every=8, most=2), deadline=3600.0)
    assert outcome.abort is None and len(outcome.gone) == 2


@pytest.mark.parametrize("scheme", ["plain", "trusted", "direct"])
def test_a_scheme_that_waits_for_everyone_does_not_take_drop(scheme):
    with pytest.raises(BadInput, match="waits for every user"):
        plan_of(scheme, on_death="drop")


def test_masked_says_who_was_gone_before_it_had_joined(tmp_path):
    """Its support is not known, so the number of users that share an item's noise is not known either."""
    plan = plan_of("masked")
    secrets, roster = make_roster(plan)
    faults = Faults(crashes=(Crash("user:3", "start", 0, "before journal"),))
    (tmp_path / "run").mkdir()
    outcome = Launch(roster, secrets, Staff(tmp_path / "run", plan.views, 60.0, on_death="drop", faults=faults)).run()
    assert outcome.abort is not None and outcome.abort.reason.name == "PARTY_DIED"
    assert "user:3, before it had joined" in str(outcome.abort)


def test_a_run_with_a_short_deadline_is_not_stalled_by_its_own_end(tmp_path):
    plan = plan_of("masked", iterations=5)
    outcome = run_with_deaths(plan, tmp_path / "run", "restart", Killer(seed=1, every=100, most=0), deadline=0.05)
    assert outcome.abort is None


def test_a_process_that_ends_before_it_has_a_party_is_replaced(tmp_path):
    """The zygote's newest child is killed while the launcher still hands out orders."""
    plan = plan_of("masked", data="synthetic:60x10:.5", iterations=2)
    struck = []

    def strike() -> None:
        until = time.monotonic() + 30
        while not struck and time.monotonic() < until:
            known = set(killer.launch._alive) if hasattr(killer, "launch") else set()
            zygotes = psutil.Process().children()
            children = [child for zygote in zygotes for child in zygote.children()]
            fresh = [child for child in children if child.pid not in known]
            if len(children) > 20 and fresh:
                fresh[-1].kill()
                struck.append(fresh[-1].pid)

    killer = Killer(seed=1, every=100, most=0)
    thread = threading.Thread(target=strike)
    thread.start()
    outcome = run_with_deaths(plan, tmp_path / "run", "restart", killer)
    thread.join()
    assert struck and outcome.abort is None
    assert end_of(outcome) == end_of(in_process(plan))


def test_the_order_of_a_process_that_took_it_and_ended_is_given_again(tmp_path):
    """Between taking an order and saying so there is a moment that no killer hits often enough."""
    plan = plan_of("masked")
    secrets, roster = make_roster(plan)
    launch = Launch(roster, secrets, Staff(tmp_path, plan.views, 60.0))
    launch._nursery = Nursery.__new__(Nursery)
    launch._nursery._lines, launch._nursery._behind = {}, {}
    near, taker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launch._nursery._orders = Orders(near)
    taker.settimeout(10)
    launch._nursery.fork = lambda count: forked.append(count)
    forked: list[int] = []
    taken = []

    def take() -> int:
        data, line, _ = receive_order(taker)
        taken.append(read(msgpack.unpackb(data)).parties)
        return line

    for user in (1, 2, 3):
        launch._start([f"user:{user}"], False)
    line = take()
    launch._hear(Started(7, ["user:1"]))
    os.close(take())  # the process that took the order of user:2 is killed
    launch._exited(8, -9)
    assert forked == [1]
    for _ in range(2):
        os.close(take())
    os.close(line)
    assert taken == [["user:1"], ["user:2"], ["user:3"], ["user:2"]]
    for channel in launch._nursery._lines.values():
        channel.close()
    taker.close()
    launch._nursery._orders.close()
    os.close(launch._observer_fd)


def test_without_a_view_a_user_cannot_come_back_and_the_run_says_so(tmp_path):
    plan = plan_of("masked", views="servers")
    outcome = run_with_deaths(plan, tmp_path / "run", "restart", Killer(seed=3, every=1, most=1))
    assert outcome.abort is not None and outcome.abort.reason.name == "PARTY_DIED"
