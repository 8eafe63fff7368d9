"""The evidence that a coalition brings to an attack: the view files of its members, and nothing else.

The truth, against which a result is scored, is opened separately and afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from protocol.arithmetic.tape import Tape
from protocol.errors import Bug, Rejected
from protocol.party.party import iteration_of
from protocol.party.role import UserInput
from protocol.party.view import EVENT, INPUT, RECEIVED, Broken, Record, read_records
from protocol.wire.messages import Message
from sim.folder.folder import open_view
from sim.views.evidence import Case, is_input_of, is_well_formed, ratings_in


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One received message, of any kind including `Hello`."""

    record: int
    iteration: int  # −1: set-up
    sender: str
    message: Message
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Brought:
    """The input that a party brought to the run."""

    tape: Tape
    inputs: UserInput | None  # of a user


Stamp = tuple[int, int, int]  # size, time of the last change and number of a file


@dataclass(slots=True)
class Memory:
    """A cache of what was read of a case, so that views are checked and decoded once while their files stay the same.

    `room` bounds the bytes of files whose records are kept, and separately those of frames whose messages are kept.
    """

    room: int = 96 << 20
    records: dict[str, tuple[Stamp, list[Record]]] = field(default_factory=dict)
    seen: dict[tuple[str, bytes], Seen] = field(default_factory=dict)  # by party and head, which changes with the view
    _taken: int = 0
    _decoded: int = 0

    def fits(self, size: int) -> bool:
        """Tell whether a view of `size` bytes may be kept."""
        return self._taken + size <= self.room

    def keep(self, party: str, records: list[Record], stamp: Stamp) -> None:
        if party not in self.records and self.fits(stamp[0]):
            self.records[party] = stamp, records
            self._taken += stamp[0]

    def recall(self, party: str, stamp: Stamp) -> list[Record] | None:
        """Return the kept records of a view if `stamp` shows that its file has not changed since."""
        before, records = self.records.get(party, (None, []))
        if before is not None and before != stamp:  # the run went on, or the file was altered
            del self.records[party]
            self._taken -= before[0]
        return records if before == stamp else None

    def keep_seen(self, party: str, head: bytes, seen: Seen) -> None:
        """Keep a decoded message, whose arrays become read-only."""
        if self._decoded + seen.size <= self.room:
            for name in seen.message.__dataclass_fields__:
                value = getattr(seen.message, name)
                if isinstance(value, np.ndarray):
                    value.flags.writeable = False
            self.seen[party, head] = seen
            self._decoded += seen.size


_MEMORIES: WeakKeyDictionary[Case, Memory] = WeakKeyDictionary()  # not in the case itself, which is passed to workers


def memory_of(case: Case) -> Memory:
    return _MEMORIES.setdefault(case, Memory())


class Exhibits:
    """The views of some parties of a run, record by record; asking for another party's view is a bug in the caller."""

    def __init__(self, case: Case, members: tuple[str, ...]) -> None:
        self.case = case
        self.members = members

    def records(self, party: str) -> Iterator[Record]:
        """Yield the records of `party`, checked against the hash chain; `Broken` if the file was altered."""
        if party not in self.members:
            raise Bug(f"the view of {party} is not one of {'+'.join(self.members)}")
        memory = memory_of(self.case)
        with open_view(self.case.folder, party) as stream:
            status, read = os.fstat(stream.fileno()), list[Record]()
            stamp = status.st_size, status.st_mtime_ns, status.st_ino
            if (known := memory.recall(party, stamp)) is not None:
                yield from known
                return
            keep = memory.fits(status.st_size)
            for record in _named(read_records(stream), self.case.file(party)):
                if not is_well_formed(record):
                    raise Broken(f"record {record.number} of {party} does not have the fields of its type")
                if record.number == 0 and (fault := self.case.header_fault(party, record.fields)):
                    raise Broken(f"record 0 of {party} {fault}")
                if keep:
                    read.append(record)
                yield record
        if keep:
            memory.keep(party, read, stamp)

    def brought(self, party: str) -> Brought:
        for record in self.records(party):
            if record.type == INPUT:
                return read_input(self.case, party, record)
        raise Broken(f"the view of {party} does not say what it brought")

    def received(self, party: str, *kinds: str) -> Iterator[Seen]:
        """Yield the messages of these `kinds` that `party` received, or all of them."""
        for record in self.records(party):
            if record.type == RECEIVED:
                seen = read_message(self.case, party, record)
                if not kinds or type(seen.message).__name__ in kinds:
                    yield seen

    def events(self, party: str) -> Iterator[list[Any]]:
        """Yield [kind, field, …] of each event that reached `party` from outside the protocol."""
        for record in self.records(party):
            if record.type == EVENT:
                yield record.fields


def _named(records: Iterator[Record], file: str) -> Iterator[Record]:
    """Pass `records` on, and add the name of `file` to a fault in it."""
    try:
        yield from records
    except Broken as fault:
        raise type(fault)(f"{file}: {fault}") from None


def read_input(case: Case, party: str, record: Record) -> Brought:
    inputs = record.fields[0]
    if not is_input_of(party, inputs, case.card.params):
        raise Broken(f"record {record.number} of {party} is not what such a party brings")
    return Brought(Tape(inputs["tape_seed"]), ratings_in(inputs))


def read_message(case: Case, party: str, record: Record) -> Seen:
    memory = memory_of(case)
    if (known := memory.seen.get((party, record.head))) is not None:
        return known
    sender, frame = record.fields
    try:
        _, message = case.card.codec.decode(frame)
    except Rejected as refusal:
        raise Broken(f"record {record.number} of {party} cannot be read ({refusal.reason.name})") from None
    seen = Seen(record.number, iteration_of(message), sender, message, len(frame))
    memory.keep_seen(party, record.head, seen)
    return seen
