"""The laws by which users randomize their ratings, as the receiver of the answers knows them.

A channel gives, for every answer, its density under each entry: column 0 is a missing entry, the others are the values
of the rating scale. An answer is a number, or NaN if nothing came ("?", or not sent). `space` is a list of answers with
widths, so that Σ width · f(density at the answer) is the integral of f over all answers. From it follows the average
accuracy of the best guess, which no attack on these answers can exceed except by chance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from protocol.arrays import Flags, Floats

FLOAT32 = 1e-6  # relative to the largest number: more than float32 rounding changes it


class RandomizedChannel(ABC):
    scale: Floats  # the values that ratings take

    @abstractmethod
    def density(self, answers: Floats) -> Floats:
        """Return a row for each answer: the density under a missing entry, then under each value of the scale."""

    @abstractmethod
    def at_face_value(self, answers: Floats) -> tuple[Flags, Floats]:
        """Return (whether it is rated, the rating) as if nothing had been randomized."""

    @abstractmethod
    def space(self) -> tuple[Floats, Floats]:
        """Return (answers, widths) for integrals over all answers."""

    def best_rating(self, answers: Floats, prior: Floats) -> Floats:
        """Return the most probable rating, given that there is one."""
        return np.asarray(self.scale[np.argmax(self.density(answers)[:, 1:] * prior, axis=1)])

    def is_rated(self, answers: Floats, prior: Floats, base_rate: float) -> Flags:
        """Tell whether a rating is more probable than a missing entry."""
        density = self.density(answers)
        rated: Flags = base_rate * (density[:, 1:] @ prior) > (1 - base_rate) * density[:, 0]
        return rated

    def rating_rate(self, prior: Floats) -> float:
        """Compute how often the best guess of a rating is right: Σ_z max_r p(r) P(z | r)."""
        answers, widths = self.space()
        return float(widths @ (self.density(answers)[:, 1:] * prior).max(axis=1))

    def presence_rate(self, prior: Floats, base_rate: float) -> float:
        """Compute how often the best guess of "rated or not" is right."""
        answers, widths = self.space()
        density = self.density(answers)
        both = np.stack([base_rate * (density[:, 1:] @ prior), (1 - base_rate) * density[:, 0]])
        return float(widths @ both.max(axis=0))


class UniformNoise(RandomizedChannel):
    """r + U[−γ, γ]; entries that are not rated are not sent."""

    def __init__(self, scale: Floats, gamma: float) -> None:
        self.scale = scale
        self.gamma = gamma
        self._slack = FLOAT32 * max(1.0, float(np.abs(scale).max()) + gamma)

    def density(self, answers: Floats) -> Floats:
        found = np.zeros((len(answers), len(self.scale) + 1))
        found[np.isnan(answers), 0] = 1.0
        found[:, 1:] = self.possible(answers, answers) / (2 * self.gamma)
        return found

    def at_face_value(self, answers: Floats) -> tuple[Flags, Floats]:
        return ~np.isnan(answers), nearest(self.scale, self.scale, answers)

    def possible(self, least: Floats, most: Floats) -> Flags:
        """Mark the ratings that can have led to answers from `least` to `most`."""
        low, high = most[:, None] - self.gamma - self._slack, least[:, None] + self.gamma + self._slack
        return np.asarray((self.scale >= low) & (self.scale <= high))

    def space(self) -> tuple[Floats, Floats]:
        ends = np.unique(np.concatenate([self.scale - self.gamma, self.scale + self.gamma]))
        return np.append((ends[1:] + ends[:-1]) / 2, np.nan), np.append(np.diff(ends), 1.0)


def nearest(scale: Floats, centres: Floats, answers: Floats) -> Floats:
    """Return for each answer the value with the nearest centre; any value if there is no answer."""
    return np.asarray(scale[np.argmin(np.abs(np.nan_to_num(answers)[:, None] - centres), axis=1)])
