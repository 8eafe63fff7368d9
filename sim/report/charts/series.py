"""Common parts of charts over the iterations: steps that keep a long run small, units, colours, legends below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.report.charts import chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_STEPS = 100  # along an axis: eight layers of them are about 40 kB
MOST_ROWS = 50  # of a table below a chart
OTHER = "other"
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Steps:
    """`n` iterations as steps of `width` iterations each; the last one may have fewer."""

    n: int
    width: int

    @property
    def starts(self) -> range:
        return range(0, self.n, self.width)

    @property
    def edges(self) -> list[float]:
        """List the edges of the steps; iteration t reaches from t − ½ to t + ½."""
        return [start - 0.5 for start in (*self.starts, self.n)]

    @property
    def words(self) -> str:
        return "" if self.width == 1 else f"Each step is the mean of {self.width} iterations."

    def mean(self, values: Values) -> list[float | None]:
        """Average the known `values` of each step; None for a step without any."""
        parts = ([v for v in values[at : at + self.width] if v is not None] for at in self.starts)
        return [sum(part) / len(part) if part else None for part in parts]

    def label(self, start: int) -> str:
        last = min(start + self.width, self.n) - 1
        return str(start) if last == start else f"{start}–{last}"


def steps_of(n: int, most: int = MOST_STEPS) -> Steps:
    return Steps(n, max(1, math.ceil(n / most)))


def numbers(steps: Steps, columns: Sequence[Sequence[Any]]) -> tuple[list[list[Any]], str]:
    """Make the rows of a table, each a step and its cells of `columns`, and say in words which were left out."""
    rows = [[steps.label(start), *cells] for start, *cells in zip(steps.starts, *columns, strict=True)]
    every = math.ceil(len(rows) / MOST_ROWS) if rows else 1
    if every == 1:
        return rows, ""
    kept = rows[::every] if (len(rows) - 1) % every == 0 else [*rows[::every], rows[-1]]
    return kept, f"The table has one of every {every} steps, and the last."


def said(*parts: str) -> str:
    """Join sentences, without the empty ones."""
    return " ".join(part for part in parts if part)


def unit_of(largest: float) -> tuple[float, str]:
    """Choose (bytes of a unit, its name) so that the number `largest` is short."""
    return next(((scale, name) for scale, name in UNITS if largest >= scale), UNITS[-1])


def leading(amounts: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Keep as many names as there are colours: of more, the largest in their order, and the rest summed as `other`."""
    most = len(chart.SERIES)
    if len(amounts) <= most:
        return {name: list(values) for name, values in amounts.items()}
    kept = sorted(amounts, key=lambda name: -sum(amounts[name]))[: most - 1]
    rest = [values for name, values in amounts.items() if name not in kept]
    shown = {name: list(values) for name, values in amounts.items() if name in kept}
    return {**shown, OTHER: np.sum(rest, axis=0).tolist()}


def colours(senders: Mapping[str, str]) -> dict[str, str]:
    """Choose for each name the hue of its sender, in shades if a sender has several; `other` is muted."""
    found: dict[str, str] = {}
    for name, sender in senders.items():
        before = sum(senders[other] == sender for other in found if other != OTHER)
        found[name] = chart.MUTED if name == OTHER else chart.shade(sender, before)
    return found


def draw_stack(
    axes: Axes, steps: Steps, stack: Mapping[str, Sequence[float]], scale: float, painted: Mapping[str, str]
) -> list[float]:
    """Draw `leading` amounts by iteration as layers, the first at the bottom; return the stack's heights in bytes."""
    tops, top = [], np.zeros(len(steps.starts))
    for name, values in stack.items():
        top = top + np.array(steps.mean(values), float)
        tops.append((name, top))
    for name, height in reversed(tops):  # each covers the lower part of the one above it: half the points of areas
        axes.stairs(
            height / scale, steps.edges, fill=True, color=painted.get(name, chart.MUTED), linewidth=0,
            label=chart.name(name),
        )  # fmt: skip
    axes.set_xlim(steps.edges[0], steps.edges[-1])
    return [float(value) for value in top]


def whole_numbers(axes: Axes) -> None:
    """Put only whole numbers on the axis of the iterations."""
    from matplotlib.ticker import MaxNLocator  # slow to import

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def legend_below(made: Figure, axes: Axes, columns: int = 2) -> None:
    """Put the legend outside the axes, where it hides nothing and can be read on a narrow screen."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        made.legend(
            handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=10, labelcolor=chart.INK,
            handlelength=1.6, columnspacing=1.4,
        )  # fmt: skip
