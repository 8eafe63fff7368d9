"""What a user adds to the sum, as integers of a bounded norm.

The place of item j is j for its count and n_items + j for its rating; where some items were selected, j is the place
among these. With the unit `user` each half is a unit vector
times A: |x| ≤ √2·A whatever the user rated. With the unit `rating` every rated item has A in the first half and its
clipped residual in the second; with `value` there is the second half alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ints
from protocol.schemes.hardened.budget import PULL, USER, VALUE
from protocol.schemes.hardened.hardened_params import HardenedParams

SHRINK = 1 - 2.0**-12


def unit_vector(values: Floats, unit: int) -> Ints:
    """Round `unit`·v/|v| to integers whose norm is at most `unit`, by a test on integers; 0 stays 0."""
    peak = float(np.max(np.abs(values), initial=0.0))
    if not 0 < peak < np.inf:
        return np.zeros(values.shape, np.int64)
    values = values / peak  # so that no square is too large or too small
    factor = unit / float(np.sqrt(np.sum(values * values)))
    while True:
        whole = np.rint(factor * values).astype(np.int64)
        if int(np.sum(whole * whole)) <= unit * unit:
            return whole
        factor *= SHRINK


def first_vector(
    params: HardenedParams, items: npt.NDArray[np.integer], ratings: Floats, selected: Ints | None = None
) -> Ints:
    """Make the vector of the table's round: counts, then ratings; of the `selected` items, if some were."""
    vector, unit = np.zeros((2, params.n_items if selected is None else len(selected)), np.int64), params.whole
    if not len(items):
        return sent_halves(params, vector)
    above = (ratings - params.centre) / params.star
    if params.unit_of == USER:
        above = above - above.sum() / (len(above) + PULL)
        if selected is not None:
            at = np.minimum(np.searchsorted(selected, items), len(selected) - 1)
            inside = selected[at] == items
            items, above = at[inside], above[inside]
        vector[0, items] = unit_vector(np.ones(len(items)), unit)
        vector[1, items] = unit_vector(above, unit)
    else:
        whole = np.rint(unit * above).astype(np.int64)
        mean = int(np.rint(whole.sum() / (len(whole) + PULL)))
        vector[0, items] = unit
        vector[1, items] = np.clip(whole - mean, -params.clip_whole, params.clip_whole)
    return sent_halves(params, vector)


def sent_halves(params: HardenedParams, vector: npt.NDArray[np.int64]) -> Ints:
    """Return the places that travel: without those of the counts where these are public."""
    return vector[1] if params.unit_of == VALUE else vector.reshape(-1)
