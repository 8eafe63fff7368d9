"""The numbers of ratings that survive, are altered and are invented, and the bytes of a vector, by closed formula.

s ratings among mn cells, k, p and q as in `mechanisms`:

    modified Laplace       kept s k                created (mn − s)(1 − k)
    randomized response    exact s p    altered s (d − 1) q    created (mn − s) d q    (s q are sent as missing)
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse
from protocol.wire.level_vectors import bitmap_bytes, digits_bytes

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Counts:
    """Expected numbers of cells that arrive as rated."""

    exact: float  # rated cells whose rating arrives as it is (randomized response), or with noise (Laplace)
    altered: float  # rated cells that arrive with another rating; none with Laplace: noise is on all of them
    created: float  # cells without a rating that arrive with one

    @property
    def present(self) -> float:
        return self.exact + self.altered + self.created


def laplace_counts(mechanism: ModifiedLaplace, ratings: float, cells: float) -> Counts:
    return Counts(ratings * mechanism.keep, 0.0, (cells - ratings) * mechanism.flip)


def response_counts(mechanism: RandomizedResponse, ratings: float, cells: float) -> Counts:
    d, q = mechanism.levels, mechanism.other
    return Counts(ratings * mechanism.keep, ratings * (d - 1) * q, (cells - ratings) * d * q)


def laplace_bytes(present: float, n_items: int) -> float:
    """Count the bytes of one user's vector: one bit for every item, then 4 bytes for each that is `present`."""
    return bitmap_bytes(n_items) + FLOAT_BYTES * present


def response_bytes(n_items: int, levels: int) -> int:
    """Count the bytes of one user's vector: one number in base d + 1, of the same length for every vector."""
    return digits_bytes(n_items, levels + 1)
