"""Names beside the points of a chart, moved apart where they would cover each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.report.charts.chart import INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 9.0  # of the letters, in points
_WIDE, _HIGH = 0.56 * SIZE, 1.25 * SIZE  # of a letter; the page's own font may be a little wider or narrower
_ASIDE = 7.0  # from the point to its name
_STEPS = tuple(_HIGH * step for step in (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6))

Box = tuple[float, float, float, float]  # left, bottom, right, top


def add_labels(axes: Axes, points: Sequence[tuple[float, float, str]], lines: Sequence[Box]) -> None:
    """Add the names of `points`, once limits and scales of the axes are final.

    `lines` is what is drawn besides points, in data coordinates. A name that had to move far has a thin line to its
    point.
    """
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # lays out, so that places are known
    per_point = axes.figure.dpi / 72.0
    places = [axes.transData.transform((x, y)) / per_point for x, y, _ in points]
    frame = axes.get_window_extent()
    edges = frame.x0 / per_point, frame.y0 / per_point, frame.x1 / per_point, frame.y1 / per_point
    taken: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    ends = [axes.transData.transform((line[:2], line[2:])) / per_point for line in lines]
    drawn = [(x0 - 0.5, y0 - 0.5, x1 + 0.5, y1 + 0.5) for (x0, y0), (x1, y1) in ends]
    for (x, y), (at_x, at_y, name) in sorted(zip(places, points, strict=True), key=lambda each: -each[0][1]):
        dx, dy, box = _place(float(x), float(y), len(name) * _WIDE, edges, [*taken, *drawn], taken)
        taken.append(box)
        axes.annotate(
            name,
            (at_x, at_y),
            xytext=(dx, dy),
            textcoords="offset points",
            ha="left" if dx > 0 else "right",
            va="center",
            fontsize=SIZE,
            color=INK,
            parse_math=False,  # a name is no formula
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.6} if abs(dy) > _HIGH else None,
        )


def _place(x: float, y: float, width: float, edges: Box, *avoid: Sequence[Box]) -> tuple[float, float, Box]:
    """Find the nearest place inside the axes that is free of the first boxes in `avoid`, or else of the next.

    If there is no such place, take the first that was tried.
    """
    tried: list[tuple[float, float, Box]] = []
    for taken, dy, side in itertools.product(avoid, _STEPS, (1, -1)):
        left = x + _ASIDE if side > 0 else x - _ASIDE - width
        box = left, y + dy - _HIGH / 2, left + width, y + dy + _HIGH / 2
        tried.append((side * _ASIDE, dy, box))
        inside = edges[0] <= box[0] and box[2] <= edges[2] and edges[1] <= box[1] and box[3] <= edges[3]
        if inside and not any(_meet(box, other) for other in taken):
            return tried[-1]
    return tried[0]


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
