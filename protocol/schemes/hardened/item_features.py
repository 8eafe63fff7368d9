"""Public descriptions of items, packed into a text that is part of the parameters.

A description is a row of flags (genres) and of numbers (years). Numbers travel in 21sts, as a byte each; one item's
row is its flags, eight to a byte, then its numbers. The rows are compressed, and sizes are checked before they are
opened. As part of the parameters they are covered by the digest that opens every connection, so that every party
computes with the same ones.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np

from protocol.errors import BadInput
from protocol.schemes.base import ItemFeatures

STEPS = 21  # of a number: 1/21
MOST_TEXT = 40_000  # characters
MOST_COLUMNS = 256


def pack_features(features: ItemFeatures) -> str:
    flags, numbers = features
    if flags.shape[1] > MOST_COLUMNS or numbers.shape[1] > MOST_COLUMNS:
        raise BadInput(f"The description of an item has more than {MOST_COLUMNS} columns: leave some out.")
    steps = np.clip(np.rint(numbers * STEPS), -127, 127).astype(np.int8).view(np.uint8)
    rows = np.concatenate([np.packbits(flags, axis=1), steps], axis=1)
    text = base64.b64encode(zlib.compress(rows.tobytes(), 9)).decode("ascii")
    if len(text) > MOST_TEXT:
        raise BadInput(
            f"The descriptions of {len(flags)} items take {len(text)} characters, above the {MOST_TEXT} that the "
            "parameters of a run may have: describe items with fewer columns, or leave them out (--item-features none)."
        )
    return text


def unpack_features(text: str, n_items: int, flags: int, numbers: int) -> ItemFeatures:
    """Open the rows of the first `n_items` items; raise ValueError for a text that is not one of `pack_features`."""
    width = -(-flags // 8) + numbers
    if not width:
        return ItemFeatures(np.zeros((n_items, 0), np.bool_), np.zeros((n_items, 0)))
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), n_items * width)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the descriptions of items cannot be read ({error})") from error
    if len(data) != n_items * width:
        raise ValueError("the descriptions of items are not those of all items")
    rows = np.frombuffer(data, np.uint8).reshape(n_items, width)
    bits = np.unpackbits(rows[:, : width - numbers], axis=1)[:, :flags].astype(np.bool_)
    return ItemFeatures(bits, rows[:, width - numbers :].view(np.int8).astype(np.float64) / STEPS)
