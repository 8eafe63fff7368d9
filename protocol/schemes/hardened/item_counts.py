"""Public numbers of raters, packed into a text that is part of the parameters: for the unit `value` alone.

That promise is about the value of a rating, and takes for public who rated what; the sums need no more of it than how
many users rated each item. As part of the parameters these numbers are known to every party before anything is sent,
and covered by the digest that opens every connection.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np

from protocol.arrays import Ints
from protocol.errors import BadInput

MOST_COUNTS = 40_000  # characters


def pack_counts(raters: Ints) -> str:
    text = base64.b64encode(zlib.compress(raters.astype("<u4").tobytes(), 9)).decode("ascii")
    if len(text) > MOST_COUNTS:
        raise BadInput(
            f"The counts of {len(raters)} items take {len(text)} characters, above the {MOST_COUNTS} that the "
            "parameters of a run may have: choose --unit rating, which makes noisy counts, or fewer items."
        )
    return text


def unpack_counts(text: str, n_items: int) -> Ints:
    """Open the counts of the first `n_items` items; raise ValueError for a text that is not one of `pack_counts`."""
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 4 * n_items)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the counts of items cannot be read ({error})") from error
    if len(data) != 4 * n_items:
        raise ValueError("the counts of items are not those of all items")
    return np.frombuffer(data, "<u4").astype(np.int64)
