"""What a process does when time passes: ask a silent server again, do what was planned, say that nothing moves."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

_RETRY = 0.5  # seconds, for a server that was started again
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
        """Until the first is due; None if there is none."""
        return max(0.0, self._later[0][0] - time.monotonic()) if self._later else None

    def expire(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()


class Watchdog:
    """Knows for how long nothing has moved. That somebody asks, answers or says that it lives is no movement."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._moved = time.monotonic()

    def moved(self) -> None:
        self._moved = time.monotonic()

    def seconds(self) -> float:
        """Until it has been too long."""
        return max(0.0, self._moved + self.patience - time.monotonic())

    def is_stalled(self) -> bool:
        return not self.seconds()


class Patience(Generic[Peer]):
    """Asks after `wait` seconds of silence, then after twice as long each time. A frame may be lost with the
    connection that it was on.
    """

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._due: dict[Peer, tuple[float, float]] = {}  # when to ask, and how long to wait after that
        self._urged: set[Peer] = set()
        self._look = 0.0  # nothing is due before: hearing from a peer only puts it off

    def watch(self, peer: Peer) -> None:
        self._due[peer] = (time.monotonic() + self._wait, self._wait)
        self._look = 0.0

    def heard(self, peer: Peer, kin: Iterable[Peer]) -> None:
        """From one server, which shows that the others are not waiting for something either."""
        self._urged.discard(peer)
        due = (time.monotonic() + self._wait, self._wait)
        for each in kin:
            if each not in self._urged:
                self._due[each] = due

    def urge(self, peer: Peer) -> None:
        """Ask at once, and soon again until it answers."""
        self._urged.add(peer)
        self._due[peer] = (0.0, min(_RETRY, self._wait))
        self._look = 0.0

    def forget(self, peer: Peer) -> None:
        self._urged.discard(peer)
        self._due.pop(peer, None)

    def seconds(self) -> float | None:
        """Until something may be due; None if there is nobody to wait for."""
        return max(0.0, self._look - time.monotonic()) if self._due else None

    def overdue(self) -> list[Peer]:
        """Whom to ask now; each waits longer from here on."""
        now = time.monotonic()
        if now < self._look:
            return []
        late = [peer for peer, (due, _) in self._due.items() if due <= now]
        for peer in late:
            wait = self._due[peer][1]
            self._due[peer] = (now + wait, min(2 * wait, _LONGEST * self._wait))
        self._look = min((due for due, _ in self._due.values()), default=now)
        return late
