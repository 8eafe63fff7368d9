"""Start the processes of `actors/bare_frames.py`, and compare what they moved with what the real ones moved."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgpack

from actors.bare_frames import KINDS, BareSizes
from actors.launch.forkserver import python_running
from actors.transport.zeromq import make_key_pair
from protocol.errors import Aborted, Bug, Reason
from protocol.wire.framing import HEAD_BYTES

HELLO_FRAME = len(msgpack.packb([0, 0, 1, bytes(32), bytes(32)])) + HEAD_BYTES
Frames = list[list[int]]  # for every iteration the bytes of a frame of each of `KINDS`
Received = dict[str, list[int]]  # by kind, frames and bytes
_SECONDS = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class BareRun:
    seconds: list[float]  # of every iteration, as its recommender measures them
    received: Received
    startup: float  # until the last user is heard, including the start of an interpreter
    loading: float  # the part of `startup` until the first fork


def run_floor(users: int, users_per_process: int, frames: Frames) -> BareRun:
    """Move these `frames` once with fresh processes, and measure that."""
    layout = _layout(users, users_per_process, frames)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}  # as for the actors
    packed = msgpack.packb(dataclasses.asdict(layout))
    command, patience = python_running("actors.bare_frames"), _SECONDS + len(frames)
    began = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(packed, timeout=patience)
        except subprocess.TimeoutExpired:
            words = f"the processes of the floor have not moved their {len(frames)} iterations in {patience:.0f} s"
            raise Aborted(Reason.STALLED, words) from None
        finally:
            process.kill()  # its children end with it
    if not output:
        raise Bug("The processes of the floor did not complete.")
    told = json.loads(output)
    return BareRun(told["seconds"], told["received"], told["joined"] - began, told["loaded"] - began)


def _layout(users: int, users_per_process: int, frames: Frames) -> BareSizes:
    keys = [make_key_pair() for _ in range(users + 2)]
    pairs = [[pair.public, pair.secret] for pair in keys]
    return BareSizes(users, users_per_process, HELLO_FRAME, frames, pairs[2:], pairs[:2])


def compare(moved: Received, wanted: Received) -> None:
    """Check that both sides moved the same frames: otherwise one is not a floor for the other."""
    for kind in KINDS:
        if moved.get(kind, [0, 0]) != wanted.get(kind, [0, 0]):
            raise Bug(f"The floor moved {moved.get(kind)} frames and bytes of {kind}, and a run {wanted.get(kind)}.")


# --- what a run moved ------------------------------------------------------------------------------------------------


def moved_by(lines: Iterable[dict[str, Any]]) -> Received:
    """Count frames and payload bytes of the iterations, as the servers metered them (lines of iterations.jsonl)."""
    frames, size = Counter[str](), Counter[str]()
    for line in lines:
        for iteration, _, _, kind, messages, payload, _ in line["rows"]:
            if iteration == line["iteration"] >= 0:
                frames[kind] += messages
                size[kind] += payload
    return {kind: [frames[kind], size[kind]] for kind in frames}


def frames_of(lines: Iterable[dict[str, Any]]) -> Frames:
    """Return the size of a frame of each kind, for every iteration; all users must have rated equally many items."""
    found = []
    for line in (line for line in lines if line["iteration"] >= 0):
        rows = {row[3]: row[4:6] for row in line["rows"] if row[0] == line["iteration"]}
        if set(rows) != set(KINDS):
            raise Bug(f"An iteration has frames of {', '.join(sorted(rows))}, and the floor moves {', '.join(KINDS)}.")
        if any(payload % messages for messages, payload in rows.values()):
            raise Bug("The frames of one kind have different sizes in one iteration, which the floor cannot move.")
        found.append([rows[kind][1] // rows[kind][0] for kind in KINDS])
    return found
