"""Reader of rating files: MovieLens (three formats), Netflix Prize, CSV and Parquet; text files also as .gz.

Every format becomes a stream of (line number, fields), and one loop, `collect`, checks and stores them all.
There is no second, faster parser that could disagree with it. Identifiers become small integers and the few
distinct rating texts are parsed once, so a row costs about a microsecond and 20 million rows fit in memory.
"""

from __future__ import annotations

import csv
import importlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO

from protocol.errors import BadInput, did_you_mean
from sim.data.opening import open_bytes, open_text
from sim.data.rating_table import (
    AS_IT_IS,
    MISSING,
    BadLines,
    BadRow,
    Columns,
    Range,
    Ratings,
    ReadingRules,
    Row,
    collect,
    number,
)

SEPARATORS = ("\t", "::", ",", ";")
NETFLIX_ITEM = re.compile(r"\s*([0-9]+):\s*")
SNIFFED_BYTES = 1 << 16

COLUMNS = {"user": ("user", "userid"), "item": ("item", "itemid", "movie", "movieid"), "rating": ("rating",)}
TIMES = ("timestamp", "time", "date")
TITLES = ("title", "itemname", "name")  # columns that may hold the titles of items, the best first
LATEST_HEADER = ["userId", "movieId", "rating", "timestamp"]


def read(path: Path, rating_range: Range | None = None, reading: ReadingRules = AS_IT_IS) -> Ratings:
    """Read the ratings of one file. Its format is taken from its content, because file names are not reliable."""
    unit, faults = "line", BadLines()
    try:
        with open_bytes(path) as content:
            start = content.read(SNIFFED_BYTES)
        if start.startswith(b"PAR1"):
            unit = "row"
            return collect(path, *_parquet(path, reading), rating_range, reading, faults, unit)
        _refuse_binary(path, start)
        with open_text(path) as text:
            return collect(path, *_rows(path, text, start, reading, faults), rating_range, reading, faults, unit)
    except BadRow as bad:
        raise BadInput(f"{path}, {unit} {bad.line}: {bad}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}, line {_undecodable_line(path)}: save the file as UTF-8 text") from None
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); check the file") from None


def _refuse_binary(path: Path, start: bytes) -> None:
    """Refuse a file that is not text.

    Without this check, the first bytes of a picture would be reported as a line without separators.
    """
    if path.suffix in (".parquet", ".pq"):
        raise BadInput(f"{path} is not a readable Parquet file (it does not begin with PAR1); write it again")
    if b"\0" in start:
        raise BadInput(f"{path} is not text; name a file of ratings, as UTF-8 text, .gz of it, or Parquet")


def _undecodable_line(path: Path) -> int:
    """Find the first line that is not UTF-8.

    The decoder works on blocks and does not say which line failed, so the file is read again line by line.
    """
    with open_bytes(path) as content:
        for number, line in enumerate(content, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


# ---- from a file to rows


def _rows(
    path: Path, text: IO[str], start: bytes, reading: ReadingRules, faults: BadLines
) -> tuple[Iterator[Row], Columns]:
    lines = start.decode("utf-8-sig", errors="replace").splitlines()
    number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (0, ""))
    if NETFLIX_ITEM.fullmatch(first):
        return _netflix(text, faults), Columns(width=3)
    separator = _separator(first)
    if first and separator is None:
        raise BadRow(number, "no tab, ::, comma or semicolon separates the fields; write user,item,rating")
    rows = _split(text, separator or ",", faults)
    line, fields = next(rows, (0, []))
    if reading.columns or _is_header(fields):
        return rows, replace(_named(line, fields, path, reading), decimal_comma=separator == ";")
    if _may_be_header(fields, separator == ";"):
        words = f'the rating "{fields[2].strip()[:40]}" is not a finite number; correct the line'
        raise BadRow(line, f"{words} or, if this is a header, name its columns with {_advice(fields)}")
    if line and len(fields) not in (3, 4):
        advice = "write user,item,rating[,timestamp] or put a header above it"
        raise BadRow(line, f"{len(fields)} fields instead of 3 or 4; {advice}")
    layout = Columns(len(fields), time=3 if len(fields) == 4 else None, decimal_comma=separator == ";")
    return chain([(line, fields)] if line else [], rows), layout


def _separator(line: str) -> str | None:
    """Choose the separator that gives at least three fields.

    If no separator does, choose any that occurs in `line`, so that the error is about the number of fields.
    """
    semicolons = line.count(";") > line.count(",")  # as in 1;2;3,5;9
    ordered = ("\t", "::", ";", ",") if semicolons else SEPARATORS
    usable = [separator for separator in ordered if line.count(separator) >= 2]
    present = [separator for separator in ordered if separator in line]
    return next(iter(usable + present), None)


def _split(text: IO[str], separator: str, faults: BadLines) -> Iterator[Row]:
    """Yield (line number, fields) of each line; blank lines are skipped but counted."""
    if separator == "::":
        for line, content in enumerate(text, 1):
            if content.strip():
                yield line, content.rstrip("\r\n").split("::")
        return
    if separator in (",", ";"):
        reader = csv.reader(text, delimiter=separator, strict=True)
    else:  # between tabs, a quote is part of an identifier
        reader = csv.reader(text, delimiter=separator, quoting=csv.QUOTE_NONE)
    try:
        for fields in reader:
            if len(fields) > 1 or (fields and fields[0].strip()):
                yield reader.line_num, fields
    except csv.Error as error:  # the rows after it cannot be separated
        faults.add(reader.line_num, f"{error}; correct the line")


def _netflix(text: IO[str], faults: BadLines) -> Iterator[Row]:
    """Read rows of the Netflix Prize: a line `123:` starts an item, and lines `user,rating,date` follow it."""
    item = ""
    for line, content in enumerate(text, 1):
        fields = content.split(",")
        if len(fields) == 3:
            yield line, [fields[0], item, fields[1]]
        elif match := NETFLIX_ITEM.fullmatch(content):
            item = match[1]
        elif content.strip():
            faults.add(line, "this is neither ITEM: nor user,rating,date; correct the line")


def _parquet(path: Path, reading: ReadingRules) -> tuple[Iterator[Row], Columns]:
    """Read the rows of a Parquet file. A null becomes an empty field, which `collect` treats as missing."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")  # slow to import and optional
    except ImportError:
        raise BadInput(f'to read {path}, install the parquet extra: pip install "keyhole[parquet]"') from None
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path} is not a readable Parquet file ({reason}); write it again") from None
    header = _named(1, [str(name) for name in table.column_names], path, reading)
    extra = [place for place in (header.time, header.title) if place is not None]
    places = (header.user, header.item, header.rating, *extra)
    columns = [table.column(place).to_pylist() for place in places]
    rows = (["" if value is None else str(value) for value in row] for row in zip(*columns, strict=True))
    time = None if header.time is None else 3
    return enumerate(rows, 1), Columns(len(places), time=time, title=None if header.title is None else len(places) - 1)


# ---- the header line


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "")


def _column(name: str) -> str | None:
    return next((column for column, names in COLUMNS.items() if _plain(name) in names), None)


def _is_header(fields: list[str]) -> bool:
    """Tell whether `fields` are a header: one has a known column name, and no field is a number.

    A known column name is not enough: a user may be called "user", but then a rating stands in the same row.
    """
    return any(map(_column, fields)) and all(number(field) is None for field in fields)


def _may_be_header(fields: list[str], decimal_comma: bool) -> bool:
    """Tell whether the first line, which has no known column name, may be a header: every field is text.

    Texts that stand for a missing rating, such as NA and null, do not count.
    """
    texts = [field.replace(",", ".") if decimal_comma else field for field in fields]
    return len(fields) > 2 and all(number(text) is None and text.strip().lower() not in MISSING for text in texts)


def _advice(fields: list[str]) -> str:
    """Propose --columns for this header: known names for their columns, and the other names in their order."""
    names = [name.strip() for name in fields]
    known = {column: name for name in reversed(names) if (column := _column(name)) is not None}
    others = iter(name for name in names if _column(name) is None and name.lower() not in TIMES)
    chosen = [known.get(column) or next(others, column.upper()) for column in COLUMNS]
    if any(not name or "," in name or not name.isprintable() or len(name) > 40 for name in chosen):
        chosen = [column.upper() for column in COLUMNS]
    return f"--columns {shlex.quote(','.join(chosen))}"


def _named(line: int, fields: list[str], path: Path, reading: ReadingRules) -> Columns:
    if reading.columns:
        return _chosen(line, [name.strip() for name in fields], reading.columns)
    found = [_column(field) for field in fields]
    for column in COLUMNS:
        if (times := found.count(column)) != 1:
            wanted = f"name user, item and rating once, or say which columns they are with {_advice(fields)}"
            raise BadRow(line, f"the header names {column} {times} times; {wanted}")
    user, item, rating = (found.index(column) for column in COLUMNS)
    # MovieLens files with this name and header have half stars; other files with this header may not.
    half_stars = path.name in ("ratings.csv", "ratings.csv.gz") and fields == LATEST_HEADER
    clocks = [place for place, name in enumerate(fields) if name.strip().lower() in TIMES]
    time = clocks[0] if len(clocks) == 1 else None
    return Columns(len(fields), user, item, rating, half_stars, time, title=_title(fields))


def _title(fields: list[str]) -> int | None:
    """Find the column that holds the titles of items."""
    names = [_plain(name) for name in fields]
    return next((names.index(name) for name in TITLES if name in names), None)


def _chosen(line: int, fields: list[str], columns: tuple[str, ...]) -> Columns:
    """Find the columns that the person named. A column with exactly that name is preferred; else case is ignored."""
    places = []
    for name in columns:
        exact = [place for place, found in enumerate(fields) if found == name]
        alike = exact or [place for place, found in enumerate(fields) if found.lower() == name.lower()]
        if len(alike) != 1:
            many = "no column" if not alike else f"{len(alike)} columns"
            told = f"it has {', '.join(fields[:20])}{did_you_mean(name, fields)}"
            raise BadRow(line, f'the header has {many} "{name}" of --columns; {told}')
        places.append(alike[0])
    user, item, rating, *time = places
    named = Columns(len(fields), user, item, rating, time=time[0] if time else None)
    return named if (title := _title(fields)) in places else replace(named, title=title)
