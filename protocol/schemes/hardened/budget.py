"""ε of the whole run, the scale of a share of the noise, and what colluding users leave of it.

A round that moves by Δ (L2, in integers) under f unknown shares of scale s is μ-Gaussian-private with μ = Δ/(s√f), and
rounds compose to μ² = Σ μ_t² (proof: `__init__.py`). Scales are whole numbers of 2^-16, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from protocol.schemes.hardened.share_law import SCALE_BITS, TAIL

USER, RATING, VALUE = UNITS = ("user", "rating", "value")
PULL = 8  # a user's own mean is its sum over n_i + PULL
CLIP = 1.5  # stars: bound of a residual, with the unit `rating`
VALUE_CLIP = 1.0  # the same with the unit `value`
LEAST_SHARE = 2 << SCALE_BITS  # s ≥ 2: below it the law of a sum of shares is not a rounded Gaussian


def mu_of(epsilon: float, delta: float) -> float:
    """Find the largest μ whose ε at `delta` is at most `epsilon`, less a hair."""
    from scipy.optimize import brentq  # slow to import

    from protocol.schemes.composition import gaussian_delta, gaussian_epsilon

    if math.isinf(epsilon):
        return math.inf
    most = math.sqrt(2 * epsilon) + 1.0  # μ²/2 is below ε for every δ below 1/2
    found = float(brentq(lambda mu: gaussian_epsilon(mu, delta) - epsilon, 1e-12, most, xtol=1e-14, rtol=1e-13))
    hair = 1e-9
    while gaussian_delta(found * (1 - hair), epsilon) > delta:  # the root is off by rounding, for a small ε
        hair *= 2
    return found * (1 - hair)


def rating_bound(most_rated: int, span: int, clip: int, unit: int) -> int:
    """Bound, squared, how far a rating added to `most_rated` or fewer others moves a user's vector, in integers.

    The rating itself adds `unit` and at most `clip`. It moves the user's own mean, which is rounded, by at most
    ⌈span/(N + 1 + PULL)⌉, and each of N other residuals by no more, as clipping does not stretch.
    """
    others = max(n * (-(-span // (n + 1 + PULL))) ** 2 for n in range(most_rated + 1))
    return unit**2 + clip**2 + others


def changed_bound(most_rated: int, span: int, clip: int) -> int:
    """Bound, squared, how far another value of one of at most `most_rated` ratings moves a user's vector, in integers.

    Its own residual moves by `span` at most, and stays within ±`clip`. The user's own mean, which is rounded, moves by
    at most ⌈span/(N + PULL)⌉ with N ratings, and fewer than N other residuals by no more.
    """
    others = max(n * (-(-span // (n + PULL))) ** 2 for n in range(most_rated + 1))
    return min(2 * clip, span) ** 2 + others


def share_scale(square: int, mu: float, floor: int) -> int:
    """Return the least scale for which `floor` shares hide a move of √`square` with μ = `mu`; 0: no noise."""
    if math.isinf(mu):
        return 0
    return math.ceil(math.sqrt(square / floor) / mu * (1 + 1e-12) * (1 << SCALE_BITS))


def mu_left(squares: Sequence[int], scales: Sequence[int], unknown: int) -> float:
    """Compute μ of all rounds to a coalition that does not know `unknown` of the shares of each."""
    if not unknown or 0 in scales:
        return math.inf
    moves = (square / (scale / (1 << SCALE_BITS)) ** 2 for square, scale in zip(squares, scales, strict=True))
    return math.sqrt(math.fsum(moves) / unknown)


def slack_of(epsilon: float, scales: Sequence[int], lengths: Sequence[int], users: int, floor: int) -> float:
    """Bound what δ of a run gains because shares are not exact Gaussians: aliasing, thresholds and the cut at 13 s."""
    total = 0.0
    for scale, length in zip(scales, lengths, strict=True):
        s, spread = scale / (1 << SCALE_BITS), 2 * TAIL * users * scale / (1 << SCALE_BITS)
        alias = 2.2 * floor * math.exp(max(-2 * math.pi**2 * s * s * (1 - 1 / floor), -700.0)) * spread
        table = users * (2 * TAIL * s * 2.0**-128 + math.erfc(TAIL / math.sqrt(2)))
        total += length * (alias + table)
    return (1 + math.exp(min(epsilon, 600.0))) * total
