"""The law of one share of the noise, round(N(0, s²)), from integers alone, and draws from it.

    T_k = ⌊2^128 Φ((k + ½)/s)⌋,   −K ≤ k < K,   K = ⌊13 s⌋ + 1,   s = `scale`/2^16

A random word of 128 bits is a draw of k if it is at least T_(k−1) and below T_k. The upper 64 bits nearly always
decide; where they equal those of a threshold, a second word is read. No number here is a float, so the law is the same
on every machine, and none of its digits can tell anything of what was added.

The table is made in fixed point. With h = 1/s, the middle x = kh of a cell and t = h/2, an integral over a cell is

    ∫ φ(x + u) du over |u| ≤ t  =  2t φ(x) Σ_(n even) a_n/(n + 1),   a_n = He_n(x) t^n/n!,

with (n + 1) a_(n+1) = x t a_n − t² a_(n−1), and φ((k + 1)h) = φ(kh) e^(−h²/2) e^(−kh²).
"""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import Name, Tape
from protocol.arrays import Ints

SCALE_BITS = 16  # s in units of 2^-16
MOST_SHARE_SCALE = 1 << (SCALE_BITS + 14)  # s of 16,384: its table takes seconds
TAIL = 13  # the law is cut at 13 s, beyond which 10^-38 is left
WORD, BOTH = 64, 128
_POINT = 224  # fraction bits: the table is a sum of at most 2^19 terms, each of which errs by a few units
_ONE = 1 << _POINT


@dataclass(frozen=True, slots=True, eq=False)
class ShareLaw:
    thresholds: tuple[int, ...]  # T_k in 128 bits, increasing
    upper: npt.NDArray[np.uint64]  # their upper halves
    reach: int  # K


@functools.lru_cache(maxsize=8)
def share_law(scale: int) -> ShareLaw:
    """Make the table of the law with s = `scale`/2^16; the processes of a machine are forked once it is made."""
    reach = (TAIL * scale >> SCALE_BITS) + 1
    cells = _cells(scale, reach)
    above, total = [], _ONE // 2 - cells[0] // 2  # Φ(−h/2)
    for cell in cells:
        total += cell
        above.append(min(total >> (_POINT - BOTH), (1 << BOTH) - 1))
    # Φ(−x) = 1 − Φ(x), and neither is a whole number of units
    below = [(1 << BOTH) - 1 - threshold for threshold in reversed(above)]
    thresholds = (*below, *above)
    upper = np.array([threshold >> WORD for threshold in thresholds], np.uint64)
    return ShareLaw(thresholds, upper, reach)


def _cells(scale: int, reach: int) -> list[int]:
    """Compute the probabilities of k = 0 … `reach` − 1 in fixed point."""
    square = (1 << (_POINT + 2 * SCALE_BITS)) // (scale * scale)  # h²
    step, ratio = _exp_of_minus(square), _exp_of_minus(square // 2)
    density = (_ONE * _ONE) // math.isqrt(2 * _pi() << _POINT)  # φ(0)
    density = (density << SCALE_BITS) // scale  # times 2t = h
    found = []
    for k in range(reach):
        found.append(density * _even_terms(k * square // 2, square // 4) >> _POINT)
        density = density * ratio >> _POINT
        ratio = ratio * step >> _POINT
    return found


def _even_terms(turn: int, square: int) -> int:
    """Sum a_n/(n + 1) over even n, with x t = `turn` and t² = `square`."""
    before, term, total, n = 0, _ONE, _ONE, 0
    while abs(term) > 1 or abs(before) > 1:
        before, term = term, ((turn * term - square * before) >> _POINT) // (n + 1)
        n += 1
        if n % 2 == 0:
            total += term // (n + 1)
    return total


def _exp_of_minus(x: int) -> int:
    term = total = _ONE
    n = 0
    while abs(term) > 1:
        n += 1
        term = -(term * x >> _POINT) // n
        total += term
    return total


def _pi() -> int:
    """Compute π = 4 arctan(1/2) + 4 arctan(1/3)."""
    return 4 * (_arctan_of_one_over(2) + _arctan_of_one_over(3))


def _arctan_of_one_over(n: int) -> int:
    power, total, odd = _ONE // n, 0, 1
    while power:
        total += power // odd if odd % 4 == 1 else -(power // odd)
        power //= n * n
        odd += 2
    return total


def draw_shares(tape: Tape, scale: int, count: int, *name: Name) -> Ints:
    """Draw `count` independent shares from the stream `name` of `tape`; a `scale` of 0 is no noise."""
    if scale == 0:
        return np.zeros(count, np.int64)
    law, words = share_law(scale), tape.words(count, *name)
    drawn = law.upper.searchsorted(words, side="right").astype(np.int64)
    undecided = np.flatnonzero((drawn > 0) & (law.upper[drawn - 1] == words))
    if len(undecided):
        more = tape.words(len(undecided), "more", *name)
        for at, low in zip(undecided.tolist(), more.tolist(), strict=True):
            drawn[at] = bisect.bisect_right(law.thresholds, int(words[at]) << WORD | low)
    return drawn - law.reach
