"""Randomness as an argument: one 32-byte seed, named streams.

Everything here is SHAKE-256 over a 32-byte key and a name: a pure function, uniform to a party without the key, and two
names never share a stream. One primitive serves keys, noise and masks alike. ChaCha20 would be faster (for 8 KB, with
set-up, it was measured at 5 µs and SHAKE-256 at 38 µs), but the tape stays SHAKE-256 because its digests are pinned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgpack
import numpy as np
import numpy.typing as npt

SEED_BYTES = KEY_BYTES = 32

_STREAMS_KEPT = 3

Name = str | int | bytes


Derivation = Callable[[bytes, tuple[Name, ...], bytes], None]
_listeners: list[Derivation] = []


def keystream(key: bytes, length: int, *name: Name) -> bytes:
    """Derive `length` bytes for `name`. The key has a fixed length; msgpack keeps ("ab", "c") and ("a", "bc") apart."""
    drawn = hashlib.shake_256(key + msgpack.packb(name)).digest(length)
    if _listeners and length == KEY_BYTES:
        for listener in _listeners:
            listener(key, name, drawn)
    return drawn


@contextmanager
def derivations(listener: Derivation) -> Iterator[None]:
    """Tell `listener` (key, name, derived key) of every key that is derived meanwhile; no role can notice it."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def derive(key: bytes, *name: Name) -> bytes:
    """Derive a separate key for `name`."""
    return keystream(key, KEY_BYTES, "derive", *name)


class Tape:
    """One party's randomness. Asking twice for a name gives the same values, so a retry repeats itself."""

    __slots__ = ("_seed",)

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a tape seed has {SEED_BYTES} bytes, not {len(seed)}")
        self._seed = seed

    def __repr__(self) -> str:
        return "Tape(redacted)"

    def key(self, *name: Name) -> bytes:
        return derive(self._seed, "key", *name)

    def words(self, count: int, *name: Name) -> npt.NDArray[np.uint64]:
        """Draw independent uniform words of 64 bits."""
        return np.frombuffer(keystream(self._seed, 8 * count, "words", *name), "<u8").astype(np.uint64, copy=False)

    def normal(self, rows: int, dim: int, *name: Name) -> npt.NDArray[np.float64]:
        """Draw independent N(0, 1), by inversion of the distribution function."""
        words = np.frombuffer(keystream(self._seed, 8 * rows * dim, "normal", *name), "<u8")
        cells = _unit_interval(words)
        from scipy.special import ndtri  # slow to import

        return ndtri(cells, out=cells).reshape(rows, dim)

    def start(self, rows: int, dim: int, *name: Name) -> npt.NDArray[np.float64]:
        """Draw N(0, 1) for the initial values of a computation, on which no protection relies."""
        return Tape.normal(self, rows, dim, *name)


def _unit_interval(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Map `words` strictly into (0, 1), to midpoints of 2^52 cells: the most for which adding a half is exact."""
    cells = (words >> np.uint64(12)).astype(np.float64)
    cells += 0.5
    cells *= 2.0**-52
    return cells


class Envelopes:
    """A cache of `exponential`, for raters of an item that share one process: all of them derive the same rows.

    In a process with one user it would only cost memory, so nothing is kept until a second user is seated. Only the
    latest few streams are kept, because the parties of a run are never more than one iteration apart.
    """

    __slots__ = ("_keys", "_rows", "sharers")

    def __init__(self) -> None:
        self.sharers = 0
        self._keys: dict[bytes, bytes] = {}
        self._rows: dict[tuple[Name, ...], dict[bytes, bytes]] = {}

    def keep(self, keys: Sequence[bytes]) -> list[bytes]:
        """Intern `keys`, one object for equal keys, so that a lookup need not compare their bytes."""
        return list(keys) if self.sharers < 2 else [self._keys.setdefault(key, key) for key in keys]

    def exponential(self, keys: Sequence[bytes], dim: int, *name: Name) -> npt.NDArray[np.float32]:
        if self.sharers < 2:
            return exponential(keys, dim, *name)
        known = self._rows.get((dim, *name))
        if known is None:
            known = self._rows[(dim, *name)] = {}
            if len(self._rows) > _STREAMS_KEPT:
                del self._rows[next(iter(self._rows))]
        missing = [key for key in keys if key not in known]
        if missing:
            drawn, row = exponential(missing, dim, *name).tobytes(), 4 * dim
            known.update(zip(missing, [drawn[at : at + row] for at in range(0, len(drawn), row)], strict=True))
        data = b"".join([known[key] for key in keys])
        return np.frombuffer(data, np.float32).reshape(len(keys), dim)


def exponential(keys: Sequence[bytes], dim: int, *name: Name) -> npt.NDArray[np.float32]:
    """Draw Exp(1) vectors, one row per key, rounded to the float32 that may travel instead of the key."""
    label = msgpack.packb(("exponential", *name))
    data = b"".join([hashlib.shake_256(key + label).digest(8 * dim) for key in keys])
    cells = _unit_interval(np.frombuffer(data, "<u8"))
    np.negative(np.log(cells, out=cells), out=cells)
    return cells.astype(np.float32).reshape(len(keys), dim)
