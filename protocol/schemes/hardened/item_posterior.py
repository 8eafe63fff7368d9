"""What the noisy sums say about every item: the recommender's posterior of its popularity and quality.

    N + N(0, σ_N²), S + N(0, σ_S²)     the noisy count and sum of an item
    N = g with probability π_g         a grid of values, logarithmic
    S | g, b ~ N(g b, w σ_e² g)        w: the mean square of what one user adds to S, per unit of N
    b | g ~ N(θ·(1, ln(g + .3), ln²(g + .3), public columns), τ²)

σ is public; π, θ and τ are fitted to the released sums by expectation maximisation. So it learns how much to shrink
from what was released, for every ε alike, and needs nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from protocol.arrays import Floats, Ints
from protocol.party.home_ridge import RESIDUAL

NODES, SWEEPS = 100, 12
LEAST_NODE, ABOVE = 0.03, 1.05
SHIFT = 0.3  # of a count under the logarithm
RIDGE = 10.0
FIRST_SPREAD, SPREADS = 0.16, (0.02, 1.0)  # τ²: at first, and its range
LEAST_DEVIATION = 0.05  # of N: exact counts, too, are spread over neighbouring nodes


class Posterior(NamedTuple):
    quality: Floats  # E b, stars above the centre
    counts: Floats  # E N, in units of the sums
    popularity: Floats  # E ln(N + .3)
    theta: Floats  # θ as fitted


def fit_items(
    counts: Floats, sums: Floats, deviation: float, described: Floats, per_count: float, exact: bool = False
) -> Posterior:
    """Fit the model to `counts` and noisy `sums`; `per_count` is w.

    Both have noise of the same `deviation`, unless the counts are `exact`.
    """
    grid = np.geomspace(LEAST_NODE, ABOVE * max(float(counts.max()), 5.0), NODES)
    logs = np.log(grid + SHIFT)
    curve = np.stack([np.ones(NODES), logs, logs**2], axis=1)
    centred = described - described.mean(axis=0) if described.shape[1] else described
    of_count = -0.5 * ((counts[:, None] - grid) / max(0.0 if exact else deviation, LEAST_DEVIATION)) ** 2
    spread = deviation**2 + RESIDUAL * per_count * grid + 1e-9  # variance of S given N and b
    prior, tau, theta = np.full(NODES, 1 / NODES), FIRST_SPREAD, np.zeros(3 + described.shape[1])
    for sweep in range(SWEEPS):
        expected = _expected(curve, centred, theta)
        variance = spread + tau * grid**2
        rest = sums[:, None] - grid * expected
        chances = _softmax(of_count - 0.5 * rest**2 / variance - 0.5 * np.log(variance) + np.log(prior))
        quality = expected + tau * grid / variance * rest
        if sweep == SWEEPS - 1:
            break
        prior = chances.mean(axis=0) + 1e-6
        prior /= prior.sum()
        theta = _regress(chances, grid, variance, sums, curve, centred)
        left = tau * spread / variance
        weight = chances * grid
        moved = (quality - _expected(curve, centred, theta)) ** 2 + left
        tau = float(np.clip((weight * moved).sum() / weight.sum(), *SPREADS))
    return Posterior(
        np.einsum("jg,jg->j", chances, quality),
        np.einsum("jg,g->j", chances, grid),
        np.einsum("jg,g->j", chances, logs),
        theta,
    )


def among_all(found: Posterior, selected: Ints, described: Floats) -> Posterior:
    """Complete what was `found` of the `selected` items by all others, of which no sum says anything.

    They are taken to be as popular as the least popular tenth of the selected; θ and their columns give the quality.
    """
    least = np.argsort(found.popularity, kind="stable")[: max(1, len(selected) // 10)]
    count, log = float(found.counts[least].mean()), float(found.popularity[least].mean())
    centred = described - described[selected].mean(axis=0) if described.shape[1] else described
    quality = _expected(np.array([[1.0, log, log * log]]), centred, found.theta)[:, 0]
    counts, popularity = np.full(len(described), count), np.full(len(described), log)
    for column, known in ((quality, found.quality), (counts, found.counts), (popularity, found.popularity)):
        column[selected] = known
    return Posterior(quality, counts, popularity, found.theta)


def _expected(curve: Floats, described: Floats, theta: Floats) -> Floats:
    of_item = np.einsum("jd,d->j", described, theta[3:])
    return np.asarray(of_item[:, None] + np.einsum("gk,k->g", curve, theta[:3]))


def _softmax(logs: Floats) -> Floats:
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def _regress(chances: Floats, grid: Floats, variance: Floats, sums: Floats, curve: Floats, described: Floats) -> Floats:
    """Find θ by weighted least squares with a ridge: every item counts at every node as often as it is likely there."""
    from numpy.linalg import solve

    weights, pulls = chances * (grid**2 / variance), chances * (grid / variance) * sums[:, None]
    of_node, of_item = weights.sum(axis=0), weights.sum(axis=1)
    crossed = np.einsum("kj,jd->kd", np.einsum("jg,gk->kj", weights, curve), described)
    top = np.concatenate([np.einsum("g,gk,gl->kl", of_node, curve, curve), crossed], axis=1)
    below = np.concatenate([crossed.T, np.einsum("j,jd,je->de", of_item, described, described)], axis=1)
    square = np.concatenate([top, below])
    right = np.einsum("gk,g->k", curve, pulls.sum(axis=0)), np.einsum("jd,j->d", described, pulls.sum(axis=1))
    found: Floats = solve(square + RIDGE * np.eye(len(square)), np.concatenate(right))
    return found
