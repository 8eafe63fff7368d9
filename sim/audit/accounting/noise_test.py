"""A one-sided test for missing noise, which a correct run fails only by chance, whatever its gradients are.

Given everything before it, a released value is y = m + ρ: m is unknown but fixed, ρ has a symmetric law with one peak
and a known median size q (|N(0, σ²)|: .6745 σ, σ² = 2b²H; |Laplace(0, b)|: b ln 2). For any guess g that is made before
y is seen, P(|y − g| ≤ q) ≤ 1/2, with equality for g = m (Anderson's lemma). So the number of such values is at most
Binomial(n, 1/2): too many of them mean too little noise. A poor guess can hide missing noise but never simulate it.

Guesses: 0 for the first release of an item, whose noise is η + ρ; later the mean of its earlier sums, weighted by 1/H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from protocol.arrays import Counts, Floats

FALSE_ALARM = 1e-6  # upper bound for the whole test in a correct run
NORMAL_MEDIAN = float(stats.norm.ppf(0.75))  # of |N(0, 1)|
LAPLACE_MEDIAN = math.log(2)  # of |Laplace(0, 1)|
_BINS, _PER_UNIT = 8000, 1000  # histogram of |y − g|/q, for its median; the last bin holds the rest


@dataclass(slots=True)
class NoiseBin:
    """Values that are counted together."""

    name: str
    n: int = 0
    inside: int = 0  # |y − g| ≤ q
    sizes: Counts | None = None  # histogram of |y − g|/q

    def add(self, ratios: Floats) -> None:
        """Add values by their `ratios` |y − g|/q."""
        if self.sizes is None:
            self.sizes = np.zeros(_BINS + 1, np.int64)
        self.n += ratios.size
        self.inside += int(np.count_nonzero(ratios <= 1))
        places = np.minimum(ratios.ravel() * _PER_UNIT, _BINS).astype(np.int64)
        self.sizes += np.bincount(places, minlength=_BINS + 1)

    @property
    def p_value(self) -> float:
        return float(stats.binom.sf(self.inside - 1, self.n, 0.5))

    def quantile(self, part: float) -> float:
        """Return a quantile of |y − g|/q; the scale of the noise is at most its median times the law's scale."""
        assert self.sizes is not None
        wanted = min(max(part, 0.0), 1.0) * self.n
        return float((np.searchsorted(np.cumsum(self.sizes), wanted) + 0.5) / _PER_UNIT)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval of the median from order statistics (a binomial count lies below it)."""
        low, high = stats.binom.interval(level, self.n, 0.5)
        return self.quantile(low / self.n), self.quantile(high / self.n)


class NoiseTest:
    """Cells by number of contributors (a sum of few is mostly noise, so its guess is good), and one per group."""

    def __init__(self, n_groups: int) -> None:
        self.cells: dict[str, NoiseBin] = {}
        self.group_n = np.zeros(n_groups, np.int64)  # values per group: an item, or a user
        self.group_inside = np.zeros(n_groups, np.int64)

    def add(self, kind: str, groups: Counts, ratios: Floats, contributors: Counts | None = None) -> None:
        """Add rows of |y − g|/q; `groups` and `contributors` give each row's group and number of contributors."""
        if not len(ratios):
            return
        np.add.at(self.group_n, groups, ratios.shape[1])
        np.add.at(self.group_inside, groups, (ratios <= 1).sum(axis=1))
        if contributors is None:
            self._cell(kind).add(ratios)
            return
        octaves = np.minimum(np.log2(contributors).astype(np.int64), 4)
        for octave in np.unique(octaves).tolist():
            low, high = 2**octave, 2 ** (octave + 1) - 1
            many = f"{low}" if low == high else f"{low}-{high}" if octave < 4 else f"{low} or more"
            self._cell(f"{kind}, contributors {many}").add(ratios[octaves == octave])

    def _cell(self, name: str) -> NoiseBin:
        return self.cells.setdefault(name, NoiseBin(name))

    def result(self) -> dict[str, Any] | None:
        """Return the result, or None if nothing could be tested; p-values are Bonferroni-corrected."""
        if not self.cells:
            return None
        tested = np.flatnonzero(self.group_n)
        groups: Floats = np.asarray(stats.binom.sf(self.group_inside[tested] - 1, self.group_n[tested], 0.5))
        tests = len(self.cells) + len(tested)
        least = min(self.cells.values(), key=lambda cell: cell.p_value)
        worst = int(tested[int(groups.argmin())])
        p = min(1.0, tests * min(least.p_value, float(groups.min())))
        return {
            "p": p,
            "missing": p < FALSE_ALARM,
            "tests": tests,
            "values": int(sum(cell.n for cell in self.cells.values())),
            "cells": [_describe(cell, tests) for cell in self.cells.values()],
            "least": _describe(least, tests),
            "group": {
                "number": worst,
                "n": int(self.group_n[worst]),
                "inside": int(self.group_inside[worst]),
                "p": min(1.0, tests * float(groups.min())),
            },
            "finds_below": max(_power(cell, tests) for cell in self.cells.values()),
        }


def _describe(cell: NoiseBin, tests: int) -> dict[str, Any]:
    low, high = cell.interval()
    return {
        "cell": cell.name,
        "n": cell.n,
        "inside": cell.inside,
        "ratio": cell.quantile(0.5),
        "interval": [low, high],
        "p": min(1.0, tests * cell.p_value),
    }


def _power(cell: NoiseBin, tests: int) -> float:
    """Estimate the fraction of its scale below which noise would have been found missing, if the noise here is whole.

    It is found where the median of |y − g|/q is below a critical c₀ < 1. That median is now r ≥ 1 (the upper end of its
    interval is taken): r² − 1 is what the guess adds. With f times the noise it is √(f² + r² − 1) or less, because the
    guess gets better too.
    """
    inside = stats.binom.isf(FALSE_ALARM / tests, cell.n, 0.5) / cell.n  # critical fraction inside
    if inside >= 1:
        return 0.0
    # a fraction `inside` of |N(0, c₀²)| lies below the median of |N(0, 1)|
    critical = NORMAL_MEDIAN / float(stats.norm.ppf(0.5 + inside / 2))
    return math.sqrt(max(0.0, critical**2 + 1 - max(1.0, cell.interval()[1]) ** 2))
