"""Real vectors that travel as floats, for the schemes that hide nothing in a ring.

A role touches them only through this object, as it touches ring values only through its ring, so that an audit can
run the same role on linear forms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Label, everywhere
from protocol.arrays import Ids, RealArray


class Reals:
    __slots__ = ()

    def mark(self, values: RealArray, label: Label) -> RealArray:
        """Name `values` by `label`: a run ignores it, an audit on linear forms uses it."""
        return values

    def computed(self, values: RealArray, label: Label) -> RealArray:
        """Name numbers that a role has worked out and goes on with, bare: a run ignores it, an audit may learn them."""
        return values

    def add(self, first: RealArray, *others: RealArray) -> RealArray:
        total = first.copy()
        for other in others:
            total += other
        return total

    def narrow(self, values: RealArray) -> RealArray:
        """Round `values` to the precision in which they travel."""
        return values.astype(np.float32)

    def widen(self, values: RealArray) -> RealArray:
        """Convert `values` to the precision in which a role computes."""
        return values.astype(np.float64)

    def within(self, values: RealArray, limit: float) -> bool:
        return everywhere(np.abs(values) <= limit)

    def sum_by_item(self, parts: Sequence[tuple[Ids, RealArray]], items: Ids, n_items: int) -> RealArray:
        """Sum the rows of each of `items`, in the order of `parts`, because float addition is not associative."""
        from scipy.sparse import csc_matrix  # slow to import, and only servers add

        rows = np.concatenate([rows for _, rows in parts])
        ids = np.concatenate([ids for ids, _ in parts])
        which = csc_matrix((np.ones(len(ids)), ids, np.arange(len(ids) + 1)), shape=(n_items, len(ids)))
        summed: RealArray = (which @ rows)[items]
        return summed

    def open(self, values: RealArray) -> npt.NDArray[np.float64]:
        """Return the bare numbers, of which the role makes item factors."""
        return values
