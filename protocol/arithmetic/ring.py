"""Vectors over Z_P, P = 2^bits or the prime of `prime_field.py`, as machine words.

A role receives its ring as an argument and touches ring values only through it, so that another
implementation of the same methods (linear forms instead of words) runs the same role code.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.arithmetic import prime_field
from protocol.arithmetic.tape import Name, keystream
from protocol.arrays import Ids, Integers, Ints, RingArray
from protocol.errors import Bug

WIDTHS = range(8, 65, 8)


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """The meaning of numbers that enter the arithmetic. A run ignores it; an audit on linear forms names them by it."""

    what: str  # "gradient", "eta", "rho", …
    iteration: int
    items: Ids  # one per row
    shares: npt.NDArray[np.uint32] | None = None  # of noise: the number of shares that it is split into, per row

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """Compute, for noise, the part of the whole variance that one share has, per row."""
        return None if self.shares is None else 1 / self.shares


def everywhere(condition: npt.NDArray[np.bool_]) -> bool:
    """Test that `condition` holds in every entry.

    numpy's reductions cost each process 150 kB more, and a search for a zero byte is faster.
    """
    return b"\0" not in condition.tobytes()


class Ring:
    """Arithmetic mod 2^bits on numpy arrays; overflow of the machine word is the reduction.

    With `prime` it is arithmetic mod a prime of 64 bits instead, which proofs need.
    """

    def __init__(self, bits: int, prime: bool = False) -> None:
        if bits not in WIDTHS or (prime and bits != 64):
            raise ValueError(f"ring bits must be a multiple of 8 from 8 to 64 (with a prime: 64), not {bits}")
        self.bits = bits
        self.prime = prime
        self.width = bits // 8  # bytes of one element on the wire
        self.dtype = np.dtype(np.uint32 if bits <= 32 else np.uint64)
        self._little = self.dtype.newbyteorder("<")
        self.largest = (1 << bits) - 1
        self._fills_word = bits == 8 * self.dtype.itemsize
        self._mask = self.dtype.type(self.largest)

    def __repr__(self) -> str:
        return f"Ring({self.bits})"

    def _reduce(self, words: RingArray) -> RingArray:
        return words if self._fills_word else words & self._mask

    def zeros(self, rows: int, dim: int) -> RingArray:
        return np.zeros((rows, dim), self.dtype)

    def add(self, first: RingArray, *others: RingArray) -> RingArray:
        if self.prime:
            return functools.reduce(prime_field.add, others, first.copy())
        total = first + others[0] if others else first.copy()
        for other in others[1:]:
            total += other
        return self._reduce(total)

    def subtract(self, first: RingArray, second: RingArray) -> RingArray:
        if self.prime:
            return prime_field.subtract(first, second)
        return self._reduce(first - second)

    def multiply(self, first: RingArray, second: RingArray) -> RingArray:
        """Multiply entry by entry, mod P; a column of factors serves all coordinates of its row."""
        if self.prime:
            return prime_field.multiply(first, second)
        return self._reduce(first * second)

    def sum_by_item(self, parts: Sequence[tuple[Ids, RingArray]], items: Ids, dim: int) -> RingArray:
        """Sum, for each of `items` (increasing), the rows that `parts` hold for it.

        This is a sparse product of a 0/1 matrix with the stacked rows: exact mod 2^32 or 2^64 in any order.
        """
        if not parts or not len(items):
            return self.zeros(len(items), dim)
        if self.prime:
            raise Bug("sums by item are not made mod the prime")
        from scipy.sparse import csc_matrix  # slow to import, and only servers add

        ids = np.concatenate([ids for ids, _ in parts])
        rows = np.concatenate([rows for _, rows in parts])
        place_of = np.zeros(int(items[-1]) + 1, np.int32)  # a lookup table, not a search: parts name only these items
        place_of[items] = np.arange(len(items), dtype=np.int32)
        ones = np.ones(len(ids), self.dtype)
        columns = np.arange(len(ids) + 1)
        which = csc_matrix((ones, place_of[ids], columns), shape=(len(items), len(ids)))
        return self._reduce(which @ rows)

    def fits(self, values: RingArray, shape: tuple[int, int]) -> bool:
        if values.shape != shape or values.dtype != self.dtype:
            return False
        if self.prime:
            return prime_field.fits(values, shape)
        return self._fills_word or everywhere(values <= self._mask)

    def uniform(self, key: bytes, rows: int, dim: int, *name: Name) -> RingArray:
        """Make rows from a keyed stream: uniform to a party without `key`, the same for every party that holds it."""
        if self.prime:
            return prime_field.uniform_elements(key, rows * dim, *name).reshape(rows, dim)
        return self.from_bytes(keystream(key, rows * dim * self.width, *name), dim)

    def from_integers(self, integers: Integers, label: Label | None = None) -> RingArray:
        """Reduce integers, or integral floats of any size, mod P, without rounding."""
        if integers.dtype == np.int64:
            return self._reduce(self._from_signed(integers.astype(np.int64, copy=False)))
        if everywhere(np.abs(integers) < 2.0**63):
            return self._reduce(self._from_signed(integers.astype(np.int64)))
        if self.prime:
            raise Bug("a number to encode mod the prime has more than 63 bits")
        if not everywhere(np.isfinite(integers)):
            raise Bug("a value to encode is not finite")
        modulus = 2.0**self.bits
        residue = np.fmod(integers, modulus)  # exact, in (-P, P)
        # into [-P/2, P/2), exact because a float above P/2 is a multiple of a large enough power of two
        residue = np.where(residue >= modulus / 2, residue - modulus, residue)
        residue = np.where(residue < -modulus / 2, residue + modulus, residue)
        return self._reduce(residue.astype(np.int64).astype(self.dtype))

    def _from_signed(self, integers: Ints) -> RingArray:
        return prime_field.from_signed(integers) if self.prime else integers.astype(self.dtype)

    def to_signed(self, words: RingArray) -> npt.NDArray[np.int64]:
        """Return the residue of each word in [-P/2, P/2)."""
        if self.prime:
            return prime_field.to_signed(words)
        spare = np.uint64(64 - self.bits)
        return (words.astype(np.uint64) << spare).view(np.int64) >> spare.astype(np.int64)

    def to_bytes(self, words: RingArray) -> bytes:
        """Encode `words` little-endian, in exactly `width` bytes per element."""
        full = np.ascontiguousarray(words, self._little)
        if self._fills_word:
            return full.tobytes()
        return full.view(np.uint8).reshape(-1, self.dtype.itemsize)[:, : self.width].tobytes()

    def from_bytes(self, data: bytes | memoryview, dim: int) -> RingArray:
        """Decode rows of `dim` elements (the caller has checked the length); uniform bytes give uniform elements."""
        if self._fills_word:
            return np.frombuffer(data, self._little).astype(self.dtype, copy=False).reshape(-1, dim)
        packed = np.frombuffer(data, np.uint8).reshape(-1, self.width)
        full = np.zeros((len(packed), self.dtype.itemsize), np.uint8)
        full[:, : self.width] = packed
        return full.view(self._little).astype(self.dtype, copy=False).reshape(-1, dim)
