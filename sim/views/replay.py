"""`keyhole replay`: run every role again from its own view alone, and compare the result byte for byte.

A seat is made from the input that the view records for its party; frames and events are handed in as they were
recorded; all that the role then writes and sends must reproduce the hash chain of the file. A view is streamed, never
loaded whole.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

from actors.blame import in_brief
from protocol.card import Seat, seat_party
from protocol.errors import BadInput
from protocol.party.party import Outgoing, Party
from protocol.party.role import Role
from protocol.party.view import (
    END,
    EVENT,
    HASH_BYTES,
    HEADER,
    INPUT,
    SENT,
    TYPES,
    Broken,
    Differs,
    Record,
    WholeRecords,
)
from sim.folder.folder import describe_platform, open_view, view_name
from sim.views import summary_claims
from sim.views.evidence import Case, Report, at_rest, is_input_of, is_well_formed, open_case, ratings_in
from sim.views.viewcheck import OFTEN, OnBytes, is_beginning


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a view and its replayed role differ."""

    record: int
    kind: str | None
    recorded: str | None  # digest of what the view has there
    derived: str | None  # digest of what the role does instead
    what: str
    broken: bool = True  # False: the file is whole, and its role does something else; another platform may explain that


class _Other(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.what)
        self.difference = difference


class PartyReplay:
    """The replay of one party from its view."""

    def __init__(self, case: Case, party: str, must_end: bool) -> None:
        self._case = case
        self._party = party
        self._must_end = must_end
        self._latest: Record | None = None
        self.records = 0  # that were identical
        self.frames = 0  # that the role sent again
        self.ended = False
        self.difference: Difference | None = None
        self.role: Role | None = None  # in its state at the end of the view

    def read(self, stream: BinaryIO, on_bytes: OnBytes) -> None:
        try:
            self._replay(self._follow(stream, on_bytes))
        except _Other as other:
            self.difference = other.difference
        except Differs as differs:
            self.difference = self._differs(differs)
        except Broken as broken:
            words = str(broken).removeprefix(f"record {self.records} ")
            if self._must_end or not is_beginning(stream):
                self.difference = Difference(self.records, None, None, None, words)
        except Exception as error:  # a role cannot fail on what it once accepted: the view was tampered with
            words = f"is nothing that this role can do ({in_brief(error)})"
            self.difference = self._at_latest(words)

    def _follow(self, stream: BinaryIO, on_bytes: OnBytes) -> Iterator[Record]:
        """Yield the whole records of the file; a record counts as identical once the next one is asked for."""
        at = 0
        for record in WholeRecords(stream):
            self._latest = record
            if not is_well_formed(record):
                raise _Other(self._at_latest("does not have the fields of its type"))
            yield record
            self.records = record.number + 1
            if self.records % OFTEN == 0:
                at, before = stream.tell(), at
                on_bytes(at - before)
        on_bytes(stream.seek(0, os.SEEK_END) - at)

    def _replay(self, records: Iterator[Record]) -> None:
        header, inputs = next(records, None), next(records, None)
        left: list[bytes] = []
        if header is not None:
            fault = self._case.header_fault(self._party, header.fields) if header.type == HEADER else "is not a header"
            if fault:
                raise _Other(Difference(0, TYPES[header.type], header.head.hex(), None, fault))
        if header is not None and inputs is not None:
            party = self._seat(inputs)
            left = party.replay(records, self._count).records
            self.ended = party.done and not left
        if self._must_end and not self.ended:
            kind, derived = _of_bytes(left[0]) if left else ("end", None)
            raise _Other(Difference(self.records, kind, None, derived, "is missing: the view stops before its end"))

    def _seat(self, record: Record) -> Party:
        inputs = record.fields[0]
        if record.type != INPUT or not is_input_of(self._party, inputs, self._case.card.params):
            raise _Other(self._at_latest("is not what such a party brings"))
        seat = Seat(self._party, inputs["tape_seed"], ratings_in(inputs), self._case.signer(self._party))
        party, opening = seat_party(self._case.card, seat, with_view=True)
        self.role = party.role
        if opening[-HASH_BYTES:] != record.head:
            raise _Other(Difference(1, "input", record.head.hex(), opening[-HASH_BYTES:].hex(), "is written otherwise"))
        return party

    def _count(self, sent: Outgoing) -> None:
        self.frames += 1

    def _differs(self, differs: Differs) -> Difference:
        assert self._latest is not None
        kind, recorded = _of(self._latest)
        derived_kind, derived = _of_bytes(differs.derived) if differs.derived else (None, None)
        words = str(differs).removeprefix(f"record {differs.number} ")
        if derived_kind not in (None, kind):
            words += f", which is {derived_kind}"
        if recorded == derived:  # the frames are the same, but the records differ elsewhere
            recorded, derived = self._latest.head.hex(), differs.derived[-HASH_BYTES:].hex()
        return Difference(differs.number, kind, recorded, derived, words, broken=False)

    def _at_latest(self, words: str) -> Difference:
        latest = self._latest
        if latest is None:
            return Difference(0, None, None, None, words)
        return Difference(latest.number, TYPES[latest.type], latest.head.hex(), None, words)


def _of_bytes(data: bytes) -> tuple[str, str]:
    """Give (kind, digest) of `data`, a record as it stands in a file: length, body, hash."""
    type_, *fields = msgpack.unpackb(data[4:-HASH_BYTES])
    return _of(Record(0, type_, fields, data[-HASH_BYTES:]))


def _of(record: Record) -> tuple[str, str]:
    """Give (kind, digest) of `record`; the digest is that of the frame sent, of the result, or of the record itself."""
    if record.type == SENT:
        return record.fields[1], record.fields[4].hex()
    if record.type == END:
        return TYPES[END], record.fields[0].hex()
    return record.fields[0] if record.type == EVENT else TYPES[record.type], record.head.hex()


# --- the run ---------------------------------------------------------------------------------------------------------


def replay(folder: Path, party: str | None = None, on_bytes: OnBytes = lambda count: None) -> dict[str, Any]:
    """Make the document that `keyhole replay --json` prints; `BadInput` if `folder` is no run or lacks such a view."""
    case = open_case(folder)
    with at_rest(folder):
        summary = summary_claims.read_summary(case, Report())  # its faults are not reported here
        rows = []
        for name in _parties(case, party):
            rerun = PartyReplay(case, name, summary.completed and name in summary.views)
            with open_view(folder, name) as stream:
                rerun.read(stream, on_bytes)
            rows.append(_row(name, rerun))
    return {
        "run": str(folder),
        "identical": all(row["identical"] for row in rows),
        "platform": "same" if case.platform == describe_platform() else "other",
        "parties": rows,
    }


def _parties(case: Case, party: str | None) -> list[str]:
    if party is not None:
        view_name(case.folder, party)
        if party not in case.party_set:
            raise BadInput(f"{case.folder} has no party {party}: the names are in {case.folder}/views.")
        return [party]
    there = [name for name in case.parties if case.path(name).is_file()]
    if not there:
        raise BadInput(f"{case.folder} has no views, so there is nothing to replay: see --views of keyhole run.")
    return there


def _row(party: str, rerun: PartyReplay) -> dict[str, Any]:
    found = rerun.difference
    first = None if found is None else {"party": party, **dataclasses.asdict(found)}
    return {
        "party": party,
        "records": rerun.records,
        "frames": rerun.frames,
        "ended": rerun.ended,
        "identical": found is None,
        "broken": first is not None and first.pop("broken"),
        "first_difference": first,
    }
