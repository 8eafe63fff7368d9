"""Public descriptions of items: genres and years from the files beside MovieLens ratings, or a CSV of a person's own.

Such a file is not trusted: its size is bounded, and it is read as text and numbers alone.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from protocol.arrays import Floats
from protocol.errors import BadInput
from protocol.schemes.base import ItemFeatures
from sim.data.ratings import Ratings, file_of, is_generated
from sim.data.titles import MOST_BYTES, TABLE, file_beside, table_rows, text_of
from sim.foreign.untrusted import open_regular, read_at_most

AUTO, NONE = "auto", "none"
MIDDLE, YEARS = 1985, (1930, 2020)  # a year counts from the first, within the others
GENRE_FROM = 5  # column of u.item
NO_YEAR = 1990
_YEAR = re.compile(r"\((\d{4})\)\s*\Z")

Row = tuple[str, frozenset[str], int]  # (item, genres, year)


def describe_items(ratings: Ratings, choice: str) -> ItemFeatures | None:
    """Describe the items of `ratings` from the file `choice`, or (`auto`) from the one beside the ratings, if any."""
    if choice == NONE:
        return None
    if choice != AUTO:
        return _own(Path(choice), ratings.item_names)
    if is_generated(ratings.name):
        return None
    beside = file_beside(file_of(ratings.name))
    return None if beside is None else _movies(beside, ratings.item_names)


def _read(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            return text_of(read_at_most(stream, MOST_BYTES))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path} cannot be read ({why}): correct it, or use --item-features none.") from None


def _movies(path: Path, item_names: Sequence[str]) -> ItemFeatures | None:
    """Read genres and years; None for a file without any, such as one of titles alone."""
    try:
        known = {item: (genres, year) for item, genres, year in _rows(path.name, _read(path))}
    except (ValueError, csv.Error) as error:
        raise BadInput(f"{path} has no genres that can be read ({error}): use --item-features none.") from None
    names = sorted({genre for item in item_names if item in known for genre in known[item][0]})
    if not names:
        return None
    found = [known.get(item, (frozenset[str](), NO_YEAR)) for item in item_names]
    flags = np.array([[name in genres for name in names] for genres, _ in found], np.bool_)
    years = np.clip(np.array([year for _, year in found], np.float64), *YEARS)
    return ItemFeatures(flags, (years[:, None] - MIDDLE) / 21)


def _rows(name: str, text: str) -> Iterator[Row]:
    """Yield (item, genres, year) of each line of a file of MovieLens; a shorter line is skipped."""
    if name == "u.item":
        for line in text.split("\n"):
            columns = line.rstrip("\r").split("|")
            if len(columns) > GENRE_FROM:
                genres = (str(place) for place, flag in enumerate(columns[GENRE_FROM:]) if flag == "1")
                yield columns[0].strip(), frozenset(genres), _number(columns[2][-4:])
        return
    if name == TABLE:
        yield from ((item, frozenset(genres.split()), _number(year)) for item, _, year, genres in table_rows(text))
        return
    rows: Iterator[list[str]] = csv.reader(io.StringIO(text, newline=""))
    if name == "movies.dat":
        rows = (line.rstrip("\r").split("::") for line in text.split("\n"))
    for row in rows:
        if len(row) >= 3:
            year = _YEAR.search(row[1])
            yield row[0].strip(), frozenset(row[2].split("|")), int(year[1]) if year else NO_YEAR


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else NO_YEAR


# --- a file of a person's own ----------------------------------------------------------------------------------------


def _own(path: Path, item_names: Sequence[str]) -> ItemFeatures:
    """Read a CSV with a header, whose first column names the item; columns of 0 and 1 are flags, others numbers."""
    rows = list(csv.reader(io.StringIO(_read(path), newline="")))
    try:
        width = len(rows[0])
        values = {row[0].strip(): [float(cell) for cell in row[1:]] for row in rows[1:] if row}
        fits = width > 1 and all(len(row) == width for row in rows if row)
        if not fits or not all(math.isfinite(value) for row in values.values() for value in row):
            raise ValueError("each row needs an item and as many numbers as the header names")
    except (ValueError, IndexError) as error:
        raise BadInput(f"{path} does not describe items ({error}): write ITEM,COLUMN,... and numbers below.") from None
    missing = [item for item in item_names if item not in values]
    if missing:
        raise BadInput(f"{path} does not describe {len(missing)} of the items, such as {missing[0]}: add their rows.")
    table = np.array([values[item] for item in item_names])
    flags = np.all((table == 0) | (table == 1), axis=0)
    return ItemFeatures(table[:, flags].astype(np.bool_), _standard(table[:, ~flags]))


def _standard(numbers: Floats) -> Floats:
    return np.asarray((numbers - numbers.mean(axis=0)) / np.maximum(numbers.std(axis=0), 1e-12))
