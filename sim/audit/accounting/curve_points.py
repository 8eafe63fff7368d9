"""ε after t iterations, for a few t: to a party without the envelopes, and to the recommender, which knows them.

A family computes it (`Family.curve`) with the functions of the audit and the summary, so that the last point is their
figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

CURVE_POINTS = 9  # the tight figure takes up to half a second each

IN_VIEW = "view"
EXPECTED = "expected"
UPLOADS = "uploads"


@dataclass(frozen=True, slots=True)
class EpsilonPoint:
    iterations: int  # that have ended
    releases: int  # sums that hold the rating that is in the most sums
    basic: float
    advanced: float
    tight: float
    median: float | None = None  # to the recommender, over the items
    worst: float | None = None


@dataclass(frozen=True, slots=True)
class EpsilonCurve:
    points: list[EpsilonPoint]
    source: str  # IN_VIEW, EXPECTED or UPLOADS
    items: int = 0  # over which the recommender's figures are


def points_in(rows: Iterable[dict[str, Any]]) -> list[EpsilonPoint]:
    """Read the points of a curve from the `rows` of a document, in which infinity is "inf"."""
    return [EpsilonPoint(**dict(zip(row, map(_number, row.values()), strict=True))) for row in rows]


def _number(value: Any) -> Any:
    return math.inf if value == "inf" else value


def curve_iterations(iterations: int, most: int = CURVE_POINTS) -> list[int]:
    """Choose at most `most` of 1 … T = `iterations`, evenly by their logarithms; all of them if they are few."""
    if iterations <= most:
        return list(range(1, iterations + 1))
    return sorted({round(float(t)) for t in np.geomspace(1, iterations, most)})
