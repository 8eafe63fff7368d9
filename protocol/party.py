"""One party without any I/O: role, session, codec and view together.

A driver (ZeroMQ process, in-process scheduler, replay) hands in frames and gets a `Step` back. It must write
`step.records` to the view before the first byte of `step.sends` leaves.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from protocol.codec import WIRE_VERSION, Codec
from protocol.errors import Aborted, Reason, Rejected
from protocol.messages import SETUP, Deadline, Hello, Message
from protocol.roles import Done, Effects, Role, Send, Timer
from protocol.session import Session
from protocol.view import ViewWriter


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

    def tick(self, deadline: Deadline) -> Step:
        step = Step(kind="Deadline", iteration=deadline.iteration)
        if self.view:
            step.records.append(self.view.event("Deadline", deadline.iteration))
        self._carry_out(self.role.tick(deadline), step)
        return step

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
        frame = self.codec.encode(message, self._session.next_to(to))
        self._session.sent(to)
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
