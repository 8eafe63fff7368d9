"""A ring, and reals, whose values carry their linear form beside the machine word; roles cannot tell the difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from protocol.arithmetic.reals import Reals
from protocol.arithmetic.ring import Label, Ring
from protocol.arithmetic.tape import Name
from protocol.arrays import Ids, Integers, Ints
from protocol.errors import BadInput
from sim.audit.algebra.linear_forms import NOISE, VALUE, ZERO, Arena

_HOW = "use ring.uniform for what is drawn and FixedPoint.encode or reals.mark with a Label for what is a number"

LONG_ROW = 3  # numbers in a row, from which two rows are not proportional by chance
ROUNDED = 1e-6  # relative rounding of floats on the wire


class FormRows(NDArrayOperatorsMixin):
    """Numbers and the nodes of their forms, one node per row; indexed by rows, as in the roles.

    What numpy makes of them has no form: the ring and the reals take it as numbers that are not followed.
    """

    __slots__ = ("nodes", "values")

    def __init__(self, values: npt.NDArray[Any], nodes: Ints) -> None:
        self.values = values
        self.nodes = nodes

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, *given: Any, **named: Any) -> npt.NDArray[Any]:
        return np.array(self.values, *given, **named)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **named: Any) -> Any:
        plain = (one.values if isinstance(one, FormRows) else one for one in given)
        return getattr(ufunc, method)(*plain, **named)

    def __getitem__(self, index: Any) -> FormRows:
        return FormRows(self.values[index], self.nodes[index])

    def __setitem__(self, index: Any, rows: FormRows | int) -> None:
        self.values[index] = rows.values if isinstance(rows, FormRows) else rows
        self.nodes[index] = rows.nodes if isinstance(rows, FormRows) else ZERO

    def copy(self) -> FormRows:
        return FormRows(self.values.copy(), self.nodes.copy())

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype


def followed(rows: Any, arena: Arena, owner: str) -> FormRows:
    """Return `rows` as `FormRows`; nonzero values that this ring or these reals did not make have no known form."""
    if isinstance(rows, FormRows):
        return rows
    if isinstance(rows, np.ndarray):
        nodes = arena.unfollowed(owner, len(rows)) if rows.any() else np.full(len(rows), ZERO, np.int64)
        return FormRows(rows, nodes)
    raise BadInput(f"This scheme makes ring values that the algebra cannot follow: {_HOW}.")


def proportional(numbers: npt.NDArray[Any], sums: npt.NDArray[Any]) -> bool:
    """Tell whether each row of `numbers` is that of `sums` times a factor: the same for all rows, if they are short."""
    if numbers.dtype.kind != "f" or numbers.shape != sums.shape:
        return False
    one, other = numbers.astype(np.float64), sums.astype(np.float64)
    if one.shape[1] < LONG_ROW:
        one, other = one.reshape(1, -1), other.reshape(1, -1)
    place = np.abs(other).argmax(axis=1)[:, None]
    largest = np.take_along_axis(other, place, 1)
    factors = np.take_along_axis(one, place, 1) / np.where(largest == 0, 1, largest)
    off = np.abs(one - factors * other).max(axis=1)
    return bool(factors.any() and (off <= ROUNDED * np.abs(one).max(axis=1)).all())


class SymbolicRing(Ring):
    """The ring of one party. `drawn`: keys it drew from; `opened`: what it last turned into floats."""

    def __init__(self, bits: int, arena: Arena, owner: str, prime: bool = False) -> None:
        super().__init__(bits, prime)
        self._arena = arena
        self._owner = owner
        self.drawn: set[bytes] = set()
        self.opened: FormRows | None = None

    def _followed(self, rows: Any) -> FormRows:
        return followed(rows, self._arena, self._owner)

    def zeros(self, rows: int, dim: int) -> Any:
        return FormRows(super().zeros(rows, dim), np.full(rows, ZERO, np.int64))

    def add(self, first: Any, *others: Any) -> Any:
        terms = [self._followed(rows) for rows in (first, *others)]
        return FormRows(super().add(*(rows.values for rows in terms)), combined(self._arena, terms))

    def subtract(self, first: Any, second: Any) -> Any:
        plus, minus = self._followed(first), self._followed(second)
        return FormRows(super().subtract(plus.values, minus.values), combined(self._arena, [plus], [minus]))

    def sum_by_item(self, parts: Sequence[tuple[Ids, Any]], items: Ids, dim: int) -> Any:
        rows = [(ids, self._followed(part)) for ids, part in parts]
        values: Any = super().sum_by_item([(ids, part.values) for ids, part in rows], items, dim)
        if isinstance(values, FormRows):  # nothing to add: `zeros` made it
            return values
        return FormRows(values, summed(self._arena, rows, items))

    def fits(self, values: Any, shape: tuple[int, int]) -> bool:
        return super().fits(self._followed(values).values, shape)

    def uniform(self, key: bytes, rows: int, dim: int, *name: Name) -> Any:
        self.drawn.add(key)
        return FormRows(super().uniform(key, rows, dim, *name), self._arena.stream(self._owner, key, rows, name).copy())

    def multiply(self, first: Any, second: Any) -> Any:
        """Follow a product with public factors, one for each row; any other product has no linear form."""
        one, other = (first, second) if isinstance(first, FormRows) else (second, first)
        rows = self._followed(one)
        plain = other.values if isinstance(other, FormRows) else other
        words = super().multiply(rows.values, plain)
        factors = np.asarray(other[:, 0], np.int64) if isinstance(other, np.ndarray) and other.shape[1] == 1 else None
        if factors is None:
            return FormRows(words, self._arena.unfollowed(self._owner, len(words)))
        return FormRows(words, self._arena.combine(len(words), [(np.arange(len(words)), rows.nodes, factors)]))

    def from_integers(self, integers: Integers, label: Label | None = None) -> Any:
        words = super().from_integers(integers)
        return FormRows(words, entered(self._arena, self._owner, words, label))

    def to_signed(self, words: Any) -> npt.NDArray[np.int64]:
        rows = self._followed(words)
        numbers = super().to_signed(rows.values)
        self.opened = FormRows(numbers, rows.nodes)
        return numbers


class SymbolicReals(Reals):
    """The counterpart for values that travel as floats; rounding is not followed."""

    __slots__ = ("_arena", "_has_atom", "_owner", "opened")

    def __init__(self, arena: Arena, owner: str, has_atom: bool = False) -> None:
        """Follow the reals of `owner`; with `has_atom`, noise may be exactly 0, so zeros do not prove it absent."""
        self._arena = arena
        self._owner = owner
        self._has_atom = has_atom
        self.opened: FormRows | None = None

    def _followed(self, rows: Any) -> FormRows:
        return followed(rows, self._arena, self._owner)

    def mark(self, values: Any, label: Label) -> Any:
        return FormRows(values, entered(self._arena, self._owner, values, label, self._has_atom))

    def add(self, first: Any, *others: Any) -> Any:
        terms = [self._followed(rows) for rows in (first, *others)]
        return FormRows(super().add(*(rows.values for rows in terms)), combined(self._arena, terms))

    def narrow(self, values: Any) -> Any:
        rows = self._followed(values)
        return FormRows(super().narrow(rows.values), rows.nodes)

    def widen(self, values: Any) -> Any:
        rows = self._followed(values)
        return FormRows(super().widen(rows.values), rows.nodes)

    def within(self, values: Any, limit: float) -> bool:
        return super().within(self._followed(values).values, limit)

    def sum_by_item(self, parts: Sequence[tuple[Ids, Any]], items: Ids, n_items: int) -> Any:
        rows = [(ids, self._followed(part)) for ids, part in parts]
        values = super().sum_by_item([(ids, part.values) for ids, part in rows], items, n_items)
        return FormRows(values, summed(self._arena, rows, items))

    def open(self, values: Any) -> npt.NDArray[np.float64]:
        rows = self._followed(values)
        self.opened = rows
        return super().open(rows.values)


def entered(
    arena: Arena, owner: str, numbers: npt.NDArray[Any], label: Label | None, has_atom: bool = False
) -> Ints:
    """Create fresh symbols; noise that is zero (switched off, as at ε = ∞, or left out) is recorded as such."""
    if label is None:
        raise BadInput(f"This scheme encodes a number without saying what it is: {_HOW}.")
    if label.weights is None:
        return arena.symbols(owner, label, VALUE)
    return arena.symbols(owner, label, NOISE, None if has_atom else (numbers == 0).reshape(len(label.items), -1))


def combined(arena: Arena, plus: list[FormRows], minus: Sequence[FormRows] = ()) -> Ints:
    places = np.arange(len(plus[0]))
    terms = [(places, rows.nodes, 1) for rows in plus] + [(places, rows.nodes, -1) for rows in minus]
    return arena.combine(len(places), terms)


def summed(arena: Arena, parts: list[tuple[Ids, FormRows]], items: Ids) -> Ints:
    return arena.combine(len(items), [(np.searchsorted(items, ids), rows.nodes, 1) for ids, rows in parts])
