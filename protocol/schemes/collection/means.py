"""Item means, debiased for the noise of the mechanism: the simple alternative to the recovery (4).

m users answered for item j. Randomized response: n_jl = (count_jl − m q)/(p − q) estimates the raters with level l;
modified Laplace: the sum of what arrived, divided by k, and (N_j − m (1 − k))/(2k − 1) estimate the sum and the number
of the ratings. With S_j the estimated sum of r − c and n_j the estimated number,

    G = clip(c + Σ S_j / max(Σ n_j, 1))        mean_j = clip(c + (S_j + b (G − c)) / (max(n_j, 0) + b))

b = 15 + 2σ ratings of value G are added to each item's own, as in the averages of McSherry and Mironov. σ is the
standard deviation for an item without raters: of the sum that arrives, h √(8 m (1 − k)) / ε, or of the estimate,
√(m q (1 − q) Σ_l (l − c)²) / (p − q), with its levels taken as independent. It only weights the two means.

A user may add its own r̄_u = Σ_j (r_uj − mean_j)/(c_u + 20), which never leaves it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse

FIRM = 15.0  # ratings of the global mean that are added to every item
USER_FIRM = 20.0  # the same for a user's own mean, towards 0


def response_means(mechanism: RandomizedResponse, grid: Grid, answers: npt.NDArray[np.uint8]) -> Floats:
    """Compute one mean per item; `answers` holds one row of levels per user."""
    users, (p, q) = len(answers), (mechanism.keep, mechanism.other)
    counts = np.stack([(answers == level).sum(axis=0) for level in range(1, grid.levels + 1)]).astype(np.float64)
    raters = (counts - users * q) / (p - q)
    offsets = grid.offsets()
    sums = np.einsum("l,lj->j", offsets, raters)
    noise = math.sqrt(users * q * (1 - q) * float((offsets**2).sum())) / (p - q)
    return shrunk_means(grid, sums, raters.sum(axis=0), noise)


def laplace_means(mechanism: ModifiedLaplace, grid: Grid, sums: Floats, arrived: Floats, users: int) -> Floats:
    """Compute one mean per item from the `sums` and counts (`arrived`) of the numbers received for it, on [−1, 1]."""
    k, flip = mechanism.keep, mechanism.flip
    ratings = (arrived - users * flip) / (k - flip)
    noise = grid.half * math.sqrt(users * flip * mechanism.variance)
    return shrunk_means(grid, grid.half * sums / k, ratings, noise)


def shrunk_means(grid: Grid, sums: Floats, raters: Floats, noise: float) -> Floats:
    overall = clipped(grid, grid.middle + sums.sum() / max(float(raters.sum()), 1.0)) - grid.middle
    firm = FIRM + 2 * noise
    return clipped(grid, grid.middle + (sums + firm * overall) / (np.maximum(raters, 0.0) + firm))


def own_mean(ratings: Floats, means: Floats) -> float:
    """Compute r̄_u from the user's `ratings` and the `means` of the same items."""
    return float((ratings - means).sum()) / (len(ratings) + USER_FIRM)


def clipped(grid: Grid, ratings: Floats | float) -> Floats:
    inside: Floats = np.clip(ratings, grid.low, grid.high)
    return inside

