"""`keyhole view`: what a party saw, record by record, without loading the whole file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protocol.errors import Rejected
from protocol.params import Params, require
from protocol.party import view
from protocol.party.party import iteration_of
from protocol.wire.codec import NO_HEAD, Codec, head_in
from protocol.wire.fields import ItemsField, field_kinds
from protocol.wire.messages import EVENTS, SETUP
from sim.folder.folder import open_view, read_run
from sim.folder.unloaded import is_loaded, kind_of_frame
from sim.views.evidence import is_input_of, is_well_formed

FIRST_VALUES = 4
MOST_NAMES = 20  # in a sentence
Render = Callable[[Any], Any]

_SECRET = "secret of this party, not shown"
_NOTES = {"Again": ("sender", "received"), "Refused": ("reason", "count")}  # events that concern no role

# the unit of fields whose name says more than their kind (`fields.py`)
_NAMED_UNITS = {
    "iteration": "number",
    "attempt": "number",
    "received": "frames",
    "answer": "1: wants one",
    "wire_version": "number",
    "floors": "contributors, one count per item",
    "mask_key": "32-byte key",
    "digest": "32-byte digest",
    "params_digest": "32-byte digest",
    "run_id": "32-byte digest",
    "envelopes": "float32 envelopes, Exp(1)",
    "user_factors": "float32 factors",
}
_EVENT_UNITS = _NAMED_UNITS | {"online": "true: comes", "user": "user id"}
_INPUT_UNITS = {"items": ItemsField.unit, "ratings": "on the scale of the data"}


@dataclass(frozen=True, slots=True)
class Reader:
    """The settings by which the records of one party are shown."""

    party: str
    codec: Codec | None  # None: the scheme is not loaded, so its frames cannot be decoded
    params: Params
    render: Render

    def units(self, cls: type) -> dict[str, str]:
        """Name the unit of each field of the message `cls`."""
        fraction = str(self.params.fraction_bits)
        if (first := getattr(self.params, "first_fraction_bits", None)) is not None:
            fraction = f"{first} in round 0, 2^-{fraction} in round 1"
        modulus = "64 − 2^32 + 1" if self.params.ring_is_prime else str(self.params.ring_bits)
        figures = {"ring_bits": modulus, "factor_bits": self.params.factor_bits, "fraction": fraction}
        return {name: _NAMED_UNITS.get(name, kind.unit.format(**figures)) for name, kind in field_kinds(cls)}


def read_view(folder: Path, party: str, full: bool = False) -> Iterator[dict[str, Any]]:
    """Yield every record as a dictionary; `view.Broken` if the file is not what `party` wrote in this run.

    `full` gives arrays and keys with all their values.
    """
    _, card = read_run(folder, unloaded=True)
    expected = [card.run_id, party, card.scheme.name, card.params_digest]
    reader = Reader(party, card.codec if is_loaded(card) else None, card.params, entire if full else brief)
    with open_view(folder, party) as stream:
        for record in view.read_records(stream):
            if not is_well_formed(record):
                raise view.Broken(f"record {record.number} does not have the fields of its type")
            if record.number == 0 and record.fields[:4] != expected:
                raise view.Broken(f"record 0 belongs to another run or party than {party}")
            if record.type == view.INPUT and not is_input_of(party, record.fields[0], card.params):
                raise view.Broken(f"record {record.number} is not what such a party brings")
            yield describe(record, reader)


@dataclass(frozen=True, slots=True)
class Filter:
    """The records that are asked for; None accepts any value."""

    iteration: int | None = None
    kind: str | None = None  # of a message, or a type of record
    sender: str | None = None
    first: int = 0
    end: int | None = None  # the record before which to stop

    def takes(self, record: dict[str, Any]) -> bool:
        return (
            record["record"] >= self.first
            and self.iteration in (None, record["iteration"])
            and self.kind in (None, record["kind"], record["type"])
            and self.sender in (None, record["sender"])
        )


class Selection:
    """The records that a filter takes, at most `limit` of them, with a note of what else the view has.

    Only one record and the names of what was seen are held in memory, however long the view is.
    """

    def __init__(self, records: Iterator[dict[str, Any]], wanted: Filter, limit: int | None = None) -> None:
        self._records = records
        self._wanted = wanted
        self._limit = limit
        self.shown = 0
        self.next_record: int | None = None  # the first that the limit left out
        self._seen: dict[str, dict[Any, None]] = {"kind": {}, "iteration": {}, "sender": {}}
        self._last = -1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for record in self._taken():
            if self._limit is not None and self.shown >= self._limit:
                self.next_record = record["record"]
                return
            self.shown += 1
            yield record

    def _taken(self) -> Iterator[dict[str, Any]]:
        for record in self._records:
            if self._wanted.end is not None and record["record"] >= self._wanted.end:
                return
            self._last = record["record"]
            for name, values in self._seen.items():
                values.setdefault(record[name])
            if self._wanted.takes(record):
                yield record

    def count_further(self, records: int) -> int:
        """Count what the limit left out of a view of `records` records, reading on only if there is a filter."""
        assert self.next_record is not None
        wanted = self._wanted
        if (wanted.iteration, wanted.kind, wanted.sender) == (None, None, None):
            return min(records, wanted.end or records) - self.next_record
        return 1 + sum(1 for _ in self._taken())

    def nothing(self, party: str) -> str:
        """Explain to the reader that nothing matched, and what the view of `party` has instead."""
        kinds, senders = (_listed([value for value in self._seen[name] if value]) for name in ("kind", "sender"))
        numbers = sorted(t for t in self._seen["iteration"] if t is not None and t >= 0)
        iterations = f"{numbers[0]} to {numbers[-1]} and -1, the set-up" if numbers else "only -1, the set-up"
        if self._last < self._wanted.first:
            return f"The view of {party} ends with record {self._last}: ask for earlier ones with --records A:B."
        found = {"kind": kinds, "sender": senders, "iteration": iterations}
        asked = [name for name in found if getattr(self._wanted, name) is not None]
        there = "; ".join(f"{name}s: {found[name]}" for name in asked)
        return f"No record of {party} is what you ask for; there are these {there}."


def _listed(names: list[str]) -> str:
    few = ", ".join(names[:MOST_NAMES])
    return few if len(names) <= MOST_NAMES else f"{few} … ({len(names)} in all)"


def count_records(folder: Path, party: str) -> int:
    """Count the records by their lengths alone, which is fast for a view of any size; nothing is checked."""
    with open_view(folder, party) as stream:
        return view.skim(stream)[0]


def parse_records(text: str) -> tuple[int, int | None]:
    """Parse `A:B`, from record A up to but without B; either may be left out."""
    first, colon, end = text.partition(":")
    numbers = [first or "0", end or "0"]
    require(
        bool(colon) and all(number.isdecimal() and len(number) < 19 for number in numbers),
        f"--records must be A:B, such as 100:150, not {text!r}.",
    )
    require(not end or int(numbers[0]) < int(end), f"--records {text} are none: the second number must be larger.")
    return int(numbers[0]), int(end) if end else None


def describe(record: view.Record, reader: Reader) -> dict[str, Any]:
    """Describe a record of any type in one form: sender, receiver, kind, bytes, and the fields by name."""
    entry: dict[str, Any] = {
        "record": record.number,
        "type": view.TYPES[record.type],
        "iteration": SETUP,
        "sender": None,
        "receiver": None,
        "kind": view.TYPES[record.type],
        "bytes": 0,
        "fields": {},
        "units": {},
        "digest": None,
        "sender_head": None,  # of a received frame: the head of its sender's view
    }
    return entry | _DESCRIBERS[record.type](record.fields, reader)


def _header(fields: list[Any], reader: Reader) -> dict[str, Any]:
    run_id, named, scheme, digest, simulation, signer = fields
    note = "simulation, not private" if simulation else "fresh seed"
    values = {"run_id": run_id.hex(), "party": named, "scheme": scheme, "params_digest": digest.hex(), "seed": note}
    return {"fields": values | {"signer": signer.hex()}}


def _input(fields: list[Any], reader: Reader) -> dict[str, Any]:
    inputs = dict(fields[0])
    inputs["tape_seed"] = _SECRET
    if "items" in inputs:
        inputs["items"] = reader.render(np.frombuffer(inputs["items"], "<u4"))
        inputs["ratings"] = reader.render(np.frombuffer(inputs["ratings"], "<f8"))
    units = _INPUT_UNITS if "items" in inputs else {}
    return {"receiver": reader.party, "fields": inputs, "units": units}


def _received(fields: list[Any], reader: Reader) -> dict[str, Any]:
    sender, frame = fields
    entry = {
        "sender": sender,
        "receiver": reader.party,
        "bytes": len(frame),
        "digest": hashlib.sha256(frame).hexdigest(),
    }
    if reader.codec is None:
        return entry | {"kind": kind_of_frame(frame), "iteration": None}
    try:
        _, message = reader.codec.decode(frame)
    except Rejected as refusal:  # the chain holds, so another version wrote it
        return entry | {"kind": "unreadable", "fields": {"reason": refusal.reason.name}}
    head = head_in(frame)
    entry["sender_head"] = None if head == NO_HEAD else head.hex()
    values = {field.name: reader.render(getattr(message, field.name)) for field in dataclasses.fields(message)}
    what = {"kind": type(message).__name__, "iteration": iteration_of(message), "fields": values}
    return entry | what | {"units": reader.units(type(message))}


def _sent(fields: list[Any], reader: Reader) -> dict[str, Any]:
    receiver, kind, iteration, size, digest = fields
    names = {"sender": reader.party, "receiver": receiver, "kind": kind, "iteration": iteration}
    return names | {"bytes": size, "digest": digest.hex()}


def _rejected(fields: list[Any], reader: Reader) -> dict[str, Any]:
    sender, reason, size, digest, used_its_number = fields
    values = {"reason": reason, "used_its_number": used_its_number}
    return {"sender": sender, "receiver": reader.party, "bytes": size, "digest": digest.hex(), "fields": values}


def _event(fields: list[Any], reader: Reader) -> dict[str, Any]:
    kind, *values = fields
    names = [field.name for field in dataclasses.fields(EVENTS[kind])] if kind in EVENTS else _NOTES.get(kind, ())
    named = dict(zip(names, values, strict=False))
    units = {name: _EVENT_UNITS[name] for name in named if name in _EVENT_UNITS}
    entry = {"receiver": reader.party, "kind": kind, "fields": named, "units": units, "sender": named.get("sender")}
    return entry | ({"iteration": values[0]} if "iteration" in names else {})


def _end(fields: list[Any], reader: Reader) -> dict[str, Any]:
    return {"digest": fields[0].hex()}


def _signed(fields: list[Any], reader: Reader) -> dict[str, Any]:
    return {"sender": reader.party, "fields": {"signature": fields[0].hex()}}


def _checkpoint(fields: list[Any], reader: Reader) -> dict[str, Any]:
    iteration, state = fields
    digest = hashlib.sha256(state).hexdigest()
    return {"iteration": iteration, "digest": digest, "fields": {"state": _SECRET, "state_bytes": len(state)}}


_DESCRIBERS = {
    view.HEADER: _header,
    view.INPUT: _input,
    view.RECEIVED: _received,
    view.SENT: _sent,
    view.REJECTED: _rejected,
    view.EVENT: _event,
    view.END: _end,
    view.SIGNED: _signed,
    view.CHECKPOINT: _checkpoint,
}


def entire(value: Any) -> Any:
    """Render `value` in full, with bytes in hexadecimal."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [entire(entry) for entry in value]
    return value.hex() if isinstance(value, bytes) else value


def brief(value: Any) -> Any:
    """Render long vectors as shape, dtype and first values, and keys only by their number and length."""
    if isinstance(value, np.ndarray):
        first = value.ravel()[:FIRST_VALUES].tolist()
        return {"shape": list(value.shape), "dtype": str(value.dtype), "first": first}
    if isinstance(value, tuple):
        return {"keys": len(value), "bytes_each": len(value[0]) if value else 0}
    return value.hex() if isinstance(value, bytes) else value
