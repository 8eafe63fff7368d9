"""What rows over unknown symbols amount to: nothing, an aggregate, one user's noisy numbers, one user's exact ones.

Noise is not uniform and is never eliminated to find what a coalition holds; it is asked apart which combinations have
none left, and those are exact. An exact difference of one user's gradients counts as exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from protocol.schemes.base import LEVELS
from sim.audit.algebra.eliminate import clear_with, left_kernel, rows_of
from sim.audit.algebra.knowledge import LOW, Library, Mask, Table, as_pairs, count_owners
from sim.audit.algebra.linear_forms import NOISE, UNIFORM, VALUE
from sim.audit.algebra.noise_left import least_noise

MOST_ENTANGLED = 400  # rows with shared symbols for which the last question is asked, user by user


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
    unexplained: int  # of these, those with a number that the opened sums, less the members' own, do not isolate
    sums: int  # rows about two or more users
    exact_sums: int  # rows about two or more users, without noise
    exact_singles: int  # rows about one contributor's sums, without noise
    noise_left: dict[str, float]  # by kind of noise, of the least noisy row at that level: fraction of Lemma-1 variance
    noises: frozenset[str]  # the kinds that the opened sums carry
    uneven: int
    undecided: int
    what: str  # the numbers that the users' rows are made of, such as gradient
    clear: tuple[str, ...]  # users whose numbers a member received without any form
    totals: int  # items of which a weighted total of the sums is held, less the unknown first factors
    isolated: dict[str, list[int]]  # user -> the items of which a number of theirs is isolated, alone in no sum
    lonely: dict[str, list[int]]  # user -> the items to whose sums nobody else contributed
    groups: dict[str, int]  # user -> how many others' numbers at least are summed with theirs, and they themselves

    @property
    def place(self) -> str:
        """What a number belongs to: a part has places of a long vector, anything else has items."""
        return "place" if self.what == "part" else "item"


def grade(library: Library, members: tuple[str, ...], thinned: bool = False, explain: bool = True) -> Answer:
    """`thinned`: for one user alone; only `determines`, `individuals` and the sums of one contributor are then meant.
    Without `explain`, `unexplained` is 0."""
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


def _items(found: Separated, chosen: Mask, table: Table) -> dict[str, list[int]]:
    """The items of the users' numbers in these rows, by user."""
    rows = found.rows
    at = np.unique(rows.indices[chosen[rows_of(rows)] & (table.kind[rows.indices] == VALUE)])
    pairs = np.unique(as_pairs(table.owner[at], table.item[at]))
    owners, first = np.unique(pairs >> 32, return_index=True)
    items = np.split((pairs & LOW) - 1, first)[1:]
    return {table.owners[owner]: own.tolist() for owner, own in zip(owners.tolist(), items, strict=True)}


def _groups(found: Separated, table: Table) -> dict[str, int]:
    """The size of the smallest sum of several users that each user's numbers are in."""
    rows = found.rows
    size = found.owners[rows_of(rows)]
    counted = (size >= 2) & (table.kind[rows.indices] == VALUE)
    least = np.full(len(table.owners), np.iinfo(np.int64).max)
    np.minimum.at(least, table.owner[rows.indices[counted]], size[counted])
    there = np.flatnonzero(least < np.iinfo(np.int64).max)
    return {table.owners[owner]: int(least[owner]) for owner in there.tolist()}


def _unexplained(
    library: Library, members: tuple[str, ...], found: Separated, table: Table, sole: Mask
) -> set[str]:
    """Users with a number in a row of its own which is in none when only the opened sums are there."""
    opened = library.opened(members)
    sums = separate(opened.rows, opened, library.bits)
    explained = _numbers(sums, sums.owners == 1, opened)
    return {owner for owner, *_ in _numbers(found, (found.owners == 1) & ~sole, table) - explained}


def _numbers(found: Separated, chosen: Mask, table: Table) -> set[tuple[str, int, int, int]]:
    """(owner, what, item, iteration) of the users' numbers in these rows."""
    rows = found.rows
    at = np.unique(rows.indices[chosen[rows_of(rows)] & (table.kind[rows.indices] == VALUE)])
    columns = (table.owner[at], table.what[at], table.item[at], table.iteration[at])
    return {(table.owners[owner], *rest) for owner, *rest in zip(*(one.tolist() for one in columns), strict=True)}


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
    return _untangle(rows, count_owners(rows, value[rows.indices], table.owner), table, bits)


def _untangle(rows: csr_array, owners: npt.NDArray[np.int64], table: Table, bits: int) -> Separated:
    """Rows of several users that share symbols: is there a combination with one user left? Part by part."""
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
        inside = np.flatnonzero(label == number)
        if len(inside) > MOST_ENTANGLED:
            undecided += len(inside)
        else:
            apart += _isolated(part[inside], table, bits)
    rows = vstack([rows, *apart], format="csr")
    return Separated(rows, count_owners(rows, value[rows.indices], table.owner), undecided)


def _isolated(rows: csr_array, table: Table, bits: int) -> list[csr_array]:
    """Combinations with the numbers of one user only, user by user."""
    value, found = table.kind == VALUE, []
    for one in _with_own_pattern(rows, table):
        left = left_kernel(rows, value & (table.owner != one), bits, value).rows
        has_value = np.bincount(rows_of(left), value[left.indices], minlength=left.shape[0]) > 0
        found.append(left[np.flatnonzero(has_value)])
    return found


def _with_own_pattern(rows: csr_array, table: Table) -> list[int]:
    """Users with a pattern of symbols to themselves: else whatever leaves one of theirs leaves another user's too."""
    columns = np.unique(rows.indices)
    columns = columns[table.kind[columns] == VALUE]
    _, which = np.unique(rows[:, columns].toarray(), axis=1, return_inverse=True)
    pairs = np.unique(np.stack([which.ravel(), table.owner[columns]]), axis=1)
    alone = np.bincount(pairs[0])[pairs[0]] == 1
    return [int(owner) for owner in np.unique(pairs[1][alone])]


def sole_rows(found: Separated, table: Table, library: Library) -> Mask:
    """Rows of one user that are about sums to which nobody else contributed: a weakness of its own, counted apart."""
    rows, single = found.rows, found.owners == 1
    if not single.any() or not len(library.lonely):
        return np.zeros(rows.shape[0], np.bool_)
    of_row, columns = rows_of(rows), rows.indices
    of_one = single[of_row] & (table.kind[columns] == VALUE)
    of_row, columns = of_row[of_one], columns[of_one]
    alone = np.isin(as_pairs(table.item[columns], table.iteration[columns]), library.lonely)
    sole: Mask = single & (np.bincount(of_row, ~alone, minlength=rows.shape[0]) == 0)
    return sole


def _singles(found: Separated, sole: Mask, table: Table) -> tuple[int, int]:
    """(items, sums) with one contributor, of which the coalition holds that one's number."""
    rows = found.rows
    symbols = rows.indices[sole[rows_of(rows)] & (table.kind[rows.indices] == VALUE)]
    sums = np.unique(np.stack([table.item[symbols], table.iteration[symbols]]), axis=1)
    return len(np.unique(sums[0])), sums.shape[1]
