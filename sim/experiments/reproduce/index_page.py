"""The index of the reproduced figures: as a page that needs no network, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from sim.bandwidth.paper_bytes import SOURCE
from sim.console.console import number
from sim.experiments.reproduce.paper_claims import MEASURED
from sim.report.charts import chart
from sim.report.page import page
from sim.report.section import Section, render, table

if TYPE_CHECKING:
    from sim.experiments.reproduce.reproduce import Made

MOST_ROWS = 120  # in a figure's table on the page; its CSV has all


def index_page(made: Sequence[Made], skipped: Sequence[dict[str, str]], quick: bool) -> str:
    sections = [_section(one) for one in made]
    if skipped:
        words = Markup("").join(Markup("<p>{}: {}</p>").format(row["figure"], row["why"]) for row in skipped)
        sections.append(Section("skipped", "Not made", words))
    return page("The paper's figures, made again", _lead(quick), sections)


def _lead(quick: bool) -> str:
    size = "Quick: smaller runs than the paper's; the sizes stand on each figure." if quick else "In the paper's sizes."
    return f"{SOURCE}. {size} Red marks and words are claims of the paper's text; its curves are not drawn."


def _section(one: Made) -> Section:
    document, key = one.document, one.figure.name
    rows, columns = [], ("series", "panel", "x", "y", "source")
    for _, _, panel, series, x_name, x, _, y, _, _, _, source, relation, _, _ in one.rows:
        at = f"{x_name} {x:g}" if x is not None else x_name if source == MEASURED else "not stated"
        value = "in words" if y is None else f"{'' if relation == '=' else relation + ' '}{_number(y)}"
        rows.append((series, panel, at, value, source.split(" (")[0]))
    listed = _thinned(rows)
    left = (
        "" if len(rows) == len(listed) else f" Of {len(rows)} points {len(listed)} are listed below; {key}.csv has all."
    )
    html = render(
        "reproduce.html",
        key=key,
        title=document["title"],
        caption=document["caption"] + left,
        sentence=document["sentence"],
        drawn=chart.inline(one.drawing, key, document["title"], document["sentence"]),
        numbers=table(columns, listed),
    )
    return Section(f"{key}-heading", key, html)


def _thinned(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Keep every row that was not measured, like claims, and evenly chosen rows of the others."""
    if len(rows) <= MOST_ROWS:
        return rows
    every = -(-len(rows) // MOST_ROWS)
    return [row for place, row in enumerate(rows) if place % every == 0 or row[-1] != "measured"]


def _number(value: float) -> str:
    return number(value) if isinstance(value, float) else f"{value:,}"


def markdown(documents: Sequence[dict[str, Any]], skipped: Sequence[dict[str, str]], quick: bool) -> str:
    parts = ["# The paper's figures, made again", _lead(quick)]
    for document in documents:
        name = document["figure"]
        links = ", ".join(f"[{ending}]({Path(path).name})" for ending, path in document["files"].items())
        parts += [f"## {name}: {document['title']}", f"![{escape(document['title'])}]({name}.png)",
                  document["sentence"], document["caption"], links]  # fmt: skip
    parts += [f"{row['figure']} was not made. {row['why']}" for row in skipped]
    return "\n\n".join(parts) + "\n"
