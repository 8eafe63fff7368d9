"""The least noise left in what a coalition holds, given what it knows about the noise alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from protocol.arrays import Flags, Floats
from sim.audit.algebra.eliminate import rows_of
from sim.audit.algebra.knowledge import FormTable
from sim.audit.algebra.linear_forms import NOISE, VALUE
from sim.audit.algebra.omega import in_reals

MOST_ROWS = 400  # rows to improve with what is known about the noise alone
MOST_NUMBERS = 10_000_000  # entries of the dense matrix of what is known about the noise alone


def least_noise(rows: csr_array, chosen: Flags, table: FormTable, bits: int) -> dict[str, Any]:
    """Measure the noise of the `chosen` row with the least unknown noise.

    Returns the fraction of the whole that remains of each kind, in a combination that has one user's number once.
    """
    if not chosen.any():
        return {}
    value = table.kind == VALUE
    bare = np.bincount(rows_of(rows), value[rows.indices], minlength=rows.shape[0]) == 0
    told = rows[np.flatnonzero(chosen)]
    kept = _noise_of(told.copy(), table, bits)  # it drops entries in place
    known = vstack([_noise_of(rows[np.flatnonzero(bare)], table, bits), _differences(told, kept, table, bits)])
    least = _least(kept, known.tocsr(), table)
    parts, there = least**2 * table.weight, np.flatnonzero(np.abs(least) > 1e-9)
    words = table.what[there]
    return {table.words[word]: float(parts[there][words == word].sum()) for word in np.unique(words).tolist()}


def _differences(told: csr_array, kept: csr_array, table: FormTable, bits: int) -> csr_array:
    """Subtract, among the rows that tell the same of users' numbers, the first from each other one.

    What is left is about noise alone: with it, the best combination of such rows is found, not the best of them.
    """
    value = table.kind == VALUE
    here = value[told.indices]
    reals = np.where(here, np.round(in_reals(told, value, bits) * 1024), 0).astype(np.int64)
    names = np.random.default_rng(2).integers(-(1 << 62), 1 << 62, told.shape[1], np.int64)
    pattern = csr_array((reals, told.indices, told.indptr), shape=told.shape)
    same = np.asarray(pattern @ names)  # equal for others with probability 2^-63
    _, first, which = np.unique(same, return_index=True, return_inverse=True)
    others = np.setdiff1d(np.arange(told.shape[0]), first)[:MOST_ROWS]
    found: csr_array = kept[others] - kept[first[which.ravel()[others]]]
    found.eliminate_zeros()
    return found


def _noise_of(rows: csr_array, table: FormTable, bits: int) -> csr_array:
    """Return the real coefficients of the noise in `rows`."""
    data = np.where(table.kind[rows.indices] == NOISE, in_reals(rows, table.kind == VALUE, bits), 0.0)
    noise = csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    noise.eliminate_zeros()
    return noise


def _least(kept: csr_array, bare: csr_array, table: FormTable) -> Floats:
    """Return the row of the least variance after subtracting the multiples of `bare` that minimise it."""
    variances = np.bincount(rows_of(kept), kept.data**2 * table.weight[kept.indices], minlength=kept.shape[0])
    least = int(np.argmin(variances))
    columns = np.unique(bare.indices)
    shared = np.zeros(kept.shape[1], np.bool_)
    shared[columns] = True
    touched = np.unique(rows_of(kept)[shared[kept.indices]])
    found: Floats = kept[[least]].toarray()[0]
    if not len(touched) or bare.shape[0] * len(columns) > MOST_NUMBERS:
        return found
    some = touched[np.argsort(variances[touched], kind="stable")[:MOST_ROWS]]
    inside, known, root = kept[some][:, columns].toarray(), bare[:, columns].toarray(), np.sqrt(table.weight[columns])
    # min_c |√w (row + c · bare)|²
    times = np.linalg.lstsq((known * root).T, -(inside * root).T, rcond=None)[0]
    left = inside + times.T @ known
    improved = variances[some] + (((left * root) ** 2) - ((inside * root) ** 2)).sum(axis=1)
    if improved.min() < variances[least]:
        best = int(np.argmin(improved))
        found = kept[[some[best]]].toarray()[0]
        found[columns] = left[best]
    return found
