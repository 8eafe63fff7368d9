"""Charts of schemes as points: the test error against a quantity on a logarithmic axis, with floors as lines across."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.report.charts import chart
from sim.report.charts.labels import Box, add_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = ((0, (6, 3)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (1, 4)))
_HEIGHT = 4.0  # inches: names need room above each other

Ends = tuple[float, float]
Row = dict[str, Any]
Names = tuple[str, str]  # of the x and the y axis, with their units


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    name: str
    x: float
    y: float
    across: Ends  # least and greatest over the seeds
    along: Ends
    hollow: bool = False


def limits(values: Sequence[float]) -> Ends:
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.08 * (high - low) or 0.1
    return low - room, high + room


def draw(
    points: Sequence[ScatterPoint],
    floors: Sequence[Row],
    names: Names,
    written: Callable[[Any], str],
    *,
    scale: float = 1.0,
) -> Figure:
    """Draw the chart; `written` formats a value on the lower axis, which is logarithmic."""
    figure, axes = chart.new_figure(*names, width=chart.WIDE * scale, height=_HEIGHT * scale)
    axes.set_xscale("log")
    ends = [end for point in points for end in point.across]
    low, high = math.log10(min(ends)), math.log10(max(ends))
    room = max(0.25 * (high - low), 0.45)  # for the names
    axes.set_xlim(10 ** (low - room), 10 ** (high + room))
    _ticks(axes, high - low + 2 * room, written)
    _draw_all(figure, axes, points, floors)
    return figure


def draw_apart(points: Sequence[ScatterPoint], reasons: Sequence[str], floors: Sequence[Row], names: Names) -> Figure:
    """Draw points that have no value on the lower axis; `x` of a point is the place of its reason in `reasons`."""
    figure, axes = chart.new_figure(*names, height=_HEIGHT)
    axes.set_xlim(-0.7, len(reasons) - 0.3)
    axes.set_xticks(range(len(reasons)), list(reasons))
    _draw_all(figure, axes, points, floors)
    return figure


def _ticks(axes: Axes, decades: float, written: Callable[[Any], str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    subs = (1.0,) if decades > 4 else (1.0, 3.0) if decades > 2 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))


def _draw_all(figure: Figure, axes: Axes, points: Sequence[ScatterPoint], floors: Sequence[Row]) -> None:
    lines = {floor["title"]: floor["test_rmse"] for floor in floors if floor["test_rmse"] is not None}
    axes.set_ylim(*limits([*lines.values(), *(end for point in points for end in point.along)]))
    for number, (title, error) in enumerate(lines.items()):
        style: Any = _DASHES[number % len(_DASHES)]
        axes.axhline(error, color=chart.MUTED, linewidth=1.1, linestyle=style, label=f"{title} (floor)", zorder=1)
    series = {name: [point for point in points if point.name == name] for name in dict.fromkeys(p.name for p in points)}
    for number, several in enumerate(series.values()):
        hue = chart.colour(number if len(series) < len(points) else 0)
        axes.plot([point.x for point in several], [point.y for point in several], color=hue, linewidth=1.4, alpha=0.7)
        for point in several:
            _draw_mark(axes, point, hue)
    handles, names = axes.get_legend_handles_labels()
    if names:
        where: Any = "outside lower center"
        figure.legend(handles, names, loc=where, ncols=2, frameon=False, fontsize=8.5, labelcolor=chart.INK)
    named = [several[len(several) // 2] for several in series.values()]
    add_labels(axes, [(point.x, point.y, point.name) for point in named], _lines(axes, points, lines.values()))


def _lines(axes: Axes, points: Sequence[ScatterPoint], floors: Iterable[float]) -> list[Box]:
    """List the lines that names should not cover: floors and ranges."""
    left, right = axes.get_xlim()
    found = [(left, error, right, error) for error in floors]
    for point in points:
        found.append((point.across[0], point.y, point.across[1], point.y))
        found.append((point.x, point.along[0], point.x, point.along[1]))
    return found


def _draw_mark(axes: Axes, point: ScatterPoint, hue: str) -> None:
    """Draw a point, with lines from the least to the greatest of the seeds where they differ.

    A hollow point is wider and drawn above the others, so that it can be seen around another.
    """
    if point.along[0] < point.along[1]:
        axes.plot([point.x, point.x], point.along, color=hue, linewidth=1.1)
    if point.across[0] < point.across[1]:
        axes.plot(point.across, [point.y, point.y], color=hue, linewidth=1.1)
    how = {"markersize": 10, "markerfacecolor": "none", "zorder": 4} if point.hollow else {"markersize": 7, "zorder": 3}
    axes.plot([point.x], [point.y], marker="o", color=hue, linestyle="", **how)
