"""Injected faults, drawn from a seed: frames that are lost, doubled, late or damaged, parties that crash, full disks.

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
from actors.stage import Performer
from protocol.errors import Rejected
from protocol.party.party import Outgoing, Step
from protocol.party.view import ViewWriter
from protocol.wire.codec import Codec, head_in

PHASES = ("before journal", "after journal", "after send")

AGAIN_FATES = ("drop", "duplicate", "delay", "corrupt")
FATES = (*AGAIN_FATES, "reorder", "stale", "future")
LONGEST_DELAY = 10  # ticks
CALM_AFTER = 10  # later incarnations do not crash by chance, so that every run ends
CRASHES_PER_FRAME_FAULT = 0.01  # times the rate: the probability of a crash in each phase of a step
_REMEMBERED = 4  # earlier frames per receiver, from which a stale one is drawn
_FLIPS = 8  # attempts to damage a frame so that the codec refuses it
_FAR = 1 << 20  # no run sends this many frames to one party, so no true frame has such a number


@dataclass(frozen=True, slots=True)
class Crash:
    """A planned crash of `party` in `phase` of the `nth` step (from 0) of this `kind` that `incarnation` takes."""

    party: str
    kind: str  # `Step.kind`; "start" for the first step
    nth: int
    phase: str
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class DiskFull:
    """A planned failure of the write that would bring the party's view past `records`, after `part` of its bytes."""

    party: str
    records: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a run: each frame with probability `rate`, crashes by chance, and the planned ones."""

    seed: int = 0
    rate: float = 0.0
    crashes: tuple[Crash, ...] = ()
    full: tuple[DiskFull, ...] = ()

    def to_list(self) -> list[Any]:
        return list(dataclasses.astuple(self))

    @classmethod
    def from_list(cls, data: list[Any]) -> Faults:
        seed, rate, crashes, full = data
        return cls(seed, rate, tuple(Crash(*crash) for crash in crashes), tuple(DiskFull(*one) for one in full))

    def of(self, party: str, incarnation: int, codec: Codec) -> Mischief:
        return Mischief(self, party, incarnation, codec)


class Mischief:
    """The faults of one incarnation of one party."""

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
        """Draw the fate of `out` and list the frames that leave, as (delay in ticks, frame); none if it is lost."""
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
        """Tell whether the party crashes in `phase` of a step; call it for all phases of accepted steps, in order."""
        if phase == PHASES[0]:
            self._steps[step_kind] += 1
        nth = self._steps[step_kind] - 1
        if (step_kind, nth, phase) in self._planned:
            return True
        chance = self._rate * CRASHES_PER_FRAME_FAULT if self._by_chance else 0.0
        return chance > 0 and self._draw("crash", step_kind, nth, phase).random() < chance

    # --- disk ----------------------------------------------------------------------------------------------------

    def journal(self, journal: Journal, view: ViewWriter) -> Journal:
        """Return `journal`, or one whose disk fills up as planned; the disk of a later incarnation has space."""
        return FullJournal(journal, view, self._full) if self._full else journal

    def _draw(self, *about: object) -> random.Random:
        return random.Random(" ".join(map(str, (self._life, *about))))


class FullJournal(Journal):
    """A journal on a disk that fills up at a planned record."""

    def __init__(self, journal: Journal, view: ViewWriter, full: list[DiskFull]) -> None:
        self._journal = journal
        self._path, self._held, self.since_checkpoint = journal._path, [], journal.since_checkpoint
        self._view = view
        self._full = min(full, key=lambda entry: entry.records)
        self._space: int | None = None  # bytes left for the write that does not fit

    def write(self, data: memoryview) -> int:
        if self._view.records <= self._full.records:  # the view has counted the records of this write
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


class Sufferer(Performer):
    """A performer that faults befall; a driver's subclass says how a party crashes and how a frame is delayed."""

    mischief: Mischief

    def keep(self, journal: Journal) -> None:
        assert self.party.view is not None
        super().keep(self.mischief.journal(journal, self.party.view))

    def write(self, step: Step) -> None:
        self._crash_in(PHASES[0], step)
        super().write(step)
        if self.journal:
            self.journal.flush()
        self._crash_in(PHASES[1], step)

    def send(self, step: Step) -> None:
        super().send(step)
        self._crash_in(PHASES[2], step)

    def _crash_in(self, phase: str, step: Step) -> None:
        """Crash if that is planned; a party that keeps no view could not resume."""
        if self.path is not None and step.rejected is None and self.mischief.crashes(step.kind, phase):
            self.crash(phase, step)

    def leave(self, out: Outgoing) -> None:
        leaving = self.mischief.deliver(out)
        self.figures.sent(out)
        self.figures.suffered(out, [frame for _, frame in leaving])
        for ticks, frame in leaving:
            self.delay(ticks, out.to, frame)

    def crash(self, phase: str, step: Step) -> None:
        raise NotImplementedError

    def delay(self, ticks: int, to: str, frame: bytes) -> None:
        """Hand `frame` over after `ticks`, at once if that is 0."""
        raise NotImplementedError


def corrupted(frame: bytes, codec: Codec, draw: random.Random) -> bytes:
    """Change one byte of `frame` so that `codec` refuses it, or else drop its last byte.

    The codec cannot detect every change: a masked vector or the head of a view with another byte is valid too. CURVE
    refuses those, because it authenticates every byte.
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
    """Encode the message of `frame` again under a sequence number far beyond any that is due."""
    sequence, message = codec.decode(frame)
    return codec.encode(message, sequence + _FAR + draw.randrange(_FAR), head_in(frame))
