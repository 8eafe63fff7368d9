"""Rating files in the formats that people have: MovieLens (three of them), Netflix Prize, CSV, Parquet.

Every format becomes a stream of (line number, fields), and one loop, `_collect`, checks and stores them all.
There is no second, faster parser beside it that could disagree: identifiers become small integers and the few
distinct rating texts are parsed once, so a row costs about a microsecond and 20 million rows fit in memory.
"""

from __future__ import annotations

import csv
import importlib
import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from protocol.errors import BadInput

Ints = npt.NDArray[np.int64]
Range = tuple[float, float]
Row = tuple[int, list[str]]

FIVE_STARS: Range = (1.0, 5.0)
HALF_STARS: Range = (0.5, 5.0)
SEPARATORS = ("\t", "::", ",")
NETFLIX_ITEM = re.compile(r"\s*([0-9]+):\s*")
SNIFFED_BYTES = 1 << 16

COLUMNS = {"user": ("user", "userid"), "item": ("item", "itemid", "movie", "movieid"), "rating": ("rating",)}
LATEST_HEADER = ["userId", "movieId", "rating", "timestamp"]


@dataclass(frozen=True, eq=False)
class Table:
    """One entry per rating, sorted by (user, item); indices are dense and ordered by identifier."""

    users: Ints
    items: Ints
    values: npt.NDArray[np.float64]
    user_names: tuple[str, ...]
    item_names: tuple[str, ...]
    rating_range: Range


@dataclass(frozen=True)
class _Layout:
    """Which field of a row is which."""

    width: int
    user: int = 0
    item: int = 1
    rating: int = 2
    half_stars: bool = False


class _BadRow(Exception):
    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def read(path: Path, rating_range: Range | None = None) -> Table:
    """The ratings of one file, whose format is taken from its content: names of files are not reliable."""
    unit = "line"
    try:
        with path.open("rb") as handle:
            start = handle.read(SNIFFED_BYTES)
        if start.startswith(b"PAR1"):
            unit = "row"
            return _collect(path, *_parquet(path), rating_range)
        with path.open(encoding="utf-8-sig", newline="") as text:
            return _collect(path, *_rows(path, text, start), rating_range)
    except _BadRow as bad:
        raise BadInput(f"{path}, {unit} {bad.line}: {bad}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}, line {_undecodable_line(path)}: save the file as UTF-8 text") from None
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); check the file") from None


def _undecodable_line(path: Path) -> int:
    """The decoder works on blocks and does not say where it is, so the whole file is tried again."""
    content = path.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return content.count(b"\n", 0, error.start) + 1
    return 1


# ---- from a file to rows


def _rows(path: Path, text: TextIO, start: bytes) -> tuple[Iterator[Row], _Layout]:
    lines = start.decode("utf-8-sig", errors="replace").splitlines()
    number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (0, ""))
    if NETFLIX_ITEM.fullmatch(first):
        return _netflix(text), _Layout(width=3)
    separator = _separator(first)
    if first and separator is None:
        raise _BadRow(number, "no tab, :: or comma separates the fields; write user,item,rating")
    rows = _split(text, separator or ",")
    line, fields = next(rows, (0, []))
    if _is_header(fields):
        return rows, _named(line, fields, path)
    if line and len(fields) not in (3, 4):
        advice = "write user,item,rating[,timestamp] or put a header above it"
        raise _BadRow(line, f"{len(fields)} fields instead of 3 or 4; {advice}")
    return chain([(line, fields)] if line else [], rows), _Layout(len(fields))


def _separator(line: str) -> str | None:
    """The one that gives at least three fields; else any that occurs, so that the row is what gets blamed."""
    usable = [separator for separator in SEPARATORS if line.count(separator) >= 2]
    present = [separator for separator in SEPARATORS if separator in line]
    return next(iter(usable + present), None)


def _split(text: TextIO, separator: str) -> Iterator[Row]:
    """Blank lines are skipped but counted."""
    if separator == "::":
        for line, content in enumerate(text, 1):
            if content.strip():
                yield line, content.rstrip("\r\n").split("::")
        return
    if separator == ",":
        reader = csv.reader(text, strict=True)
    else:  # where tabs separate, a quote is part of an identifier
        reader = csv.reader(text, delimiter=separator, quoting=csv.QUOTE_NONE)
    try:
        for fields in reader:
            if len(fields) > 1 or (fields and fields[0].strip()):
                yield reader.line_num, fields
    except csv.Error as error:
        raise _BadRow(reader.line_num, f"{error}; correct the line") from None


def _netflix(text: TextIO) -> Iterator[Row]:
    """`123:` starts an item; `user,rating,date` follow it."""
    item = ""
    for line, content in enumerate(text, 1):
        fields = content.split(",")
        if len(fields) == 3:
            yield line, [fields[0], item, fields[1]]
        elif match := NETFLIX_ITEM.fullmatch(content):
            item = match[1]
        elif content.strip():
            raise _BadRow(line, "this is neither ITEM: nor user,rating,date; correct the line")


def _parquet(path: Path) -> tuple[Iterator[Row], _Layout]:
    """Here a "line" is a row; a null becomes an empty field, which the common loop refuses."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")  # heavy and optional, so only on demand
    except ImportError:
        raise BadInput(f'to read {path}, install the parquet extra: pip install "keyhole[parquet]"') from None
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path} is not a readable Parquet file ({reason}); write it again") from None
    header = _named(1, [str(name) for name in table.column_names], path)
    columns = [table.column(place).to_pylist() for place in (header.user, header.item, header.rating)]
    rows = (["" if field is None else str(field) for field in row] for row in zip(*columns, strict=True))
    return enumerate(rows, 1), _Layout(width=3)


# ---- the header line


def _column(name: str) -> str | None:
    plain = name.strip().lower().replace("_", "")
    return next((column for column, names in COLUMNS.items() if plain in names), None)


def _is_header(fields: list[str]) -> bool:
    """A known column name is not enough: a user may be called "user", but then a rating stands beside it."""
    return any(map(_column, fields)) and all(_number(field) is None for field in fields)


def _named(line: int, fields: list[str], path: Path) -> _Layout:
    found = [_column(field) for field in fields]
    for column in COLUMNS:
        if (times := found.count(column)) != 1:
            raise _BadRow(line, f"the header names {column} {times} times; name user, item and rating once")
    user, item, rating = (found.index(column) for column in COLUMNS)
    # MovieLens files with this header have half stars; the same header elsewhere promises nothing.
    half_stars = path.name == "ratings.csv" and fields == LATEST_HEADER
    return _Layout(len(fields), user, item, rating, half_stars)


# ---- from rows to a table


def _collect(path: Path, rows: Iterator[Row], layout: _Layout, wanted: Range | None) -> Table:
    limits = wanted or (HALF_STARS if layout.half_stars else FIVE_STARS)
    user_codes: dict[str, int] = {}
    item_codes: dict[str, int] = {}
    stars: dict[str, float] = {}
    users, items, lines, values = array("q"), array("q"), array("q"), array("d")
    for line, fields in rows:
        if len(fields) != layout.width:
            raise _BadRow(line, f"{len(fields)} fields instead of {layout.width}; correct the line")
        user, item, text = fields[layout.user].strip(), fields[layout.item].strip(), fields[layout.rating]
        if not user or not item:
            raise _BadRow(line, "the user or the item is empty; fill it in or remove the line")
        if text not in stars:
            stars[text] = _stars(line, text, limits)
        users.append(user_codes.setdefault(user, len(user_codes)))
        items.append(item_codes.setdefault(item, len(item_codes)))
        values.append(stars[text])
        lines.append(line)
    if not values:
        raise BadInput(f"{path} contains no ratings; choose another file")
    user_names, dense_users = _dense(user_codes, np.array(users))
    item_names, dense_items = _dense(item_codes, np.array(items))
    order = np.lexsort((dense_items, dense_users))
    columns = (dense_users[order], dense_items[order], np.array(values)[order])
    table = Table(*columns, user_names, item_names, limits)
    _refuse_repeats(table, np.array(lines)[order])
    return table


def _number(text: str) -> float | None:
    """`float` alone would read 1_0 as ten, which no rating file means."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _stars(line: int, text: str, limits: Range) -> float:
    value = _number(text)
    if value is None or not math.isfinite(value):
        hint = " or, if this is a header, name its columns user, item and rating" if line == 1 else ""
        raise _BadRow(line, f'the rating "{text.strip()}" is not a finite number; correct the line{hint}')
    low, high = limits
    if not low <= value <= high:
        advice = "correct it or give the range with --rating-range"
        raise _BadRow(line, f"the rating {value:g} is outside {low:g} to {high:g}; {advice}")
    return value


def _dense(codes: dict[str, int], coded: Ints) -> tuple[tuple[str, ...], Ints]:
    """Names in order, and codes as positions in it. Whole numbers of any size sort by (length, text)."""
    numeric = all(name.isascii() and name.isdigit() and (name[0] != "0" or name == "0") for name in codes)
    names = sorted(codes, key=(lambda name: (len(name), name)) if numeric else None)
    position = np.empty(len(codes), dtype=np.int64)
    position[[codes[name] for name in names]] = np.arange(len(codes))
    return tuple(names), position[coded]


def _refuse_repeats(table: Table, lines: Ints) -> None:
    """Sorted rows put a pair beside its repeat, in file order because the sort is stable."""
    repeats = np.flatnonzero((np.diff(table.users) == 0) & (np.diff(table.items) == 0))
    if len(repeats):
        place = int(repeats[np.argmin(lines[repeats + 1])])
        user, item = table.user_names[table.users[place]], table.item_names[table.items[place]]
        reason = f"user {user} rates item {item} again (first on line {lines[place]}); remove one of the two"
        raise _BadRow(int(lines[place + 1]), reason)
