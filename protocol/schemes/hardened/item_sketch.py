"""The round before the table, where items are many: a count sketch, from which the items of the table are chosen.

In each of `SKETCH_ROWS` rows a public hash gives every item a cell and a sign. A user adds up the signs of its items,
and sends the whole sketch as one unit vector: its norm is at most A after collisions too, whatever was rated. The
estimate of an item is the mean over the rows of its cell times its sign; other items in the cell are noise of mean 0.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import Floats, Ints
from protocol.schemes.hardened.hardened_params import SKETCH_ROWS, HardenedParams
from protocol.schemes.hardened.unit_vectors import unit_vector

_HIGH = np.uint64(33)  # of a word, 31 bits choose the cell, and the lowest the sign
_BELOW = np.uint64(31)

Hashes = tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]


@functools.lru_cache(maxsize=1)
def hashes(run_id: bytes, n_items: int, width: int) -> Hashes:
    """Return the cell and the sign of every item: a row of each for each row of the sketch."""
    words = Tape(derive(run_id, "sketch")).words(SKETCH_ROWS * n_items, "hash").reshape(SKETCH_ROWS, n_items)
    cells = ((words >> _HIGH) * np.uint64(width) >> _BELOW).astype(np.int32)
    cells += width * np.arange(SKETCH_ROWS, dtype=np.int32)[:, None]
    return cells, np.where(words & np.uint64(1), 1, -1).astype(np.int8)


def sketch_vector(params: HardenedParams, run_id: bytes, items: npt.NDArray[np.integer]) -> Ints:
    """Make a user's sketch of its `items`."""
    cells, signs = hashes(run_id, params.n_items, params.sketch_width)
    length = SKETCH_ROWS * params.sketch_width
    counts = np.bincount(cells[:, items].ravel(), signs[:, items].ravel(), length).astype(np.float64)
    return unit_vector(counts, params.whole)


def chosen_items(params: HardenedParams, run_id: bytes, noisy: Floats) -> Ints:
    """Choose the items of largest estimate, by the noisy sum of all sketches."""
    cells, signs = hashes(run_id, params.n_items, params.sketch_width)
    estimates = np.zeros(params.n_items)
    for row, sign in zip(cells, signs, strict=True):  # one after the other: the order of the sum is the same everywhere
        estimates += noisy[row] * sign
    return np.sort(np.argsort(-estimates, kind="stable")[: params.selected])
