"""Worker processes: the waiting process learns of a worker that ended or that does nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from protocol.errors import Aborted
from sim.drivers.workers import map_cells, worker_pool

PATIENCE = 3.0


def double(number: int) -> int:
    return 2 * number


def compute(seconds: float) -> float:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return seconds


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise ValueError("the work itself")


def end_of(work, *arguments) -> str:
    with pytest.raises(Aborted) as ended, worker_pool(1) as pool:
        list(pool.completed([pool.submit(work, *arguments), pool.submit(double, 3)], PATIENCE))
    assert not multiprocessing.active_children()
    return str(ended.value)


def test_every_result_comes_once_also_of_work_that_takes_longer_than_patience():
    with worker_pool(2) as pool:
        assert sorted(pool.completed(pool.submit(double, number) for number in range(9))) == list(range(0, 18, 2))
        assert list(pool.completed([pool.submit(compute, 4.5)], PATIENCE)) == [4.5]


def test_a_worker_that_does_nothing_is_named():
    assert "STALLED" in (words := end_of(stop_itself)) and "for 3 s: worker process" in words and "is stopped" in words


def test_a_worker_that_ends_is_a_reason_and_no_bug():
    assert "PARTY_DIED" in end_of(kill_itself)


def test_what_the_work_raises_is_raised_and_nothing_more_is_begun():
    with pytest.raises(ValueError, match="the work itself"), worker_pool(1) as pool:
        list(pool.completed([pool.submit(fail), *(pool.submit(compute, 600.0) for _ in range(5))]))
    assert not multiprocessing.active_children()


def test_whoever_stops_waiting_waits_no_more():
    """As after Ctrl-C, a worker that still computes ends with the pool at once. Other processes are left alone."""
    other = multiprocessing.get_context("spawn").Process(target=compute, args=(600.0,))
    other.start()
    with pytest.raises(KeyboardInterrupt), worker_pool(1) as pool:
        raise KeyboardInterrupt(pool.submit(compute, 600.0))
    assert multiprocessing.active_children() == [other] and other.is_alive()
    other.kill()
    other.join()


def later(number: int, seconds: float) -> tuple[int, int]:
    time.sleep(seconds)
    return number, os.getpid()


def test_results_of_cells_are_in_their_order_whichever_is_finished_first():
    told: list[tuple[int, int]] = []
    cells = [(0, 1.5), (1, 0.0), (2, 0.0), (3, 0.0)]
    made = map_cells(later, cells, 2, told.append)
    assert [number for number, _ in made] == [0, 1, 2, 3] and sorted(told) == made
    assert told[0][0] != 0 and os.getpid() not in {process for _, process in made}
    for few, processes in ((cells[1:], 1), (cells[1:2], 8)):
        alone = map_cells(later, few, processes, told.append)
        assert alone == [(number, os.getpid()) for number, _ in few] == told[-len(few):], "no process is started"
    assert map_cells(later, [], None) == []
