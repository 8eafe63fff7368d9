"""A grid of runs, several at a time. Every finished cell has a line of JSON, so a second call runs only the others."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

from actors.own_scheme import load_schemes
from protocol.errors import BadInput
from sim.console.progress import Progress
from sim.drivers.workers import worker_pool
from sim.experiments.grid.grid_cells import BESIDE, Cell, key_of, run_cell, takes_epsilon
from sim.plan.config import RunConfig

Line = dict[str, Any]
AnyCell = TypeVar("AnyCell", bound="Keyed")

_OPENING = '{"cell": '  # how every line begins
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
        for dim, length, epsilon, seed in itertools.product(dims, iterations, own, range(1, seeds + 1)):
            cells.append(
                Cell(
                    scheme=scheme,
                    data=data,
                    epsilon=epsilon,
                    dim=dim,
                    iterations=length,
                    seed=seed,
                    test_fraction=test_fraction,
                    **how,
                )
            )
    return list(dict.fromkeys(cells))


def evaluate(cells: Sequence[Cell], out: Path, jobs: int | None = None, quiet: bool = False) -> list[dict[str, Any]]:
    """Return the lines of `cells`, in their order; run those that `out` does not hold yet, and append them to it."""
    for scheme in {cell.scheme for cell in cells}:
        takes_epsilon(scheme)  # refused here, once, rather than by every worker
    lines = complete(cells, out, run_cell, jobs, quiet)
    write_parquet(lines, out.with_suffix(".parquet"))
    return lines


class Keyed(Protocol):
    """A cell: everything that decides a result."""

    def key(self) -> str: ...


def complete(
    cells: Sequence[AnyCell], out: Path, work: Callable[[AnyCell], Line], jobs: int | None = None, quiet: bool = False
) -> list[Line]:
    """Return the lines of `cells`, in their order; do `work` for those that `out` does not hold yet."""
    known = read_lines(out)
    missing = [cell for cell in cells if cell.key() not in known]
    out.parent.mkdir(parents=True, exist_ok=True)
    with _appending(out) as file, Progress("cells", len(cells), quiet=quiet) as progress:
        progress.to(len(cells) - len(missing))
        for line in _run_all(missing, work, jobs or os.cpu_count() or 1):
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()
            known[key_of(line["cell"])] = line
            progress.advance()
    return [known[cell.key()] for cell in cells]


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[TextIO]:
    """Open `path` to append to it, before anything is computed for it; in the end, remove it if it is empty."""
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}; name another --out.") from error
    try:
        with file:
            yield file
    finally:
        if path.is_file() and not path.stat().st_size:
            path.unlink()


def read_lines(path: Path) -> dict[str, dict[str, Any]]:
    """Read the lines of finished cells, by key. Remove a last line that was cut off: its cell is run again."""
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"Cannot read {path}: {error}.") from error
    lines = {}
    rows = text.splitlines(keepends=True)
    for number, row in enumerate(rows, 1):
        if number == len(rows) and not row.endswith("\n") and row.startswith(_OPENING[: len(row)]):
            path.write_text(text[: -len(row)], encoding="utf-8")
            break
        try:
            line = json.loads(row)
            lines[key_of(line["cell"])] = line
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}, line {number}, is not a result of a grid: name another --out.") from None
    return lines


def _run_all(cells: Sequence[AnyCell], work: Callable[[AnyCell], Line], jobs: int) -> Iterator[Line]:
    """Yield the lines of `cells` as they finish."""
    if jobs <= 1 or len(cells) <= 1:
        yield from map(work, cells)
        return
    with worker_pool(min(jobs, len(cells))) as pool:
        yield from pool.completed(pool.submit(work, cell) for cell in cells)


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
