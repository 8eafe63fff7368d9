"""A run in one process with injected faults: `actors/faults.py` draws the fate of every frame and step of each party.

A crash discards a party and some of the frames on their way to and from it. A crash may come in the middle of a write,
which then ends at any byte. The party is restored from its view. It then asks its servers for missing frames, and its
clients ask it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from actors.faults import PHASES, DiskFull, Faults, Sufferer
from actors.metering.recorder import Figures
from protocol.card import Card, Seat
from protocol.errors import Aborted, BadInput, Reason
from protocol.party.party import Step
from protocol.wire.messages import Event
from sim.drivers.inprocess import Edge, InProcess, Played, servers_of

DEFAULT_RATE, HIGHEST_RATE = 0.05, 0.5
EARLY_RECORDS = (5, 40)
MOST_SILENCE = 50  # rounds of asking that bring nothing before a deadline: that changes who contributes


def parse_faults(text: str) -> Faults:
    """Parse SEED[:RATE]."""
    seed, colon, rate = text.partition(":")
    try:
        chosen = float(rate) if colon else DEFAULT_RATE
    except ValueError:
        chosen = math.nan
    if not seed.isdecimal() or int(seed) >= 1 << 63 or not 0 <= chosen <= HIGHEST_RATE:
        raise BadInput(
            f"--faults takes SEED[:RATE], a whole number below 2^63 and a rate between 0 and {HIGHEST_RATE} "
            f"(7, or 7:.1), not {text!r}."
        )
    return Faults(int(seed), chosen)


def with_a_full_disk(faults: Faults, parties: Sequence[str]) -> Faults:
    """Plan, with probability `faults.rate`, one full disk for one of the `parties` early in the run."""
    draw = random.Random(f"{faults.seed} disk")
    if draw.random() >= faults.rate:
        return faults
    full = DiskFull(draw.choice(parties), draw.randrange(*EARLY_RECORDS), draw.randrange(100))
    return dataclasses.replace(faults, full=(full,))


class _Crashed(Exception):
    """Raised when a party crashes in the middle of a step."""


class FaultyPlayed(Sufferer, Played):
    driver: FaultyInProcess

    def __init__(self, driver: FaultyInProcess, seat: Seat, figures: Figures, path: str | None) -> None:
        super().__init__(driver, seat, figures, path)
        self.mischief = driver.faults.of(seat.party, driver.lives[seat.party], self.card.codec)

    def crash(self, phase: str, step: Step) -> None:
        """Crash the party; in half of the cases its view has a part of the records, of which nothing was sent."""
        draw, data = self.driver.draw(self.party.name, "write"), memoryview(b"".join(step.records))
        if phase == PHASES[0] and self.journal and data and draw.random() < 0.5:
            self.driver.torn += 1
            with contextlib.suppress(OSError):
                self.journal.write(data[: draw.randrange(len(data))])
        raise _Crashed

    def delay(self, ticks: int, to: str, frame: bytes) -> None:
        self.driver.delay(ticks, (self.party.name, to), frame)


class FaultyInProcess(InProcess):
    """A run with faults. Time is counted in frames handed over, and the delay of a frame is a number of them."""

    kind = FaultyPlayed

    def __init__(self, card: Card, seats: Sequence[Seat], faults: Faults, **options: Any) -> None:
        self.faults = faults
        first = int(options.get("resume", False))  # what was planned for the lives before the break is over
        self.lives = {seat.party: first for seat in seats}
        super().__init__(card, seats, **options)
        self._outside: deque[tuple[str, Event]] = deque()
        self._news: dict[str, Event] = {}  # by party, the last event about presence that it was told
        self._ticks = 0
        self._ticket = itertools.count()  # keeps equal times apart in the heap
        self._delayed: list[tuple[int, int, Edge, bytes]] = []
        self._silence = 0
        self.torn = 0  # crashes in the middle of a write

    def _work(self) -> None:
        while self._outside or self._fifo or self._delayed or not self._finished():
            if self._outside:
                name, event = self._outside.popleft()
                super()._tell(name, event)
            elif self._fifo:
                self._ticks += 1
                self._deliver()
                self._release()
            elif self._delayed:
                self._ticks = self._delayed[0][0]
                self._release()
            elif self._silence < MOST_SILENCE:
                self._silence += 1
                self._all_ask_again()
            elif self.timers:
                self._expire()
            else:
                raise Aborted(Reason.STALLED, f"nothing came of asking {MOST_SILENCE} times")

    def _all_ask_again(self) -> None:
        """Let all clients ask their servers; one that has finished may hold the last frame that a server waits for."""
        for name, party in self.parties.items():
            servers = servers_of(self.card.scheme, name)
            self._ask_again(name, [peer for peer in servers if not (party.done and self.parties[peer].done)])

    def _hand(self, sender: str, receiver: str, frame: bytes) -> Step:
        step = super()._hand(sender, receiver, frame)
        if step.rejected is None and step.kind != "Again":
            self._silence = 0
        return step

    # --- frames ----------------------------------------------------------------------------------------------------

    def delay(self, ticks: int, edge: Edge, frame: bytes) -> None:
        """Put `frame` on `edge` after `ticks`, at once if that is 0."""
        if ticks:
            heapq.heappush(self._delayed, (self._ticks + ticks, next(self._ticket), edge, frame))
        else:
            self.put(edge, frame)

    def _release(self) -> None:
        while self._delayed and self._delayed[0][0] <= self._ticks:
            _, _, edge, frame = heapq.heappop(self._delayed)
            self.put(edge, frame)

    def _lose_frames(self, name: str) -> None:
        """Some of those on their way to or from this party."""
        draw = self.draw(name, "frames")
        rest = draw.random()

        def arrives(edge: Edge) -> bool:
            return name not in edge or draw.random() < rest

        self._delayed = [entry for entry in self._delayed if arrives(entry[2])]
        heapq.heapify(self._delayed)
        edges, waiting, self._fifo, self._waiting = self._fifo, self._waiting, deque(), {}
        for edge in edges:
            frame = waiting[edge].popleft()
            if arrives(edge):
                self.put(edge, frame)

    # --- crashes ---------------------------------------------------------------------------------------------------

    def _settle(self, name: str, step: Step) -> None:
        try:
            super()._settle(name, step)
        except _Crashed:
            self._restart(name)

    def _restart(self, name: str) -> None:
        self.outcome.restarts += 1
        self._cast[name].finish()
        self._lose_frames(name)
        self.lives[name] += 1
        self._cast[name] = self._seat(name)
        self._settle(name, self._revive(name))
        self._tell_again(name)
        self._ask_again(name)
        for client in self._cast:
            if client in self._started and name in servers_of(self.card.scheme, client):
                self._ask_again(client, [name])

    # --- what comes from outside -----------------------------------------------------------------------------------

    def _tell(self, name: str, event: Event) -> None:
        """Queue the event, because in the middle of another party's step either party could end."""
        self._news[name] = event
        self._outside.append((name, event))

    def _tell_again(self, name: str) -> None:
        """Queue again the last outside events for the restored party `name`; they may not have reached its view."""
        self._outside = deque(entry for entry in self._outside if entry[0] != name)
        if name in self._news:
            self._outside.append((name, self._news[name]))

    def draw(self, name: str, what: str) -> random.Random:
        return random.Random(f"{self.faults.seed} {name} {self.lives[name]} lost {what}")
