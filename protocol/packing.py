"""Identifiers and counts in the compact wire: fixed widths, so that a length tells how many there are and nothing else.

    a count of users, 0 … n     max(8, bits of n) bits each
    increasing identifiers < n  max(8, bits of n − 1) bits each, or one bit for every possible one, whichever is shorter

Least significant bit first, the last byte filled up with zeros. No width is below a byte, so that filling never could
be one entry more. What is not exactly what `pack` makes is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Amount = Any  # a number, or an array of them
Words = npt.NDArray[np.uint32]


def id_bits(n: int) -> int:
    return max(8, (n - 1).bit_length())


def count_bits(n: int) -> int:
    return max(8, n.bit_length())


def packed_ids_bytes(count: Amount, n: int) -> Amount:
    """Of `count` identifiers below n."""
    return np.minimum(-(-count * id_bits(n) // 8), -(-n // 8))


def packed_counts_bytes(count: Amount, n: int) -> Amount:
    """Of `count` numbers from 0 to n."""
    return -(-count * count_bits(n) // 8)
