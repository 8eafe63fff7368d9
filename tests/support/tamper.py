"""Tools that alter the files of a run: single bytes, records, and whole chains that are built again and signed."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

from actors.journal import view_path
from actors.own_scheme import load_scheme
from protocol.party.signing import make_signer
from protocol.party.view import END, PREAMBLE, RECEIVED, SENT, SIGNED
from protocol.schemes import find_scheme
from sim.plan.config import RunConfig
from sim.plan.plan import run_seed_of
from sim.run.run import run
from sim.run.summary import anchor_of
from sim.views.verify import verify

SMALL = {"data": "synthetic:3x4:.6", "iterations": 2, "dim": 2, "seed": 1, "transport": "inprocess"}


def small_folder(folder: Path, **changes: Any) -> Path:
    """Make a run of three users, with two iterations if the scheme factorizes."""
    settings = {"scheme": "masked", **SMALL, **changes}
    load_scheme(settings["scheme"])
    if not find_scheme(settings["scheme"]).factorizes:
        settings = {name: value for name, value in settings.items() if name not in ("dim", "iterations")}
    summary = run(RunConfig(**settings), out=folder)
    assert summary["completed"]
    return folder


def copy_of(folder: Path, where: Path) -> Path:
    return Path(shutil.copytree(folder, where / "copy"))


def view_of(folder: Path, party: str) -> Path:
    return Path(view_path(str(folder), party))


def name_of(party: str) -> str:
    return f"views/{party.replace(':', '-')}.view"


def parties_of(folder: Path) -> list[str]:
    return list(json.loads((folder / "summary.json").read_text())["views"])


# --- records as bytes ------------------------------------------------------------------------------------------------


def split(view: bytes) -> list[bytes]:
    """Split a view into its records, as they are in the file."""
    assert view.startswith(PREAMBLE)
    records, at = [], len(PREAMBLE)
    while at < len(view):
        size = 4 + struct.unpack_from("<I", view, at)[0] + 32
        records.append(view[at : at + size])
        at += size
    return records


def joined(records: list[bytes]) -> bytes:
    return PREAMBLE + b"".join(records)


def bodies(folder: Path, party: str) -> list[list[Any]]:
    """Read every record of a view as [type, field, …]."""
    return [msgpack.unpackb(record[4:-32]) for record in split(view_of(folder, party).read_bytes())]


def rechain(raw_bodies: list[bytes]) -> list[bytes]:
    """Make a record of each body: its length, the body, and a hash that fits."""
    records, head = [], bytes(32)
    for body in raw_bodies:
        length = struct.pack("<I", len(body))
        head = hashlib.sha256(head + length + body).digest()
        records.append(length + body + head)
    return records


def rechained(contents: list[list[Any]]) -> list[bytes]:
    return rechain([msgpack.packb(body) for body in contents])


def rebuild(folder: Path, party: str, contents: list[list[Any]], seed: int = 1) -> None:
    """Write a view again: every hash fits, and a view with an end is signed with the key of its party."""
    kept = [body for body in contents if body[0] != SIGNED]
    records = rechained(kept)
    if any(body[0] == END for body in kept):
        signer = make_signer(run_seed_of(seed), party)
        signature = signer.sign(contents[0][1], party, len(records), records[-1][-32:])
        records = rechained([*kept, [SIGNED, signature]])
    view_of(folder, party).write_bytes(joined(records))


def altered(body: list[Any]) -> list[Any]:
    """Return the record with one value changed."""
    changed = list(body)
    if body[0] == SENT:
        changed[5] = other(body[5])
    elif body[0] == RECEIVED:
        changed[2] = other(body[2], len(body[2]) // 2)
    elif isinstance(body[1], dict):
        changed[1] = dict(body[1])
        key = "ratings" if "ratings" in body[1] else "tape_seed"
        changed[1][key] = other(body[1][key])
    elif isinstance(body[1], bytes):
        changed[1] = other(body[1])
    else:  # an event: [5, kind, number, …]
        changed[2] = 1 + body[2]
    assert changed != body
    return changed


def other(data: bytes, at: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# --- summary ---------------------------------------------------------------------------------------------------------


def edit_summary(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    change(summary)
    path.write_text(json.dumps(summary))


def adapt_summary(folder: Path) -> None:
    """Let the summary list the views as they are now."""

    def change(summary: dict[str, Any]) -> None:
        heads = {}
        for party in summary["views"]:
            records = split(view_of(folder, party).read_bytes())
            heads[party] = (len(records), records[-1][-32:])
        summary["views"] = {party: {"records": n, "head": head.hex()} for party, (n, head) in heads.items()}
        summary["anchor"] = anchor_of(heads)

    edit_summary(folder, change)


def last_held(folder: Path) -> dict[str, int]:
    """Find for each party its last sent record whose frame is also in the receiver's view."""
    contents = {party: bodies(folder, party) for party in parties_of(folder)}
    held = {body[2] for records in contents.values() for body in records if body[0] == RECEIVED}
    digests = {hashlib.sha256(frame).digest() for frame in held}
    return {
        party: max(number for number, body in enumerate(records) if body[0] == SENT and body[5] in digests)
        for party, records in contents.items()
    }


def findings(folder: Path) -> list[tuple[str, int | None, str]]:
    return [(row["file"], row["record"], row["what"]) for row in verify(folder)["findings"]]


def the_finding(folder: Path) -> tuple[str, int | None, str]:
    (found,) = findings(folder)
    return found
