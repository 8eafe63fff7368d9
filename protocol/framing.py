"""How many bytes a message is: its frame (msgpack, then the head of a view), and on the wire (ZMTP and CURVE too)."""

from __future__ import annotations

from dataclasses import dataclass

CURVE_OVERHEAD = 33  # nonce, flags and authenticator of one encrypted message
HEAD_BYTES = 32  # at the end of every frame: where its sender's view stands (`codec.py`)


def wire_size(frame: int) -> int:
    """F(L + 33) with F(L) = L + 2 if L ≤ 255 else L + 9."""
    sealed = frame + CURVE_OVERHEAD
    return sealed + (2 if sealed <= 255 else 9)


def uint_size(value: int) -> int:
    """Bytes of an unsigned integer in canonical msgpack."""
    for limit, size in ((1 << 7, 1), (1 << 8, 2), (1 << 16, 3), (1 << 32, 5)):
        if value < limit:
            return size
    return 9


def bin_size(length: int) -> int:
    return length + (2 if length < 1 << 8 else 3 if length < 1 << 16 else 5)


def frame_size(sequence: int, *fields: int) -> int:
    """Array header, kind, sequence number, fields (each given by its own size), head."""
    return 2 + uint_size(sequence) + sum(fields) + HEAD_BYTES


HELLO_FRAME = frame_size(0, uint_size(1), bin_size(32), bin_size(32))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages of one kind from one role to another in one iteration (−1: set-up)."""

    iteration: int
    sender: str
    receiver: str
    kind: str
    messages: int
    payload_bytes: int
    wire_bytes: int


def traffic(iteration: int, sender: str, receiver: str, kind: str, frames: list[tuple[int, int]]) -> Traffic:
    """One row from (how many, frame size) pairs."""
    return Traffic(
        iteration,
        sender,
        receiver,
        kind,
        sum(count for count, _ in frames),
        sum(count * size for count, size in frames),
        sum(count * wire_size(size) for count, size in frames),
    )
