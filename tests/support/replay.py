"""A run that keeps every input, so that each party can be ended anywhere and resumed; and views written by hand.

Frames may get lost or come twice. The parties repair that themselves by asking again; when no frame is on its way,
every party that has not finished asks all others.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import random
import struct
from collections import Counter, deque
from typing import Any, NamedTuple

import msgpack

from protocol.card import Card, Seat, seat_party
from protocol.everyone_online import takes_presence
from protocol.party.party import Outgoing, Party, Step
from protocol.party.role import RECOMMENDER
from protocol.party.signing import make_signer
from protocol.party.view import PREAMBLE, Record, read_records
from protocol.schemes import SCHEMES
from protocol.wire.messages import Deadline
from sim.plan.churn import ChurnPlan
from support.basics import small_run

RUN_SEED = b"\x07" * 32
RUNS = [
    ("plain", "compact"),
    ("trusted", "compact"),
    ("direct", "compact"),
    ("masked", "compact"),
    ("masked", "paper"),
    ("dynamic", "compact"),
    ("dynamic", "paper"),
]


class Told(NamedTuple):
    """What a party was given, and what that caused."""

    how: str  # start, receive, tick
    given: tuple[Any, ...]
    records: tuple[bytes, ...]
    sends: tuple[Outgoing, ...]


class Troupe:
    def __init__(self, card: Card, seats: list[Seat], seed: int, loss: float, hurry: float) -> None:
        """Set the probabilities: `loss` that a frame is lost or comes twice, `hurry` that a deadline comes with it."""
        self.card = card
        self.seats = {seat.party: seat for seat in seats}
        self.parties: dict[str, Party] = {}
        self.views: dict[str, bytearray] = {}
        self.told: dict[str, list[Told]] = {seat.party: [] for seat in seats}
        self.rejected: Counter[str] = Counter()
        self._random, self._loss, self._hurry = random.Random(seed), loss, hurry
        self._waiting: dict[tuple[str, str], deque[bytes]] = {}
        self._timers: list[tuple[str, int]] = []
        self._plan = ChurnPlan(card.params.n_users, 0.2, 0.1, RUN_SEED) if takes_presence(card.scheme) else None
        for seat in seats:
            self.parties[seat.party], opening = seat_party(card, seat, with_view=True)
            self.views[seat.party] = bytearray(opening)

    def play(self) -> None:
        for name in self.parties:
            self._do(name, "start")
        self._happen(0)
        for _ in range(200_000):
            if all(party.done for party in self.parties.values()):
                return
            edges = [edge for edge, frames in self._waiting.items() if frames]
            if edges:
                self._deliver(*self._random.choice(edges))
            else:
                self._ask()
        raise AssertionError("the run does not end")

    def _deliver(self, sender: str, receiver: str) -> None:
        frame = self._waiting[sender, receiver].popleft()
        if self._random.random() < self._loss:
            return
        self._do(receiver, "receive", sender, frame)
        if self._random.random() < self._loss:
            self._do(receiver, "receive", sender, frame)
        if self._timers and self._random.random() < self._hurry:
            name, iteration = self._timers.pop()
            self._do(name, "tick", Deadline(iteration))

    def _ask(self) -> None:
        for name, party in self.parties.items():
            for out in [] if party.done else party.ask_again(peer for peer in self.parties if peer != name):
                self._waiting.setdefault((name, out.to), deque()).append(out.frame)

    def _happen(self, iteration: int) -> None:
        for name, event in self._plan.events(iteration) if self._plan else []:
            self._do(name, "tick", event)

    def _do(self, name: str, how: str, *given: Any) -> None:
        party = self.parties[name]
        before = party.role.iteration
        step: Step = getattr(party, how)(*given)
        assert step.abort is None
        if step.rejected:
            self.rejected[step.rejected.name] += 1
        if step.records:
            self.told[name].append(Told(how, given, tuple(step.records), tuple(step.sends)))
            self.views[name] += b"".join(step.records)
        older = self.derived(name, *step.wants) if step.wants else []
        for to, frame in [*older, *((out.to, out.frame) for out in step.sends)]:
            self._waiting.setdefault((name, to), deque()).append(frame)
        self._timers += [(name, iteration) for iteration in step.timers]
        if name == RECOMMENDER and party.role.iteration != before and before >= 0 and not party.done:
            self._happen(party.role.iteration)

    # --- what the run has left -------------------------------------------------------------------------------------

    def records(self, party: str) -> list[Record]:
        return read(bytes(self.views[party]))

    def frames(self, party: str) -> list[Outgoing]:
        """List what the party sent under numbers of its own, in order."""
        return numbered(out for told in self.told[party] for out in told.sends)

    def after(self, party: str, records: int) -> list[Told]:
        """List what the party was given, after its start, when its view already had `records` records."""
        later, number = [], 2  # after header and input
        for told in self.told[party]:
            if number >= records and told.how != "start":
                later.append(told)
            number += len(told.records)
        return later

    def derived(self, party: str, peer: str, first: int, end: int) -> list[tuple[str, bytes]]:
        """Derive from the view the frames with these numbers, which the party does not keep any more."""
        sent: list[Outgoing] = []
        self.fresh(party).replay(self.records(party)[2:], sent.append)
        return [(peer, out.frame) for out in sent if out.to == peer][first:end]

    def fresh(self, party: str, **changes: Any) -> Party:
        """Make the same party, before its first step."""
        return seat_party(self.card, dataclasses.replace(self.seats[party], **changes), with_view=True)[0]


def numbered(sends: Any) -> list[Outgoing]:
    return [out for out in sends if out.kind not in ("Again", "resend")]


@functools.cache
def played(scheme: str, wire: str = "compact", seed: int = 1, loss: float = 0.0, hurry: float = 0.0) -> Troupe:
    """Play the run of this seed to its end; every view is signed."""
    options = {"dropout_allowance": 0.5} if hurry and "dropout_allowance" in SCHEMES[scheme].options else {}
    users = 5 if scheme == "dynamic" else 4  # with churn, three must be there to commit
    card, seats = small_run(scheme, wire=wire, n_users=users, **options)
    signed = [dataclasses.replace(seat, signer=make_signer(RUN_SEED, seat.party)) for seat in seats]
    troupe = Troupe(card, signed, seed, loss, hurry)
    troupe.play()
    return troupe


# --- views by hand -------------------------------------------------------------------------------------------------


def read(view: bytes) -> list[Record]:
    return list(read_records(io.BytesIO(view)))


def contents(records: list[Record]) -> list[list[Any]]:
    return [[record.type, *record.fields] for record in records]


def chained(bodies: list[list[Any]]) -> list[Record]:
    """Make a view with these records and a chain that fits, and read it back."""
    view, head = bytearray(PREAMBLE), bytes(32)
    for body in bodies:
        packed = msgpack.packb(body)
        record = struct.pack("<I", len(packed)) + packed
        head = hashlib.sha256(head + record).digest()
        view += record + head
    return read(bytes(view))
