"""The left kernel of a sparse matrix over Z_{2^b}, with unit pivots.

Rows are what a coalition knows, columns are symbols. The question is which combinations of the rows are free of certain
symbols; a generating set of them is returned as rows. Two steps are repeated. A row with a symbol that no other row has
can be in no such combination and is dropped (millions in one step). A row with a symbol in an odd coefficient serves to
clear that symbol from the others (in one step, as many pivots as do not disturb each other).

A symbol whose coefficients are all even is cleared with the one that divides the others, c = 2^v · odd; of the pivot's
own row its multiple by 2^(b−v) is left, which is free of the symbol and tells the low v bits of the rest (Howell).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from protocol.arrays import Flags, Ints


@dataclass(frozen=True, slots=True, eq=False)
class NullSpace:
    rows: csr_array
    uneven: int  # rows reduced to a multiple, because a coefficient is no unit: they tell low bits only


def reduce(rows: csr_array, bits: int) -> csr_array:
    """Reduce the coefficients to residues in [−P/2, P/2) and drop zeros."""
    spare = np.int64(64 - bits)
    rows.data = (rows.data << spare) >> spare
    rows.eliminate_zeros()
    return rows


def left_kernel(rows: csr_array, unwanted: Flags, bits: int, dear: Flags) -> NullSpace:
    """Return generators of all combinations of `rows` without the `unwanted` columns.

    Rows with few entries in the `dear` columns serve as pivots first, because a pivot's other entries spread to other
    rows.
    """
    rows, uneven = reduce(rows.copy(), bits), 0
    while True:
        rows, even = _peel(rows, unwanted, bits)
        uneven += even
        pivots = _choose_pivots(rows, unwanted, dear)
        if not pivots:
            pivots = _least_even(rows, unwanted)
            uneven += len(pivots)
        if not pivots:
            return NullSpace(_without_empty(rows), uneven)
        rows = _clear(rows, pivots, bits)


def independent(rows: csr_array, bits: int) -> csr_array:
    """Return rows that span what `rows` span, no more of them than there are columns (and their even multiples)."""
    rest, every = reduce(rows.copy(), bits), np.ones(rows.shape[1], np.bool_)
    kept = [rows[:0]]
    while rest.nnz:
        pivots = _choose_pivots(rest, every, every) or _least_even(rest, every)
        kept.append(rest[np.array([row for row, _ in pivots], np.int64)])
        rest = _clear(rest, pivots, bits)
    joined: csr_array = vstack(kept, format="csr")
    return joined


def rows_of(rows: csr_array) -> npt.NDArray[np.int64]:
    """Return the row number of every entry."""
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def _without_empty(rows: csr_array) -> csr_array:
    return rows[np.flatnonzero(np.diff(rows.indptr))]


def _peel(rows: csr_array, unwanted: Flags, bits: int) -> tuple[csr_array, int]:
    """Drop rows that have an unwanted symbol to themselves, until there are no such rows.

    A row whose symbol has the coefficient 2^v · odd is replaced by its multiple by 2^(bits−v); these rows are counted.
    """
    uneven = 0
    while True:
        here = unwanted[rows.indices]
        columns = rows.indices[here]
        counts = np.bincount(columns, minlength=rows.shape[1])
        alone = counts[columns] == 1
        if not alone.any():
            return rows, uneven
        least = np.full(rows.shape[0], bits)  # least valuation of symbols that only this row has; `bits`: none
        np.minimum.at(least, rows_of(rows)[here][alone], valuations(rows.data[here][alone]))
        uneven += int(((least > 0) & (least < bits)).sum())
        rows = rows[np.flatnonzero(least)]
        times = np.left_shift(np.int64(1), (bits - least[least > 0]).astype(np.int64))
        with np.errstate(over="ignore"):
            rows.data = rows.data * times[rows_of(rows)]
        rows = _without_empty(reduce(rows, bits))


def clear_with(
    rows: csr_array, serving: npt.NDArray[np.int64], unwanted: Flags, bits: int
) -> tuple[csr_array, csr_array]:
    """Clear these columns from all other rows with pivots among the `serving` rows: (the others, the pivots)."""
    pivots = _choose_pivots(rows, unwanted, unwanted, set(serving.tolist()))
    used = rows[np.array([row for row, _ in pivots], np.int64)]
    return _clear(rows, pivots, bits) if pivots else rows, used


def _choose_pivots(
    rows: csr_array, unwanted: Flags, dear: Flags, among: set[int] | None = None
) -> list[tuple[int, int]]:
    """Choose (row, column) pivots with odd coefficients, cheap rows first, none with another pivot's column."""
    here = np.flatnonzero(unwanted[rows.indices])
    if not len(here):
        return []
    of_row = rows_of(rows)[here]
    columns, odd = rows.indices[here], (rows.data[here] & 1).astype(np.bool_)
    dearness = np.bincount(rows_of(rows), dear[rows.indices], minlength=rows.shape[0])
    rank = np.lexsort((np.diff(rows.indptr)[of_row], dearness[of_row]))
    starts = np.searchsorted(of_row, np.arange(rows.shape[0] + 1))
    rank = rank[odd[rank]]
    if among is not None:
        rank = rank[np.isin(of_row[rank], list(among))]
    if (np.diff(starts) <= 1).all():  # no row touches two pivots: the first of each column serves
        chosen = rank[np.sort(np.unique(columns[rank], return_index=True)[1])]
        return list(zip(of_row[chosen].tolist(), columns[chosen].tolist(), strict=True))
    bounds, flat = starts.tolist(), columns.tolist()
    decided: set[int] = set()  # rows that serve, or cannot because they have another pivot's column
    used: set[int] = set()  # columns in the row of a pivot
    cleared: set[int] = set()  # columns of a pivot
    pivots = []
    for row, column in zip(of_row[rank].tolist(), columns[rank].tolist(), strict=True):
        if row in decided or column in used:
            continue
        others = flat[bounds[row] : bounds[row + 1]]
        decided.add(row)
        if not cleared.isdisjoint(others):
            continue
        pivots.append((row, column))
        cleared.add(column)
        used.update(others)
    return pivots


def _least_even(rows: csr_array, unwanted: Flags) -> list[tuple[int, int]]:
    """Pick, among the unwanted entries (all even), one that divides all others; return [] if there are none."""
    here = np.flatnonzero(unwanted[rows.indices])
    if not len(here):
        return []
    entry = here[np.argmin(valuations(rows.data[here]))]
    return [(int(rows_of(rows)[entry]), int(rows.indices[entry]))]


def _clear(rows: csr_array, pivots: list[tuple[int, int]], bits: int) -> csr_array:
    """Clear the pivots' columns from every other row: row − (its coefficient / the pivot's) · pivot row."""
    at = np.array([row for row, _ in pivots])
    of_column = np.full(rows.shape[1], -1, np.int64)
    of_column[[column for _, column in pivots]] = np.arange(len(pivots))
    place = of_column[rows.indices]
    entries = np.flatnonzero(place >= 0)
    of_row, which, values = rows_of(rows)[entries], place[entries], rows.data[entries]
    is_pivot = of_row == at[which]
    inverse = np.zeros(len(pivots), np.int64)
    power = np.zeros(len(pivots), np.int64)
    power[which[is_pivot]] = valuations(values[is_pivot])
    inverse[which[is_pivot]] = inverses(values[is_pivot] >> power[which[is_pivot]])
    with np.errstate(over="ignore"):
        factors = -(values >> power[which]) * inverse[which]
    # a pivot row clears itself; only its multiple by 2^(bits−v) is left, where its coefficient is even
    rest = np.where(power > 0, np.left_shift(np.int64(1), np.where(power > 0, bits - power, 0)), 0)
    factors = np.where(is_pivot, rest[which] - 1, factors)
    multiples = csr_array((factors, (of_row, which)), shape=(rows.shape[0], len(pivots)))
    return _without_empty(reduce((rows + multiples @ rows[at]).tocsr(), bits))


def valuations(words: Ints) -> Ints:
    """Count how often 2 divides each of `words`, none of which is zero."""
    lowest = (words & -words).view(np.uint64)
    return np.log2(lowest.astype(np.float64)).astype(np.int64)


def inverses(odd: Ints) -> Ints:
    """Compute x with odd·x = 1 mod 2^64 by Newton's iteration: every step doubles the bits that are right."""
    inverse = odd.copy()
    with np.errstate(over="ignore"):
        for _ in range(6):
            inverse = inverse * (2 - odd * inverse)
    return inverse
