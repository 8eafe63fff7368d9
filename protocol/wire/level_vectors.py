"""A whole vector in the fewest bytes that its length allows, so that the size reveals nothing that is to be hidden.

    levels     one whole number in base d + 1, the first item its lowest digit, little-endian; as many bytes as the
               largest such number needs (1682 items with 5 levels: 544)
    presence   one bit for every item, as `protocol/wire/packing.py` packs a dense set of identifiers

Every vector has one form; bytes that packing would not make are refused.
"""

from __future__ import annotations

import functools

import numpy as np

from protocol.arithmetic.ring import everywhere
from protocol.arrays import Levels
from protocol.errors import Bug, Reason, Rejected


@functools.cache
def _limb(base: int) -> tuple[int, int]:
    """Compute (the number of digits that fit into 63 bits, `base` to that power)."""
    digits = 1
    while base ** (digits + 1) < 1 << 63:
        digits += 1
    return digits, base**digits


@functools.lru_cache(maxsize=64)
def _beyond(count: int, base: int) -> int:
    """Compute one more than the largest number of `count` digits."""
    return int(base**count)


def digits_bytes(count: int, base: int) -> int:
    """Count the bytes of `count` digits: ⌈log2(base^count) / 8⌉, in integer arithmetic."""
    return -(-(_beyond(count, base) - 1).bit_length() // 8)


def pack_digits(digits: Levels, base: int) -> bytes:
    """Pack `digits`, at least one, all below `base` (at most 255)."""
    if not everywhere(digits < base):
        raise Bug(f"a digit is not below {base}")
    per, size = _limb(base)
    padded = np.zeros(-(-len(digits) // per) * per, np.uint64)
    padded[: len(digits)] = digits
    powers = np.array([base**place for place in range(per)], np.uint64)
    number = 0
    for limb in reversed((padded.reshape(-1, per) * powers).sum(axis=1, dtype=np.uint64).tolist()):
        number = number * size + limb
    return number.to_bytes(digits_bytes(len(digits), base), "little")


def unpack_digits(data: bytes, count: int, base: int) -> Levels:
    """Unpack `count` digits; the length is checked before anything else."""
    if len(data) != digits_bytes(count, base):
        raise Rejected(Reason.WRONG_LENGTH)
    number = int.from_bytes(data, "little")
    if number >= _beyond(count, base):
        raise Rejected(Reason.OUT_OF_RANGE)
    per, size = _limb(base)
    limbs = np.zeros(-(-count // per), np.uint64)
    for place in range(len(limbs)):
        number, rest = divmod(number, size)
        limbs[place] = rest
    powers = np.array([base**place for place in range(per)], np.uint64)
    digits: Levels = (limbs[:, None] // powers % np.uint64(base)).astype(np.uint8).ravel()[:count]
    return digits


def bitmap_bytes(count: int) -> int:
    return -(-count // 8)
