"""Ridge regression that a user does at home, of its own ratings on what is known of items.

Items are described by columns f. Two of them are as similar as their descriptions,

    K(j, l) = .1 + .05 f_j·f_l + .15 exp(−|f_j − f_l|²/2),

and the user's taste is a Gaussian process over them: r̂ = c₀ + b + K_{·R} (K_RR + σ_e² I)^-1 (y_R − b_R), with R what
the user rated, y its ratings above the centre c₀, and b the quality of the items, as far as it is known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from protocol.arrays import Flags, Floats, Places

FLAT, LINEAR, BUMP = 0.1, 0.05, 0.15  # stars²
RESIDUAL = 0.85  # σ_e², stars²
STARS = 4  # stars between the ends of a range
BELOW_TOP = 1.5  # stars, of the centre: 3.5 of 5

More = Callable[[Places, Places], Floats]


def star_of(low: float, high: float) -> float:
    """Return the size of one star of five: 1 on a scale that ends at 5, else a quarter of the span."""
    return 1.0 if high == 5 and 0 <= low <= 1 else (high - low) / STARS


def centre_of(low: float, high: float) -> float:
    """Return the rating from which ratings are counted: 3.5 of 5 stars."""
    return high - BELOW_TOP * star_of(low, high)


def columns_of(flags: Flags, numbers: Floats) -> Floats:
    """Make the columns with which items are compared: flags over the root of their number, then the numbers."""
    counts = np.maximum(flags.sum(axis=1, keepdims=True), 1)
    return np.concatenate([flags / np.sqrt(counts), numbers], axis=1)


def similarity(left: Floats, right: Floats) -> Floats:
    """Compute K between items with the descriptions `left` and `right`."""
    products = np.einsum("id,jd->ij", left, right)
    lengths = np.einsum("id,id->i", left, left)[:, None] + np.einsum("jd,jd->j", right, right)
    bump = np.exp(-0.5 * np.maximum(lengths - 2 * products, 0.0))
    return np.asarray(FLAT + LINEAR * products + BUMP * bump)


def ridge_stars(
    described: Floats, quality: Floats, items: Places, above: Floats, targets: Places, more: More | None = None
) -> Floats:
    """Predict `targets` in stars above the centre, from a user's ratings `above` of its `items`.

    `more` gives what is added to the similarity of items, if anything is.
    """
    from numpy.linalg import solve

    own, wanted = described[items], described[targets]
    square, across = similarity(own, own), similarity(wanted, own)
    if more is not None:
        square, across = square + more(items, items), across + more(targets, items)
    square[np.diag_indices(len(square))] += RESIDUAL
    taste = solve(square, above - quality[items])
    return np.asarray(quality[targets] + np.einsum("ij,j->i", across, taste))
