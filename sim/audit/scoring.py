"""Figures with their uncertainty; random draws are seeded by the run, so that an audit is reproducible."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import betaincinv

from protocol.arrays import Floats
from sim.views.evidence import Case

Hits = Any  # a number, or an array of them

CONFIDENCE = 0.95  # of the displayed intervals
LEVEL = 0.001  # probability that any attack on a correct run calls it broken
MOST_TRIES = 8  # attempts of one party alone, each of which may succeed by chance
DRAWS = 2000
FEWEST_GROUPS = 5  # fewest groups that a bootstrap needs


def generator(case: Case, *name: str) -> np.random.Generator:
    digest = hashlib.sha256(b"keyhole attack " + case.card.run_id + "/".join(name).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def clopper_pearson(successes: int, trials: int) -> tuple[float, float]:
    """Compute the interval of a rate, of which `successes` in `trials` were seen."""
    error = (1 - CONFIDENCE) / 2
    return float(lower_limit(successes, trials, error)), float(upper_limit(successes, trials, error))


def lower_limit(hits: Hits, trials: Hits, error: float) -> Floats:
    """Compute the one-sided Clopper–Pearson limit: the rate is below it with a probability of `error` at most."""
    limits: Floats = np.where(np.equal(hits, 0), 0.0, betaincinv(np.maximum(hits, 1), trials - hits + 1, error))
    return limits


def upper_limit(hits: Hits, trials: Hits, error: float) -> Floats:
    missed = np.subtract(trials, hits)
    limits: Floats = np.where(missed == 0, 1.0, betaincinv(hits + 1, np.maximum(missed, 1), 1 - error))
    return limits


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy beside chance on the same targets; intervals by bootstrap over groups (users, items)."""

    accuracy: float
    chance: float
    interval: tuple[float, float]  # of the accuracy
    advantage: tuple[float, float]  # of accuracy − chance, paired
    targets: int
    groups: int

    @property
    def method(self) -> str:
        return f"bootstrap over {self.groups} groups" if self.groups >= FEWEST_GROUPS else "Clopper–Pearson"

    @property
    def above_chance(self) -> bool:
        return self.advantage[0] > 0

    def beats(self, rate: float, level: float) -> bool:
        """Test whether more guesses are right than Binomial(targets, `rate`) explains, exactly, at `level`.

        ε bounds the probability that any single guess is right by `rate`, whatever the other ratings are. The number of
        right guesses is then stochastically no larger than that binomial, whichever ratings they are about.
        """
        right = round(self.accuracy * self.targets)
        return bool(stats.binom.sf(right - 1, self.targets, rate) < level)

    @property
    def words(self) -> str:
        low, high = self.interval
        gain, most = self.advantage
        return (
            f"95 % {self.method}: accuracy {low:.3f} to {high:.3f}, "
            f"accuracy − chance {gain:+.3f} to {most:+.3f}"
        )


def score(hits: Sequence[Floats], by_chance: Sequence[Floats], rng: np.random.Generator) -> Score:
    """Score an attack; each array holds, for one group, 1 where the attack (or the blind guess) is right."""
    counts = np.array([len(group) for group in hits], np.float64)
    right = np.array([group.sum() for group in hits], np.float64)
    lucky = np.array([group.sum() for group in by_chance], np.float64)
    total = counts.sum()
    picks = rng.integers(len(counts), size=(DRAWS, len(counts)))
    drawn = counts[picks].sum(axis=1)
    accuracy, advantage = right[picks].sum(axis=1) / drawn, (right - lucky)[picks].sum(axis=1) / drawn
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(accuracy, tails)
    gain, most = np.quantile(advantage, tails)
    exact_low, exact_high = clopper_pearson(int(right.sum()), int(total))
    if len(counts) < FEWEST_GROUPS:  # too few groups for a bootstrap: treat ratings as independent
        base = float(lucky.sum() / total)
        low, high, gain, most = exact_low, exact_high, exact_low - base, exact_high - base
    return Score(
        float(right.sum() / total),
        float(lucky.sum() / total),
        (float(low), float(high)),
        (float(gain), float(most)),
        int(total),
        len(counts),
    )
