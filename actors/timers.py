"""Timers of a process: when to ask a silent server again, when a planned action is due, when nothing moves any more."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

_RETRY = 0.5  # seconds, for a server that was restarted
_LONGEST = 16  # times the first wait

Peer = TypeVar("Peer", bound=Hashable)


class Timers:
    """Actions that are due later, in the order of their times."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Callable[[], Any]]] = []
        self._ticket = itertools.count()  # keeps equal times apart in the heap

    def schedule(self, seconds: float, action: Callable[[], Any]) -> None:
        if seconds > 0:
            heapq.heappush(self._later, (time.monotonic() + seconds, next(self._ticket), action))
        else:
            action()

    def seconds(self) -> float | None:
        """Compute the seconds until the first action is due; None if there is no action."""
        return max(0.0, self._later[0][0] - time.monotonic()) if self._later else None

    def expire(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()


class Watchdog:
    """Measures how long nothing has moved. Repeated requests, answers to them and signs of life are not movement."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._moved = time.monotonic()

    def moved(self) -> None:
        self._moved = time.monotonic()

    def seconds(self) -> float:
        """Compute the seconds until `patience` has run out."""
        return max(0.0, self._moved + self.patience - time.monotonic())

    def is_stalled(self) -> bool:
        return not self.seconds()


class Patience(Generic[Peer]):
    """Decides which peers to ask again: after `wait` seconds of silence, then after twice as long each time.

    A frame may have been lost with the connection that carried it.
    """

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._due: dict[Peer, tuple[float, float]] = {}  # when to ask, and how long to wait after that
        self._urged: set[Peer] = set()
        self._look = 0.0  # a time before which nothing is due; hearing from a peer only makes its due time later

    def watch(self, peer: Peer) -> None:
        self._due[peer] = (time.monotonic() + self._wait, self._wait)
        self._look = 0.0

    def heard(self, peer: Peer, kin: Iterable[Peer]) -> None:
        """Restart the wait for all `kin` on hearing from `peer`: if one server moves, none waits for a lost frame."""
        self._urged.discard(peer)
        due = (time.monotonic() + self._wait, self._wait)
        for each in kin:
            if each not in self._urged:
                self._due[each] = due

    def urge(self, peer: Peer) -> None:
        """Ask `peer` at once, and again at short intervals until it answers."""
        self._urged.add(peer)
        self._due[peer] = (0.0, min(_RETRY, self._wait))
        self._look = 0.0

    def forget(self, peer: Peer) -> None:
        self._urged.discard(peer)
        self._due.pop(peer, None)

    def seconds(self) -> float | None:
        """Compute the seconds until something may be due; None if there is no peer to wait for."""
        return max(0.0, self._look - time.monotonic()) if self._due else None

    def overdue(self) -> list[Peer]:
        """List the peers to ask now, and double their next wait."""
        now = time.monotonic()
        if now < self._look:
            return []
        late = [peer for peer, (due, _) in self._due.items() if due <= now]
        for peer in late:
            wait = self._due[peer][1]
            self._due[peer] = (now + wait, min(2 * wait, _LONGEST * self._wait))
        self._look = min((due for due, _ in self._due.values()), default=now)
        return late
