"""The bytes of a message: as a frame (msgpack, then the head of a view), and on the wire (with ZMTP and CURVE).

Every formula takes numbers or arrays of them, so that one expression gives the frames of all users. It names message
classes and all of their fields, so that a field that is added to a class makes the formula fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from protocol.params import Params
from protocol.wire.fields import MOST_COUNT, Amount, FieldKind, bind, uint_size
from protocol.wire.messages import SETUP, Hello

CURVE_OVERHEAD = 33  # nonce, flags and authenticator of one encrypted message
HEAD_BYTES = 32  # at the end of every frame: the head of its sender's view (`codec.py`)
HANDSHAKE = "handshake"  # a kind without messages: the bytes that open a connection
DIALLING_BYTES, ANSWERING_BYTES = 567, 301  # greeting, CURVE and READY, from the client and from the server

Way = tuple[str, str]  # (sender, receiver)


def wire_size(frame: Amount) -> Amount:
    """Compute the wire bytes of a `frame` of L bytes: F(L + 33) with F(L) = L + 2 if L ≤ 255 else L + 9."""
    sealed = frame + CURVE_OVERHEAD
    return sealed + 2 + 7 * (sealed > 255)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages of one kind from one role (or party) to another in one iteration (−1: set-up)."""

    iteration: int
    sender: str
    receiver: str
    kind: str
    messages: int
    payload_bytes: int
    wire_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """Traffic by formula, before summation: single numbers between servers, else one for each group of users."""

    iteration: int
    sender: str
    receiver: str
    kind: str
    messages: Amount
    frame: Amount  # bytes of each of them

    def total(self) -> tuple[float, float, float]:
        """Sum up (messages, payload bytes, wire bytes): whole numbers unless a number of messages is an expectation."""
        messages, frame = np.broadcast_arrays(self.messages, self.frame)
        payload, wire = (0, frame) if self.kind == HANDSHAKE else (frame, wire_size(frame))
        return float(np.sum(messages)), float(np.sum(messages * payload)), float(np.sum(messages * wire))


class Frames:
    """The bytes of frames and flows by formula, in the encoding that the parameters select.

    A formula gives, by name, the number of entries of every field of a message; for a `Count`, its value.
    """

    def __init__(self, params: Params) -> None:
        self._params = params
        self._fields: dict[type, dict[str, FieldKind]] = {}

    def size(self, message: type, number: Amount, /, **entries: Amount) -> Amount:
        """Add up array header, kind, sequence `number`, the fields of `message` with these `entries`, and head."""
        fields = self._fields_of(message)
        if fields.keys() != entries.keys():
            differ = ", ".join(sorted(fields.keys() ^ entries.keys()))
            raise TypeError(f"The byte formula of {message.__name__} does not count the fields that it has: {differ}.")
        return 2 + uint_size(number) + sum(fields[name].size(n) for name, n in entries.items()) + HEAD_BYTES

    def flow(
        self, iteration: int, way: Way, message: type, messages: Amount, number: Amount, /, **entries: Amount
    ) -> Flow:
        """Make the flow of `messages` frames of one kind, whose sequence number is `number`."""
        return Flow(iteration, *way, message.__name__, messages, self.size(message, number, **entries))

    def hello(self, way: Way, messages: Amount) -> Flow:
        return self.flow(SETUP, way, Hello, messages, 0, wire_version=1, run_id=1, params_digest=1)

    def largest(self, classes: Iterable[type], longer: Mapping[str, int]) -> int:
        """Bound the bytes of any message, without its head; `longer` has fields with more entries than items."""
        return max(self._largest(message, longer) for message in classes) - HEAD_BYTES

    def _largest(self, message: type, longer: Mapping[str, int]) -> int:
        most = {name: longer.get(name, field.most) for name, field in self._fields_of(message).items()}
        return int(self.size(message, MOST_COUNT, **most))

    def _fields_of(self, message: type) -> dict[str, FieldKind]:
        if message not in self._fields:
            self._fields |= bind((message,), self._params)
        return self._fields[message]
