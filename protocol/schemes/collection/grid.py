"""The scale of ratings as the collection mechanisms see it: d levels, and the interval [−1, 1].

    level 1 … d   the ratings low, low + step, …, high; 0 means that the rating is missing
    [−1, 1]       x = (r − c) / h with the middle c = (low + high)/2 and h half the span
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.arrays import Flags, Floats, Ids, Levels
from protocol.errors import BadInput

MOST_LEVELS = 254  # together with 0 for a missing rating they fit into a byte


@dataclass(frozen=True, slots=True)
class Grid:
    low: float
    high: float
    step: float

    def __post_init__(self) -> None:
        if not (self.low < self.high and self.step > 0):
            raise BadInput(f"step must be above 0 and the rating range not empty, not {self.step:g}.")
        steps = (self.high - self.low) / self.step
        if abs(steps - round(steps)) > 1e-9 * steps or not 1 <= round(steps) < MOST_LEVELS:
            raise BadInput(
                f"step must divide the rating range {self.low:g} to {self.high:g} into 2 to {MOST_LEVELS} levels, "
                f"not {self.step:g}."
            )

    @property
    def levels(self) -> int:
        """Return d, the number of levels."""
        return round((self.high - self.low) / self.step) + 1

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    def offsets(self) -> Floats:
        """Compute l − c of every level, in ratings."""
        return self.low - self.middle + self.step * np.arange(self.levels, dtype=np.float64)

    def level_of(self, ratings: Floats) -> Levels:
        """Find the nearest level of each rating; halfway between two, `rint` rounds to an even number of steps."""
        nearest: Levels = (1 + np.rint((ratings - self.low) / self.step)).astype(np.uint8)
        return nearest

    def vector(self, items: Ids, ratings: Floats, n_items: int) -> Levels:
        """Make a user's whole vector of levels: 0 for an item that it has not rated."""
        entries = np.zeros(n_items, np.uint8)
        entries[items] = self.level_of(ratings)
        return entries

    def holds(self, ratings: Floats) -> Flags:
        """Test which of `ratings` are levels, up to rounding."""
        steps = (ratings - self.low) / self.step
        whole: Flags = np.abs(steps - np.rint(steps)) <= 1e-6
        return whole

    def scaled(self, ratings: Floats) -> Floats:
        """Convert `ratings` to x in [−1, 1]."""
        return (ratings - self.middle) / self.half
