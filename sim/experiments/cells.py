"""Cells: work that is decided by a key, done several at a time, and kept as lines of JSON.

A second call does only what has no line yet.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

from protocol.errors import BadInput
from sim.console.progress import Progress
from sim.drivers.workers import map_cells
from sim.foreign.plain_text import jsonable

Line = dict[str, Any]  # of one finished cell, which is described under "cell"
_OPENING = '{"cell": '  # how every line begins


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCell:
    """Everything that decides a result; its JSON is the key of the result's line."""

    def describe(self) -> dict[str, Any]:
        return jsonable(dataclasses.asdict(self))  # type: ignore[no-any-return]

    def key(self) -> str:
        return key_of(self.describe())


AnyCell = TypeVar("AnyCell", bound=KeyedCell)


def key_of(described: dict[str, Any]) -> str:
    return json.dumps(described, sort_keys=True)


def complete(
    cells: Sequence[AnyCell], out: Path, work: Callable[[AnyCell], Line], jobs: int | None = None, quiet: bool = False
) -> list[Line]:
    """Return the lines of `cells`, in their order; do `work` for those that `out` does not hold yet."""
    known = read_lines(out)
    missing = [cell for cell in cells if cell.key() not in known]
    with _appending(out) as file, Progress("cells", len(cells), quiet=quiet) as progress:
        progress.to(len(cells) - len(missing))

        def keep(line: Line) -> None:
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()
            known[key_of(line["cell"])] = line
            progress.advance()

        map_cells(work, [(cell,) for cell in missing], jobs, keep)
    return [known[cell.key()] for cell in cells]


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[TextIO]:
    """Open `path` to append to it, before anything is computed for it; in the end, remove it if it is empty."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}; name another --out.") from error
    try:
        with file:
            yield file
    finally:
        if path.is_file() and not path.stat().st_size:
            path.unlink()


def read_lines(path: Path) -> dict[str, Line]:
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
            raise BadInput(f"{path}, line {number}, is no result of a grid: name another --out.") from None
    return lines
