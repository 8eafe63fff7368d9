"""What rows over unknown symbols amount to: nothing, an aggregate, one user's noisy numbers, one user's exact ones.

Noise is not uniform and is never eliminated to find what a coalition holds; it is asked apart which combinations have
none left, and those are exact. An exact difference of one user's gradients counts as exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from protocol.schemes.base import LEVELS
from sim.audit.algebra.arena import NOISE, UNIFORM, VALUE
from sim.audit.algebra.eliminate import clear_with, left_kernel, rows_of
from sim.audit.algebra.knowledge import Library, Mask, Table, count_owners

MOST_ENTANGLED = 400  # rows with shared symbols for which the last question is asked with dense matrices
_PRIME = 2_147_483_647  # ranks are taken modulo it: a rank over the rationals can only be missed by chance


@dataclass(frozen=True, slots=True, eq=False)
class Separated:
    """Rows after everything that can be isolated has been."""

    rows: csr_array
    owners: npt.NDArray[np.int64]  # honest users in each row
    undecided: int  # entangled rows that were too many to be sure of


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    determines: str
    smallest_group: int | None
    single_contributor_sums: int
    single_items: int
    individuals: int  # users of whom a number is isolated, from sums of two or more contributors
    sums: int  # rows about two or more users
    exact_sums: int  # rows about two or more users, without noise
    noise_left: dict[str, float]  # by kind of noise, of the least noisy row at that level: fraction of Lemma-1 variance
    uneven: int
    undecided: int
    what: str  # the numbers that the users' rows are made of, such as gradient
    clear: tuple[str, ...]  # users whose numbers a member received without any form


def grade(library: Library, members: tuple[str, ...], thinned: bool = False) -> Answer:
    """`thinned`: for one user alone; only `determines` and the sums of one contributor are then meant."""
    table, bits = library.table(members, thinned), library.bits
    value = table.kind == VALUE
    held = left_kernel(table.rows, table.kind == UNIFORM, bits, value)
    noisy = separate(_without_known_noise(held.rows, table, bits), table, bits)
    exact = separate(left_kernel(held.rows, table.kind == NOISE, bits, value).rows, table, bits)
    heard = [library.hearing.heard[member] for member in members]
    clear = sorted({sender for one in heard for sender in one.clear} - set(members))
    sole = sole_rows(noisy, table, library)
    single_items, single_sums = _singles(noisy, sole, table)
    level, source = 0, noisy
    if (noisy.owners >= 2).any() or (not len(library.contributors) and any(one.published for one in heard)):
        level = 1
    if ((noisy.owners == 1) & ~sole).any():
        level = 2
    if ((exact.owners == 1) & ~sole_rows(exact, table, library)).any() or clear:
        level, source = 3, exact
    alone = (source.owners == 1) & ~sole_rows(source, table, library)
    chosen = alone if level >= 2 else source.owners >= 2
    return Answer(
        determines=LEVELS[level],
        smallest_group=1 if level >= 2 else _smallest(noisy.owners),
        single_contributor_sums=single_sums,
        single_items=single_items,
        individuals=len(set(_owners(source, alone, table)) | set(clear)),
        sums=int((noisy.owners >= 2).sum()),
        exact_sums=int((exact.owners >= 2).sum()),
        noise_left=_least_noise(source, chosen, table),
        uneven=held.uneven,
        undecided=noisy.undecided + exact.undecided,
        what="/".join(table.words[word] for word in np.unique(table.what[value]).tolist()) or "number",
        clear=tuple(clear),
    )


def _without_known_noise(rows: csr_array, table: Table, bits: int) -> csr_array:
    """Rows about noise alone say what it is: taken out of the others."""
    noise = table.kind == NOISE
    bare = np.bincount(rows_of(rows), ~noise[rows.indices], minlength=rows.shape[0]) == 0
    named = np.zeros(rows.shape[1], np.bool_)
    named[rows.indices[bare[rows_of(rows)]]] = True
    cleared, used = clear_with(rows, np.flatnonzero(bare), named & noise, bits)
    joined: csr_array = vstack([cleared, used], format="csr")
    return joined


def _smallest(owners: npt.NDArray[np.int64]) -> int | None:
    groups = owners[owners >= 2]
    return int(groups.min()) if len(groups) else None


def separate(rows: csr_array, table: Table, bits: int) -> Separated:
    """Take out of every row what other rows say of one user alone, until that changes nothing."""
    value = table.kind == VALUE
    used = []  # rows of one user whose symbol no other row has any more
    while True:
        owners = count_owners(rows, value[rows.indices], table.owner)
        of_several, of_one = np.zeros(rows.shape[1], np.bool_), np.zeros(rows.shape[1], np.bool_)
        of_several[rows.indices[(owners >= 2)[rows_of(rows)]]] = True
        of_one[rows.indices[(owners == 1)[rows_of(rows)]]] = True
        rows, pivots = clear_with(rows, np.flatnonzero(owners == 1), of_several & of_one & value, bits)
        if not pivots.shape[0]:
            break
        used.append(pivots)
    rows = vstack([rows, *used], format="csr")
    return _untangle(rows, count_owners(rows, value[rows.indices], table.owner), table)


def _untangle(rows: csr_array, owners: npt.NDArray[np.int64], table: Table) -> Separated:
    """Rows of several users that share symbols: is there a combination with one user left? By ranks, part by part."""
    value = table.kind == VALUE
    several = np.flatnonzero(owners >= 2)
    part = rows[several]
    counted = part.copy()
    counted.data = np.where(value[part.indices], part.data, 0)
    counted.eliminate_zeros()
    shared = np.bincount(counted.indices, minlength=rows.shape[1]) > 1
    if not shared.any():
        return Separated(rows, owners, 0)
    links = counted.copy()
    links.data = shared[links.indices].astype(np.int64)
    links.eliminate_zeros()
    _, label = connected_components(links @ links.T, directed=False)
    sizes = np.bincount(label)
    owners, undecided = owners.copy(), 0
    for number in np.flatnonzero(sizes > 1).tolist():
        inside = np.flatnonzero(label == number)
        if len(inside) > MOST_ENTANGLED:
            undecided += len(inside)
        elif _isolates(counted[inside], table.owner):
            owners[several[inside[0]]] = 1
    return Separated(rows, owners, undecided)


def _isolates(rows: csr_array, owner: npt.NDArray[np.int32]) -> bool:
    """Some combination has the symbols of one owner only: without that owner's columns the rank is smaller."""
    columns = np.unique(rows.indices)
    patterns, which = np.unique(rows[:, columns].toarray() % _PRIME, axis=1, return_inverse=True)
    owners = owner[columns]
    holders = [np.unique(owners[which == pattern]) for pattern in range(patterns.shape[1])]
    # who has no pattern of symbols to itself cannot be isolated: whatever leaves one of them leaves another's too
    for one in sorted({int(held[0]) for held in holders if len(held) == 1}):
        others = [pattern for pattern, held in enumerate(holders) if len(held) > 1 or held[0] != one]
        if _rank(patterns[:, others]) < _rank(patterns):
            return True
    return False


def _rank(matrix: npt.NDArray[np.int64]) -> int:
    rows, rank = [row.astype(object) for row in matrix], 0
    for column in range(matrix.shape[1]):
        pivot = next((at for at in range(rank, len(rows)) if rows[at][column] % _PRIME), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        scale = pow(int(rows[rank][column]), -1, _PRIME)
        rows[rank] = rows[rank] * scale % _PRIME
        for at in range(rank + 1, len(rows)):
            if rows[at][column]:
                rows[at] = (rows[at] - rows[rank] * rows[at][column]) % _PRIME
        rank += 1
    return rank


def sole_rows(found: Separated, table: Table, library: Library) -> Mask:
    """Rows of one user that are about sums to which nobody else contributed: a weakness of its own, counted apart."""
    rows = found.rows
    sole = np.zeros(rows.shape[0], np.bool_)
    lonely = library.lonely
    if not lonely:
        return sole
    for row in np.flatnonzero(found.owners == 1).tolist():
        symbols = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
        symbols = symbols[table.kind[symbols] == VALUE]
        sole[row] = all(
            pair in lonely
            for pair in zip(table.item[symbols].tolist(), table.iteration[symbols].tolist(), strict=True)
        )
    return sole


def _singles(found: Separated, sole: Mask, table: Table) -> tuple[int, int]:
    """(items, sums) with one contributor, of which the coalition holds that one's number."""
    rows = found.rows
    symbols = rows.indices[sole[rows_of(rows)] & (table.kind[rows.indices] == VALUE)]
    sums = np.unique(np.stack([table.item[symbols], table.iteration[symbols]]), axis=1)
    return len(np.unique(sums[0])), sums.shape[1]


def _owners(found: Separated, chosen: Mask, table: Table) -> list[str]:
    rows = found.rows
    symbols = rows.indices[chosen[rows_of(rows)] & (table.kind[rows.indices] == VALUE)]
    return [table.owners[owner] for owner in np.unique(table.owner[symbols]).tolist()]


def _least_noise(found: Separated, chosen: Mask, table: Table) -> dict[str, Any]:
    """Of the chosen row with the least unknown noise: which kinds remain, and how much of the whole each is."""
    rows = found.rows
    counted = chosen[rows_of(rows)] & (table.kind[rows.indices] == NOISE)
    if not chosen.any():
        return {}
    where, symbols = rows_of(rows)[counted], rows.indices[counted]
    parts = rows.data[counted].astype(np.float64) ** 2 * table.weight[symbols]
    total = np.bincount(where, parts, minlength=rows.shape[0])
    least = int(np.flatnonzero(chosen)[np.argmin(total[chosen])])
    mine = where == least
    words = table.what[symbols[mine]]
    return {table.words[word]: float(parts[mine][words == word].sum()) for word in np.unique(words).tolist()}
