"""The published table, and the prediction that a user makes from it and from its own ratings, which never leave it.

An item is described by its public columns and by its quality b and popularity L, both learned from the noisy sums. What
a user does with that is in `home_ridge.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.arrays import Floats, Places
from protocol.party.home_ridge import More, ridge_stars
from protocol.schemes.hardened.item_posterior import Posterior

LEARNED = 0.5  # weight of the two learned columns
MOST_QUALITY = 10.0  # stars: no sane sum leads beyond it
FRAME = 4  # entries of the frame before the centre of the public columns


@dataclass(frozen=True, slots=True, eq=False)
class ItemTable:
    """Everything that is published, in the float32 in which it travels."""

    quality: Floats  # b, stars above the centre
    popularity: Floats  # L
    frame: Floats  # means and deviations of b and L, then the centre of the public columns: weighted by N

    @classmethod
    def of(cls, found: Posterior, described: Floats) -> ItemTable:
        weights = found.counts / found.counts.sum()
        quality = np.clip(found.quality, -MOST_QUALITY, MOST_QUALITY)
        learned = np.stack([quality, found.popularity], axis=1)
        means = np.einsum("j,jk->k", weights, learned)
        deviations = np.sqrt(np.einsum("j,jk->k", weights, (learned - means) ** 2) + 1e-12)
        frame = np.concatenate([means, deviations, np.einsum("j,jd->d", weights, described)])
        return cls(*(column.astype(np.float32).astype(np.float64) for column in (*learned.T, frame)))

    def descriptions(self, described: Floats) -> Floats:
        """Compute f of every item."""
        learned = np.stack([self.quality, self.popularity], axis=1)
        standard = LEARNED * (learned - self.frame[:2]) / self.frame[2:FRAME]
        return np.concatenate([described - self.frame[FRAME:], standard], axis=1)


def predict_stars(
    table: ItemTable, described: Floats, items: Places, above: Floats, targets: Places, more: More | None = None
) -> Floats:
    """Predict `targets` in stars above the centre, from a user's ratings `above` of its `items` (`home_ridge.py`)."""
    return ridge_stars(table.descriptions(described), table.quality, items, above, targets, more)
