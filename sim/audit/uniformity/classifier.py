"""A classifier that guesses a secret of (user, item) pairs, cross-validated over users, and a measure of its success.

It is a ridge regression on standardised columns; the score of a pair comes from users of the other folds alone. To
decide whether the real view helps, it is compared with simulated views in which only the ring words differ: they are
drawn uniformly.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from protocol.arithmetic.ring import Ring
from protocol.arrays import Floats, Ints, RingArray

FOLDS = 5
RESAMPLES = 200
SIMULATIONS = 32  # ideal views to compare the real one with
MOST_COORDINATES = 6
POWER = 0.9

_FLAT = 1e-12  # relative to the mean square: a smaller variance is rounding
_PRIOR = 5.0  # weight of the overall mean, in observations, when shrinking an item's mean



@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """One row for each pair of a user and an item."""

    user: Ints
    item: Ints
    permitted: Floats  # columns that the leakage policy allows
    rounds: tuple[RingArray, ...]  # ring words of two or more messages, a row each


def word_columns(ring: Ring, rounds: tuple[RingArray, ...]) -> Floats:
    """Build columns from words and their differences between messages (reals, magnitudes) and one word's bits."""
    cut = [words[:, :MOST_COORDINATES] for words in rounds]
    cut += [ring.subtract(later, former) for former, later in itertools.pairwise(cut)]
    columns = []
    for words in cut:
        signed = ring.to_signed(words).astype(np.float64)
        magnitude = np.log2(np.abs(signed) + 1)
        bare = np.where(magnitude < ring.bits - 8, signed, 0.0)  # keeps small values, as unmasked ones are
        columns += [signed, magnitude, magnitude.mean(axis=1, keepdims=True), bare]
    places = np.arange(ring.bits, dtype=np.uint64)
    bits = (cut[0][:, :1].astype(np.uint64) >> places) & np.uint64(1)
    return np.column_stack([*columns, bits.astype(np.float64)])


def simulated(ring: Ring, rounds: tuple[RingArray, ...], rng: np.random.Generator) -> tuple[RingArray, ...]:
    """Draw uniform words in place of `rounds`, as a simulator that knows only what is permitted would."""
    return tuple(
        ring.from_bytes(rng.bytes(words.size * ring.width), words.shape[1]).reshape(words.shape) for words in rounds
    )


def scores(pairs: Pairs, secret: npt.NDArray[np.bool_], extra: Floats | None, folds: Ints) -> Floats:
    """Score each pair by a classifier that never saw its user; `folds` has the fold of each pair."""
    columns = pairs.permitted if extra is None else np.column_stack([pairs.permitted, extra])
    columns = columns - columns.mean(axis=0)  # avoids cancellation of large numbers below
    places = [np.flatnonzero(folds == fold) for fold in range(FOLDS)]
    parts = [_Sums.of(columns[at], secret[at]) for at in places]
    result = np.zeros(len(secret))
    for fold, guess in enumerate(places):
        learn = np.flatnonzero(folds != fold)
        if not len(guess) or not len(learn):
            continue
        means = _item_means(pairs.item, secret, folds, fold)
        known = functools.reduce(_Sums.add, (part for other, part in enumerate(parts) if other != fold))
        known = known.beside(means[learn], columns[learn], secret[learn])
        table = np.column_stack([columns[guess], means[guess]])
        result[guess] = known.ridge(table)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums over the pairs that a ridge regression learns from; the sums of several folds can be added."""

    count: int
    first: Floats  # Σ x
    second: Floats  # Σ x xᵀ
    secret: float  # Σ y
    mixed: Floats  # Σ x y

    @classmethod
    def of(cls, columns: Floats, secret: npt.NDArray[np.bool_]) -> _Sums:
        return cls(len(secret), columns.sum(axis=0), columns.T @ columns, float(secret.sum()), columns.T @ secret)

    def add(self, other: _Sums) -> _Sums:
        return _Sums(
            self.count + other.count,
            self.first + other.first,
            self.second + other.second,
            self.secret + other.secret,
            self.mixed + other.mixed,
        )

    def beside(self, last: Floats, columns: Floats, secret: npt.NDArray[np.bool_]) -> _Sums:
        """Return the same sums with the further column `last` behind the others."""
        across = columns.T @ last
        second = np.block([[self.second, across[:, None]], [across[None, :], np.array([[last @ last]])]])
        first, mixed = np.append(self.first, last.sum()), np.append(self.mixed, last @ secret)
        return _Sums(self.count, first, second, self.secret, mixed)

    def ridge(self, unknown: Floats) -> Floats:
        """Guess for the rows of `unknown`; columns are standardised by the pairs learned from."""
        mean, share = self.first / self.count, self.secret / self.count
        scatter = self.second - self.count * np.outer(mean, mean)
        variance = np.diag(scatter) / self.count
        flat = variance <= _FLAT * (np.diag(self.second) / self.count)  # a constant column
        spread = np.sqrt(np.where(flat, 1.0, variance))
        scatter[flat, :] = scatter[:, flat] = 0.0
        aims = np.where(flat, 0.0, self.mixed - self.first * share) / spread
        penalty = len(mean) * np.eye(len(mean))
        weights = np.linalg.solve(scatter / np.outer(spread, spread) + penalty, aims)
        return np.asarray((unknown - mean) / spread @ weights)


def _item_means(item: Ints, secret: npt.NDArray[np.bool_], folds: Ints, guess: int) -> Floats:
    """Compute how often the secret is true of an item, over users outside the pair's fold and outside the fold `guess`.

    (If only the pair's own user were left out, a pair with a true secret would have a lower mean than a pair of the
    same item with a false one, and the classifier would learn that.)
    """
    size, means = int(item.max()) + 1, np.zeros(len(item))
    for fold in range(FOLDS):
        known, here = (folds != fold) & (folds != guess), folds == fold
        overall = float(secret[known].mean()) if known.any() else 0.5
        counts = np.bincount(item[known], minlength=size)[item[here]]
        true = np.bincount(item[known], secret[known], minlength=size)[item[here]]
        means[here] = (true + _PRIOR * overall) / (counts + _PRIOR) - overall
    return means


class RocCurve:
    """The area under the ROC curve of fixed scores, for any weights of the pairs."""

    def __init__(self, values: Floats, secret: npt.NDArray[np.bool_]) -> None:
        self._order = np.argsort(values, kind="stable")
        ordered = values[self._order]
        self._starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])  # where each run of equal scores begins
        self._true = secret[self._order]

    def area(self, weights: Floats) -> float:
        """Compute the area; a tie counts one half, and the area is 1/2 if one of the two classes has no weight."""
        ordered = weights[self._order]
        true = np.add.reduceat(ordered * self._true, self._starts)
        false = np.add.reduceat(ordered * ~self._true, self._starts)
        below = np.cumsum(false) - false
        most = true.sum() * false.sum()
        return float((true * (below + false / 2)).sum() / most) if most else 0.5


def compare(
    ring: Ring, pairs: Pairs, secret: npt.NDArray[np.bool_], level: float, rng: np.random.Generator
) -> dict[str, Any]:
    """Compare the areas with permitted columns alone, with simulated views and with the real view."""
    users, place = np.unique(pairs.user, return_inverse=True)
    folds = rng.permutation(np.arange(len(users)) % FOLDS)[place]

    def curve(extra: Floats | None) -> RocCurve:
        return RocCurve(scores(pairs, secret, extra, folds), secret)

    alone, real = curve(None), curve(word_columns(ring, pairs.rounds))
    ideal = [curve(word_columns(ring, simulated(ring, pairs.rounds, rng))) for _ in range(SIMULATIONS)]
    once, chances = np.ones(len(secret)), np.full(len(users), 1 / len(users))
    drawn = np.array([each.area(once) for each in ideal])
    weights = rng.multinomial(len(users), chances, RESAMPLES).astype(np.float64)
    gains = [real.area(row[place]) - ideal[0].area(row[place]) for row in weights]
    areas = (alone.area(once), real.area(once))
    shape = {"users": len(users), "pairs": len(secret), "base_rate": float(secret.mean())}
    return shape | _verdict(*areas, drawn, float(np.std(gains, ddof=1)), level)


def _verdict(alone: float, real: float, drawn: Floats, resampled: float, level: float) -> dict[str, Any]:
    """Judge the real area as one more draw of the simulated ones, by Student's t.

    If masks hide, it is such a draw; t has one degree of freedom less than there are draws. For the interval, the
    spread over users (`resampled`, by the bootstrap) is added. On its own that spread would be too narrow, because it
    omits what the classifier learned by chance.
    """
    ideal, gain = float(drawn.mean()), float(real - drawn.mean())
    error = float(drawn.std(ddof=1)) * math.sqrt(1 + 1 / len(drawn))
    wide, strict = (float(stats.t.isf(tail, len(drawn) - 1)) for tail in (0.025, level))
    reach = wide * math.hypot(error, resampled)
    return {
        "auc_permitted": alone,
        "auc_simulated": ideal,
        "auc_real": real,
        "simulations": len(drawn),
        "gain": gain,
        "gain_95": [gain - reach, gain + reach],
        "p": float(stats.t.sf(gain / error, len(drawn) - 1)),
        "level": level,
        "smallest_gain": (strict + float(stats.norm.isf(1 - POWER))) * error,  # detected with this power
        "power": POWER,
        "helps": bool(gain > strict * error),
    }
