"""Time in a process: the peers that it asks again, the timers that are due, and how long nothing has moved."""

from __future__ import annotations

import pytest

from actors import timers as module
from actors.timers import Patience, Timers, Watchdog


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def asked(patience: Patience[str], clock, until: float) -> list[tuple[float, str]]:
    """Collect (time, peer) for every question that is due at a full second up to `until`."""
    found = []
    while clock.now < until:
        clock.now += 1
        found += [(clock.now, peer) for peer in patience.overdue()]
    return found


def test_silence_is_asked_after_and_then_less_and_less_often(clock):
    patience = Patience(10.0)
    patience.watch("a")
    times = [when for when, _ in asked(patience, clock, 800.0)]
    assert times == [110, 120, 140, 180, 260, 420, 580, 740]  # 10, 10, 20, 40, 80, 160, then 160 at most


def test_a_word_from_one_server_puts_off_all_of_them(clock):
    patience = Patience(10.0)
    patience.watch("a")
    patience.watch("b")
    assert asked(patience, clock, 105.0) == []
    patience.heard("a", ["a", "b"])
    assert asked(patience, clock, 116.0) == [(115, "a"), (115, "b")]


def test_a_server_that_was_started_again_is_asked_until_it_answers_itself(clock):
    patience = Patience(10.0)
    patience.watch("a")
    patience.watch("b")
    patience.urge("b")
    assert patience.seconds() == 0.0
    assert asked(patience, clock, 102.0) == [(101, "b"), (102, "b")]
    patience.heard("a", ["a", "b"])
    assert asked(patience, clock, 104.0) == [(103, "b")]  # after 1 s, then 2, then 4 …
    patience.heard("b", ["a", "b"])
    assert asked(patience, clock, 113.0) == []


def test_who_is_done_is_not_asked_and_nobody_is_waited_for(clock):
    patience = Patience(10.0)
    assert patience.seconds() is None
    patience.watch("a")
    assert patience.overdue() == [] and patience.seconds() == 10.0
    patience.forget("a")
    assert patience.seconds() is None and asked(patience, clock, 130.0) == []


def test_a_watchdog_counts_from_the_last_movement(clock):
    watchdog = Watchdog(10.0)
    clock.now = 109.0
    assert watchdog.seconds() == 1.0 and not watchdog.is_stalled()
    watchdog.moved()
    clock.now = 118.9
    assert not watchdog.is_stalled()
    clock.now = 119.0
    assert watchdog.is_stalled() and watchdog.seconds() == 0.0


def test_what_is_due_later_happens_in_the_order_of_its_time(clock):
    timers, done = Timers(), []
    assert timers.seconds() is None
    timers.schedule(5.0, lambda: done.append("five"))
    timers.schedule(2.0, lambda: done.append("two"))
    timers.schedule(2.0, lambda: done.append("two again"))
    timers.schedule(0.0, lambda: done.append("now"))
    assert done == ["now"] and timers.seconds() == 2.0
    clock.now = 104.0
    timers.expire()
    assert done == ["now", "two", "two again"] and timers.seconds() == 1.0
