"""A grid of runs: its cells, their lines, and the means of these over the seeds."""

from __future__ import annotations

import functools
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from actors.own_scheme import load_schemes
from sim.experiments.cells import complete, key_of
from sim.experiments.grid.grid_cells import BESIDE, Cell, run_cell, takes_epsilon
from sim.plan.config import RunConfig

AVERAGED = ("train_mae", "train_rmse", "test_mae", "test_rmse", "mae_increase", "plain_train_mae", "plain_test_rmse")


def grid(
    schemes: Sequence[str],
    epsilons: Sequence[float],
    dims: Sequence[int],
    iterations: Sequence[int],
    seeds: int,
    data: str,
    test_fraction: float = RunConfig.test_fraction,
    **how: Any,
) -> list[Cell]:
    """Make a cell for every combination, with seeds 1, 2, …; a scheme without ε has one cell instead of one per ε.

    `how`: the fields of a cell that say how a file is read.
    """
    load_schemes(schemes)
    cells = []
    for scheme in schemes:
        own: Sequence[float | None] = epsilons if takes_epsilon(scheme) else [None]
        run = functools.partial(Cell, scheme=scheme, data=data, test_fraction=test_fraction, **how)
        combined = itertools.product(dims, iterations, own, range(1, seeds + 1))
        cells += [run(dim=dim, iterations=length, epsilon=one, seed=seed) for dim, length, one, seed in combined]
    return list(dict.fromkeys(cells))


def evaluate(cells: Sequence[Cell], out: Path, jobs: int | None = None, quiet: bool = False) -> list[dict[str, Any]]:
    """Return the lines of `cells`, in their order; run those that `out` does not hold yet, and append them to it."""
    for scheme in {cell.scheme for cell in cells}:
        takes_epsilon(scheme)  # refused here, once, rather than by every worker
    lines = complete(cells, out, run_cell, jobs, quiet)
    write_parquet(lines, out.with_suffix(".parquet"))
    return lines


def means(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average each configuration and reading over the seeds, and count aborted runs; None where a figure is missing."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[key_of({name: value for name, value in line["cell"].items() if name != "seed"})].append(line)
    rows = []
    for key, group in groups.items():
        finished = [line for line in group if line["abort"] is None]
        row: dict[str, Any] = {**json.loads(key), "seeds": len(group), "aborted": len(group) - len(finished)}
        row |= _averaged(finished)
        for reading in BESIDE:
            row[reading] = _averaged([line[reading] for line in finished if line[reading] is not None])
        rows.append(row)
    return rows


def _averaged(readings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: _mean([reading[name] for reading in readings]) for name in AVERAGED}
    found["within"] = {
        threshold: _mean([reading["within"][threshold] for reading in readings])
        for threshold in (readings[0]["within"] if readings else {})
    }
    return found


def _mean(values: list[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else None


def write_parquet(lines: Sequence[dict[str, Any]], path: Path) -> bool:
    """Write the same results as one table, if pyarrow is installed; the JSON lines stay the record."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return False
    rows = [{**line["cell"], **{name: value for name, value in line.items() if name != "cell"}} for line in lines]
    names = dict.fromkeys(name for row in rows for name in row)  # an aborted run lacks some
    rows = [{name: row.get(name) for name in names} for row in rows]
    for row in rows:  # one type per column: infinity is a number here
        row["epsilon"] = None if row["epsilon"] is None else float(row["epsilon"])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return True
