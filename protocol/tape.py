"""Randomness as an argument: one 32-byte seed, named streams.

Everything here is a pure function of a key and names. Streams are ChaCha20 keystreams under keys that
BLAKE2b derives, so two names never share a stream; values inside a keyed stream that must be reached by
(item, coordinate) are AES-256 blocks over those counters, all in one call.
"""

from __future__ import annotations

import hashlib
from typing import cast

import msgpack
import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.special import ndtri

from protocol.ring import Ids

SEED_BYTES = 32
_BLOCK = 16  # bytes of one AES block

Name = str | int | bytes


def derive(key: bytes, *name: Name) -> bytes:
    """A 32-byte key for `name`; msgpack keeps ("ab", "c") and ("a", "bc") apart."""
    return hashlib.blake2b(msgpack.packb(name), key=key, digest_size=32, person=b"keyhole/derive").digest()


class Tape:
    """One party's randomness. Asking twice for one name gives the same values: a retry repeats itself."""

    __slots__ = ("_seed",)

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a tape seed has {SEED_BYTES} bytes, not {len(seed)}")
        self._seed = seed

    def __repr__(self) -> str:
        return "Tape(redacted)"

    def key(self, *name: Name) -> bytes:
        return derive(self._seed, "key", *name)

    def _keystream(self, length: int, name: tuple[Name, ...]) -> bytes:
        cipher = Cipher(algorithms.ChaCha20(derive(self._seed, "stream", *name), bytes(16)), mode=None)
        return cipher.encryptor().update(bytes(length))

    def normal(self, rows: int, dim: int, *name: Name) -> npt.NDArray[np.float64]:
        """Independent N(0, 1), by inversion of the distribution function."""
        words = np.frombuffer(self._keystream(8 * rows * dim, name), "<u8")
        return ndtri(_unit_interval(words)).reshape(rows, dim)


def _unit_interval(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Strictly inside (0, 1): the middle of one of 2^53 cells."""
    return cast("npt.NDArray[np.float64]", ((words >> np.uint64(11)) + 0.5) * 2.0**-53)


def exponential(keys: list[bytes], dim: int, *name: Name) -> npt.NDArray[np.float32]:
    """Exp(1) vectors, one row per key, rounded to the float32 that may travel instead of the key."""
    label = msgpack.packb(name)
    data = b"".join([hashlib.shake_256(key + label).digest(8 * dim) for key in keys])
    uniform = _unit_interval(np.frombuffer(data, "<u8"))
    return (-np.log(uniform)).astype(np.float32).reshape(len(keys), dim)


def keyed_rows(key: bytes, items: Ids, row_bytes: int) -> bytes:
    """`row_bytes` uniform bytes for each item, AES(key; item, block): any item is reached without the others."""
    blocks = -(-row_bytes // _BLOCK)
    counters = np.empty((len(items), blocks, 2), "<u8")
    counters[:, :, 0] = items[:, None]
    counters[:, :, 1] = np.arange(blocks)
    # ECB on distinct counters is counter mode with random access
    stream = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(counters.tobytes())
    if row_bytes % _BLOCK == 0:
        return stream
    rows = np.frombuffer(stream, np.uint8).reshape(len(items), blocks * _BLOCK)
    return rows[:, :row_bytes].tobytes()
