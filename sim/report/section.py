"""A part of the page, and the few pieces of HTML that all parts are made of. Everything a person reads is escaped."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sim.console import console
from sim.foreign.plain_text import visible
from sim.report.charts import chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Section:
    id: str  # of its heading, in the table of contents
    title: str
    html: Markup
    short: str = ""  # in the table of contents, where the title is too long for it


def template_folders() -> list[Path]:
    """Find the folders with templates: that of all pages, and one per section."""
    return sorted(folder for folder in Path(__file__).parent.iterdir() if folder.is_dir())


@functools.cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(template_folders()), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(size=console.size, number=console.number, epsilon=console.figure)
    return made


def render(template: str, **given: Any) -> Markup:
    return Markup(visible(environment().get_template(template).render(**given)))  # the templates escape


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, caption: str = "", numeric: int = 0) -> Markup:
    """Render a table that scrolls by itself if it is too wide; its last `numeric` columns are aligned as numbers."""
    return render("table.html", columns=columns, rows=rows, caption=caption, first=len(columns) - numeric)


def picture(
    figure: Figure, key: str, title: str, description: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> Markup:
    """Render a chart with its title, its `description` in words, and its numbers as a table that can be unfolded."""
    drawn = chart.inline(figure, key, title, description)
    numbers = table(columns, rows, numeric=len(columns) - 1)
    return render("picture.html", drawn=drawn, key=key, title=title, description=description, numbers=numbers)
