"""Histograms of what a server received, each beside that of the truth, in one style and described in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from protocol.arrays import Floats, Ints
from sim.report.charts import chart
from sim.report.section import picture

BINS = 32
_WIDE, _HIGH = 3.7, 2.5  # inches: two beside each other in a panel
_EDGES = (0.19, 0.21, 0.97, 0.97)  # of the axes: the same in all of them
_NEGLIGIBLE = 1e-12


class Series(NamedTuple):
    """The numbers of one histogram."""

    title: str
    values: Floats
    axis: str  # what they are, with their unit
    colour: int
    words: str = ""
    span: tuple[float, float] | None = None  # None: that of the series which share an axis


def draw(key: str, series: Sequence[Series]) -> list[Markup]:
    """Draw one picture for each of `series`; those with the same axis have the same bins, for comparison."""
    made = []
    for number, one in enumerate(series):
        alike = [other.values for other in series if other.axis == one.axis]
        edges = _edges(np.concatenate(alike), one.span)
        made.append(_histogram(f"{key}-h{number}", one, edges))
    return made


def _edges(values: Floats, span: tuple[float, float] | None) -> Floats:
    """Make `BINS` bins of the same width, or one around every value if the values are few and on a grid."""
    if span is not None:
        return _even(*span, BINS)
    distinct = np.unique(np.round(values, 9))
    low, high = float(distinct[0]), float(distinct[-1])
    if len(distinct) == 1:
        return _even(low - 0.5, low + 0.5, 3)
    step = float(np.diff(distinct).min())
    steps = np.diff(distinct) / step
    if (high - low) / step < BINS and np.abs(steps - np.rint(steps)).max() < 1e-6:
        return _even(low - step / 2, high + step / 2, round((high - low) / step) + 1)
    return _even(float(values.min()), float(values.max()), BINS)  # not rounded: the outermost values are counted too


def _even(low: float, high: float, bins: int) -> Floats:
    edges: Floats = np.linspace(low, high, bins + 1, dtype=np.float64)
    return edges


def _histogram(key: str, series: Series, edges: Floats) -> Markup:
    counts, _ = np.histogram(series.values, edges)
    figure, axes = chart.new_figure(series.axis, "values in a bin", width=_WIDE, height=_HIGH, margins=_EDGES)
    axes.stairs(counts, edges, fill=True, color=chart.colour(series.colour))
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    rows = [
        (f"{_short(low)} to {_short(high)}", f"{count:,}")
        for low, high, count in zip(edges, edges[1:], counts.tolist(), strict=False)
    ]
    words = f"{_described(series.values, counts)} {series.words}".strip()
    return picture(figure, key, series.title, words, (series.axis, "values"), rows)


def _described(values: Floats, counts: Ints) -> str:
    low, high, mean, spread = map(_short, (values.min(), values.max(), values.mean(), values.std()))
    return (
        f"{values.size:,} values from {low} to {high}, mean {mean}, standard deviation {spread}. "
        f"The fullest of {len(counts)} bins holds {100 * counts.max() / values.size:.0f} % of them."
    )


def _short(number: Any) -> str:
    return "0" if abs(number) < _NEGLIGIBLE else f"{number:.3g}".replace("-", "−")
