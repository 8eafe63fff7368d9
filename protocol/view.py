"""A party's view: its input, its tape seed and every message it received, in order, in a hash chain. Bytes -> bytes.

The file is audit log, crash journal and replay script at once:

    magic, format version
    record 0      header: run id, party, scheme, parameter digest, simulation or not
    record 1      input: what the party brought, and its tape seed
    record 2…     received frames (whole), sent frames (digest: they can be derived again), refused frames, clock events
    last record   end: digest of the result, if the role finished

Each record is   length (u32) · body (msgpack) · hash,   hash_n = SHA-256(hash_{n-1} · length · body),
so that an altered, removed or reordered record is named by its number.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import msgpack

MAGIC = b"KEYHOLE-VIEW"
FORMAT = 1
PREAMBLE = MAGIC + struct.pack("<H", FORMAT)
HASH_BYTES = 32
MOST_RECORD_BYTES = 1 << 30

HEADER, INPUT, RECEIVED, SENT, REJECTED, EVENT, END = range(7)
TYPES = ("header", "input", "received", "sent", "rejected", "event", "end")


class Broken(Exception):
    """A view file is not what a party wrote."""


class CutOff(Broken):
    """The file ends inside a record: a crash, or a cut."""


@dataclass(frozen=True, slots=True)
class Header:
    run_id: bytes
    party: str
    scheme: str
    params_digest: bytes
    simulation: bool  # the seed was given, so masks repeat: not private


@dataclass(frozen=True, slots=True)
class Record:
    number: int
    type: int
    fields: list[Any]
    head: bytes


class ViewWriter:
    """Turns records into bytes to append, and keeps the head of the chain."""

    def __init__(self) -> None:
        self.head = bytes(HASH_BYTES)
        self.records = 0

    def resume(self, last: Record) -> None:
        """Go on behind this record."""
        self.head, self.records = last.head, last.number + 1

    def opening(self, header: Header, inputs: dict[str, Any]) -> bytes:
        fields = [header.run_id, header.party, header.scheme, header.params_digest, header.simulation]
        return PREAMBLE + self.record(HEADER, *fields) + self.record(INPUT, inputs)

    def record(self, type_: int, *fields: Any) -> bytes:
        body = msgpack.packb([type_, *fields])
        length = struct.pack("<I", len(body))
        chain = hashlib.sha256(self.head)
        chain.update(length)
        chain.update(body)
        self.head = chain.digest()
        self.records += 1
        return b"".join((length, body, self.head))

    def received(self, sender: str, frame: bytes) -> bytes:
        return self.record(RECEIVED, sender, frame)

    def sent(self, receiver: str, kind: str, iteration: int, frame: bytes) -> bytes:
        return self.record(SENT, receiver, kind, iteration, len(frame), hashlib.sha256(frame).digest())

    def rejected(self, sender: str, reason: str, frame: bytes, used_its_number: bool) -> bytes:
        digest = hashlib.sha256(frame).digest()
        return self.record(REJECTED, sender, reason, len(frame), digest, used_its_number)

    def event(self, kind: str, *fields: Any) -> bytes:
        return self.record(EVENT, kind, *fields)

    def end(self, result_digest: bytes) -> bytes:
        return self.record(END, result_digest)


def read_records(stream: BinaryIO) -> Iterator[Record]:
    """Record by record, each checked against the chain; `Broken` names the first that does not fit."""
    if stream.read(len(PREAMBLE)) != PREAMBLE:
        raise Broken("the file does not begin like a view of this format version")
    head, number = bytes(HASH_BYTES), 0
    while prefix := stream.read(4):
        body, stored = _body(stream, prefix, number)
        head = hashlib.sha256(head + prefix + body).digest()
        if head != stored:
            raise Broken(f"record {number} does not fit the hash chain")
        type_, *fields = _unpack(body, number)
        yield Record(number, type_, fields, head)
        number += 1


def read_whole_records(stream: BinaryIO) -> tuple[list[Record], int]:
    """What a crash left: every whole record, and where the last of them ends. Only the last may be cut off."""
    records: list[Record] = []
    end = len(PREAMBLE)
    try:
        for record in read_records(stream):
            records.append(record)
            end = stream.tell()
    except CutOff:
        pass
    return records, end


def _body(stream: BinaryIO, prefix: bytes, number: int) -> tuple[bytes, bytes]:
    if len(prefix) < 4:
        raise CutOff(f"record {number} is cut off")
    length = cast(int, struct.unpack("<I", prefix)[0])
    if length > MOST_RECORD_BYTES:
        raise Broken(f"record {number} claims {length} bytes")
    body, stored = stream.read(length), stream.read(HASH_BYTES)
    if len(body) < length or len(stored) < HASH_BYTES:
        raise CutOff(f"record {number} is cut off")
    return body, stored


def _unpack(body: bytes, number: int) -> list[Any]:
    try:
        fields = msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException):
        raise Broken(f"record {number} cannot be read") from None
    if type(fields) is not list or not fields or fields[0] not in range(len(TYPES)):
        raise Broken(f"record {number} is of no known type")
    return fields
