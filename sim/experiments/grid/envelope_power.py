"""The power of the check of H that a user can make, against the envelopes that a recommender may deal instead.

A user of `ITEMS` items sees ITEMS · DIM numbers of the objective noise, and as many of the iteration noise in each
iteration. After t iterations it tests all of them together for Exp(1), by Kolmogorov and Smirnov, at 5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arrays import Floats

ITEMS, DIM, LEVEL, REPETITIONS = 20, 10, 0.05, 1000
ITERATIONS = (0, 1, 10, 100)
Deal = Callable[[np.random.Generator, int], Floats]  # (draws, iterations) -> 1 + iterations arrays of ITEMS × DIM


@dataclass(frozen=True, slots=True)
class Dealing:
    """One way to deal envelopes."""

    what: str
    noise: str  # what it leaves of the noise of a sum
    deal: Deal


def _honest(draw: np.random.Generator, iterations: int) -> Floats:
    return draw.exponential(size=(1 + iterations, ITEMS, DIM))


def _scaled(scale: float, items: int = ITEMS) -> Deal:
    def deal(draw: np.random.Generator, iterations: int) -> Floats:
        dealt = _honest(draw, iterations)
        dealt[:, :items] *= scale
        return dealt

    return deal


def _least_of(keys: int) -> Deal:
    """Choose the objective envelope of each item as the least of so many `keys`; the iteration noise is honest."""

    def deal(draw: np.random.Generator, iterations: int) -> Floats:
        dealt, tried = _honest(draw, iterations), draw.exponential(size=(keys, ITEMS, DIM))
        dealt[0] = tried[tried.sum(axis=2).argmin(axis=0), np.arange(ITEMS)]
        return dealt

    return deal


def _repeated(draw: np.random.Generator, iterations: int) -> Floats:
    return np.repeat(_honest(draw, 0), 1 + iterations, axis=0)


def _chosen_coordinates(draw: np.random.Generator, iterations: int) -> Floats:
    """Sort the numbers of each iteration, so that coordinate 0 of item 0 has the least noise in all of them."""
    return np.sort(_honest(draw, iterations).reshape(1 + iterations, -1), axis=1).reshape(1 + iterations, ITEMS, DIM)


DEALINGS = (
    Dealing("honest: fresh Exp(1)", "all of it", _honest),
    Dealing("every H times .9", "95 %", _scaled(0.9)),
    Dealing("every H times .5", "71 %", _scaled(0.5)),
    Dealing("one item of 20, H times .1", "32 % for that item", _scaled(0.1, 1)),
    Dealing("one item of 20, H times .001", "3 % for that item", _scaled(0.001, 1)),
    Dealing("objective noise of the least of 4 keys", "83 % of η", _least_of(4)),
    Dealing("objective noise of the least of 64 keys", "65 % of η", _least_of(64)),
    Dealing("the same H in every iteration", "all of it, but correlated in size", _repeated),
    Dealing("honest numbers, sorted within each iteration", "7 % for the first coordinate", _chosen_coordinates),
    Dealing("honest numbers, other ones for each user", "all of it, without the Laplace law", _honest),
)


def statistic(values: Floats) -> Floats:
    """Compute the greatest distance between the distribution of each row and Exp(1)."""
    n = values.shape[1]
    law = -np.expm1(-np.sort(values, axis=1))
    steps = np.arange(n + 1) / n
    found: Floats = np.maximum(steps[1:] - law, law - steps[:-1]).max(axis=1)
    return found


def power(dealing: Dealing, iterations: int, repetitions: int = REPETITIONS, seed: int = 1) -> float:
    """Return the share of users that reject what they were dealt."""
    from scipy.stats import kstwo  # slow to import

    draw, n = np.random.default_rng([seed, iterations]), (1 + iterations) * ITEMS * DIM
    critical = float(kstwo.ppf(1 - LEVEL, n))
    rejected = sum(
        float(statistic(dealing.deal(draw, iterations).reshape(1, -1))[0]) > critical for _ in range(repetitions)
    )
    return rejected / repetitions


def rows(iterations: Sequence[int] = ITERATIONS, repetitions: int = REPETITIONS) -> list[dict[str, Any]]:
    return [
        {"what": one.what, "noise": one.noise, "power": {t: power(one, t, repetitions) for t in iterations}}
        for one in DEALINGS
    ]


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """Write the table as the README has it."""
    lines = [
        f"| a user with {ITEMS} items, dim {DIM}, is dealt | noise left | "
        + " | ".join(f"after {t} iterations" for t in ITERATIONS)
        + " |",
        "|---|---|" + "---|" * len(ITERATIONS),
    ]
    for row in found:
        cells = " | ".join(f"{share:.0%}" for share in row["power"].values())
        lines.append(f"| {row['what']} | {row['noise']} | {cells} |")
    return "\n".join(lines) + "\n"
