"""Compare two views of the same frames: the kth that B took from A is the kth that A sent to B, in bytes and head.

A frame ends with the head of its sender's view just before it was sent. So a view that is built anew, even with a chain
and a signature that fit, still contradicts the views of all parties to which it has sent frames since.

Of each frame 69 bytes are kept in memory until the other side has been read, a small part of what the view holds.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from dataclasses import dataclass

from protocol.wire.codec import NO_HEAD
from sim.views.evidence import Case, Report

_ENTRY = struct.Struct("<32s32s?I")

Edge = tuple[str, str]  # sender, receiver
Place = tuple[str, int]  # the record of a party's view


@dataclass(frozen=True, slots=True)
class Frame:
    digest: bytes
    head: bytes | None  # of the sender's view before it; None: only the digest was kept
    record: int  # that holds it

    def pack(self) -> bytes:
        return _ENTRY.pack(self.digest, self.head or NO_HEAD, self.head is not None, self.record)


class Exchange:
    def __init__(self, case: Case, report: Report) -> None:
        self._case = case
        self._report = report
        self._frames: dict[Edge, bytearray] = {}  # as the side that was read first has them
        self._awaiting: defaultdict[str, list[Edge]] = defaultdict(list)  # by the party that is the other side
        self._met: Counter[Edge] = Counter()  # how many of them the other side has too
        self._settled: set[Edge] = set()  # a difference was found: what follows it says nothing new
        self._read: dict[str, bool] = {}  # parties whose views have been read; whether all of the view could be used
        self._agreed: dict[str, int] = {}  # by sender, the latest record before which others know its head
        self._other_heads: dict[str, tuple[int, Place]] = {}  # by sender: its record, and where the frame was received
        self._unknown: dict[str, Place] = {}  # by sender, a frame of which it has no record

    def sent(self, sender: str, receiver: str, frame: Frame) -> None:
        edge = (sender, receiver)
        if receiver not in self._case.kept:
            return
        if receiver not in self._read:
            self._remember(edge, frame, receiver)
        elif theirs := self._next(edge):
            self._compare(edge, frame, theirs)

    def received(self, sender: str, receiver: str, frame: Frame) -> None:
        edge = (sender, receiver)
        if sender not in self._case.kept:
            if frame.head not in (None, NO_HEAD):
                words = f"carries the head of a view of {sender}, of which run.toml says that none was kept"
                self._find_once(edge, receiver, frame.record, words)
        elif sender not in self._read:
            self._remember(edge, frame, sender)
        elif theirs := self._next(edge):
            self._compare(edge, theirs, frame)
        elif self._read[sender]:
            self._unknown.setdefault(sender, (receiver, frame.record))

    def close(self, party: str, usable: bool) -> None:
        """Finish the view of `party`; if it is not `usable`, its end is not the party's end, so nothing is missing."""
        for edge in self._awaiting.pop(party, ()):
            if usable and edge[0] == party:
                self._find_unknown(edge)
            del self._frames[edge]
        self._read[party] = usable

    def conclude(self, records: dict[str, int]) -> None:
        """Report what is left after all views have been read; `records` is the number of records of each."""
        for party, edges in self._awaiting.items():  # parties whose views are missing
            for edge in edges:
                if edge[0] == party:
                    self._find_unknown(edge)
        for sender, (sent, holder) in self._other_heads.items():
            self._find_other_head(sender, sent, holder)
        for sender, holder in self._unknown.items():
            words = f"is missing, though {self._name(holder)} holds a frame of this party"
            if sender in records:
                words = f"is missing: {self._name(holder)} holds a frame that this view does not know"
            self._report.find(self._case.file(sender), records.get(sender), words)

    # --- frame by frame ----------------------------------------------------------------------------------------------

    def _remember(self, edge: Edge, frame: Frame, other: str) -> None:
        if edge not in self._frames:
            self._frames[edge] = bytearray()
            self._awaiting[other].append(edge)
        self._frames[edge] += frame.pack()

    def _next(self, edge: Edge) -> Frame | None:
        """Take the next frame that the other side has of `edge` beyond those compared so far."""
        frames, at = self._frames.get(edge, b""), _ENTRY.size * self._met[edge]
        if at >= len(frames):
            return None
        digest, head, known, record = _ENTRY.unpack_from(frames, at)
        self._met[edge] += 1
        return Frame(digest, head if known else None, record)

    def _compare(self, edge: Edge, sent: Frame, received: Frame) -> None:
        sender, receiver = edge
        if edge in self._settled:
            return
        if sent.digest != received.digest:
            words = f"is not the frame that {self._case.file(sender)}, record {sent.record}, says was sent"
            self._find_once(edge, receiver, received.record, words)
        elif received.head is None:
            return
        elif received.head == sent.head:
            self._agreed[sender] = max(sent.record, self._agreed.get(sender, 0))
        else:
            self._settled.add(edge)
            if sender not in self._other_heads or sent.record < self._other_heads[sender][0]:
                self._other_heads[sender] = sent.record, (receiver, received.record)

    def _find_unknown(self, edge: Edge) -> None:
        """Note the first frame that the receiver has beyond all that the sender says it sent."""
        if left := self._next(edge):
            self._unknown.setdefault(edge[0], (edge[1], left.record))

    def _find_once(self, edge: Edge, holder: str, record: int, words: str) -> None:
        if edge not in self._settled:
            self._settled.add(edge)
            self._report.find(self._case.file(holder), record, words)

    def _find_other_head(self, sender: str, sent: int, holder: Place) -> None:
        """Report a head that differs: records before the latest agreed one are unaltered, so the fault lies between."""
        words = f"left with another head than this view has before it (see {self._name(holder)})"
        first, last = self._agreed.get(sender, 0), sent - 1
        if first <= last:
            which = f"record {last}" if first == last else f"one of the records {first} to {last}"
            words += f": {which} was altered afterwards"
        self._report.find(self._case.file(sender), sent, words)

    def _name(self, place: Place) -> str:
        return f"{self._case.file(place[0])}, record {place[1]}"
