"""The two mechanisms that randomize a user's whole vector, missing entries included, and their exact laws.

Randomized response on {0, 1, …, d}, 0 = missing: an entry stays what it is with probability p = e^ε/(e^ε + d) and
becomes each other value with q = 1/(e^ε + d).

Modified Laplace on [−1, 1] and "?": ξ ~ Laplace(0, 2/ε), ζ ~ Bernoulli(k), k = e^{ε/2}/(e^{ε/2} + 1); a rating x
becomes x + ξ if ζ = 1, else "?"; a "?" stays if ζ = 1, else it becomes ξ.

Both are ε-private for one entry, exactly: the worst likelihood ratio of two inputs is e^ε and is attained. A vector of
n entries has nε. Two given users differ at most where either has rated: telling them apart has (c_a + c_b) ε.

Chances are drawn as whole numbers out of 2^64, rounded so that the ratio stays at or below e^ε as drawn, not only in
exact arithmetic. The Laplace numbers are floats; a sum is rounded to 2^-20 before it is sent, so that its last
bits, which differ between inputs, do not travel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.noise import laplace
from protocol.arithmetic.tape import Tape, keystream
from protocol.arrays import Floats, Ids, Levels

WHOLE = 1 << 64
GRAIN = 2.0**-20  # step of the numbers that modified Laplace sends: exact in 32 bits up to 16
_UP = 1 + 2.0**-48  # exceeds the part of a chance that rounding can take away
_REACH = 52 * math.log(2)  # the largest Laplace draw, in units of its scale (`noise.laplace`, 52-bit chances)

Missing = None
Entry = float | None  # a rating in [−1, 1], or missing


def _chance_of(odds: float, others: int) -> int:
    """Compute 1/(`odds` + `others`) out of 2^64, rounded up; never 0 unless the odds are infinite."""
    if math.isinf(odds):
        return 0
    return min(max(1, math.ceil(WHOLE / (odds + others) * _UP)), WHOLE // (others + 1))


def _exp(exponent: float) -> float:
    """Compute e^x, with x capped so that a finite x never overflows."""
    return math.exp(min(exponent, 700.0)) if not math.isinf(exponent) else math.inf


def _words(tape: Tape, count: int, name: str) -> npt.NDArray[np.uint64]:
    return np.frombuffer(keystream(tape.key(name), 8 * count, "words"), "<u8")


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    epsilon: float  # per entry; infinite: nothing is altered
    levels: int  # d

    @property
    def keep(self) -> float:
        """Return p, the probability that an entry stays."""
        return 1 / (1 + self.levels * math.exp(-self.epsilon))

    @property
    def other(self) -> float:
        """Return q, the probability of each other value."""
        return 0.0 if math.isinf(self.epsilon) else math.exp(-self.epsilon) * self.keep

    def weights(self) -> tuple[int, int]:
        """Compute (2^64 p, 2^64 q) as drawn: whole numbers with 2^64 = first + d · second, first/second at most e^ε."""
        other = _chance_of(_exp(self.epsilon), self.levels)
        return WHOLE - self.levels * other, other

    def mass(self, entry: int, answer: int) -> int:
        """Compute 2^64 P(`answer` | `entry`) as drawn."""
        keep, other = self.weights()
        return keep if entry == answer else other

    def answer(self, tape: Tape, entries: Levels) -> Levels:
        """Draw the vector to send from the user's `tape`; a second call gives the same."""
        _, other = self.weights()
        if not other:
            return entries.copy()
        words = _words(tape, len(entries), "randomized response")
        altered = words < np.uint64(self.levels * other)
        choice = (words // np.uint64(other)).clip(0, self.levels - 1).astype(np.uint8)
        another = choice + (choice >= entries)  # the choice-th of the values other than the entry
        return np.where(altered, another, entries).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class ModifiedLaplace:
    epsilon: float  # per entry; infinite: nothing is altered

    @property
    def keep(self) -> float:
        """Return k, the probability that an entry stays present or missing."""
        return 1 / (1 + math.exp(-self.epsilon / 2))

    @property
    def flip(self) -> float:
        """Return 1 − k."""
        return 0.0 if math.isinf(self.epsilon) else math.exp(-self.epsilon / 2) * self.keep

    @property
    def scale(self) -> float:
        """Return 2/ε, the scale of ξ."""
        return 2 / self.epsilon

    @property
    def variance(self) -> float:
        """Return 8/ε², the variance of ξ."""
        return 2 * self.scale**2

    @property
    def reach(self) -> float:
        """Bound the absolute value of any number that is sent."""
        return 1 + _REACH * self.scale + 2 * GRAIN

    def flip_weight(self) -> int:
        """Compute w = 2^64 (1 − k) as drawn: a whole number with (2^64 − w)/w at most e^{ε/2}."""
        return _chance_of(_exp(self.epsilon / 2), 1)

    def missing_weight(self, entry: Entry) -> int:
        """Compute 2^64 P("?" | `entry`) as drawn."""
        flip = self.flip_weight()
        return WHOLE - flip if entry is Missing else flip

    def mass_missing(self, entry: Entry) -> float:
        """Compute P("?" | `entry`) as drawn."""
        return self.missing_weight(entry) / WHOLE

    def log_density(self, entry: Entry, z: float) -> float:
        """Compute ln of the density at the number `z`, given `entry`, with the chances as drawn."""
        centre, present = 0.0 if entry is Missing else entry, (WHOLE - self.missing_weight(entry)) / WHOLE
        return math.log(present) - abs(z - centre) / self.scale - math.log(2 * self.scale)

    def log_ratio(self, one: Entry, another: Entry) -> float:
        """Compute the largest ln P(S | `one`)/P(S | `another`) over all sets S of answers.

        The atom "?" is one candidate. The ratio of the two densities is constant outside the two centres and monotone
        between them, so its supremum is attained at a centre.
        """
        centres = [0.0 if entry is Missing else entry for entry in (one, another)]
        numbers = [self.log_density(one, z) - self.log_density(another, z) for z in centres]
        return max(math.log(self.mass_missing(one) / self.mass_missing(another)), *numbers)

    def answer(self, tape: Tape, items: Ids, scaled: Floats, n_items: int) -> tuple[Ids, npt.NDArray[np.float32]]:
        """Draw (items to send as rated, their numbers) from the user's `tape`; a second call gives the same."""
        if math.isinf(self.epsilon):
            return items.copy(), scaled.astype(np.float32)
        rated, centres = np.zeros(n_items, np.bool_), np.zeros(n_items)
        rated[items], centres[items] = True, scaled
        flipped = _words(tape, n_items, "presence") < np.uint64(self.flip_weight())
        sent = np.flatnonzero(rated ^ flipped)
        noise = laplace(tape, self.scale, n_items, 1, "rating noise")[:, 0]
        numbers = np.rint((centres + noise)[sent] / GRAIN) * GRAIN
        return sent.astype(np.uint32), numbers.astype(np.float32)
