"""Make the paper's figures again: run the cells that are not finished, then draw the results beside the claims."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.errors import BadInput
from protocol.params import require
from sim.data import ratings
from sim.experiments.cells import Line, complete, read_lines
from sim.experiments.reproduce.byte_figures import BytesCell, formula, run_bytes_cell
from sim.experiments.reproduce.curves import ComparedClaim, Results, rows_of, without_noise
from sim.experiments.reproduce.differences import bytes_caption, bytes_sentence, caption, sentence
from sim.experiments.reproduce.figure_plan import (
    BYTES,
    FIGURES,
    MOVIELENS,
    Figure,
    Size,
    cells_of,
    comparable,
    said,
    size_of,
)
from sim.experiments.reproduce.paper_claims import CLAIMED, MEASURED, NEAR, claims_of
from sim.experiments.reproduce.scenario_cells import READINGS, FigureCell, run_figure_cell
from sim.foreign.plain_text import csv_cell, json_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

LINES = "cells.jsonl"
COLUMNS = ("figure", "data", "panel", "series", "x_name", "x", "quantity", "y", "min", "max", "seeds", "source",
           "relation", "note", "reading")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """A figure, ready to be written."""

    figure: Figure
    drawing: Drawing
    rows: list[tuple[Any, ...]]  # of the CSV
    document: dict[str, Any]


def choose(name: str) -> tuple[list[Figure], list[dict[str, str]]]:
    """Return the figures that `name` asks for, and those that cannot be made here, with the reason."""
    known = ", ".join(FIGURES)
    require(name in FIGURES or name == "all", f"There is no figure {name!r}: use {known} or all.")
    wanted = list(FIGURES.values()) if name == "all" else [FIGURES[name]]
    if ratings.find(MOVIELENS) is not None:
        return wanted, []
    why = f'It needs {MOVIELENS}: run "keyhole fetch {MOVIELENS}" or set KEYHOLE_DATA to the folder that contains it.'
    lacking = [figure for figure in wanted if figure.data == MOVIELENS]
    if name != "all" and lacking:
        raise BadInput(f"{name} cannot be made. {why}")
    made = [figure for figure in wanted if figure.data != MOVIELENS]
    return made, [{"figure": figure.name, "why": why} for figure in lacking]


def reproduce(
    name: str,
    out: Path,
    *,
    quick: bool = False,
    jobs: int | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Make figures in the folder `out`, and return the document of `keyhole reproduce --json`.

    Cells that `out` already holds are not run again.
    """
    figures, skipped = choose(name)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"Cannot make the folder {out} ({error.strerror}): name another with --out.") from error
    cells = _cells(figures, quick)
    known = read_lines(out / LINES)
    found = sum(cell.key() in known for cell in cells)
    lines = complete(cells, out / LINES, run_any, jobs, quiet)
    by_key = dict(zip([cell.key() for cell in cells], lines, strict=True))
    made = [_make(figure, quick, by_key) for figure in figures]
    for one in made:
        _write(one, out)
    documents = [one.document for one in made]
    index = _write_index(made, skipped, out, quick) if name == "all" else None
    return {
        "quick": quick,
        "out": str(out),
        "cells": {"run": len(cells) - found, "found": found, "file": str(out / LINES)},
        "figures": documents,
        "skipped": skipped,
        "index": index,
    }


def run_any(cell: FigureCell | BytesCell) -> Line:
    return run_bytes_cell(cell) if isinstance(cell, BytesCell) else run_figure_cell(cell)


def _cells(figures: Sequence[Figure], quick: bool) -> list[FigureCell | BytesCell]:
    """List each cell once, the longest first, so that no core is idle at the end."""
    unique = {cell.key(): cell for figure in figures for cell in cells_of(figure, quick)}
    return sorted(
        unique.values(), key=lambda cell: cell.steps if isinstance(cell, FigureCell) else math.inf, reverse=True
    )


def _make(figure: Figure, quick: bool, by_key: dict[str, Line]) -> Made:
    lines = [by_key[cell.key()] for cell in cells_of(figure, quick)]
    document: dict[str, Any] = {"figure": figure.name, "title": figure.title, "quick": quick}
    if figure.kind == BYTES:
        return _make_bytes(figure, quick, lines, document)
    from sim.experiments.reproduce.draw import draw  # slow to import

    size, results = size_of(figure.data, quick), Results(lines)
    rows = rows_of(figure, size, results)
    claims = [ComparedClaim.of(claim, size, results) for claim in claims_of(figure)]
    alone = {reading: without_noise(size, results, reading) for reading in READINGS}
    document |= {
        "data": figure.data,
        "generated": figure.generated,
        "caption": caption(figure, quick),
        "sentence": sentence(figure, size, claims, rows, alone),
        "claims": [_claim_document(found, size) for found in claims]
        or [{"words": row.note, "panel": row.panel} for row in rows if row.source == CLAIMED],
    }
    written = [(figure.name, figure.data_words, *astuple(row)) for row in rows]
    return Made(figure, draw(figure, rows, said(figure, quick)), written, document)


def _claim_document(found: ComparedClaim, size: Size) -> dict[str, Any]:
    """Describe a claim and our figures; a key that names no reading, like `measured`, is for the iterate."""
    claim = found.claim

    def agrees(measured: float | None, tells: bool = True) -> bool | None:
        return claim.holds(measured) if measured is not None and tells and comparable(size, claim.scenario) else None

    return {
        "scenario": claim.scenario, "epsilon": claim.epsilon, "iterations": claim.iterations,
        "quantity": "mean increase", "relation": claim.relation, "claimed": claim.value,
        "measured": found.iterate, "agrees": agrees(found.iterate),
        "measured_solved": found.solved, "agrees_solved": agrees(found.solved, found.tells),
        "measured_solved_over_iterate": found.solved_over_iterate,
        "agrees_solved_over_iterate": agrees(found.solved_over_iterate, found.tells_over_iterate),
        "unlearned_solved": found.unlearned, "unlearned_solved_over_iterate": found.unlearned_over_iterate,
        "tolerance": NEAR, "words": claim.words,
    }  # fmt: skip


def _make_bytes(figure: Figure, quick: bool, lines: list[Line], document: dict[str, Any]) -> Made:
    from sim.experiments.reproduce.draw import draw_bytes  # slow to import

    found, rows = formula(), []
    for row in found["rows"]:
        for series, value, source, relation, seeds in (
            ("the paper's bound", row["paper"], CLAIMED, "≤", 0),
            ("paper form", row["wire_paper"], "by formula", "=", 0),
            ("compact form", row["wire_compact"], "by formula", "=", 0),
            *(
                (f"{line['cell']['wire']} form", line["measured"][row["what"]], MEASURED, "=", 1)
                for line in lines if line["measured"]
            ),
        ):  # fmt: skip
            of_user = ("items of a user", found["items_per_user"], "bytes of one iteration")
            figures = (value, value, value, seeds, source, relation, row["why"], "")
            rows.append((figure.name, "generated data", row["what"], series, *of_user, *figures))
    document |= {
        "data": lines[0]["cell"]["data"],
        "generated": True,
        "caption": bytes_caption(lines, quick),
        "sentence": bytes_sentence(found, lines),
        "claims": [{"words": row["what"], "claimed": row["paper"], "unit": "bytes"} for row in found["rows"]],
    }
    return Made(figure, draw_bytes(found, lines, figure.title + (" (quick)" if quick else "")), rows, document)


def _write(made: Made, out: Path) -> None:
    from sim.report.charts import chart  # slow to import

    name = made.figure.name
    paths = {ending: out / f"{name}.{ending}" for ending in ("png", "svg", "csv", "json")}
    made.document["files"] = {ending: str(path) for ending, path in paths.items()}
    made.document["measured"] = sum(row[COLUMNS.index("source")] == MEASURED for row in made.rows)
    chart.save(made.drawing, [paths["png"], paths["svg"]])
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([_cell_of(cell) for cell in row] for row in made.rows)
    _replace(paths["csv"], text.getvalue())
    _replace(paths["json"], json_text(made.document) + "\n")


def _cell_of(value: Any) -> Any:
    return "" if value is None else round(value, 6) if isinstance(value, float) else csv_cell(value)


def _replace(path: Path, text: str) -> None:
    """Replace the file at `path` in one step, so that no reader finds half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _write_index(made: Sequence[Made], skipped: Sequence[dict[str, str]], out: Path, quick: bool) -> dict[str, str]:
    from sim.experiments.reproduce.index_page import index_page, markdown  # slow to import

    page, text = out / "index.html", out / "figures.md"
    _replace(page, index_page(made, skipped, quick))
    _replace(text, markdown([one.document for one in made], skipped, quick))
    return {"page": str(page), "text": str(text)}
