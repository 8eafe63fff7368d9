"""The law of the shares of noise: what users drew on this run's messages, divided by the scale that is stated for it.

Every tape gives one value for each entry that is covered, and they are independent given the messages. So the energy of
any group of them has a χ² law: the squares of normal values have one degree of freedom each, and 2|x|/b of Laplace
values two. Noise that is too small for one user, item or iteration shows there; noise whose tail is cut off shows in
how few values are far out, and noise that leaves fraction bits unused in a divisor that all its numbers have. As many
tapes are tried as the smallest group needs for half of its noise to show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import ndtri

from protocol.arrays import Floats, Ints
from sim.audit.findings import Finding
from sim.audit.pairs.twice import Shift

FALSE_ALARM = 1e-6  # of all tests of a kind together, at most
POWER = 0.99  # with which noise of half its size shows in a group that has enough values
FINE = 64  # units of rounding in a scale, at least: rounding is not noticed then
FEW_BITS = 40  # numbers that have a divisor in common by chance with a probability of 2^-40
TAILS = (0.1, 0.01, 0.001)  # parts of the law that lie farthest out

NORMAL, LAPLACE = 1, 2  # degrees of freedom of one value
GROUPS = (("user",), ("item",), ("iteration",), ("user", "item"), ("user", "iteration"))


class StatedLaw(NamedTuple):
    """The stated law of a user's noise: its standard deviation or, for Laplace noise, b."""

    scale: Floats  # a row for each item, or one for all
    degrees: int = NORMAL


LawOf = Callable[[Shift], StatedLaw | None]  # None: nothing is stated


@cache
def enough(groups: int) -> int:
    """Compute how many degrees of freedom a group needs, of so many, for half of its noise to show with `POWER`."""
    level, n = FALSE_ALARM / max(1, groups), 1
    while stats.chi2.cdf(4 * stats.chi2.ppf(level, n), n) < POWER:
        n += 1
    return n


class LawTest:
    """Collects what was drawn, row by row, and judges it at the end."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows: list[npt.NDArray[np.int64]] = []  # name, user, item, iteration
        self.energies: list[Floats] = []  # of each row, and its degrees of freedom
        self.far: dict[str, list[int]] = {}  # values, and how many of them lie in each tail
        self.divisors: dict[tuple[int, str], tuple[int, int]] = {}  # by user and name: numbers, and what divides all

    def add(self, user: int, shift: Shift, values: Floats, unit: float, law: StatedLaw) -> None:
        """Add the `values` of one tape, which are multiples of `unit` (0: reals)."""
        scale = np.broadcast_to(law.scale, values.shape)
        kept = scale >= FINE * unit
        size = np.abs(values) / np.where(kept, scale, np.inf)
        energy = 2 * size if law.degrees == LAPLACE else size**2
        if shift.what not in self.names:
            self.names.append(shift.what)
        same = np.ones(len(size), np.int64)
        key = self.names.index(shift.what)
        self.rows.append(
            np.column_stack([key * same, user * same, shift.items.astype(np.int64), shift.iteration * same])
        )
        self.energies.append(np.column_stack([energy.sum(axis=1), law.degrees * kept.sum(axis=1)]))
        counts = self.far.setdefault(shift.what, [0] * (1 + len(TAILS)))
        counts[0] += int(kept.sum())
        for place, tail in enumerate(TAILS, 1):
            limit = -math.log(tail) if law.degrees == LAPLACE else -float(ndtri(tail / 2))
            counts[place] += int((size > limit).sum())
        if unit and kept.any():
            units: Ints = np.rint(values[kept] / unit).astype(np.int64)
            numbers, divisor = self.divisors.get((user, shift.what), (0, 0))
            self.divisors[user, shift.what] = numbers + len(units), math.gcd(divisor, int(np.gcd.reduce(units)))

    def judge(self) -> tuple[dict[str, Any], list[Finding]]:
        """Return (figures, findings)."""
        if not self.rows:
            return {}, []
        rows, energies, found = np.concatenate(self.rows), np.concatenate(self.energies), list[Finding]()
        columns = {"user": 1, "item": 2, "iteration": 3}
        groups = [_grouped(rows[:, [0, *(columns[name] for name in names)]], energies) for names in GROUPS]
        tests = sum(len(keys) for keys, _ in groups)
        figures = {"groups": tests, "values": int(energies[:, 1].sum()), "half_shows_from": enough(tests)}
        for names, (keys, sums) in zip(GROUPS, groups, strict=True):
            p = np.where(sums[:, 1] > 0, stats.chi2.cdf(sums[:, 0], np.maximum(sums[:, 1], 1)), 1.0)
            worst = int(p.argmin())
            if p[worst] * tests < FALSE_ALARM:
                part = math.sqrt(float(sums[worst, 0] / sums[worst, 1]))
                where = " and ".join(f"{name} {key}" for name, key in zip(names, keys[worst, 1:].tolist(), strict=True))
                found.append(_small(self.names[int(keys[worst, 0])], where, part, int(sums[worst, 1])))
                break
        found += [] if found else self._truncated()
        coarse = [
            _coarse(user, what, numbers, divisor)
            for (user, what), (numbers, divisor) in self.divisors.items()
            if divisor > 1 and numbers >= FEW_BITS
        ]
        return figures, [*found, *coarse[:1]]

    def _truncated(self) -> list[Finding]:
        tests = len(self.far) * len(TAILS)
        for what, (values, *counts) in self.far.items():
            for tail, count in zip(TAILS, counts, strict=True):
                if tests * stats.binom.cdf(count, values, tail) < FALSE_ALARM:
                    return [_cut(what, tail, count, values)]
        return []


def _grouped(keys: npt.NDArray[np.int64], energies: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Sum the energies and degrees of freedom of rows with equal keys."""
    packed = np.zeros(len(keys), np.int64)
    for column in (keys - keys.min(axis=0)).T:
        packed = packed * (int(column.max()) + 1) + column
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    sums: Floats = np.column_stack([np.bincount(inverse, weights=column) for column in energies.T]).astype(np.float64)
    return keys[first], sums


def _small(what: str, where: str, part: float, values: int) -> Finding:
    return _finding(
        f"The noise {what} of {where} has {part:.2f} of its stated size.",
        part,
        f"a χ² test of {values} degrees of freedom, p below {FALSE_ALARM:g} over all groups together",
    )


def _cut(what: str, tail: float, count: int, values: int) -> Finding:
    return _finding(
        f"The noise {what} has too few large values: {count} of {values} lie where {tail:.1%} of its law do.",
        count / values,
        f"a binomial test, p below {FALSE_ALARM:g} over all tails together",
    )


def _coarse(user: int, what: str, numbers: int, divisor: int) -> Finding:
    return _finding(
        f"The noise {what} of user {user} leaves fraction bits unused: all its numbers are multiples of {divisor} "
        "units.",
        divisor,
        f"{numbers} numbers, which have a common divisor by chance with a probability of 2^-{FEW_BITS}",
    )


def _finding(title: str, measured: float, confidence: str) -> Finding:
    return Finding(
        "missing-noise",
        title,
        ("user",),
        "break",
        claimed=1,
        measured=measured,
        chance=1,
        confidence=confidence,
        evidence="the user's role on the messages of this run, with its own tape and with others",
    )
