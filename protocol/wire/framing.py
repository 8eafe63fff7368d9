"""The bytes of a message: as a frame (msgpack, then the head of a view), and on the wire (with ZMTP and CURVE).

Every formula takes numbers or arrays of them, so that one expression gives the frames of all users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.params import Params
from protocol.wire.level_vectors import digits_bytes
from protocol.wire.packing import packed_counts_bytes, packed_ids_bytes

Amount = Any  # a number, or an array with one for each group of users

CURVE_OVERHEAD = 33  # nonce, flags and authenticator of one encrypted message
HEAD_BYTES = 32  # at the end of every frame: the head of its sender's view (`codec.py`)
HANDSHAKE = "handshake"  # a kind without messages: the bytes that open a connection
DIALLING_BYTES, ANSWERING_BYTES = 567, 301  # greeting, CURVE and READY, from the client and from the server


def wire_size(frame: Amount) -> Amount:
    """Compute the wire bytes of a `frame` of L bytes: F(L + 33) with F(L) = L + 2 if L ≤ 255 else L + 9."""
    sealed = frame + CURVE_OVERHEAD
    return sealed + 2 + 7 * (sealed > 255)


def uint_size(value: Amount) -> Amount:
    """Count the bytes of an unsigned integer `value` in canonical msgpack: 1, 2, 3, 5 or 9."""
    return 1 + (value >= 1 << 7) + (value >= 1 << 8) + 2 * (value >= 1 << 16) + 4 * (value >= 1 << 32)


def bin_size(length: Amount) -> Amount:
    return length + 2 + (length >= 1 << 8) + 2 * (length >= 1 << 16)


def frame_size(sequence: Amount, *fields: Amount) -> Amount:
    """Add up array header, kind, `sequence` number, `fields` (each given by its size) and head."""
    return 2 + uint_size(sequence) + sum(fields) + HEAD_BYTES


HELLO_FRAME: int = frame_size(0, uint_size(1), bin_size(32), bin_size(32))


class Sizes:
    """The bytes of a field with n entries in the encoding that the parameters select (`codec.py`)."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._compact = params.wire == "compact"
        self.digest: int = bin_size(32)

    def items(self, n: Amount) -> Amount:
        return bin_size(packed_ids_bytes(n, self._params.n_items) if self._compact else 4 * n)

    def users(self, n: Amount) -> Amount:
        return bin_size(packed_ids_bytes(n, self._params.n_users) if self._compact else 4 * n)

    def counts(self, n: Amount) -> Amount:
        return bin_size(packed_counts_bytes(n, self._params.n_users) if self._compact else 4 * n)

    def keys(self, n: Amount) -> Amount:
        return bin_size(32 * n)

    def grades(self, n: Amount) -> Amount:
        return bin_size(n)

    def places(self, n: Amount) -> Amount:
        return bin_size(packed_counts_bytes(n, self._params.n_items) if self._compact else 4 * n)

    def digits(self, base: int) -> int:
        """Count the bytes of one digit in `base` for every item."""
        return int(bin_size(digits_bytes(self._params.n_items, base)))

    def reals(self, n: Amount) -> Amount:
        return bin_size(8 * n)

    def floats(self, rows: Amount) -> Amount:
        return bin_size(4 * self._params.dim * rows)

    def factors(self, rows: Amount) -> Amount:
        return bin_size(self._params.factor_bits // 8 * self._params.dim * rows)

    def published(self, rated: Amount) -> Amount:
        """Count the bytes of the factors that are published to users with `rated` items each."""
        everything = self._params.publish == "all"
        return self.factors(np.full_like(rated, self._params.n_items) if everything else rated)

    def ring(self, rows: Amount) -> Amount:
        return bin_size(self._params.ring_bits // 8 * self._params.dim * rows)


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
