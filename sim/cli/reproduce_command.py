"""The command `keyhole reproduce`."""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.params import require
from sim.console import console
from sim.foreign.plain_text import json_text

if TYPE_CHECKING:
    from sim.experiments.reproduce.reproduce import AnyCell, Line
    from sim.experiments.reproduce.scenario_cells import FigureCell

SHORT, PART = 2, 40  # a probe makes so few iterations, and then further ones: so large a part of all, at least 5


def reproduce(
    figure: Annotated[str, typer.Argument(metavar="FIGURE", help="fig1 … fig10, table-bytes or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller runs, said on each figure: all in about a minute.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where figures, numbers and cells go.")] = Path("reproduced"),
    jobs: Annotated[int | None, typer.Option(help="Processes at a time. (as many as cores)")] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Make the figures of the paper again, its claims beside ours: PNG, SVG, CSV. A second call goes on."""
    from sim.experiments.reproduce.reproduce import reproduce as make  # slow to import

    require(jobs is None or jobs >= 1, f"--jobs must be 1 or more, not {jobs}.")
    talks = sys.stderr.isatty() and not json_

    def tell(missing: Sequence[AnyCell], known: dict[str, Line]) -> None:
        if talks:
            print(estimate(missing, known, jobs or os.cpu_count() or 1, quick), file=sys.stderr)

    document = make(figure, out, quick=quick, jobs=jobs, quiet=json_, on_start=tell)
    if json_:
        print(json_text(document))
    else:
        _show(document)


def _show(document: dict[str, Any]) -> None:
    for made in document["figures"]:
        console.out.print(f"{made['figure']}: {made['title']}", style="bold", markup=False, highlight=False)
        console.out.print(f"  {made['sentence']}", markup=False, highlight=False)
        files = "  " + " ".join(made["files"].values())
        console.out.print(files, markup=False, highlight=False, soft_wrap=True)
    for row in document["skipped"]:
        console.out.print(f"{row['figure']} was not made. {row['why']}", markup=False)
    cells = document["cells"]
    console.out.print(f"{cells['run']} cells were run, {cells['found']} were there already.")
    if document["index"]:
        console.out.print(f"See all: {document['index']['page']}", soft_wrap=True)


def estimate(missing: Sequence[AnyCell], known: dict[str, Line], jobs: int, quick: bool) -> str:
    """How long it will take, from cells of the same kind that are finished, or else from a few iterations of one."""
    from sim.experiments.reproduce.scenario_cells import FigureCell

    cells = [cell for cell in missing if isinstance(cell, FigureCell)]
    if quick:
        return f"{len(missing)} cells to run, in smaller sizes: a minute or two."
    rates = _known_rates(known)
    for cell in cells:
        if _kind(cell.describe()) not in rates:
            rates[_kind(cell.describe())] = _probe(cell)
    seconds = sum(rates[_kind(cell.describe())] * cell.steps for cell in cells) / min(jobs, max(1, len(cells)))
    return f"{len(missing)} cells to run: about {max(1, round(seconds / 60))} minutes with {jobs} processes."


def _kind(described: dict[str, Any]) -> tuple[Any, ...]:
    """Cells of one kind take about as long for an iteration."""
    return described["scenario"], described["data"], described["users"], described["engine"]


def _known_rates(known: dict[str, Line]) -> dict[tuple[Any, ...], float]:
    """Seconds per iteration, by kind."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for line in known.values():
        if "points" in line:
            rate = line["seconds"] / line["cell"]["checkpoints"][-1]
            found.setdefault(_kind(line["cell"]), []).append(rate)
    return {kind: statistics.median(rates) for kind, rates in found.items()}


def _probe(cell: FigureCell) -> float:
    """Seconds per iteration; what the start costs is in both of two runs, and so not in their difference."""
    from sim.experiments.reproduce.scenario_cells import run_figure_cell

    took, further = [], max(5, cell.steps // PART)
    for steps in (SHORT, SHORT, SHORT + further):  # the first one also loads the ratings
        started = time.perf_counter()
        run_figure_cell(dataclasses.replace(cell, checkpoints=(steps,)))
        took.append(time.perf_counter() - started)
    return max(took[2] - took[1], 0.0) / further
