"""Neighbouring data: one rating goes to the other end of the scale, and what the proofs hold fixed moves with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from protocol.arrays import Floats
from protocol.params import Params
from sim.audit.families.registry import family_of
from sim.audit.findings import Audited
from sim.views.evidence import Case

FLIPS = 300  # neighbours to try, unless each is expensive


def sensitivity(case: Case, sample: int | None = None) -> Audited:
    """Return (the figures, findings); the figures may be {}. `sample` is the number of neighbours to try."""
    if math.isinf(case.card.params.epsilon):
        return {}, []
    draw = np.random.default_rng([*case.card.run_id, *b"sensitivity"])
    return family_of(case.card.scheme).sensitivity(case, sample, draw)


def flipped(rating: float, params: Params, draw: np.random.Generator) -> float:
    """Return the farther end of the scale; from the middle, either end at random."""
    middle = (params.rating_min + params.rating_max) / 2
    down = draw.random() < 0.5 if rating == middle else rating > middle
    return params.rating_min if down else params.rating_max


def spread(values: Floats) -> dict[str, Any]:
    """Summarise `values`, with an interval of the median from two order statistics.

    It rests on the binomial number of values below the median. `level` is its exact confidence, 95 % or more; with
    fewer than six values not even the full range reaches that.
    """
    ordered, n = np.sort(values), len(values)
    low, high = (int(place) for place in stats.binom.interval(0.95, n, 0.5))
    low, high = max(low, 1), min(high, n - 1)
    return {
        "flips": n,
        "median": float(np.median(ordered)),
        "interval": [float(ordered[low - 1]), float(ordered[high])],
        "level": max(0.0, float(stats.binom.cdf(high, n, 0.5) - stats.binom.cdf(low - 1, n, 0.5))),
        "largest": float(ordered[-1]),
        "above": float((ordered > 1).mean()),
    }


def interval(figures: dict[str, Any]) -> str:
    """Format the interval of the median in `figures`, which `spread` made."""
    low, high = figures["interval"]
    return f"[{low:.3g}, {high:.3g}]"
