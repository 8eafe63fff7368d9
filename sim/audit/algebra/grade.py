"""Grade rows over unknown symbols: nothing, an aggregate, one user's noisy numbers, one user's exact numbers.

Noise is not uniform, so it is never eliminated to find what a coalition holds. A separate step finds the combinations
without any noise, and those are exact. An exact difference of one user's gradients counts as exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from protocol.arrays import Flags
from protocol.schemes.base import LEVELS
from sim.audit.algebra.eliminate import clear_with, independent, left_kernel, rows_of
from sim.audit.algebra.knowledge import LOW, FormTable, Library, as_pairs, count_owners
from sim.audit.algebra.linear_forms import NOISE, UNIFORM, VALUE
from sim.audit.algebra.noise_left import least_noise

MOST_ENTANGLED = 400  # most independent rows with shared symbols that are untangled user by user
MOST_REDUCED = 20_000  # most such rows that are reduced to independent ones


@dataclass(frozen=True, slots=True, eq=False)
class Separated:
    """Rows after everything that can be isolated has been isolated."""

    rows: csr_array
    owners: npt.NDArray[np.int64]  # number of honest users in each row
    undecided: int  # entangled rows that were too many to untangle


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    determines: str
    smallest_group: int | None
    single_contributor_sums: int
    single_items: int
    individuals: int  # users with an isolated number, from sums of two or more contributors
    unexplained: int  # those of them with a number that the opened sums, less the members' own, do not isolate
    sums: int  # rows about two or more users
    exact_sums: int  # rows about two or more users, without noise
    exact_singles: int  # rows about one contributor's sums, without noise
    noise_left: dict[str, float]  # kind of noise -> fraction of the Lemma-1 variance, in the least noisy row
    noises: frozenset[str]  # kinds of noise that the opened sums carry
    uneven: int
    undecided: int
    what: str  # kind of number that the users' rows are made of, such as gradient
    clear: tuple[str, ...]  # users whose numbers a member received in the clear
    totals: int  # items with a weighted total of the sums, less the unknown first factors
    isolated: dict[str, list[int]]  # user -> items with an isolated number, in sums of several contributors
    lonely: dict[str, list[int]]  # user -> items to whose sums no other user contributed
    groups: dict[str, int]  # user -> users in the smallest sum of several that it is in, itself included

    @property
    def place(self) -> str:
        """Name what a number belongs to: a part has places in a long vector, anything else has items."""
        return "place" if self.what == "part" else "item"


def grade(library: Library, members: tuple[str, ...], thinned: bool = False, explain: bool = True) -> Answer:
    """Grade what the coalition `members` can determine.

    With `thinned`, for one user alone, only `determines`, `individuals` and the sums of one contributor are valid.
    Without `explain`, `unexplained` is 0.
    """
    table, bits = library.table(members, thinned), library.bits
    value = table.kind == VALUE
    held = left_kernel(table.rows, table.kind == UNIFORM, bits, value)
    noisy = separate(_without_known_noise(held.rows, table, bits), table, bits)
    exact = separate(left_kernel(held.rows, table.kind == NOISE, bits, value).rows, table, bits)
    heard = [library.hearing.heard[member] for member in members]
    clear = sorted({sender for one in heard for sender in one.clear} - set(members))
    sole, sole_exact = sole_rows(noisy, table, library), sole_rows(exact, table, library)
    single_items, single_sums = _singles(noisy, sole, table)
    level, source = 0, noisy
    if (noisy.owners >= 2).any() or any(one.model or (one.has_figures and not library.follows) for one in heard):
        level = 1
    if ((noisy.owners == 1) & ~sole).any():
        level = 2
    if ((exact.owners == 1) & ~sole_exact).any() or clear:
        level, source = 3, exact
    alone = (source.owners == 1) & ~(sole_exact if source is exact else sole)
    ask = explain and not thinned and level >= 2
    chosen = alone if level >= 2 else source.owners >= 2
    isolated = _items(source, alone, table)
    return Answer(
        determines=LEVELS[level],
        smallest_group=1 if level >= 2 else _smallest(noisy.owners),
        single_contributor_sums=single_sums,
        single_items=single_items,
        individuals=len(set(isolated) | set(clear)),
        unexplained=len(_unexplained(library, members, noisy, table, sole) | set(clear)) if ask else 0,
        sums=int((noisy.owners >= 2).sum()),
        exact_sums=int((exact.owners >= 2).sum()),
        exact_singles=int(((exact.owners == 1) & sole_exact).sum()),
        noise_left={} if thinned else least_noise(source.rows, chosen, table, bits),
        noises=library.noises,
        uneven=held.uneven,
        undecided=noisy.undecided + exact.undecided,
        what="/".join(table.words[word] for word in np.unique(table.what[value]).tolist()) or "number",
        clear=tuple(clear),
        totals=0 if thinned else library.totals_under_first_factors(members),
        isolated=isolated,
        lonely={} if thinned else _items(noisy, sole, table),
        groups={} if thinned else _groups(noisy, table),
    )


def _items(found: Separated, chosen: Flags, table: FormTable) -> dict[str, list[int]]:
    """Collect the items of the users' numbers in the `chosen` rows, by user."""
    rows = found.rows
    at = np.unique(rows.indices[chosen[rows_of(rows)] & (table.kind[rows.indices] == VALUE)])
    pairs = np.unique(as_pairs(table.owner[at], table.item[at]))
    owners, first = np.unique(pairs >> 32, return_index=True)
    items = np.split((pairs & LOW) - 1, first)[1:]
    return {table.owners[owner]: own.tolist() for owner, own in zip(owners.tolist(), items, strict=True)}


def _groups(found: Separated, table: FormTable) -> dict[str, int]:
    """Find, for each user, the size of the smallest sum of several users that its numbers are in."""
    rows = found.rows
    size = found.owners[rows_of(rows)]
    counted = (size >= 2) & (table.kind[rows.indices] == VALUE)
    least = np.full(len(table.owners), np.iinfo(np.int64).max)
    np.minimum.at(least, table.owner[rows.indices[counted]], size[counted])
    there = np.flatnonzero(least < np.iinfo(np.int64).max)
    return {table.owners[owner]: int(least[owner]) for owner in there.tolist()}


def _unexplained(
    library: Library, members: tuple[str, ...], found: Separated, table: FormTable, sole: Flags
) -> set[str]:
    """Find the users with an isolated number that the opened sums alone do not isolate."""
    opened = library.opened(members)
    sums = separate(opened.rows, opened, library.bits)
    explained = _numbers(sums, sums.owners == 1, opened)
    return {owner for owner, *_ in _numbers(found, (found.owners == 1) & ~sole, table) - explained}


def _numbers(found: Separated, chosen: Flags, table: FormTable) -> set[tuple[str, int, int, int]]:
    """Collect (owner, what, item, iteration) of the users' numbers in the `chosen` rows."""
    rows = found.rows
    at = np.unique(rows.indices[chosen[rows_of(rows)] & (table.kind[rows.indices] == VALUE)])
    columns = (table.owner[at], table.what[at], table.item[at], table.iteration[at])
    return {(table.owners[owner], *rest) for owner, *rest in zip(*(one.tolist() for one in columns), strict=True)}


def _without_known_noise(rows: csr_array, table: FormTable, bits: int) -> csr_array:
    """Subtract known noise from `rows`: rows about noise alone reveal it."""
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


def separate(rows: csr_array, table: FormTable, bits: int) -> Separated:
    """Subtract from every row what other rows tell about one user alone, until nothing changes."""
    value = table.kind == VALUE
    used = []  # rows of one user whose symbol no longer occurs in any other row
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
    return _untangle(rows, count_owners(rows, value[rows.indices], table.owner), table, bits)


def _untangle(rows: csr_array, owners: npt.NDArray[np.int64], table: FormTable, bits: int) -> Separated:
    """Look for combinations with one user left among rows of several users that share symbols.

    Each connected component of such rows is treated separately.
    """
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
    undecided, apart = 0, []
    for number in np.flatnonzero(sizes > 1).tolist():
        inside = part[np.flatnonzero(label == number)]
        if MOST_ENTANGLED < inside.shape[0] <= MOST_REDUCED:  # most may follow from the others
            inside = independent(inside, bits)
        if inside.shape[0] > MOST_ENTANGLED:
            undecided += inside.shape[0]
        else:
            apart += _isolated(inside, table, bits)
    rows = vstack([rows, *apart], format="csr")
    return Separated(rows, count_owners(rows, value[rows.indices], table.owner), undecided)


def _isolated(rows: csr_array, table: FormTable, bits: int) -> list[csr_array]:
    """Find the combinations with the numbers of one user only, user by user."""
    value, found = table.kind == VALUE, []
    for one in _with_own_pattern(rows, table):
        left = left_kernel(rows, value & (table.owner != one), bits, value).rows
        has_value = np.bincount(rows_of(left), value[left.indices], minlength=left.shape[0]) > 0
        found.append(left[np.flatnonzero(has_value)])
    return found


def _with_own_pattern(rows: csr_array, table: FormTable) -> list[int]:
    """List the users with an unshared pattern of symbols: no other can be isolated."""
    columns = np.unique(rows.indices)
    columns = columns[table.kind[columns] == VALUE]
    _, which = np.unique(rows[:, columns].toarray(), axis=1, return_inverse=True)
    pairs = np.unique(np.stack([which.ravel(), table.owner[columns]]), axis=1)
    alone = np.bincount(pairs[0])[pairs[0]] == 1
    return [int(owner) for owner in np.unique(pairs[1][alone])]


def sole_rows(found: Separated, table: FormTable, library: Library) -> Flags:
    """Mark rows about sums with one contributor: a weakness of its own, counted separately."""
    rows, single = found.rows, found.owners == 1
    if not single.any() or not len(library.lonely):
        return np.zeros(rows.shape[0], np.bool_)
    of_row, columns = rows_of(rows), rows.indices
    of_one = single[of_row] & (table.kind[columns] == VALUE)
    of_row, columns = of_row[of_one], columns[of_one]
    alone = np.isin(as_pairs(table.item[columns], table.iteration[columns]), library.lonely)
    sole: Flags = single & (np.bincount(of_row, ~alone, minlength=rows.shape[0]) == 0)
    return sole


def _singles(found: Separated, sole: Flags, table: FormTable) -> tuple[int, int]:
    """Count (items, sums) with one contributor of which the coalition holds the number."""
    rows = found.rows
    symbols = rows.indices[sole[rows_of(rows)] & (table.kind[rows.indices] == VALUE)]
    sums = np.unique(np.stack([table.item[symbols], table.iteration[symbols]]), axis=1)
    return len(np.unique(sums[0])), sums.shape[1]
