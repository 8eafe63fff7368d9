"""Check one view, read once and record by record: chain, header, tape seed, order of records, signature, length."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from protocol.arrays import Ids
from protocol.errors import Reason
from protocol.party.signing import is_signed
from protocol.party.view import (
    END,
    HASH_BYTES,
    HEADER,
    INPUT,
    PREAMBLE,
    RECEIVED,
    REJECTED,
    SENT,
    SIGNED,
    Broken,
    CutOff,
    Record,
    read_records,
)
from protocol.wire.codec import head_in
from sim.views.evidence import Case, Report, is_input_of, is_well_formed
from sim.views.exchange import Exchange, Frame

OnBytes = Callable[[int], None]  # how many more bytes of views have been read

OFTEN = 512  # records between two reports of progress


@dataclass(frozen=True, slots=True)
class ViewDemand:
    """The requirements on one view that follow from the run's summary."""

    ended: bool = False  # it has its end and signature, and nothing of it is cut off
    records: int | None = None  # number that the summary states
    head: bytes = b""  # of the last of them
    disk_full: bool = False  # so the last records that the summary counts may be missing from the file


class ViewCheck:
    """The check of one view. Its first fault is reported; records after it are not compared with other views."""

    def __init__(self, case: Case, party: str, demand: ViewDemand, exchange: Exchange, report: Report) -> None:
        self._case = case
        self._party = party
        self._demand = demand
        self._exchange = exchange
        self._report = report
        self._file = case.file(party)
        self._signer = b""
        self._last = -1  # type of the previous record
        self._known_head = b""  # of the last record that the summary counts
        self.records = 0
        self.head = bytes(HASH_BYTES)
        self.end: bytes | None = None  # digest of the result
        self.sound = True
        self.whole = True  # the chain holds to the end of the file
        self.rejected: Counter[str] = Counter()
        self.items: Ids = np.empty(0, np.uint32)  # that this user rated

    @property
    def signed(self) -> bool:
        return self._last == SIGNED

    def read(self, stream: BinaryIO, on_bytes: OnBytes) -> None:
        at = 0
        try:
            for record in read_records(stream):
                if self.sound:
                    self._check(record)
                self._last, self.head, self.records = record.type, record.head, record.number + 1
                if self.records == self._demand.records:
                    self._known_head = record.head
                if self.records % OFTEN == 0:
                    at, before = stream.tell(), at
                    on_bytes(at - before)
        except CutOff:
            self._cut_off("is cut off")
        except Broken as broken:
            if self.records or not is_beginning(stream):
                self.whole = False
                words = str(broken).removeprefix(f"record {self.records} ")
                self._fault(None if words == str(broken) else self.records, words)
            else:
                self._cut_off("is cut off before its first record")
        else:
            self._check_length()
        on_bytes(stream.seek(0, os.SEEK_END) - at)
        self._exchange.close(self._party, self.sound)

    def _cut_off(self, words: str) -> None:
        if self._demand.ended:
            self.whole = False
            self._fault(self.records, words)
        else:
            self._report.notes.append(f"{self._file}, record {self.records}, {words}, as a crash leaves it.")
            self._check_length()

    def _fault(self, record: int | None, words: str) -> None:
        self.sound = False
        self._report.find(self._file, record, words)

    # --- record by record --------------------------------------------------------------------------------------------

    def _check(self, record: Record) -> None:
        words = self._misplaced(record) or self._malformed(record)
        if words is None and record.type in _CHECKS:
            words = _CHECKS[record.type](self, record)
        if words is not None:
            self._fault(record.number, words)

    def _misplaced(self, record: Record) -> str | None:
        if (record.number == 0) != (record.type == HEADER):
            return "is not a header" if record.number == 0 else "is a second header"
        if (record.number == 1) != (record.type == INPUT):
            return "is not what the party brought" if record.number == 1 else "says once more what the party brought"
        if self._last == SIGNED:
            return "stands behind the signature"
        if (self._last == END) != (record.type == SIGNED):
            return "stands behind the end" if self._last == END else "is a signature where the view has no end"
        return None

    def _malformed(self, record: Record) -> str | None:
        return None if is_well_formed(record) else "does not have the fields of its type"

    def _header(self, record: Record) -> str | None:
        self._signer = record.fields[-1]
        return self._case.header_fault(self._party, record.fields)

    def _input(self, record: Record) -> str | None:
        inputs = record.fields[0]
        if not is_input_of(self._party, inputs, self._case.card.params):
            return "is not what such a party brings"
        self.items = np.frombuffer(inputs.get("items", b""), "<u4").astype(np.uint32)
        fits = inputs["tape_seed"] == self._case.tape_seed(self._party)
        return None if fits else "has another tape seed than follows from the seed of the run"

    def _sent(self, record: Record) -> str | None:
        receiver, _, _, _, digest = record.fields
        return self._exchanged(self._party, receiver, Frame(digest, self.head, record.number))

    def _received(self, record: Record) -> str | None:
        sender, frame = record.fields
        digest = hashlib.sha256(frame).digest()
        return self._exchanged(sender, self._party, Frame(digest, head_in(frame), record.number))

    def _rejected(self, record: Record) -> str | None:
        sender, reason, _, digest, used_its_number = record.fields
        if reason not in Reason.__members__:
            return "refuses a frame for a reason that does not exist"
        self.rejected[reason] += 1
        if not used_its_number:
            return None
        return self._exchanged(sender, self._party, Frame(digest, None, record.number))

    def _exchanged(self, sender: str, receiver: str, frame: Frame) -> str | None:
        if not self._case.party_set.issuperset((sender, receiver)) or sender == receiver:
            return "names a party that does not exist"
        if self._party == sender:
            self._exchange.sent(sender, receiver, frame)
        else:
            self._exchange.received(sender, receiver, frame)
        return None

    def _end(self, record: Record) -> str | None:
        self.end = record.fields[0]
        return None

    def _signed(self, record: Record) -> str | None:
        statement = (self._case.card.run_id, self._party, record.number, self.head)
        return None if is_signed(self._signer, record.fields[0], *statement) else "is not this party's signature"

    # --- at its end --------------------------------------------------------------------------------------------------

    def _check_length(self) -> None:
        known = self._demand.records
        if not self.sound:
            return
        if known is not None and self.records < known:
            words = f"is missing: summary.json knows {known} records of this view"
            if self._demand.disk_full:
                self._report.notes.append(f"{self._file}, record {self.records}, {words}, but the disk was full.")
            else:
                self._fault(self.records, words)
        elif known is not None and self._known_head != self._demand.head:
            self._fault(known - 1, "is not the record that summary.json names as the last of this view")
        elif known is not None and self.records > known and self._demand.ended:
            self._fault(known, "stands behind the last record that summary.json knows")
        elif self._demand.ended and not self.signed:
            self._fault(self.records, "is missing: the view stops before its end and signature")


_CHECKS: dict[int, Callable[[ViewCheck, Record], str | None]] = {
    HEADER: ViewCheck._header,
    INPUT: ViewCheck._input,
    SENT: ViewCheck._sent,
    RECEIVED: ViewCheck._received,
    REJECTED: ViewCheck._rejected,
    END: ViewCheck._end,
    SIGNED: ViewCheck._signed,
}


def is_beginning(stream: BinaryIO) -> bool:
    """Tell whether the file ends within its preamble, and is correct up to there."""
    stream.seek(0)
    begun = stream.read(len(PREAMBLE))
    return len(begun) < len(PREAMBLE) and PREAMBLE.startswith(begun)
