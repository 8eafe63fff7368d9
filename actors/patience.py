"""When to ask a server again that has said nothing for long: a frame may be lost with the connection it was on."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

_RETRY = 0.5  # seconds, for a server that was started again
_LONGEST = 16  # times the first wait

Peer = TypeVar("Peer", bound=Hashable)


class Patience(Generic[Peer]):
    """Asks after `wait` seconds of silence, then after twice as long each time."""

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
