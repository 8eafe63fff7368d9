"""What a coalition brings to an attack: the view files of its members, and nothing else.

The truth, against which a result is scored, is opened apart from it and afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.errors import Bug, Rejected
from protocol.messages import Message
from protocol.party import iteration_of
from protocol.roles import UserInput
from protocol.tape import Tape
from protocol.view import EVENT, INPUT, RECEIVED, Broken, Record, read_records
from sim.evidence import Case, is_input_of, is_well_formed
from sim.folder import open_view


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One received message; `Hello`s too."""

    record: int
    iteration: int  # −1: set-up
    sender: str
    message: Message
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Brought:
    """A party's own material."""

    tape: Tape
    inputs: UserInput | None  # of a user


class Exhibits:
    """The views of some parties of a run, record by record; asking for another party's is a bug of the asker."""

    def __init__(self, case: Case, members: tuple[str, ...]) -> None:
        self.case = case
        self.members = members

    def records(self, party: str) -> Iterator[Record]:
        """Checked against the hash chain; `Broken` where the file is not what the party wrote."""
        if party not in self.members:
            raise Bug(f"the view of {party} is not one of {'+'.join(self.members)}")
        with open_view(self.case.folder, party) as stream:
            for record in _named(read_records(stream), self.case.file(party)):
                if not is_well_formed(record):
                    raise Broken(f"record {record.number} of {party} does not have the fields of its type")
                if record.number == 0 and (fault := self.case.header_fault(party, record.fields)):
                    raise Broken(f"record 0 of {party} {fault}")
                yield record

    def brought(self, party: str) -> Brought:
        for record in self.records(party):
            if record.type == INPUT:
                return read_input(self.case, party, record)
        raise Broken(f"the view of {party} does not say what it brought")

    def received(self, party: str, *kinds: str) -> Iterator[Seen]:
        """Messages of these kinds, or all."""
        for record in self.records(party):
            if record.type == RECEIVED:
                seen = read_message(self.case, party, record)
                if not kinds or type(seen.message).__name__ in kinds:
                    yield seen

    def events(self, party: str) -> Iterator[list[Any]]:
        """[kind, field, …] of what reached the party from outside the protocol."""
        for record in self.records(party):
            if record.type == EVENT:
                yield record.fields


def _named(records: Iterator[Record], file: str) -> Iterator[Record]:
    """A fault in a file says in which."""
    try:
        yield from records
    except Broken as fault:
        raise type(fault)(f"{file}: {fault}") from None


def read_input(case: Case, party: str, record: Record) -> Brought:
    inputs = record.fields[0]
    if not is_input_of(party, inputs, case.card.params):
        raise Broken(f"record {record.number} of {party} is not what such a party brings")
    own = None
    if "items" in inputs:
        ratings = np.frombuffer(inputs["ratings"], "<f8").astype(np.float64)
        own = UserInput(np.frombuffer(inputs["items"], "<u4").astype(np.uint32), ratings)
    return Brought(Tape(inputs["tape_seed"]), own)


def read_message(case: Case, party: str, record: Record) -> Seen:
    sender, frame = record.fields
    try:
        _, message = case.card.codec.decode(frame)
    except Rejected as refusal:
        raise Broken(f"record {record.number} of {party} cannot be read ({refusal.reason.name})") from None
    return Seen(record.number, iteration_of(message), sender, message, len(frame))
