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
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from actors.faults import PHASES, DiskFull, Faults, Mischief
from actors.journal import Journal
from protocol.card import Card, Seat
from protocol.errors import Aborted, BadInput, Reason
from protocol.party.party import Outgoing, Party, Step
from protocol.party.role import RECOMMENDER
from protocol.wire.messages import Event, Gone
from sim.drivers.inprocess import Edge, InProcess, servers_of

DEFAULT_RATE, HIGHEST_RATE = 0.05, 0.5
EARLY_RECORDS = (5, 40)
MOST_SILENCE = 50  # rounds of asking without progress before a deadline expires, which changes who contributes
BEFORE_JOURNAL, AFTER_JOURNAL, AFTER_SEND = PHASES


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


class FaultyInProcess(InProcess):
    """A run with faults. Time is counted in frames handed over, and the delay of a frame is a number of them."""

    def __init__(self, card: Card, seats: Iterable[Seat], faults: Faults, **options: Any) -> None:
        self._temporary = None
        if options.get("run_folder") is None and options.get("with_view"):
            self._temporary = tempfile.TemporaryDirectory(prefix="keyhole-views-")
            options["run_folder"] = self._temporary.name
        super().__init__(card, seats, **options)
        self._faults = faults
        first = int(self._resume)  # after a break, faults that were planned for the first life are over
        self._lives = dict.fromkeys(self.parties, first)
        self._mischief: dict[str, Mischief] = {name: faults.of(name, first, card.codec) for name in self.parties}
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
            elif self._timers:
                self._expire()
            else:
                raise Aborted(Reason.STALLED, f"nothing came of asking {MOST_SILENCE} times")

    def _all_ask_again(self) -> None:
        """Let all clients ask their servers; one that has finished may hold the last frame that a server waits for."""
        for name, party in self.parties.items():
            servers = servers_of(self._card.scheme, name)
            self._ask_again(name, [peer for peer in servers if not (party.done and self.parties[peer].done)])

    def _hand(self, sender: str, receiver: str, frame: bytes) -> Step:
        step = super()._hand(sender, receiver, frame)
        if step.rejected is None and step.kind != "Again":
            self._silence = 0
        return step

    # --- frames ----------------------------------------------------------------------------------------------------

    def _post(self, name: str, out: Outgoing) -> None:
        edge, leaving = (name, out.to), self._mischief[name].deliver(out)
        self._figures[name].sent(out)
        self._figures[name].suffered(out, [frame for _, frame in leaving])
        for delay, frame in leaving:
            if delay:
                heapq.heappush(self._delayed, (self._ticks + delay, next(self._ticket), edge, frame))
            else:
                self._put(edge, frame)

    def _release(self) -> None:
        while self._delayed and self._delayed[0][0] <= self._ticks:
            _, _, edge, frame = heapq.heappop(self._delayed)
            self._put(edge, frame)

    def _lose_frames(self, name: str) -> None:
        """Discard a random part of the frames on their way to or from the party `name`."""
        draw = self._draw(name, "frames")
        rest = draw.random()

        def arrives(edge: Edge) -> bool:
            return name not in edge or draw.random() < rest

        self._delayed = [entry for entry in self._delayed if arrives(entry[2])]
        heapq.heapify(self._delayed)
        edges, waiting, self._fifo, self._waiting = self._fifo, self._waiting, deque(), {}
        for edge in edges:
            frame = waiting[edge].popleft()
            if arrives(edge):
                self._put(edge, frame)

    # --- crashes ---------------------------------------------------------------------------------------------------

    def _settle(self, party: Party, step: Step) -> None:
        before = self._at[party.name]
        try:
            super()._settle(party, step)
        except _Crashed:
            self._at[party.name] = before  # so that entering another iteration is noticed again
            self._restart(party.name)

    def _write(self, name: str, step: Step) -> None:
        if self._crashes(name, step, BEFORE_JOURNAL):
            self._tear(name, step)
            raise _Crashed
        super()._write(name, step)
        if self._crashes(name, step, AFTER_JOURNAL):
            raise _Crashed

    def _send(self, name: str, step: Step) -> None:
        super()._send(name, step)
        if self._crashes(name, step, AFTER_SEND):
            raise _Crashed

    def _crashes(self, name: str, step: Step, phase: str) -> bool:
        """Tell whether the party crashes in this `phase`. One without a view never does: it could not be restored."""
        return name in self._journals and step.rejected is None and self._mischief[name].crashes(step.kind, phase)

    def _tear(self, name: str, step: Step) -> None:
        """Write, in half of the cases, the beginning of the records of `step`; none of its frames was sent."""
        draw, data = self._draw(name, "write"), memoryview(b"".join(step.records))
        if data and draw.random() < 0.5:
            self.torn += 1
            with contextlib.suppress(OSError):
                self._journals[name].write(data[: draw.randrange(len(data))])

    def _restart(self, name: str) -> None:
        self.outcome.restarts += 1
        self._journals.pop(name).close()
        self._lose_frames(name)
        self._lives[name] += 1
        self._mischief[name] = self._faults.of(name, self._lives[name], self._card.codec)
        step = self._revive(name)
        self._settle(self.parties[name], step)
        self._tell_again(name)
        self._ask_again(name)
        for client in self.parties:
            if client not in self._openings and name in servers_of(self._card.scheme, client):
                self._ask_again(client, [name])

    def _keep(self, name: str, journal: Journal) -> None:
        view = self.parties[name].view
        assert view is not None
        super()._keep(name, self._mischief[name].journal(journal, view))

    # --- what comes from outside -----------------------------------------------------------------------------------

    def _tell(self, name: str, event: Event) -> None:
        """Queue `event` for the party `name`.

        It is not told at once: this may be in the middle of another party's step, and either party could crash.
        """
        if not isinstance(event, Gone):
            self._news[name] = event
        self._outside.append((name, event))

    def _tell_again(self, name: str) -> None:
        """Queue again the last outside events for the restored party `name`; they may not have reached its view."""
        self._outside = deque(entry for entry in self._outside if entry[0] != name)
        if name in self._news:
            self._outside.append((name, self._news[name]))
        if name == RECOMMENDER:
            self._outside.extend((name, Gone(user)) for user in sorted(self._left))

    def _draw(self, name: str, what: str) -> random.Random:
        return random.Random(f"{self._faults.seed} {name} {self._lives[name]} lost {what}")

    def _close(self) -> None:
        super()._close()
        if self._temporary is not None:
            self._temporary.cleanup()
