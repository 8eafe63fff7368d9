"""The published table, and the prediction that a user makes from it and from its own ratings, which never leave it.

An item is described by its public columns and by its quality b and popularity L, both learned from the noisy sums. Two
items are as similar as their descriptions,

    K(j, l) = .1 + .05 f_j·f_l + .15 exp(−|f_j − f_l|²/2),

and the user's taste is a Gaussian process over them: r̂ = c₀ + b + K_{·R} (K_RR + σ_e² I)^-1 (y_R − b_R).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from protocol.arrays import Floats, Places
from protocol.schemes.hardened.item_posterior import RESIDUAL, Posterior

FLAT, LINEAR, BUMP = 0.1, 0.05, 0.15  # stars²
LEARNED = 0.5  # weight of the two learned columns
MOST_QUALITY = 10.0  # stars: no sane sum leads beyond it
FRAME = 4  # entries of the frame before the centre of the public columns

More = Callable[[Places, Places], Floats]


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


def similarity(left: Floats, right: Floats) -> Floats:
    """Compute K between items with the descriptions `left` and `right`."""
    products = np.einsum("id,jd->ij", left, right)
    lengths = np.einsum("id,id->i", left, left)[:, None] + np.einsum("jd,jd->j", right, right)
    bump = np.exp(-0.5 * np.maximum(lengths - 2 * products, 0.0))
    return np.asarray(FLAT + LINEAR * products + BUMP * bump)


def predict_stars(
    table: ItemTable, described: Floats, items: Places, above: Floats, targets: Places, more: More | None = None
) -> Floats:
    """Predict `targets` in stars above the centre, from a user's ratings `above` of its `items`.

    `more` gives what is added to the similarity of items, if anything is.
    """
    from numpy.linalg import solve

    f = table.descriptions(described)
    own, wanted = f[items], f[targets]
    square, across = similarity(own, own), similarity(wanted, own)
    if more is not None:
        square, across = square + more(items, items), across + more(targets, items)
    square[np.diag_indices(len(square))] += RESIDUAL
    taste = solve(square, above - table.quality[items])
    return np.asarray(table.quality[targets] + np.einsum("ij,j->i", across, taste))
