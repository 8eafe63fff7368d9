"""ω = 1 − 2γμ, a real number, among ring coefficients: a fixed odd number represents it, and is mapped back to reals.

Item factors give away Σ ω^k s_j over the k releases of a gap. The odd number keeps different combinations different,
but the amount of noise in a row depends on real coefficients. There ω is so close to 1 that it is taken as 1 (ω^100 =
.994 with the default rates).
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from protocol.arrays import Flags, Ints
from sim.audit.algebra.eliminate import inverses, rows_of, valuations

OMEGA = 0x2545F4914F6CDD1D  # any odd number would do
LONGEST = 128  # longest gap, in releases, whose coefficients are recognised


def powers(exponents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Raise ω to `exponents`, as signed 64-bit words."""
    words = np.ones(int(exponents.max(initial=0)) + 1, np.int64)
    words[1:] = OMEGA
    result: npt.NDArray[np.int64] = np.cumprod(words)[exponents]  # overflow performs the reduction
    return result


def in_reals(rows: csr_array, value: Flags, bits: int) -> npt.NDArray[np.float64]:
    """Return the coefficients of all entries as reals, each row in units of one of its users' numbers; ω is 1.

    Recognised are integers up to `LONGEST`, and sums of consecutive powers of ω (noise that is constant over a gap),
    each with either sign. Anything else counts as 1: less noise than there is, never more.
    """
    of_row, here = rows_of(rows), value[rows.indices]
    power = valuations(rows.data)
    order = np.lexsort((power[here], of_row[here]))
    first = np.unique(of_row[here][order], return_index=True)
    unit, shift = np.ones(rows.shape[0], np.int64), np.zeros(rows.shape[0], np.int64)
    unit[first[0]], shift[first[0]] = rows.data[here][order][first[1]], power[here][order][first[1]]
    with np.errstate(over="ignore"):
        words = (rows.data >> shift[of_row]) * inverses(unit >> shift)[of_row]
    known, reals = _table(bits)
    words = _signed(words, bits)
    place = np.minimum(np.searchsorted(known, words), len(known) - 1)
    return np.where(known[place] == words, reals[place], 1.0)


@functools.cache
def _table(bits: int) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Return (the sorted residues, the real that each represents)."""
    up = powers(np.arange(2 * LONGEST))
    with np.errstate(over="ignore"):
        scaled = up * inverses(powers(np.array([LONGEST])))  # ω^(−LONGEST) … ω^(LONGEST − 1)
        total = np.concatenate([[0], np.cumsum(scaled)])
        start, end = np.triu_indices(len(total), 1)
        runs = total[end] - total[start]
    small = np.arange(LONGEST + 1)
    words = np.concatenate([small, -small, runs, -runs])
    reals = np.concatenate([small, -small, end - start, start - end]).astype(np.float64)
    words, at = np.unique(_signed(words, bits), return_index=True)  # an integer takes precedence over a run
    return words, reals[at]


def _signed(words: Ints, bits: int) -> Ints:
    spare = np.int64(64 - bits)
    signed: Ints = (words << spare) >> spare
    return signed
