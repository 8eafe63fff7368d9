"""Console output for people: tables on stdout, progress on stderr and only on a terminal."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from protocol.errors import BadInput, Reason
from sim.foreign.plain_text import json_text, visible

RECORDS_OF_A_PAGE = 50


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # a reader such as head has closed the pipe, which is not an error


class _Visible(RenderHook):
    """A hook that keeps control characters in printed text from reaching the terminal."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Cleaned(renderable) for renderable in renderables]


@dataclass(frozen=True, slots=True)
class _Cleaned:
    inner: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.inner, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


out = _Console(highlight=False)
out.push_render_hook(_Visible())
err = Console(stderr=True, highlight=False)


def number(value: Any, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def figure(epsilon: Any) -> str:
    """Format `epsilon` to three digits; infinity is the text "inf" in a document that is to be JSON."""
    if epsilon in ("inf", math.inf):
        return "∞"
    if epsilon is None or isinstance(epsilon, str):
        return epsilon or "–"
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{epsilon:.0f}"


def size(count: float | None) -> str:
    if count is None:
        return "–"
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count:.0f} B"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a number and what it counts: "1 user", "2 users"; `plural` is given where it is not `noun` and an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float, digits: str = ".2f") -> str:
    return f"{seconds:{digits}} s" if seconds >= 1 else f"{1000 * seconds:{digits}} ms"


def emit(document: Any, as_json: bool, show: Callable[[Any], object]) -> None:
    """Print the result of a command: as one JSON document, or for a person as `show` prints it."""
    if as_json:
        print(json_text(document))
    else:
        show(document)


def say(sentence: str) -> None:
    """Print a sentence on stderr, in the name of the command."""
    print(f"keyhole: {visible(sentence)}", file=sys.stderr)


def save(text: str, path: Path) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}; name another --out.") from error


def count_the_rest(rows: list[Any], shown: int) -> None:
    """Tell how many of the `rows` are left out of a table in which `shown` of them stand."""
    if len(rows) > shown:
        out.print(f"… and {len(rows) - shown} more: --json has all of them.")


def plain_table(title: str, *columns: str) -> Table:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    return table


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any] | None],
    *,
    numbers: int = 0,
    whole: int = 0,
    narrow: bool = False,
) -> None:
    """Print a table of `rows`; None begins a section, and only a cell that is a rich `Text` has a style.

    The last `numbers` columns stand to the right. Neither they nor the first `whole` ones are folded. A `narrow` table
    has no lines between its columns, so that more of them fit a terminal of 80 columns.
    """
    table = plain_table(title, *columns)
    if narrow:
        table.box, table.padding = box.SIMPLE_HEAD, (0, 1, 0, 0)
    for place, column in enumerate(table.columns):
        is_number = place >= len(columns) - numbers
        column.justify, column.no_wrap = "right" if is_number else "left", is_number or place < whole
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(cell if isinstance(cell, Text) else escape(str(cell)) for cell in row))
    out.print(table)


def pairs_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Make a table of names and words about them, without lines."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in rows:
        table.add_row(escape(name), escape(words))
    return table


def show_datasets(rows: list[dict[str, Any]]) -> None:
    """Print a few lines for each data set, with names, paths and commands unbroken so that they can be copied."""
    for row in rows:
        out.print(f"[bold]{escape(row['name'])}[/]: {escape(row['title'])}", soft_wrap=True)
        sizes = [f"{row[what]:,} {what}" for what in ("users", "items", "ratings") if row[what] is not None]
        out.print(f"  {', '.join(sizes) or 'of any size'}", markup=False)
        out.print(f"  {row['where'] or 'not here'}", markup=False, soft_wrap=True)
        out.print(f"  {row['how']}", markup=False, soft_wrap=True)


def length(factorizes: bool, iterations: int, dim: int) -> str:
    if factorizes:
        return f"{iterations:,} iterations, dim {dim}"
    return "one round" if iterations == 1 else f"{iterations} rounds"


def disturbances(summary: Mapping[str, Any]) -> list[str]:
    """Report in sentences what went wrong during the run and was recovered from, if anything."""
    told = []
    if summary["restarts"]:
        told.append(f"{summary['restarts']} restarts of processes")
    if summary["gone"]:
        told.append(f"{len(summary['gone'])} users gone for good")
    refused = {kind: n for kind, n in summary["rejected"].items() if kind != Reason.REPLAYED.name}
    for what, counts in (("frames refused", refused), ("strangers turned away", summary["strangers"])):
        if counts:
            told.append(f"{sum(counts.values())} {what} ({', '.join(f'{n} {kind}' for kind, n in counts.items())})")
    twice = summary["rejected"].get(Reason.REPLAYED.name)
    again = f"{twice} duplicates were ignored: a party that is asked again after a time-out sends the same bytes."
    return [*([again] if twice else []), *([f"Disturbed: {'; '.join(told)}."] if told else [])]


def show_records(records: Iterable[dict[str, Any]], party: str) -> None:
    """Print `records` page by page, as a view may exceed memory; `party` is the name to print."""
    title, rest = f"What {party} saw", iter(records)
    widths = (7, 6, 20, 8, max(20, out.width - 57))  # the same on every page; 16 columns are lines and spaces
    while page := list(itertools.islice(rest, RECORDS_OF_A_PAGE)):
        table = plain_table(title, "record", "t", "what", "bytes", "fields")
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        for record in page:
            table.add_row(*map(escape, cells(record)))
        out.print(table)
        title = f"What {party} saw, further"


def cells(record: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """Format `record` as table cells: number, iteration, what it is, bytes, and a line for each field."""
    other = f"\nfrom {record['sender']}" if record["type"] in ("received", "rejected") else ""
    other = f"\nto {record['receiver']}" if record["type"] == "sent" else other
    kind = "" if record["kind"] == record["type"] else f" {record['kind']}"
    units = {name: f" ({words})" for name, words in record["units"].items()}
    fields = [f"{name}{units.get(name, '')} = {_brief(value)}" for name, value in record["fields"].items()]
    if record["sender_head"]:
        fields.append(f"sender_head = {_brief(record['sender_head'])}")
    when = "–" if record["iteration"] is None else "set-up" if record["iteration"] < 0 else str(record["iteration"])
    what = f"{record['type']}{kind}{other}"
    return str(record["record"]), when, what, str(record["bytes"]), "\n".join(fields)


def show_further(further: int, command: str) -> None:
    """Print how many records a page left out, and the `command` that shows them."""
    out.print(f"{counted(further, 'more record')}: {command}", soft_wrap=True, markup=False)


def _brief(value: Any) -> str:
    if isinstance(value, dict) and "shape" in value:
        first = ", ".join(f"{entry:.4g}" if isinstance(entry, float) else str(entry) for entry in value["first"])
        return f"{value['dtype']}{value['shape']}: {first} …"
    if isinstance(value, dict):
        return f"{value['keys']} keys of {value['bytes_each']} bytes"
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "…"
