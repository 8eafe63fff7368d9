"""What a coalition holds, as rows over the symbols that nobody in it knows.

Rows are the ring values and reals that its members received over all iterations, and the sums that item factors give
away: who is told v_j at two times knows what moved it in between,

    v_j(t+1) = ω v_j(t) − (γ/k_j) s_j(t),   ω = 1 − 2γμ   if the sum s_j(t) was released, else v_j(t+1) = v_j(t),

so over a gap the combination Σ ω^(releases after it) s_j(·). ω is a real number and rows have ring coefficients; a
fixed odd number stands for it, under which different combinations stay as different as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from sim.audit.algebra.arena import NOISE, SUM, UNIFORM, VALUE, Forms, Nodes
from sim.audit.algebra.eliminate import reduce
from sim.audit.algebra.rerun import Hearing

OMEGA = 0x2545F4914F6CDD1D  # odd; any other would do

Mask = npt.NDArray[np.bool_]


class Table:
    """Rows over unknown symbols, and what is known of each symbol, by its column."""

    def __init__(self, rows: csr_array, leaves: Nodes, forms: Forms) -> None:
        self.rows = rows
        self.kind, self.owner, self.what = forms.kind[leaves], forms.owner[leaves], forms.what[leaves]
        self.item, self.iteration, self.weight = forms.item[leaves], forms.iteration[leaves], forms.weight[leaves]
        self.owners, self.words = forms.owners, forms.words


class Library:
    """What all coalitions of a run share: forms are expanded once."""

    def __init__(self, hearing: Hearing, bits: int) -> None:
        self.hearing = hearing
        self.forms = hearing.forms
        self.bits = bits
        self._edges = hearing.forms.children()
        self._key_of, self._keys = self._leaf_keys()
        releases = hearing.releases
        self.release_items = _joined([entry.items for entry in releases])
        times, lengths = [entry.iteration for entry in releases], [len(entry.items) for entry in releases]
        self.release_times = np.repeat(np.array(times, np.int64), np.array(lengths, np.int64))
        self.openers = {entry.party for entry in releases}
        self.released = self.forms.of(_joined([entry.nodes for entry in releases]))
        self.contributors = self._contributors()

    def _leaf_keys(self) -> tuple[npt.NDArray[np.int32], dict[bytes, int]]:
        numbers: dict[bytes, int] = {}
        of = np.full(len(self.forms.kind), -1, np.int32)
        for (key, _), nodes in self.hearing.arena.streams.items():
            of[nodes] = numbers.setdefault(key, len(numbers))
        return of, numbers

    def _contributors(self) -> npt.NDArray[np.int64]:
        """Of every release: how many users' numbers are in it."""
        rows = self.released
        return count_owners(rows, self.forms.kind[rows.indices] == VALUE, self.forms.owner)

    # --- one coalition -------------------------------------------------------------------------------------------

    def known(self, members: Sequence[str], leaves: Nodes) -> Mask:
        """Of these leaves: whether a member made it, or can draw it from a key that it holds."""
        forms, heard = self.forms, self.hearing.heard
        of_member = np.isin(np.array([*forms.owners, ""]), members)  # the last is nobody: a node that is no leaf
        kind = forms.kind[leaves]
        own = of_member[forms.owner[leaves]] & ((kind == VALUE) | (kind == NOISE))
        held = np.zeros(len(self._keys) + 1, np.bool_)
        keys = {key for member in members for key in heard[member].keys}
        held[[self._keys[key] for key in keys & self._keys.keys()]] = True
        drawn: Mask = held[self._key_of[leaves]] & (kind == UNIFORM)
        known: Mask = own | drawn
        return known

    def table(self, members: Sequence[str]) -> Table:
        """Everything that the coalition holds, without what it knows."""
        heard = _joined([nodes for member in members for nodes in self.hearing.heard[member].nodes])
        parts = []
        if len(heard):
            parts.append(self.forms.of(self._needed(np.unique(heard), members)))
        if self.openers.isdisjoint(members):
            parts.append(self._from_factors(members))
        rows = vstack(parts, format="csr") if parts else csr_array((0, len(self.forms.kind)), dtype=np.int64)
        leaves, column = np.unique(rows.indices, return_inverse=True)
        rows = csr_array((rows.data, column, rows.indptr), shape=(rows.shape[0], len(leaves)))
        rows.data = np.where(self.known(members, leaves)[column], 0, rows.data)
        rows = reduce(rows, self.bits)
        return Table(rows[np.flatnonzero(np.diff(rows.indptr))], leaves, self.forms)

    def _needed(self, heard: Nodes, members: Sequence[str]) -> Nodes:
        """Without sums of which the coalition holds every part: they tell nothing more."""
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
        needed: Nodes = heard[~whole[heard]]
        return needed

    def _from_factors(self, members: Sequence[str]) -> csr_array:
        """The sums that two sightings of an item's factors give away."""
        n_items = int(self.release_items.max()) + 1 if len(self.release_items) else 0
        last = int(self.release_times.max()) + 2 if n_items else 0
        seen = np.zeros((last, n_items), np.bool_)
        for member in members:
            for iteration, items in self.hearing.heard[member].sightings:
                if 0 <= iteration < last:
                    seen[iteration, items[items < n_items]] = True
        entries: list[tuple[int, int, int]] = []  # (row, release, coefficient)
        row = 0
        starts, order = self._releases_by_item(n_items)
        for item in np.flatnonzero(seen.any(axis=0)).tolist():
            mine = order[starts[item] : starts[item + 1]]
            gap = np.searchsorted(np.flatnonzero(seen[:, item]), self.release_times[mine], side="right")
            for between in range(1, int(seen[:, item].sum())):
                inside = mine[gap == between]
                powers = zip(inside.tolist(), _powers(len(inside)), strict=True)
                entries += [(row, release, power) for release, power in powers]
                row += len(inside) > 0
        rows: csr_array = _matrix(entries, row, len(self.release_items)) @ self.released
        return rows

    def _releases_by_item(self, n_items: int) -> tuple[Nodes, Nodes]:
        order = np.lexsort((self.release_times, self.release_items))
        return np.searchsorted(self.release_items[order], np.arange(n_items + 1)), order


def _powers(count: int) -> list[int]:
    """ω^(count−1) … ω^0 as signed 64-bit words."""
    return [((pow(OMEGA, count - 1 - at, 1 << 64) + (1 << 63)) % (1 << 64)) - (1 << 63) for at in range(count)]


def _matrix(entries: list[tuple[int, int, int]], rows: int, columns: int) -> csr_array:
    table = np.array(entries, np.int64).reshape(-1, 3)
    return csr_array((table[:, 2], (table[:, 0], table[:, 1])), shape=(rows, columns))


def _joined(parts: Iterable[Nodes]) -> Nodes:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def count_owners(rows: csr_array, counted: Mask, owner: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Per row, the number of different owners among the entries that are counted."""
    of_row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[counted]
    pairs = np.unique(of_row * (np.int64(1) << 32) + owner[rows.indices[counted]])
    return np.bincount(pairs >> 32, minlength=rows.shape[0])
