"""A party's view: its input, its tape seed and every message it received, in order, in a hash chain. Bytes -> bytes.

The file is audit log, crash journal and replay script at once:

    magic, format version
    record 0      header: run id, party, scheme, parameter digest, simulation or not, key of the signature
    record 1      input: the ratings of a user, and the tape seed
    record 2…     received frames (whole), sent frames (digest: they can be derived again), refused frames, events,
                  checkpoints (the state of the party: it follows from the records before it, and saves replaying them)
    the last two  end: digest of the result; signed: the party's signature under everything before; if the role finished

Each record is   length (u32) · body (msgpack) · hash,   hash_n = SHA-256(hash_{n-1} · length · body),
so that an altered, removed or reordered record is named by its number.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import msgpack

MAGIC = b"KEYHOLE-VIEW"
FORMAT = 3
PREAMBLE = MAGIC + struct.pack("<H", FORMAT)
HASH_BYTES = 32
MOST_RECORD_BYTES = 1 << 30
MOST_EVENT_BYTES = 1 << 23
MOST_CHECKPOINT_BYTES = 1 << 23  # of the state in it
_CHECKPOINT_HEAD = 32  # more than what a checkpoint is besides its state
_PEEK = 16  # bytes that hold the type of a record and an integer
_PREFIX = 4  # bytes of the length of a record
_AT_ONCE = 1 << 20  # bytes of a view that are read at once
MOST_FIELDS = 15  # of a record, and of a party's input: msgpack then states the number in the first byte

HEADER, INPUT, RECEIVED, SENT, REJECTED, EVENT, END, SIGNED, CHECKPOINT = range(9)
TYPES = ("header", "input", "received", "sent", "rejected", "event", "end", "signed", "checkpoint")
_FIELDS: dict[int, tuple[type, ...]] = {  # as the writer puts them; an event has its kind, then any fields
    HEADER: (bytes, str, str, bytes, bool, bytes),
    INPUT: (dict,),
    RECEIVED: (str, bytes),
    SENT: (str, str, int, int, bytes),
    REJECTED: (str, str, int, bytes, bool),
    END: (bytes,),
    SIGNED: (bytes,),
    CHECKPOINT: (int, bytes),
}


class Broken(Exception):
    """A view file is not what a party wrote."""


class CutOff(Broken):
    """The file ends inside a record, after a crash or because it was cut."""


class Differs(Broken):
    """The role, run again, does not do what its view says it did."""

    def __init__(self, number: int, what: str, derived: bytes = b"") -> None:
        super().__init__(f"record {number} {what}")
        self.number = number
        self.derived = derived  # the record that the role would have written; empty: none


@dataclass(frozen=True, slots=True)
class Header:
    run_id: bytes
    party: str
    scheme: str
    params_digest: bytes
    simulation: bool  # the seed was given, so masks repeat: not private
    signer: bytes = b""  # the public key under which the party signs its finished view


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

    def opening(self, header: Header, inputs: dict[str, Any]) -> bytes:
        return PREAMBLE + self.record(HEADER, *dataclasses.astuple(header)) + self.record(INPUT, inputs)

    def record(self, type_: int, *fields: Any) -> bytes:
        body = msgpack.packb([type_, *fields])
        record = b"".join((len(body).to_bytes(4, "little"), body))
        chain = hashlib.sha256(self.head)
        chain.update(record)
        self.head = chain.digest()
        self.records += 1
        return b"".join((record, self.head))

    def received(self, sender: str, frame: bytes) -> bytes:
        return self.record(RECEIVED, sender, frame)

    def sent(self, receiver: str, kind: str, iteration: int, frame: bytes) -> bytes:
        return self.record(SENT, receiver, kind, iteration, len(frame), hashlib.sha256(frame).digest())

    def rejected(self, sender: str, reason: str, frame: bytes, used_its_number: bool) -> bytes:
        digest = hashlib.sha256(frame).digest()
        return self.record(REJECTED, sender, reason, len(frame), digest, used_its_number)

    def event(self, kind: str, *fields: Any) -> bytes:
        return self.record(EVENT, kind, *fields)

    def checkpoint(self, iteration: int, state: bytes) -> bytes:
        return self.record(CHECKPOINT, iteration, state)

    def go_on_after(self, record: Record) -> None:
        """Continue the chain of a view in which `record` is the last."""
        self.head, self.records = record.head, record.number + 1

    def end(self, result_digest: bytes) -> bytes:
        return self.record(END, result_digest)

    def signed(self, signature: bytes) -> bytes:
        return self.record(SIGNED, signature)


def read_records(stream: BinaryIO, after: Record | None = None) -> Iterator[Record]:
    """Read record by record and check each against the chain; `Broken` names the first that does not fit.

    Begin at the first, or `after` a record that was checked, behind which `stream` stands.
    """
    if after is None and stream.read(len(PREAMBLE)) != PREAMBLE:
        raise Broken("the file does not begin like a view of this format version")
    head, number = (after.head, after.number + 1) if after else (bytes(HASH_BYTES), 0)
    size = _Size(stream)
    while prefix := stream.read(4):
        body, stored = _body(stream, prefix, number, size)
        head = hashlib.sha256(head + prefix + body).digest()
        if head != stored:
            raise Broken(f"record {number} does not fit the hash chain")
        type_, *fields = _unpack(body, number)
        yield Record(number, type_, fields, head)
        number += 1


class WholeRecords:
    """The whole records of a file after a crash; the last ends at `end`, the last checkpoint at `checkpoint`."""

    def __init__(self, stream: BinaryIO, after: Record | None = None) -> None:
        self._stream = stream
        self._after = after
        self.end = self.checkpoint = stream.tell() if after else len(PREAMBLE)

    def __iter__(self) -> Iterator[Record]:
        try:
            for record in read_records(self._stream, self._after):
                self.end = self._stream.tell()
                if record.type == CHECKPOINT:
                    self.checkpoint = self.end
                yield record
        except CutOff:  # which only the last record may be
            return


def skim(stream: BinaryIO) -> tuple[int, bytes]:
    """Find (number of whole records, head of the last) by the lengths alone, without any check."""
    stream.seek(0, 2)
    size = stream.tell()
    at, number, head = len(PREAMBLE), 0, bytes(HASH_BYTES)
    while at + 4 <= size:
        stream.seek(at)
        length = cast(int, struct.unpack("<I", stream.read(4))[0])
        at += 4 + length + HASH_BYTES
        if at > size or not length:  # no record is empty, but a file may be gigabytes of zeros
            break
        stream.seek(at - HASH_BYTES)
        number, head = number + 1, stream.read(HASH_BYTES)
    return number, head


def last_checkpoint(stream: BinaryIO, most: int) -> Record | None:
    """Find the last whole checkpoint of an iteration up to `most` by the lengths alone; nothing of it is checked yet.

    Its head is the one that stands in the file. It leaves `stream` at its beginning.
    """
    found = None
    for number, at, (data, place, length) in _bodies(stream):
        if data[place + 1] == CHECKPOINT and length <= MOST_CHECKPOINT_BYTES + _CHECKPOINT_HEAD:
            iteration = _peeked(data[place + 2 : place + _PEEK])
            found = (number, at, length) if iteration is not None and iteration <= most else found
    record = None
    if found is not None:
        number, at, length = found
        stream.seek(at)
        type_, *fields = _unpack(stream.read(length), number)
        record = Record(number, type_, fields, stream.read(HASH_BYTES))
    stream.seek(0)
    return record


def chained(stream: BinaryIO, last: Record, types: Container[int]) -> Iterator[Record]:
    """Check the records up to `last` against the chain, and yield those of these `types`; end behind `last`."""
    head = bytes(HASH_BYTES)
    for number, at, (data, place, length) in _bodies(stream):
        behind = place + length
        head = hashlib.sha256(head + data[place - _PREFIX : behind]).digest()
        if head != data[behind : behind + HASH_BYTES]:
            raise Broken(f"record {number} does not fit the hash chain")
        if data[place + 1] in types:
            type_, *fields = _unpack(data[place:behind], number)
            yield Record(number, type_, fields, head)
        if number == last.number and head == last.head:
            stream.seek(at + length + HASH_BYTES)
            return
    raise Broken(f"record {last.number} is not there any more")


def _bodies(stream: BinaryIO) -> Iterator[tuple[int, int, tuple[bytes, int, int]]]:
    """Yield (number, offset of the body, (bytes that hold it and its hash, its place in them, its length)) of every
    whole record, without any check; many are read at once.
    """
    size, number, at = stream.seek(0, 2), 0, len(PREAMBLE)
    stream.seek(at)
    data, place = b"", 0
    while at + _PREFIX + HASH_BYTES < size:
        if place + _PREFIX > len(data):
            data, place = data[place:] + stream.read(_AT_ONCE), 0
        length = int.from_bytes(data[place : place + _PREFIX], "little")
        whole = _PREFIX + length + HASH_BYTES
        if not 1 < length <= MOST_RECORD_BYTES or at + whole > size:
            return
        if place + whole > len(data):
            data, place = data[place:] + stream.read(max(_AT_ONCE, whole)), 0
        yield number, at + _PREFIX, (data, place + _PREFIX, length)
        number, at, place = number + 1, at + whole, place + whole


def _peeked(data: bytes) -> int | None:
    """Read the first of the values that begin `data`, if it is an integer."""
    reader = msgpack.Unpacker()
    reader.feed(data)
    try:
        value = reader.unpack()
    except (ValueError, msgpack.UnpackException):
        return None
    return value if type(value) is int else None


class _Size:
    """The end of a file, looked up again before a record is called cut off, because a view may still grow."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._end = 0

    def holds(self, count: int) -> bool:
        at = self._stream.tell()
        if at + count > self._end:
            self._end = self._stream.seek(0, 2)
            self._stream.seek(at)
        return at + count <= self._end


def _body(stream: BinaryIO, prefix: bytes, number: int, size: _Size) -> tuple[bytes, bytes]:
    if len(prefix) < 4:
        raise CutOff(f"record {number} is cut off")
    length = cast(int, struct.unpack("<I", prefix)[0])
    if length > MOST_RECORD_BYTES:
        raise Broken(f"record {number} claims {length} bytes")
    if not size.holds(length + HASH_BYTES):  # checked before memory is allocated
        raise CutOff(f"record {number} is cut off")
    body, stored = stream.read(length), stream.read(HASH_BYTES)
    if len(body) < length or len(stored) < HASH_BYTES:
        raise CutOff(f"record {number} is cut off")
    return body, stored


def _unpack(body: bytes, number: int) -> list[Any]:
    is_event = body[1:2] == bytes([EVENT])  # the one type with a list in it
    if is_event and len(body) > MOST_EVENT_BYTES:
        raise Broken(f"record {number} is an event of {len(body)} bytes")
    if body[1:2] == bytes([CHECKPOINT]) and len(body) > MOST_CHECKPOINT_BYTES + _CHECKPOINT_HEAD:
        raise Broken(f"record {number} is a checkpoint of {len(body)} bytes")
    try:
        fields = msgpack.unpackb(body, max_array_len=len(body) if is_event else MOST_FIELDS, max_map_len=MOST_FIELDS)
    except (ValueError, msgpack.UnpackException):
        raise Broken(f"record {number} cannot be read") from None
    if type(fields) is not list or not fields or type(fields[0]) is not int or fields[0] not in range(len(TYPES)):
        raise Broken(f"record {number} is of no known type")
    found = tuple(map(type, fields[1:]))
    if found != _FIELDS.get(fields[0], (str, *found[1:])):
        raise Broken(f"record {number} does not have the fields of its type")
    return fields
