"""One party without any I/O: role, session, codec and view together.

A driver (ZeroMQ process, in-process scheduler, replay) hands in frames and gets a `Step` back. It must write
`step.records` to the view before the first byte of `step.sends` leaves.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from protocol.codec import WIRE_VERSION, Codec
from protocol.errors import Aborted, Reason, Rejected
from protocol.messages import EVENTS, SETUP, Again, Event, Hello, Message
from protocol.roles import Done, Effects, Role, Send, Timer
from protocol.session import Session, frame_digest
from protocol.view import END, EVENT, RECEIVED, REJECTED, SENT, Broken, Record, ViewWriter


@dataclass(frozen=True, slots=True)
class Outgoing:
    to: str
    kind: str
    iteration: int
    frame: bytes


@dataclass(slots=True)
class Step:
    """What one input caused."""

    records: list[bytes] = field(default_factory=list)
    sends: list[Outgoing] = field(default_factory=list)
    timers: list[int] = field(default_factory=list)
    done: bool = False
    rejected: Reason | None = None
    abort: Aborted | None = None  # this input ended the run; it is in the records all the same
    kind: str = ""  # of the frame that was received, "" where it could not be read
    iteration: int = SETUP


class Party:
    def __init__(
        self, name: str, role: Role, codec: Codec, run_id: bytes, params_digest: bytes, view: ViewWriter | None
    ) -> None:
        self.name = name
        self.role = role
        self.codec = codec
        self.view = view
        self.done = False
        self.result: np.ndarray | None = None
        self._session = Session(Hello(WIRE_VERSION, run_id, params_digest))
        self._keep: int | None = 0
        self._kept: dict[str, deque[tuple[int, bytes]]] | None = None

    def keep_frames(self, count: int | None) -> None:
        """Remember the last `count` frames (None: all) to each peer, in case it was restarted and asks again."""
        self._keep, self._kept = count, {}

    def start(self) -> Step:
        step = Step()
        self._carry_out(self.role.start(), step)
        return step

    def receive(self, sender: str, frame: bytes) -> Step:
        step = Step()
        if self.done:  # its view is closed
            step.rejected = Reason.WRONG_KIND
            return step
        understood = False
        try:
            sequence, message = self.codec.decode(frame)
            step.kind, step.iteration = type(message).__name__, iteration_of(message)
            if isinstance(message, Again):
                return self._say_again(sender, message, step)
            self._session.check(sender, sequence, frame, message)
            understood = True
            effects = [] if isinstance(message, Hello) else self.role.receive(sender, message)
        except Rejected as refusal:
            step.rejected = refusal.reason
            if self.view:
                step.records.append(self.view.rejected(sender, refusal.reason.name, frame, understood))
            effects = []
        except Aborted as abort:
            step.abort = abort
            effects = []
        if self.view and step.rejected is None:
            step.records.append(self.view.received(sender, frame))
        if understood:
            self._session.accept(sender, frame)
        self._carry_out(effects, step)
        return step

    def tick(self, event: Event) -> Step:
        """An input that is no message: it stands in the view all the same, so that the role can be replayed."""
        step = Step(kind=type(event).__name__, iteration=iteration_of(event))
        if self.done:
            return step
        if self.view:
            step.records.append(self.view.event(type(event).__name__, *dataclasses.astuple(event)))
        try:
            effects = self.role.tick(event)
        except Aborted as abort:
            step.abort = abort
            effects = []
        self._carry_out(effects, step)
        return step

    # --- after a crash -----------------------------------------------------------------------------------------------

    def replay(self, records: Iterable[Record]) -> Step:
        """Become the party that wrote these records (header and input excluded); the step holds what was not yet sent.

        Every frame that is derived again is compared with the digest that the view has of it.
        """
        view, self.view = self.view, None  # nothing is recorded twice
        self.keep_frames(None)
        owed = deque(self.start().sends)
        for record in records:
            if record.type == RECEIVED:
                owed.extend(self.receive(*record.fields).sends)
            elif record.type == EVENT and record.fields[0] in EVENTS:
                values = [tuple(value) if isinstance(value, list) else value for value in record.fields[1:]]
                owed.extend(self.tick(EVENTS[record.fields[0]](*values)).sends)
            elif record.type == REJECTED and record.fields[4]:
                self._session.note(record.fields[0], record.fields[3])
            elif record.type == SENT:
                out = owed.popleft() if owed else None
                if out is None or out.to != record.fields[0] or frame_digest(out.frame) != record.fields[4]:
                    raise Broken(f"record {record.number} is not what this role sends")
            elif record.type == END:
                break
        self.view = view
        step = Step(sends=list(owed), done=self.done)
        if view:
            step.records = [view.sent(out.to, out.kind, out.iteration, out.frame) for out in owed]
        return step

    def ask_again(self, peers: Iterable[str]) -> list[Outgoing]:
        """To every peer after a restart: what I have of yours, and tell me what you have of mine."""
        return [self._control(peer, answer=1) for peer in peers]

    def _say_again(self, sender: str, message: Again, step: Step) -> Step:
        if self.view:
            step.records.append(self.view.event("Again", sender, message.received))
        if message.answer:
            step.sends.append(self._control(sender, answer=0))
        for number, frame in (self._kept or {}).get(sender, ()):
            if number >= message.received:
                step.sends.append(Outgoing(sender, "resend", SETUP, frame))
        return step

    def _control(self, peer: str, answer: int) -> Outgoing:
        frame = self.codec.encode(Again(self._session.received_from(peer), answer), 0)
        return Outgoing(peer, "Again", SETUP, frame)

    def _carry_out(self, effects: Effects, step: Step) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if self._session.next_to(effect.to) == 0:
                    self._send(effect.to, self._session.hello, step)
                self._send(effect.to, effect.message, step)
            elif isinstance(effect, Timer):
                step.timers.append(effect.iteration)
            elif isinstance(effect, Done):
                step.done = self.done = True
                self.result = effect.result
                if self.view:
                    step.records.append(self.view.end(result_digest(effect.result)))

    def _send(self, to: str, message: Message, step: Step) -> None:
        number = self._session.next_to(to)
        frame = self.codec.encode(message, number)
        self._session.sent(to)
        if self._kept is not None:
            self._kept.setdefault(to, deque(maxlen=self._keep)).append((number, frame))
        outgoing = Outgoing(to, type(message).__name__, iteration_of(message), frame)
        if self.view:
            step.records.append(self.view.sent(to, outgoing.kind, outgoing.iteration, frame))
        step.sends.append(outgoing)


def iteration_of(message: Message) -> int:
    return getattr(message, "iteration", SETUP)


def result_digest(result: np.ndarray | None) -> bytes:
    """Over the little-endian float64 bytes in row order: the same on every platform for the same numbers."""
    data = b"" if result is None else np.ascontiguousarray(result, "<f8").tobytes()
    return hashlib.sha256(data).digest()
