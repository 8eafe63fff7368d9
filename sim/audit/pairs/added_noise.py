"""Noise that a role labels and does not add: with another tape, what it sends must move by what its noise moves.

The messages that reach the role are the same, so the masks are, and so are the gradients. A number that it sends then
moves by the noise of this turn, with that of earlier turns or without. Where the noise of earlier turns, or none at
all, explains the change exactly, the noise of this turn was left out: there is no false alarm.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from protocol.arrays import Floats
from protocol.params import Params
from protocol.party.role import Send
from protocol.wire.fields import FloatsField, RingField, field_kinds
from sim.audit.pairs.twice import Shift
from sim.audit.role_rerun import RoleTurn, fraction_bits

MOST_EARLIER = 3  # kinds of noise of earlier turns that may be in what is sent
NARROW = 1e-5  # relative rounding of numbers that travel as float32


def left_out(
    params: Params, earlier: dict[str, Shift], fresh: Sequence[Shift], one: RoleTurn, other: RoleTurn
) -> tuple[str, str] | None:
    """Name (noise, message and field) where a message leaves the `fresh` noise of its turn out."""
    for where, moved, unit in _moved(params, one, other):
        parts = [shift for shift in fresh if shift.rows.shape == moved.shape and shift.rows.any()]
        if not parts:
            continue
        before = [shift.rows for shift in earlier.values() if shift.rows.shape == moved.shape][:MOST_EARLIER]
        sizes = [np.abs(shift.before) + np.abs(shift.after) for shift in parts]
        room = NARROW * (sum(sizes) + np.abs(moved)) if unit == 0 else np.zeros(moved.shape)
        for shift in parts:
            others = [part.rows for part in parts if part is not shift]
            apart = np.abs(shift.rows) > room  # where it would be seen
            for chosen in _subsets([*before, *others]):
                rest = np.abs(_wrapped(moved - sum(chosen, np.zeros(moved.shape)), params, unit))
                if np.count_nonzero((rest <= room) & apart) > len(apart.ravel()) / 2:
                    return shift.what, where
    return None


def _moved(params: Params, one: RoleTurn, other: RoleTurn) -> Iterator[tuple[str, Floats, float]]:
    """Yield (message and field, how far its numbers move, their unit) of all numbers that both turns send."""
    for first, second in zip(one.effects, other.effects, strict=False):
        if not isinstance(first, Send) or not isinstance(second, Send):
            continue
        for name, kind in field_kinds(first.message.__class__):
            if type(first.message) is not type(second.message) or not issubclass(kind, RingField | FloatsField):
                continue
            before, after = getattr(first.message, name), getattr(second.message, name)
            if before.shape != after.shape:
                continue
            where = f"{type(first.message).__name__}.{name}"
            if issubclass(kind, FloatsField):
                yield where, after.astype(np.float64) - before.astype(np.float64), 0.0
                continue
            ring, unit = kind(params).ring, 2.0 ** -fraction_bits(params, getattr(first.message, "iteration", 0))
            moved: Floats = ring.to_signed(ring.subtract(after, before)).astype(np.float64) * unit
            yield where, moved, unit


def _wrapped(values: Floats, params: Params, unit: float) -> Floats:
    """Reduce differences of ring values to their least residues."""
    if unit == 0:
        return values
    whole = 2.0**params.ring_bits * unit
    return values - whole * np.rint(values / whole)


def _subsets(parts: Sequence[Floats]) -> Iterator[tuple[Floats, ...]]:
    for size in range(len(parts) + 1):
        yield from itertools.combinations(parts, size)
