"""The charts: our results as lines, with a panel for each reading of u_i, and the paper's claims as marks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sim.bandwidth import paper_bytes
from sim.experiments.reproduce.curves import GAIN, READING_WORDS, UNLEARNED_GAIN, CurvePoint, panel_of
from sim.experiments.reproduce.figure_plan import CDF, CHURN, Figure
from sim.experiments.reproduce.paper_claims import CLAIMED, claims_of
from sim.experiments.reproduce.scenario_cells import ITERATE, READINGS
from sim.report.charts import chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

CLAIM_COLOUR = chart.colour(6)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def draw(figure: Figure, rows: Sequence[CurvePoint], sizes: str) -> Drawing:
    if figure.kind == CDF:
        made = _distribution(figure, rows)
    elif figure.kind == CHURN:
        made = _churn(rows)
    else:
        made = _increase(rows)
    words = "\n".join([figure.title, *textwrap.wrap(sizes, 120)])
    made.suptitle(words, fontsize=11, color=chart.INK, x=0.01, ha="left")
    return _laid_out(made)


def _laid_out(made: Drawing) -> Drawing:
    """Compute the layout once, and not again for each file format."""
    made.draw_without_rendering()
    made.set_layout_engine("none")
    return made


def _panel(rows: Sequence[CurvePoint], panel: str) -> dict[str, list[CurvePoint]]:
    series: dict[str, list[CurvePoint]] = {}
    for row in rows:
        if row.panel == panel and row.source != CLAIMED:
            series.setdefault(row.series, []).append(row)
    return series


def _panels(rows: Sequence[CurvePoint]) -> dict[str, str]:
    """Map each panel to the reading that it shows."""
    return {row.panel: row.reading for row in rows if row.source != CLAIMED}


def _titled(title: str, reading: str) -> str:
    return f"{title}: {READING_WORDS[reading]}"


def _claim(axes: Axes, words: str) -> None:
    """Write `words` between a panel and its title, so that they cover no curve."""
    lines = textwrap.wrap(words.replace(" = .", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}."), 66)
    text, style = "\n".join(lines), {"va": "bottom", "fontsize": 9, "color": CLAIM_COLOUR}
    axes.annotate(text, (0, 1.02), xycoords="axes fraction", **style)  # type: ignore[arg-type]
    axes.set_title(axes.get_title(loc="left"), loc="left", fontsize=11, pad=9 + 13 * len(lines))


def _below(axes: Axes) -> None:
    """Put the legend below the panel, where it covers no curve."""
    chart.add_legend(axes, loc="upper left", bbox_to_anchor=(-0.02, -0.16), ncols=2)


def _distribution(figure: Figure, rows: Sequence[CurvePoint]) -> Drawing:
    x, y = "absolute error |r − u·v| (stars)", "share of ratings with at most this error"
    panels = _panels(rows)
    labels = [(_titled(panel.removesuffix(f", {reading}"), reading), x, y) for panel, reading in panels.items()]
    made, axes = chart.new_panels(labels)
    made.set_size_inches(2 * chart.WIDE, 3 * chart.HIGH)
    for one, panel in zip(axes, panels, strict=True):
        found = _panel(rows, panel)
        for number, name in enumerate(_legible(list(found), f"ε = {figure.marked:g}")):
            points, plain, marked = found[name], number == 0, name == f"ε = {figure.marked:g}"
            one.plot(
                [float(row.x or 0) for row in points],
                [float(row.y or 0) for row in points],
                label=name,
                color=chart.INK if plain else chart.colour(number - 1),
                linestyle="--" if plain else "-",
                linewidth=3.0 if marked else 1.8,
            )
        one.set_xlim(0, 4)
        one.set_ylim(0, 1.02)
        _below(one)
    for claim in claims_of(figure):
        _claim(axes[0], f"The paper: {claim.words}")
    return made


def _legible(names: list[str], marked: str) -> list[str]:
    """Choose the baseline, which comes first, the `marked` curve and a few others; the CSV has all of them."""
    chosen = {names[0], marked, *_some(names[1:], 6)}
    return [name for name in names if name in chosen]


def _line(axes: Axes, points: Sequence[CurvePoint], name: str, number: int, style: str = "-") -> None:
    """Draw the mean over the seeds, and a band from the least to the most if there are several."""
    x, y = [float(row.x or 0) for row in points], [float(row.y or 0) for row in points]
    colour, marker = chart.colour(number), MARKERS[number % len(MARKERS)]
    axes.plot(x, y, label=name, color=colour, linestyle=style, marker=marker, markersize=5)
    if any(row.seeds > 1 for row in points):
        low, high = [float(row.low or 0) for row in points], [float(row.high or 0) for row in points]
        axes.fill_between(x, low, high, color=colour, alpha=0.2)


def _ticks(axes: Axes, values: Iterable[float]) -> None:
    """Put ticks on a logarithmic axis at the values that were run; leave out labels that would touch another."""
    shown, labels, last = sorted(set(values)), [], 0.0
    for value in shown:
        labels.append(f"{value:,g}" if value >= 1.4 * last else "")
        last = value if labels[-1] else last
    axes.set_xscale("log")
    axes.set_xticks(shown, labels)
    axes.set_xticks([], minor=True)


def _increase(rows: Sequence[CurvePoint]) -> Drawing:
    gain, epsilon = "mean increase of |r − u·v| (stars)", "ε per release, as published (log scale)"
    sides = ("(a) S1 and S2", "(b) S3")
    by_epsilon = [(_titled(f"{side}, by ε", reading), epsilon, gain) for reading in READINGS for side in sides]
    by_step = [
        (_titled(f"{side}, by iterations", reading), "iterations (log scale)", gain)
        for reading in READINGS
        for side in sides
    ]
    made, axes = chart.new_panels([*by_epsilon, *by_step])
    made.set_size_inches(2 * chart.WIDE, 6.2 * chart.HIGH)
    half = len(by_epsilon)
    for place, (reading, side) in enumerate((reading, side) for reading in READINGS for side in ("(a)", "(b)")):
        _by_epsilon(axes[place], rows, side, reading)
        _by_iterations(axes[half + place], rows, side, reading)
    for one in axes:
        one.axhline(0, color=chart.MUTED, linewidth=1)
        _below(one)
    return made


def _by_epsilon(axes: Axes, rows: Sequence[CurvePoint], side: str, reading: str) -> None:
    ticks: list[float] = []
    for number, (name, points) in enumerate(_panel(rows, panel_of(f"{side} by ε", reading)).items()):
        if points[0].quantity == UNLEARNED_GAIN:
            axes.axhline(float(points[0].y or 0), color=chart.INK, linestyle="-.", label=name)
            continue
        finite = [row for row in points if row.x is not None and math.isfinite(row.x)]
        ticks += [row.x for row in finite if row.x is not None]
        _line(axes, finite, name, number, "-" if points[0].quantity == GAIN else ":")
        for row in points:
            if row not in finite and row.y is not None and row.quantity == GAIN:
                axes.axhline(row.y, color=chart.MUTED, linestyle="--", label=f"{name} at ε = ∞ (no noise)")
    for row in rows:
        if row.source == CLAIMED and row.panel == f"{side} by ε" and row.x is not None and row.y is not None:
            _mark(axes, row.x, row.y, row.relation, row.series.split(", ")[1])
            ticks.append(row.x)
    _ticks(axes, ticks)


def _mark(axes: Axes, x: float, y: float, relation: str, scenario: str) -> None:
    """Mark a claim of the paper: with a triangle that points down if the text gives a bound, else with a diamond."""
    name = f"paper, {scenario}: {relation} {y:g} at ε = {x:g}"
    fill = "none" if scenario == "S2" else CLAIM_COLOUR
    marker = "v" if relation == "<" else "D"
    axes.plot([x], [y], marker, color=CLAIM_COLOUR, markersize=9, label=name, zorder=5, markerfacecolor=fill)


def _by_iterations(axes: Axes, rows: Sequence[CurvePoint], side: str, reading: str) -> None:
    """Draw the curves of a few ε only, so that they can be told apart; the CSV has all of them."""
    found = _panel(rows, panel_of(f"{side} by iterations", reading))
    names: dict[str, list[str]] = {}
    for name in found:
        names.setdefault(name.split(", ")[0], []).append(name)
    kept = [name for all_ in names.values() for name in _some(all_, 4 if len(names) == 1 else 3)]
    for number, name in enumerate(kept):
        _line(axes, found[name], name, number, "--" if name.startswith("S2") else "-")
    _ticks(axes, [row.x for points in found.values() for row in points if row.x is not None])


def _some(names: list[str], most: int) -> list[str]:
    """Choose at most `most` names: the first, the last and some between."""
    if len(names) <= most:
        return names
    return [names[round(place * (len(names) - 1) / (most - 1))] for place in range(most)]


def _churn(rows: Sequence[CurvePoint]) -> Drawing:
    gain = "mean increase of |r − u·v| (stars)"
    sides = {
        "by joining": ("by joining probability (leaving: .01)", "joining probability per iteration"),
        "by leaving": ("by leaving probability (joining: .005)", "leaving probability per iteration"),
    }
    places = [(panel, reading) for reading in READINGS for panel in sides]
    labels = [(_titled(sides[panel][0], reading), sides[panel][1], gain) for panel, reading in places]
    made, axes = chart.new_panels(labels)
    for one, (panel, reading) in zip(axes, places, strict=True):
        for number, (name, points) in enumerate(_panel(rows, panel_of(panel, reading)).items()):
            _line(one, points, name, number)
        one.axhline(0, color=chart.MUTED, linewidth=1)  # so that a small change looks small
        one.margins(y=0.15)
        if reading == ITERATE:
            _claim(one, "The paper: " + next(row.note for row in rows if row.source == CLAIMED and row.panel == panel))
        one.legend(frameon=False, fontsize=9, labelcolor=chart.INK)
    return made


def draw_bytes(formula: dict[str, Any], lines: Sequence[dict[str, Any]], title: str) -> Drawing:
    """Draw one panel for a user and one for the third party: their bytes differ by three orders of magnitude."""
    labels = [("one user, one iteration", "", "kilobytes (1000 bytes)"),
              ("third party to recommender, one iteration", "", "megabytes (1,000,000 bytes)")]  # fmt: skip
    made, axes = chart.new_panels(labels)
    made.suptitle(title, fontsize=11, color=chart.INK, x=0.01, ha="left")
    series: list[tuple[str, dict[str, float]]] = [
        (f"the paper's bound ({paper_bytes.SOURCE})", {row["what"]: row["paper"] for row in formula["rows"]}),
        ("paper form, by formula", {row["what"]: row["wire_paper"] for row in formula["rows"]}),
        ("compact form, by formula", {row["what"]: row["wire_compact"] for row in formula["rows"]}),
        *((f"{line['cell']['wire']} form, measured", line["measured"]) for line in lines if line["measured"]),
    ]
    for one, whats, unit in zip(axes, (WHATS_OF_USER, WHATS_OF_SERVER), (1e3, 1e6), strict=True):
        width = 0.8 / len(series)
        for number, (name, values) in enumerate(series):
            colour = CLAIM_COLOUR if number == 0 else chart.colour(number - 1)
            places = [at + (number - (len(series) - 1) / 2) * width for at in range(len(whats))]
            bars = one.bar(places, [values[what] / unit for what in whats], width * 0.92, color=colour, label=name)
            one.bar_label(bars, fmt="%.1f", fontsize=8, color=chart.INK)
        one.set_xticks(range(len(whats)), whats)
        one.margins(y=0.12)
    chart.add_legend(axes[0], loc="upper right")
    return _laid_out(made)


WHATS_OF_USER, WHATS_OF_SERVER = ("one user, down", "one user, up"), ("from the third party",)
