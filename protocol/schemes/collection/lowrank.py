"""One step of singular value thresholding on a matrix that is a sparse part plus a low-rank part, never written out.

The leading singular vectors are tracked from step to step: a block that spans them is multiplied once by the matrix
and once by its transpose and made orthogonal again. The next step corrects the error of such a step; `completion`
measures the quality of the result by a duality gap, which does not depend on the way the vectors were found.

Products with long matrices are `einsum` and sparse products, which add in one order on every machine. Only matrices as
small as the block go to LAPACK, and only single vectors to ARPACK.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from protocol.arithmetic.tape import KEY_BYTES, keystream
from protocol.arrays import Floats, Places

SPARE = 6  # directions that are tracked in addition to those that survive the threshold
_KRYLOV = 32  # vectors that ARPACK keeps
_AT_ONCE = 1 << 15  # cells per batch of gathered factors


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """left · diag(values) · rightᵀ, columns orthonormal, values decreasing and above 0."""

    left: Floats
    values: Floats
    right: Floats

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def nuclear_norm(self) -> float:
        return float(self.values.sum())

    def at(self, rows: Places, columns: Places) -> Floats:
        """Compute the entries of the cells at `rows` and `columns`."""
        found, left = np.zeros(len(rows)), self.left * self.values
        for start in range(0, len(rows) if self.rank else 0, _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            found[some] = np.einsum("nd,nd->n", left[rows[some]], self.right[columns[some]])
        return found

    def row(self, number: int) -> Floats:
        """Compute one whole row."""
        entries: Floats = np.einsum("d,jd->j", self.left[number] * self.values, self.right)
        return entries


def nothing(shape: tuple[int, int]) -> LowRank:
    return LowRank(np.zeros((shape[0], 0)), np.zeros(0), np.zeros((shape[1], 0)))


class Cells:
    """The cells Ω that are known, by row, and matrices that are 0 elsewhere."""

    def __init__(self, known: csr_matrix) -> None:
        known.sort_indices()
        self.shape: tuple[int, int] = known.shape
        self.values: Floats = known.data.astype(np.float64)
        self.columns: Places = known.indices.astype(np.int32)
        self._starts: Places = known.indptr.astype(np.int32)
        self.rows: Places = np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(known.indptr))
        # the order of the cells by column, so that a transpose is one look-up
        order = np.lexsort((self.rows, self.columns)).astype(np.int32)
        self._by_column, self._rows_by_column = order, self.rows[order]
        heights = np.bincount(self.columns, minlength=self.shape[1])
        self._column_starts = np.concatenate([[0], np.cumsum(heights)]).astype(np.int32)

    def matrix(self, values: Floats) -> tuple[csr_matrix, csr_matrix]:
        """Make the matrix with these `values` in the cells, and its transpose."""
        upright = csr_matrix((values, self.columns, self._starts), shape=self.shape)
        turned = (values[self._by_column], self._rows_by_column, self._column_starts)
        return upright, csr_matrix(turned, shape=self.shape[::-1])


def largest_singular_value(cells: Cells, values: Floats) -> float:
    """Find, for the matrix A with these `values` in its cells, σ with ‖AᵀA v − σ² v‖ ≤ 1e-4 σ² for a unit vector v.

    At an optimum many singular values are equal. The vector of the largest is then undefined, so that a smaller
    tolerance could not be met; the value is much more accurate than the vector.
    """
    from scipy.linalg import svdvals  # needed only by a recommender that completes
    from scipy.sparse.linalg import LinearOperator, svds

    upright, turned = cells.matrix(values)
    if not values.any():
        return 0.0
    if min(cells.shape) <= 2 * _KRYLOV:  # too small for ARPACK
        return float(svdvals(upright.toarray())[0])
    operator = LinearOperator(cells.shape, matvec=upright.__matmul__, rmatvec=turned.__matmul__, dtype=np.float64)
    start = first_block(min(cells.shape), 1)[:, 0]
    return float(svds(operator, k=1, ncv=_KRYLOV, tol=1e-2, v0=start, return_singular_vectors=False)[0])


def first_block(rows: int, width: int, skip: int = 0) -> Floats:
    """Draw initial directions, the same in every run: uniform on [−1, 1)."""
    words = np.frombuffer(keystream(bytes(KEY_BYTES), 8 * rows * width, "block", rows, skip), "<u8")
    return ((words >> np.uint64(12)).astype(np.float64) * 2.0**-51 - 1).reshape(rows, width)


def orthonormal(block: Floats) -> tuple[Floats, Floats, Floats]:
    """Compute (Q, s, E) with `block` · E = Q · diag(s), s decreasing, by the eigenvectors of the Gram matrix.

    Directions below 1e-6 of the largest are dropped: their squares are lost in rounding, and no threshold is that low.
    """
    from scipy.linalg import eigh

    squares, vectors = eigh(np.einsum("ni,nj->ij", block, block))
    kept = np.flatnonzero((squares > 0) & (squares > 1e-12 * squares.max(initial=0.0)))[::-1]
    lengths, vectors = np.sqrt(squares[kept]), vectors[:, kept]
    return np.einsum("ni,ij->nj", block, vectors / lengths), lengths, vectors


@dataclass(eq=False)
class Follower:
    """The block of right singular vectors, kept from one step to the next."""

    block: Floats
    drawn: int = 0

    def threshold(
        self, matrices: tuple[csr_matrix, csr_matrix], parts: list[tuple[float, LowRank]], by: float
    ) -> LowRank:
        """Subtract `by` from the singular values of sparse + Σ weight · part, and keep those that stay above 0."""
        upright, turned = matrices
        above = upright @ self.block
        for weight, part in parts:
            across = np.einsum("jd,jk->dk", part.right, self.block) * (weight * part.values)[:, None]
            above += np.einsum("id,dk->ik", part.left, across)
        left, _, _ = orthonormal(above)
        below = turned @ left
        for weight, part in parts:
            across = np.einsum("id,ik->dk", part.left, left) * (weight * part.values)[:, None]
            below += np.einsum("jd,dk->jk", part.right, across)
        right, values, turn = orthonormal(below)
        rank = int((values > by).sum())
        self._keep(right, rank)
        return LowRank(np.einsum("ik,kd->id", left, turn[:, :rank]), values[:rank] - by, right[:, :rank])

    def _keep(self, right: Floats, rank: int) -> None:
        """Keep the survivors and the next few directions, with new ones where nearly all survived."""
        rows, width = right.shape
        wanted = min(rank + SPARE + rank // 8, rows)
        if width >= wanted:
            self.block = right[:, :wanted]
            return
        self.drawn += 1
        fresh = first_block(rows, wanted - width, self.drawn) * rows**-0.5
        self.block = np.concatenate([right, fresh], axis=1)
