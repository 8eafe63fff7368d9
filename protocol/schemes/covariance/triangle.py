"""A symmetric matrix as a vector: its upper triangle with the diagonal, row after row."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.arrays import Floats, Ints

Amount = Any  # a number, or an array of them


def packed_length(size: Amount) -> Amount:
    return size * (size + 1) // 2


def starts(size: int) -> Ints:
    """Compute the place where each row begins, which is that of its diagonal entry."""
    rows = np.arange(size, dtype=np.int64)
    return rows * size - rows * (rows - 1) // 2


def positions(rows: Ints, columns: Ints, size: int) -> Ints:
    """Compute the places of the entries at `rows` and `columns`, with row ≤ column."""
    return rows * size - rows * (rows - 1) // 2 + columns - rows


def pack(matrix: Floats) -> Floats:
    size = len(matrix)
    return np.concatenate([matrix[row, row:] for row in range(size)]) if size else np.zeros(0)


def unpack(packed: Floats, size: int) -> Floats:
    matrix, begins = np.empty((size, size)), starts(size)
    for row in range(size):
        entries = packed[begins[row] : begins[row] + size - row]
        matrix[row, row:] = entries
        matrix[row:, row] = entries
    return matrix
