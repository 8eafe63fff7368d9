"""Faults on purpose, drawn from a seed: frames that are lost, doubled, late or damaged, parties that end, full disks.

Every decision is a function of (seed, party, incarnation, counters) alone: the nth frame from one party to another
meets the same fate however processes are scheduled. An incarnation is one life of a party: 0 until its first crash.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import Any

from actors.journal import Journal
from protocol.errors import Rejected
from protocol.party.party import Outgoing
from protocol.party.view import ViewWriter
from protocol.wire.codec import Codec, head_in

PHASES = ("before journal", "after journal", "after send")

AGAIN_FATES = ("drop", "duplicate", "delay", "corrupt")
FATES = (*AGAIN_FATES, "reorder", "stale", "future")
LONGEST_DELAY = 10  # ticks
CALM_AFTER = 10  # a later incarnation than this does not end by chance any more, so that every run comes to its end
CRASHES_PER_FRAME_FAULT = 0.01  # a step ends in one of its phases with this part of the rate
_REMEMBERED = 4  # earlier frames per receiver, for one that comes once more
_FLIPS = 8  # tries to damage a frame so that the codec sees it
_FAR = 1 << 20  # no run sends as many frames to one party, so that no true frame has such a number


@dataclass(frozen=True, slots=True)
class Crash:
    """The nth step (from 0) of this kind that this incarnation of the party takes is its last."""

    party: str
    kind: str  # `Step.kind`; "start" for the first step
    nth: int
    phase: str
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class DiskFull:
    """The write that would bring this party's view past so many records fails after `part` of its bytes."""

    party: str
    records: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong in a run: frames with probability `rate` each, single steps by chance, and what is listed."""

    seed: int = 0
    rate: float = 0.0
    crashes: tuple[Crash, ...] = ()
    full: tuple[DiskFull, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "rate": self.rate,
            "crashes": [list(dataclasses.astuple(crash)) for crash in self.crashes],
            "full": [list(dataclasses.astuple(full)) for full in self.full],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Faults:
        crashes = tuple(Crash(*crash) for crash in data["crashes"])
        return cls(data["seed"], data["rate"], crashes, tuple(DiskFull(*full) for full in data["full"]))

    def of(self, party: str, incarnation: int, codec: Codec) -> Mischief:
        return Mischief(self, party, incarnation, codec)


class Mischief:
    """What one incarnation of one party suffers."""

    def __init__(self, faults: Faults, party: str, incarnation: int, codec: Codec) -> None:
        self._rate = faults.rate
        self._life = f"{faults.seed} {party} {incarnation}"
        self._codec = codec
        self._by_chance = incarnation <= CALM_AFTER
        self._planned = frozenset(
            (crash.kind, crash.nth, crash.phase)
            for crash in faults.crashes
            if (crash.party, crash.incarnation) == (party, incarnation)
        )
        self._full = [full for full in faults.full if full.party == party] if incarnation == 0 else []
        self._steps: Counter[str] = Counter()  # by kind
        self._frames: Counter[str] = Counter()  # by receiver
        self._earlier: dict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._held: dict[str, bytes] = {}  # by receiver, until the next frame has left
        self.suffered: Counter[str] = Counter()  # frames by fate

    # --- frames --------------------------------------------------------------------------------------------------

    def deliver(self, out: Outgoing) -> list[tuple[int, bytes]]:
        """What really leaves: (ticks until it does, frame), in order; nothing if the frame is lost."""
        if not self._rate:
            return [(0, out.frame)]
        draw = self._draw(out.to, self._frames[out.to])
        self._frames[out.to] += 1
        held = self._held.pop(out.to, None)
        leaving = [(0, out.frame)]
        if draw.random() < self._rate:
            fate = draw.choice(AGAIN_FATES if out.kind == "Again" else FATES)
            self.suffered[fate] += 1
            leaving = self._befall(fate, out, draw)
        if out.kind != "Again":
            self._earlier[out.to].append(out.frame)
        return leaving if held is None else [*leaving, (0, held)]

    def _befall(self, fate: str, out: Outgoing, draw: random.Random) -> list[tuple[int, bytes]]:
        frame = out.frame
        if fate == "duplicate":
            return [(0, frame), (0, frame)]
        if fate == "delay":
            return [(draw.randint(1, LONGEST_DELAY), frame)]
        if fate == "corrupt":
            return [(0, corrupted(frame, self._codec, draw))]
        if fate == "stale":
            return [(0, frame), (0, draw.choice(self._earlier[out.to] or [frame]))]
        if fate == "future":
            return [(0, frame), (0, from_the_future(frame, self._codec, draw))]
        if fate == "reorder":
            self._held[out.to] = frame
        return []

    # --- crashes -------------------------------------------------------------------------------------------------

    def crashes(self, step_kind: str, phase: str) -> bool:
        """Does the party end here? Asked for each phase of each step that was accepted, in order."""
        if phase == PHASES[0]:
            self._steps[step_kind] += 1
        nth = self._steps[step_kind] - 1
        if (step_kind, nth, phase) in self._planned:
            return True
        chance = self._rate * CRASHES_PER_FRAME_FAULT if self._by_chance else 0.0
        return chance > 0 and self._draw("crash", step_kind, nth, phase).random() < chance

    # --- disk ----------------------------------------------------------------------------------------------------

    def journal(self, journal: Journal, view: ViewWriter) -> Journal:
        """This journal, or one whose disk is full when it is planned to be; a later incarnation's disk has space."""
        return FullJournal(journal, view, self._full) if self._full else journal

    def _draw(self, *about: object) -> random.Random:
        return random.Random(" ".join(map(str, (self._life, *about))))


class FullJournal(Journal):
    """A journal on a disk that is full from some record on."""

    def __init__(self, journal: Journal, view: ViewWriter, full: list[DiskFull]) -> None:
        self._journal = journal
        self._path, self._held = journal._path, []
        self._view = view
        self._full = min(full, key=lambda entry: entry.records)
        self._space: int | None = None  # in the write that does not fit

    def write(self, data: memoryview) -> int:
        if self._view.records <= self._full.records:  # it counts what this write holds
            return self._journal.write(data)
        if self._space is None:
            self._space = min(self._full.part, len(data) - 1)
        if not self._space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._journal.write(data[: self._space])
        self._space -= written
        return written

    def close(self) -> None:
        self._journal.close()


def corrupted(frame: bytes, codec: Codec, draw: random.Random) -> bytes:
    """The frame with one byte changed so that the codec refuses it, or else without its last byte.

    Not every change can be seen: a masked vector with another byte is another valid vector, and so is the head of
    another view. Refusing those is the work of CURVE, which authenticates every byte, and not of the codec.
    """
    for _ in range(_FLIPS):
        at, flip = draw.randrange(len(frame)), draw.randrange(1, 256)
        damaged = frame[:at] + bytes([frame[at] ^ flip]) + frame[at + 1 :]
        try:
            codec.decode(damaged)
        except Rejected:
            return damaged
    return frame[:-1]


def from_the_future(frame: bytes, codec: Codec, draw: random.Random) -> bytes:
    """The same message under a number that is far from being due."""
    sequence, message = codec.decode(frame)
    return codec.encode(message, sequence + _FAR + draw.randrange(_FAR), head_in(frame))
