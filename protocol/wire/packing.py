"""Identifiers and counts in the compact wire: fixed widths, so that a length reveals their number only.

    a count of users, 0 … n     max(8, bits of n) bits each
    increasing identifiers < n  max(8, bits of n − 1) bits each, or one bit for every possible one, whichever is shorter

Least significant bit first, the last byte padded with zeros. No width is below a byte, so that padding cannot be taken
for another entry; where both forms are equally long the one with a bit per possible identifier is used, so that the
length determines the form. Bytes that `pack_ids` or `pack_counts` would not make are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.arithmetic.ring import everywhere
from protocol.arrays import Ids
from protocol.errors import Bug, Reason, Rejected

Amount = Any  # a number, or an array of them


def id_bits(n: int) -> int:
    return max(8, (n - 1).bit_length())


def count_bits(n: int) -> int:
    return max(8, n.bit_length())


def packed_ids_bytes(count: Amount, n: int) -> Amount:
    """Count the bytes of `count` identifiers below `n`."""
    return np.minimum(-(-count * id_bits(n) // 8), -(-n // 8))


def packed_counts_bytes(count: Amount, n: int) -> Amount:
    """Count the bytes of `count` numbers from 0 to `n`."""
    return -(-count * count_bits(n) // 8)


def pack_ids(ids: Ids, n: int) -> bytes:
    """Pack increasing identifiers below `n`, in the shorter form."""
    if len(ids) and ids[-1] >= n:
        raise Bug(f"the identifier {ids[-1]} is not below {n}")
    if _is_list(len(ids), n):
        return _pack(ids, id_bits(n))
    present = np.zeros(n, np.uint8)
    present[ids] = 1
    return np.packbits(present, bitorder="little").tobytes()


def unpack_ids(data: bytes, n: int, beyond: Reason) -> Ids:
    """Unpack identifiers, which must not be written to; `beyond` is the reason to refuse one that is not below `n`."""
    if len(data) < -(-n // 8):
        ids = _unpack(data, id_bits(n))
        check_increasing(ids)
        if len(ids) and ids[-1] >= n:
            raise Rejected(beyond)
        return ids
    if len(data) > -(-n // 8):
        raise Rejected(Reason.WRONG_LENGTH)
    _check_filling(data, n)
    ids = np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")).astype(np.uint32)
    if _is_list(len(ids), n):
        raise Rejected(Reason.NOT_CANONICAL)
    return ids


def pack_counts(counts: Ids, n: int) -> bytes:
    """Pack numbers from 0 to `n`."""
    if not everywhere(counts <= n):
        raise Bug(f"a count of users is above {n}")
    return _pack(counts, count_bits(n))


def unpack_counts(data: bytes, n: int) -> Ids:
    counts = _unpack(data, count_bits(n))
    if not everywhere(counts <= n):
        raise Rejected(Reason.OUT_OF_RANGE)
    return counts


def check_increasing(ids: Ids) -> None:
    if not everywhere(ids[1:] > ids[:-1]):
        repeated = not everywhere(ids[1:] != ids[:-1])
        raise Rejected(Reason.DUPLICATE_ITEM if repeated else Reason.UNSORTED_ITEMS)


def _is_list(count: int, n: int) -> bool:
    return -(-count * id_bits(n) // 8) < -(-n // 8)


def _pack(words: Ids, bits: int) -> bytes:
    whole = np.ascontiguousarray(words, "<u4").view(np.uint8).reshape(-1, 4)
    return np.packbits(np.unpackbits(whole, axis=1, count=bits, bitorder="little"), bitorder="little").tobytes()


def _unpack(data: bytes, bits: int) -> Ids:
    count = 8 * len(data) // bits
    if -(-count * bits // 8) != len(data):
        raise Rejected(Reason.WRONG_LENGTH)
    _check_filling(data, count * bits)
    taken = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits, bitorder="little")
    whole = np.zeros((count, 32), np.uint8)
    whole[:, :bits] = taken.reshape(-1, bits)
    return np.packbits(whole, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def _check_filling(data: bytes, used: int) -> None:
    """Check that only zeros follow the `used` bits, which end in the last byte."""
    if used % 8 and data[-1] >> used % 8:
        raise Rejected(Reason.NOT_CANONICAL)
