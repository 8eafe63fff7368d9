"""The knowledge of a coalition, as rows over the symbols that none of its members knows.

Rows are the ring values and reals that its members received over all iterations, and the sums that item factors give
away: a party that receives v_j at two times knows what moved it in between,

    v_j(t+1) = ω v_j(t) − (γ/k_j) s_j(t),   ω = 1 − 2γμ   if the sum s_j(t) was released, else v_j(t+1) = v_j(t),

so over a gap it knows the combination Σ ω^(releases after it) s_j(·). ω is a real number and rows have ring
coefficients: `omega.py` explains the number that represents it. A first sighting tells nothing exact about the sums
before it: v_j(0) is drawn from the recommender's tape, so it gives one equation with an unknown that occurs in no
other. The published factors of an item are of this kind to users that did not rate it. Such items are counted
(`totals_under_first_factors`), because the length of v_j(0) is known (1), and it hides little of a much larger total.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from protocol.arrays import Flags, Ints
from sim.audit.algebra.eliminate import reduce
from sim.audit.algebra.held_keys import HeldKeys
from sim.audit.algebra.linear_forms import NOISE, SUM, UNIFORM, VALUE, ZERO, Forms
from sim.audit.algebra.omega import powers
from sim.audit.algebra.symbolic_run import Hearing

LOW = (1 << 32) - 1  # bits of a pair's second number, which is stored plus 1
MANY = 100_000  # above this many rows, dropping those that follow from others saves more than it costs

Compact = tuple[csr_array, Ints]  # rows, and the leaf of each column


class FormTable:
    """Rows over unknown symbols, and the attributes of each symbol, by its column."""

    def __init__(self, rows: csr_array, leaves: Ints, forms: Forms) -> None:
        self.rows = rows
        self.kind, self.owner, self.what = forms.kind[leaves], forms.owner[leaves], forms.what[leaves]
        self.item, self.iteration, self.weight = forms.item[leaves], forms.iteration[leaves], forms.weight[leaves]
        self.owners, self.words = forms.owners, forms.words


class Library:
    """Everything that all coalitions of a run share: forms are expanded once."""

    def __init__(self, hearing: Hearing, bits: int, sample: str = "") -> None:
        self.sample = sample  # which places were followed, if not all
        self.hearing = hearing
        self.forms = hearing.forms
        self.bits = bits
        self._edges = hearing.forms.children()
        drawn_from = (key for key, _ in hearing.arena.streams)
        self.keys = HeldKeys(drawn_from, hearing.arena.derived, hearing.seeds, hearing.run_id)
        self._key_of = self._leaf_keys()
        releases = hearing.releases
        self.release_items = _joined([entry.items for entry in releases])
        times, lengths = [entry.iteration for entry in releases], [len(entry.items) for entry in releases]
        self.release_times = np.repeat(np.array(times, np.int64), np.array(lengths, np.int64))
        self.openers = {entry.party for entry in releases}
        self.released = _compact(self.forms.of(_joined([entry.nodes for entry in releases])))
        self.contributors = self._contributors()
        self.follows = self.forms.has_followed  # some numbers of this run have forms

    def _leaf_keys(self) -> npt.NDArray[np.int32]:
        of = np.full(len(self.forms.kind), -1, np.int32)
        for (key, _), nodes in self.hearing.arena.streams.items():
            of[nodes[nodes != ZERO]] = self.keys.numbers[key]
        return of

    def _contributors(self) -> npt.NDArray[np.int64]:
        """Count, for every release, the users whose numbers are in it."""
        rows, leaves = self.released
        return count_owners(rows, (self.forms.kind[leaves] == VALUE)[rows.indices], self.forms.owner[leaves])

    @functools.cached_property
    def noises(self) -> frozenset[str]:
        """Return the kinds of noise that the opened sums carry."""
        leaves = self.released[1]
        noise = (self.forms.kind[leaves] == NOISE) & ~self.forms.nought[leaves]
        return frozenset(self.forms.words[word] for word in np.unique(self.forms.what[leaves[noise]]).tolist())

    @functools.cached_property
    def lonely(self) -> npt.NDArray[np.int64]:
        """Return (item, iteration), as pairs, of the numbers that were opened with no other user's in the sum."""
        rows, leaves = self.released
        alone = np.repeat(self.contributors == 1, np.diff(rows.indptr))
        symbols = leaves[rows.indices[alone]]
        symbols = symbols[self.forms.kind[symbols] == VALUE]
        return np.unique(as_pairs(self.forms.item[symbols], self.forms.iteration[symbols]))

    def contributors_of(self, release: int) -> list[str]:
        rows, leaves = self.released
        symbols = leaves[rows.indices[rows.indptr[release] : rows.indptr[release + 1]]]
        owners = self.forms.owner[symbols[self.forms.kind[symbols] == VALUE]]
        return [self.forms.owners[owner] for owner in np.unique(owners).tolist()]

    @functools.cached_property
    def thin(self) -> Compact:
        """Return the releases with at most three users' symbols of each pattern and kind.

        Symbols with the same coefficients in all releases stay or vanish together in every combination. Three of them
        suffice to tell whether one or several users outside the coalition are left, and whether noise is left.
        """
        rows, leaves = self.released
        owner, kind = self.forms.owner[leaves], self.forms.kind[leaves]
        weights = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, rows.shape[0], np.int64)
        pattern = rows.T @ weights  # equal for equal columns, and for others with probability 2^-63
        order = np.lexsort((owner, kind, pattern))
        new = np.ones(len(leaves), np.bool_)
        new[1:] = (np.diff(pattern[order]) != 0) | (np.diff(kind[order]) != 0)
        other = new.copy()  # its owner differs from that of the symbol before it
        other[1:] |= np.diff(owner[order]) != 0
        number = np.cumsum(other)
        begin = np.repeat(number[new], np.diff(np.flatnonzero(new), append=len(leaves)))
        kept = np.zeros(len(leaves), np.bool_)
        kept[order] = number - begin < 3
        thin = rows.copy()
        thin.data = np.where(kept[rows.indices], rows.data, 0)
        thin.eliminate_zeros()
        return _compact(thin, leaves)

    @functools.cached_property
    def _thinned_away(self) -> Flags:
        """Mark the leaves that `thin` omits: a row that has one of them needs the full releases."""
        away = np.zeros(len(self.forms.kind), np.bool_)
        away[self.released[1]] = True
        away[self.thin[1]] = False
        return away

    # --- one coalition -------------------------------------------------------------------------------------------

    def known(self, members: Sequence[str], leaves: Ints) -> Flags:
        """Mark the leaves that the coalition knows.

        A member made the number, or can draw it from a key that it holds or can compute, or the number is known to
        be zero.
        """
        forms, heard = self.forms, self.hearing.heard
        of_member = np.isin(np.array([*forms.owners, ""]), members)  # the last entry is for nodes without an owner
        kind = forms.kind[leaves]
        own = of_member[forms.owner[leaves]] & ((kind == VALUE) | (kind == NOISE))
        held = self.keys.held(key for member in members for key in heard[member].keys)
        drawn: Flags = held[self._key_of[leaves]] & (kind == UNIFORM)
        known: Flags = own | drawn | forms.nought[leaves]
        return known

    def table(self, members: Sequence[str], thinned: bool = False) -> FormTable:
        """Return everything that the coalition holds, less what it knows.

        `thinned` keeps only what is needed to grade one user alone.
        """
        heard = _joined([nodes for member in members for nodes in self.hearing.heard[member].nodes])
        size, parts = len(self.forms.kind), []
        if len(heard):
            heard = np.unique(heard)
            parts.append(self.forms.of(self._needed(heard, members) if len(heard) > MANY else heard))
        if self.openers.isdisjoint(members):
            whole = not thinned or any(self._thinned_away[part.indices].any() for part in parts)
            rows, leaves = self.released if whole else self.thin
            given = self._from_factors(members, rows)
            parts.append(csr_array((given.data, leaves[given.indices], given.indptr), shape=(given.shape[0], size)))
        rows = vstack(parts, format="csr") if parts else csr_array((0, size), dtype=np.int64)
        return self._unknown(*_compact(rows), members)

    def opened(self, members: Sequence[str]) -> FormTable:
        """Return every sum that was opened, less what the members know."""
        rows, leaves = self.released
        return self._unknown(rows.copy(), leaves, members)

    def _unknown(self, rows: csr_array, leaves: Ints, members: Sequence[str]) -> FormTable:
        rows.data = np.where(self.known(members, leaves)[rows.indices], 0, rows.data)
        rows = reduce(rows, self.bits)
        return FormTable(rows[np.flatnonzero(np.diff(rows.indptr))], leaves, self.forms)

    def _needed(self, heard: Ints, members: Sequence[str]) -> Ints:
        """Drop the sums of which the coalition holds every part: they tell nothing more."""
        inner = self.forms.kind == SUM
        derivable = self.known(members, np.arange(len(inner)))
        derivable[heard] = True
        derivable[0] = True
        while True:
            missing = self._edges @ (~derivable).astype(np.int32)
            whole = inner & (missing == 0)
            if not (whole & ~derivable).any():
                break
            derivable |= whole
        needed: Ints = heard[~whole[heard]]
        return needed

    def _sightings(self, members: Sequence[str]) -> npt.NDArray[np.int64]:
        """Count how often the members received each item's factors up to each time: [time, item]."""
        seen = np.zeros((int(self.release_times.max()) + 2, int(self.release_items.max()) + 1), np.int64)
        for member in members:
            for iteration, told in self.hearing.heard[member].sightings:
                if iteration >= 0:  # all sightings after the last release are equivalent
                    seen[min(iteration, len(seen) - 1), told[told < seen.shape[1]]] = 1
        return seen.cumsum(axis=0)

    def totals_under_first_factors(self, members: Sequence[str]) -> int:
        """Count the items of which the members hold only one weighted total of sums, less v_j(0)."""
        items, times = self.release_items, self.release_times
        if not self.openers.isdisjoint(members) or not (items >= 0).any():
            return 0
        sightings = self._sightings(members)
        before = (items >= 0) & (sightings[times, items] == 0) & (sightings[-1, items] > 0)
        return len(np.unique(items[before]))

    def _from_factors(self, members: Sequence[str], released: csr_array) -> csr_array:
        """Return the sums that two sightings of an item's factors give away: a row per gap with a release."""
        items, times = self.release_items, self.release_times
        if not (items >= 0).any():
            return released[np.zeros(0, np.int64)]
        sightings = self._sightings(members)
        gap = sightings[times, items]  # number of the last sighting up to the release; 0: none yet
        inside = np.flatnonzero((items >= 0) & (gap > 0) & (gap < sightings[-1, items]))
        inside = inside[np.lexsort((times[inside], items[inside]))]
        key = items[inside] * len(sightings) + gap[inside]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        lengths = np.diff(first, append=len(key))
        row = np.repeat(np.arange(len(first)), lengths)
        after = np.repeat(first + lengths, lengths) - 1 - np.arange(len(key))  # later releases in the same gap
        which = csr_array((powers(after), (row, inside)), shape=(len(first), len(items)))
        rows: csr_array = which @ released
        return rows


def _compact(rows: csr_array, names: Ints | None = None) -> Compact:
    """Keep only the columns that have entries, and return the leaf of each of them."""
    if rows.nnz > rows.shape[1] // 4:  # with few entries, sorting them is cheaper than a table of all columns
        there = np.zeros(rows.shape[1], np.bool_)
        there[rows.indices] = True
        columns, place = np.flatnonzero(there), (np.cumsum(there) - 1)[rows.indices]
    else:
        columns, place = np.unique(rows.indices, return_inverse=True)
    small = csr_array((rows.data, place, rows.indptr), shape=(rows.shape[0], len(columns)))
    return small, columns.astype(np.int64) if names is None else names[columns]


def _joined(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def as_pairs(one: npt.NDArray[np.int32], other: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Pack two numbers into one, the first above the second; the second may be −1."""
    pairs: npt.NDArray[np.int64] = (one.astype(np.int64) << 32) | (other.astype(np.int64) + 1)
    return pairs


def count_owners(rows: csr_array, counted: Flags, owner: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Count, per row, the different owners among the entries that `counted` marks."""
    of_row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[counted]
    pairs = of_row * (np.int64(1) << 32) + owner[rows.indices[counted]]
    pairs.sort()
    return np.bincount(pairs[np.diff(pairs, prepend=-1) != 0] >> 32, minlength=rows.shape[0])
