"""Charts by matplotlib: as files, and as SVG inside a page, where the colours follow its light or dark mode.

A chart is drawn in the light colours. Each of them also has a name in the page's style sheet (`LIGHT`), which replaces
the colour inside a page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from sim.foreign.plain_text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Margins = tuple[float, float, float, float]  # left, bottom, right and top edge of the axes, as shares of the figure

INK, MUTED, GRID = "#1c2430", "#5a6473", "#dde2ea"
SERIES = ("#2f6db5", "#d9822b", "#2f9e77", "#b5447a", "#7a5cc7", "#8a7a22", "#c2453d", "#4aa3c7")
# on the page of a run a hue has one meaning: the sender, the truth that only the auditor has, or the run as a whole
HUES = {"user": 0, "recommender": 1, "third_party": 3}
TRUTH, RUN = 2, 4
PARTS = (1.0, 0.72, 0.5, 0.33, 0.2)  # of the hue in each shade; shades tell apart what has the same sender


def _mixed(colour_: str, part: float) -> str:
    """Mix `colour_`, of which `part` remains, with white."""
    return "#" + "".join(f"{round(255 - part * (255 - int(colour_[at : at + 2], 16))):02x}" for at in (1, 3, 5))


SHADES = {role: [_mixed(SERIES[hue], part) for part in PARTS] for role, hue in HUES.items()}
LIGHT = {
    **{INK: "ink", MUTED: "muted", GRID: "grid"},
    **{colour: f"c{n}" for n, colour in enumerate(SERIES)},
    **{shade: f"c{HUES[role]}-{n}" for role, shades in SHADES.items() for n, shade in enumerate(shades) if n},
}

WIDE, HIGH = 4.9, 3.1  # inches: two beside each other on a wide screen, and readable on a telephone


def colour(number: int) -> str:
    return SERIES[number % len(SERIES)]


def shade(role: str, number: int) -> str:
    """Give the colour of what `role` sends; of several, `number` 0 is the darkest."""
    return SHADES[role][number % len(PARTS)] if role in SHADES else MUTED


def name(text: str) -> str:
    """Make a label of a name from a file: without this a dollar sign would begin a formula."""
    return visible(text).replace("$", r"\$")


def new_figure(
    x: str, y: str, *, width: float = WIDE, height: float = HIGH, margins: Margins | None = None
) -> tuple[Figure, Axes]:
    """Make axes with a name and a unit on each; `margins` replace the automatic layout, which is slow."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # slow to import

    with rc_context(STYLE):
        made = Figure(figsize=(width, height), layout=None if margins else "constrained")
        axes = made.add_subplot()
        if margins:
            made.subplots_adjust(*margins)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
    return made, axes


def new_panels(labels: Sequence[tuple[str, str, str]], *, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """Make several pairs of axes, row by row; `labels` has the title of each and the names of x and y."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # slow to import

    rows = -(-len(labels) // columns)
    with rc_context(STYLE):
        made = Figure(figsize=(WIDE * columns, 1.15 * HIGH * rows), layout="constrained")
        panels = []
        for place, (title, x, y) in enumerate(labels, 1):
            axes = made.add_subplot(rows, columns, place)
            axes.set_title(title, fontsize=11, loc="left")
            axes.set_xlabel(x)
            axes.set_ylabel(y)
            axes.grid(axis="y")
            axes.set_axisbelow(True)
            panels.append(axes)
    return made, panels


def add_legend(axes: Axes, **where: Any) -> None:
    """Add a legend, if there is more than one thing to tell apart."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        axes.legend(handles, labels, frameon=False, fontsize=9, labelcolor=INK, **where)


def inline(figure: Figure, key: str, title: str, description: str) -> Markup:
    """Render `figure` as SVG for a page, on which `key` is unique; `title` and `description` are for screen readers."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": key}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\1{key}-", svg)
    svg = _smaller(svg)
    for colour_, name in LIGHT.items():
        svg = svg.replace(colour_, f"var(--{name})")
    svg = re.sub(r"font: ([^;\"]*?)'[^\"]*?(?=[;\"])", r"font: \1sans-serif", svg)
    opening = re.sub(r'\s(?:width|height)="[^"]*"', "", svg[: svg.index(">")])
    spoken = f'<title id="{key}-t">{escape(title)}</title><desc id="{key}-d">{escape(description)}</desc>'
    labelled = f' class="chart" role="img" aria-labelledby="{key}-t {key}-d">'
    return Markup(opening + labelled + spoken + svg[svg.index(">") + 1 :])  # our own drawing, so not escaped


def _smaller(svg: str) -> str:
    """Shrink `svg` to two decimals, one font name and no space between elements, which looks the same."""
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", " " + " ".join(path[0].split())), svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    return re.sub(r">\s+<", "><", svg)


def save(figure: Figure, paths: Sequence[Path]) -> None:
    """Save `figure` to `paths`, in the formats of their endings (.png, .svg). The same data gives the same bytes."""
    from matplotlib import rc_context

    with rc_context({**STYLE, "svg.hashsalt": "keyhole"}):
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, dpi=160, facecolor="white", metadata=metadata)


STYLE: Any = {  # matplotlib types its keys one by one
    "font.size": 10.5,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "patch.linewidth": 0,
}
