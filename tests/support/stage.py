"""All parties of a small run, one delivery at a time; between two deliveries a test can hand any message to any party.

Frames wait as messages and get their numbers when they are delivered, so a message that a test hands in fits the
sequence of its sender. These frames have no head of a view. A Hello goes first on every edge by itself. Every party
keeps a view in memory. Requests for lost frames are noted and not delivered: nothing is lost here.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from protocol.card import Card, Seat, seat_party
from protocol.party.party import Step
from protocol.party.view import REJECTED, Record, read_records
from protocol.wire.messages import Hello, Message
from support.wire import WIRE_VERSION, form_of, written

Late = Callable[["Stage", str, Message], bool]


class Stage:
    def __init__(self, card: Card, seats: Iterable[Seat], late: Late | None = None) -> None:
        self.card = card
        self.codec = card.codec
        self._late = late or (lambda stage, receiver, message: False)
        self._waiting: list[tuple[str, str, Message]] = []
        self._numbers: Counter[tuple[str, str]] = Counter()
        self.last_frame: dict[tuple[str, str], bytes] = {}
        self.sent: list[tuple[str, str, bytes]] = []
        self.asked: list[tuple[str, str, bytes]] = []  # the frames of Again
        self.parties, self._views = {}, {}
        self.seats = {seat.party: seat for seat in seats}
        for seat in self.seats.values():
            self.parties[seat.party], opening = seat_party(card, seat, with_view=True)
            self._views[seat.party] = bytearray(opening)
        self.heard: dict[str, list[tuple[str, Message]]] = {name: [] for name in self.parties}
        for name, party in self.parties.items():
            self._settle(name, party.start())

    def number(self, sender: str, receiver: str) -> int:
        """Return the next number that the receiver expects from this sender."""
        return self._numbers[sender, receiver]

    def hand(self, sender: str, receiver: str, message: Message) -> tuple[Step, bytes]:
        """Deliver a message, right or wrong, under the number that is due, after a Hello if there was none."""
        if self.number(sender, receiver) == 0:
            hello = Hello(WIRE_VERSION, self.card.run_id, self.card.params_digest)
            assert self.hand_frame(sender, receiver, self.codec.encode(hello, 0)).rejected is None
        form = form_of(self.card.params)
        frame = written(self.card.scheme.name, message, self.number(sender, receiver), form)
        return self.hand_frame(sender, receiver, frame), frame

    def hand_frame(self, sender: str, receiver: str, frame: bytes) -> Step:
        step = self.parties[receiver].receive(sender, frame)
        used = self._settle(receiver, step)
        if used:
            self._numbers[sender, receiver] += 1
            self.last_frame[sender, receiver] = frame
        return step

    def deliver(self) -> None:
        """Deliver the next waiting message; a late one only when nothing else waits."""
        prompt = [n for n, (_, to, message) in enumerate(self._waiting) if not self._late(self, to, message)]
        sender, receiver, message = self._waiting.pop(prompt[0] if prompt else 0)
        step, _ = self.hand(sender, receiver, message)
        assert step.rejected is None, (sender, receiver, message, step.rejected)
        self.heard[receiver].append((sender, message))

    def run_until(self, party: str, heard: int) -> None:
        """Deliver messages until `party` has accepted `heard` of them."""
        while len(self.heard[party]) < heard:
            self.deliver()

    def finish(self) -> None:
        while self._waiting:
            self.deliver()
        assert all(party.done for party in self.parties.values())

    def records(self, party: str) -> list[Record]:
        return list(read_records(io.BytesIO(bytes(self._views[party]))))

    def rejections(self, party: str) -> list[list[Any]]:
        return [record.fields for record in self.records(party) if record.type == REJECTED]

    def _settle(self, name: str, step: Step) -> bool:
        """Keep what the step caused; tell whether its frame used up a number (of a refused frame, the view says so)."""
        for record in step.records:
            self._views[name] += record
        for out in step.sends:
            (self.asked if out.kind == "Again" else self.sent).append((name, out.to, out.frame))
            if out.kind not in ("Hello", "Again"):
                self._waiting.append((name, out.to, self.codec.decode(out.frame)[1]))
        return step.rejected is None or (step.records != [] and self.rejections(name)[-1][-1])
