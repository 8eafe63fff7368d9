"""One bar for each kind of message on each edge, with a mark where the formula puts its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from sim.console.console import size
from sim.folder.traffic import Row, edge_of
from sim.report.charts import chart
from sim.report.charts.series import legend_below, said, unit_of
from sim.report.section import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 20
BAR_HEIGHT = 0.21  # inches


def draw_bars(key: str, title: str, sums: Sequence[Row], painted: Mapping[str, str], word: str) -> Markup | None:
    """Draw `sums` by sender, receiver, kind and when; None if there are none.

    `painted` has a colour for each edge; `word` is "measured" or "counted".
    """
    if not sums:
        return None
    ordered = sorted(sums, key=lambda row: -row["wire_bytes"])
    shown = ordered[:MOST_BARS]
    scale, unit = unit_of(shown[0]["wire_bytes"])
    made, axes = chart.new_figure(f"wire bytes ({unit})", "kind of message", height=1.7 + BAR_HEIGHT * len(shown))
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")
    _draw(axes, shown, scale, painted)
    legend_below(made, axes)
    whole, first = sum(row["wire_bytes"] for row in sums), shown[0]
    most = (
        f"The largest part: {first['kind']} from {first['sender']} to {first['receiver']}, {size(first['wire_bytes'])}."
    )
    left = len(ordered) - len(shown)
    cut = f"The {left} smallest are only in the table." if left else ""
    words = said(f"{size(whole)} together. {most}", cut, "A hue says who sends.")
    columns = ["message", "when", "edge", "messages", "payload, bytes", f"{word}, bytes", "predicted, bytes"]
    return picture(made, key, title, words, columns, [_cells(row) for row in ordered])


def _draw(axes: Axes, shown: Sequence[Row], scale: float, painted: Mapping[str, str]) -> None:
    for edge in dict.fromkeys(edge_of(row) for row in shown):
        mine = [(at, row["wire_bytes"] / scale) for at, row in enumerate(shown) if edge_of(row) == edge]
        places, lengths = zip(*mine, strict=True)
        axes.barh(places, lengths, 0.7, color=painted.get(edge, chart.MUTED), label=chart.name(edge))
    for at, row in enumerate(shown):
        axes.annotate(
            size(row["wire_bytes"]), (row["wire_bytes"] / scale, at), xytext=(5, 0), textcoords="offset points",
            va="center", fontsize=9, color=chart.MUTED,
        )  # fmt: skip
    marks = [(row["predicted_bytes"] / scale, at) for at, row in enumerate(shown) if row["predicted_bytes"] is not None]
    if marks:
        axes.plot(
            *zip(*marks, strict=True), linestyle="none", marker="|", markersize=10, markeredgewidth=1.6,
            color=chart.INK, label="predicted",
        )  # fmt: skip
    axes.set_yticks(range(len(shown)), [chart.name(_name(row)) for row in shown])
    axes.invert_yaxis()
    axes.set_xlim(0, axes.get_xlim()[1] * 1.12)  # room for the sizes


def _name(row: Row) -> str:
    return f"{row['kind']} (end)" if row["when"] == "end" else str(row["kind"])


def _cells(row: Row) -> list[str]:
    amounts = [row[name] for name in ("messages", "payload_bytes", "wire_bytes", "predicted_bytes")]
    return [
        row["kind"],
        row["when"],
        edge_of(row),
        *("not predicted" if n is None else f"{n:,.4g}" if n < 10 else f"{round(n):,}" for n in amounts),
    ]
