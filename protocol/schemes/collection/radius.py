"""ρ of the recovery (4): the distance of the true ratings Θ from the collected ones, on the cells Ω received as rated.

The recommender sees Z alone. It must assume two figures of the ratings, both on the scale [−1, 1]: ρ0, the root mean
square of X − Θ on rated cells, and the mean of Θ². It estimates the number s of ratings from the number N of cells that
arrived: E N = s a + (mn − s) b, with a and b the chances that a rated and a missing cell arrive as rated.

Expected squares, each over the cells of its kind:

    modified Laplace     ρ² = s k (ρ0² + 8/ε²) + (mn − s)(1 − k)(Θ² + 8/ε²)
    randomized response  ρ² = s [p ρ0² + q (d (Θ² + v) − ρ0²)] + (mn − s) q d (Θ² + v)

An altered rating is uniform on the levels other than X, and Σ_l (Θ − l)² over all d levels is d ((Θ − c)² + v) with the
variance v = step² (d² − 1)/12 of a uniform level; from this sum the term of the level X itself, ρ0², is subtracted.

Theorem 3 bounds the same distance with probability 1 − γ for every Θ in the range. Its formula (6) is on the scale
[−1, 1] and (7) in ratings, as the two recoveries are.
"""

from __future__ import annotations

import math

from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse

RHO0 = 0.46  # the error that a good recommender leaves: .92 stars of five
THETA_SQUARE = 0.27
GAMMA = 0.05


def laplace_ratings(mechanism: ModifiedLaplace, arrived: int, cells: int) -> float:
    """Estimate s, between 0 and `arrived` (N): (N − mn (1 − k)) / (2k − 1)."""
    k, flip = mechanism.keep, mechanism.flip
    return _within((arrived - cells * flip) / (k - flip), arrived)


def response_ratings(mechanism: RandomizedResponse, arrived: int, cells: int) -> float:
    """Estimate s: a rated cell arrives as rated with probability 1 − q, a missing cell with d q."""
    p, q = mechanism.keep, mechanism.other
    return _within((arrived - cells * mechanism.levels * q) / (p - q), arrived)


def _within(estimate: float, arrived: int) -> float:
    return min(max(estimate, 0.0), float(arrived))


def laplace_radius(
    mechanism: ModifiedLaplace, ratings: float, cells: int, rho0: float = RHO0, theta_square: float = THETA_SQUARE
) -> float:
    """Compute ρ on the scale [−1, 1]."""
    noise = mechanism.variance
    kept = ratings * mechanism.keep * (rho0**2 + noise)
    return math.sqrt(kept + (cells - ratings) * mechanism.flip * (theta_square + noise))


def response_radius(
    mechanism: RandomizedResponse,
    grid: Grid,
    ratings: float,
    cells: int,
    rho0: float = RHO0,
    theta_square: float = THETA_SQUARE,
) -> float:
    """Compute ρ in ratings; `rho0` and `theta_square` (the mean of Θ²) are given on the scale [−1, 1]."""
    d, p, q = mechanism.levels, mechanism.keep, mechanism.other
    near = (grid.half * rho0) ** 2
    far = grid.half**2 * theta_square + grid.step**2 * (d * d - 1) / 12
    return math.sqrt(ratings * (p * near + q * (d * far - near)) + (cells - ratings) * q * d * far)


def laplace_bound(
    mechanism: ModifiedLaplace, ratings: float, cells: int, rho0: float = RHO0, gamma: float = GAMMA
) -> float:
    """Compute (6): ρ0 √s + (4/ε) √(s/γ) + √(2mn (1 + 8/ε²) / ((e^{ε/2} + 1) γ)), on the scale [−1, 1]."""
    kept = 2 * mechanism.scale * math.sqrt(ratings / gamma)
    created = math.sqrt(2 * cells * mechanism.flip / gamma * (1 + mechanism.variance))
    return rho0 * math.sqrt(ratings) + kept + created


def response_bound(
    mechanism: RandomizedResponse,
    grid: Grid,
    ratings: float,
    cells: int,
    rho0: float = RHO0,
    gamma: float = GAMMA,
) -> float:
    """Compute (7): ρ0 √s + 2 (d − 1) √(2mn d / ((e^ε + d) γ)), in ratings: times the step, as the levels are."""
    span = 2 * grid.half  # (d − 1) steps
    near = grid.half * rho0 * math.sqrt(ratings)
    return near + 2 * span * math.sqrt(2 * cells * mechanism.levels * mechanism.other / gamma)
