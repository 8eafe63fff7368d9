"""`keyhole view`: what a party saw, record by record, without loading the whole file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from protocol import view
from protocol.codec import NO_HEAD, Codec, head_in
from protocol.errors import Rejected
from protocol.messages import EVENTS, SETUP
from protocol.party import iteration_of
from sim.evidence import is_well_formed
from sim.folder import read_run, view_file

FIRST_VALUES = 4
Render = Callable[[Any], Any]

_SECRET = "secret of this party, not shown"
_NOTES = {"Again": ("sender", "received"), "Refused": ("reason", "count")}  # events that concern no role


def read_view(folder: Path, party: str, full: bool = False) -> Iterator[dict[str, Any]]:
    """Every record as a dictionary; `view.Broken` where the file is not what the party wrote in this run.

    `full`: arrays and keys with all their values.
    """
    _, card = read_run(folder)
    path = view_file(folder, party)
    expected = [card.run_id, party, card.scheme.name, card.params_digest]
    with path.open("rb") as stream:
        for record in view.read_records(stream):
            if not is_well_formed(record):
                raise view.Broken(f"record {record.number} does not have the fields of its type")
            if record.number == 0 and record.fields[:4] != expected:
                raise view.Broken(f"record 0 belongs to another run or party than {party}")
            yield describe(record, party, card.codec, entire if full else brief)


def select(
    records: Iterator[dict[str, Any]], iteration: int | None, kind: str | None, limit: int | None
) -> Iterator[dict[str, Any]]:
    count = 0
    for record in records:
        if iteration is not None and record["iteration"] != iteration:
            continue
        if kind is not None and kind not in (record["kind"], record["type"]):
            continue
        if limit is not None and count >= limit:
            return
        count += 1
        yield record


def describe(record: view.Record, party: str, codec: Codec, render: Render) -> dict[str, Any]:
    """One shape for all records: who sent it, which kind, how many bytes, and the fields by name."""
    entry: dict[str, Any] = {
        "record": record.number,
        "type": view.TYPES[record.type],
        "iteration": SETUP,
        "sender": None,
        "receiver": None,
        "kind": view.TYPES[record.type],
        "bytes": 0,
        "fields": {},
        "digest": None,
        "sender_head": None,  # of a received frame: where its sender's view stood
    }
    return entry | _DESCRIBERS[record.type](record.fields, party, codec, render)


def _header(fields: list[Any], party: str, codec: Codec, render: Render) -> dict[str, Any]:
    run_id, named, scheme, digest, simulation, signer = fields
    note = "simulation, not private" if simulation else "fresh seed"
    values = {"run_id": run_id.hex(), "party": named, "scheme": scheme, "params_digest": digest.hex(), "seed": note}
    return {"fields": values | {"signer": signer.hex()}}


def _input(fields: list[Any], party: str, codec: Codec, render: Render) -> dict[str, Any]:
    inputs = dict(fields[0])
    inputs["tape_seed"] = _SECRET
    if "items" in inputs:
        inputs["items"] = render(np.frombuffer(inputs["items"], "<u4"))
        inputs["ratings"] = render(np.frombuffer(inputs["ratings"], "<f8"))
    return {"receiver": party, "fields": inputs}


def _received(fields: list[Any], party: str, codec: Codec, render: Render) -> dict[str, Any]:
    sender, frame = fields
    entry = {"sender": sender, "receiver": party, "bytes": len(frame), "digest": hashlib.sha256(frame).hexdigest()}
    try:
        _, message = codec.decode(frame)
    except Rejected as refusal:  # the chain holds, so another version wrote it
        return entry | {"kind": "unreadable", "fields": {"reason": refusal.reason.name}}
    head = head_in(frame)
    entry["sender_head"] = None if head == NO_HEAD else head.hex()
    values = {field.name: render(getattr(message, field.name)) for field in dataclasses.fields(message)}
    return entry | {"kind": type(message).__name__, "iteration": iteration_of(message), "fields": values}


def _sent(fields: list[Any], party: str, codec: Codec, render: Render) -> dict[str, Any]:
    receiver, kind, iteration, size, digest = fields
    names = {"sender": party, "receiver": receiver, "kind": kind, "iteration": iteration}
    return names | {"bytes": size, "digest": digest.hex()}


def _rejected(fields: list[Any], party: str, codec: Codec, render: Render) -> dict[str, Any]:
    sender, reason, size, digest, used_its_number = fields
    values = {"reason": reason, "used_its_number": used_its_number}
    return {"sender": sender, "receiver": party, "bytes": size, "digest": digest.hex(), "fields": values}


def _event(fields: list[Any], party: str, codec: Codec, render: Render) -> dict[str, Any]:
    kind, *values = fields
    names = [field.name for field in dataclasses.fields(EVENTS[kind])] if kind in EVENTS else _NOTES.get(kind, ())
    named = dict(zip(names, values, strict=False))
    entry = {"receiver": party, "kind": kind, "fields": named, "sender": named.get("sender")}
    return entry | ({"iteration": values[0]} if "iteration" in names else {})


def _end(fields: list[Any], party: str, codec: Codec, render: Render) -> dict[str, Any]:
    return {"digest": fields[0].hex()}


def _signed(fields: list[Any], party: str, codec: Codec, render: Render) -> dict[str, Any]:
    return {"sender": party, "fields": {"signature": fields[0].hex()}}


_DESCRIBERS = {
    view.HEADER: _header,
    view.INPUT: _input,
    view.RECEIVED: _received,
    view.SENT: _sent,
    view.REJECTED: _rejected,
    view.EVENT: _event,
    view.END: _end,
    view.SIGNED: _signed,
}


def entire(value: Any) -> Any:
    """Every value; bytes in hexadecimal."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [entire(entry) for entry in value]
    return value.hex() if isinstance(value, bytes) else value


def brief(value: Any) -> Any:
    """Long vectors as shape, dtype and first values; keys only by their number and length."""
    if isinstance(value, np.ndarray):
        first = value.ravel()[:FIRST_VALUES].tolist()
        return {"shape": list(value.shape), "dtype": str(value.dtype), "first": first}
    if isinstance(value, tuple):
        return {"keys": len(value), "bytes_each": len(value[0]) if value else 0}
    return value.hex() if isinstance(value, bytes) else value
