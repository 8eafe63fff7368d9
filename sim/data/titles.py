"""Titles of items, from the files that MovieLens, or a copy of it, puts beside its ratings.

Such a file is not trusted: its size is bounded, and every title becomes one line of visible characters.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from protocol.errors import BadInput
from sim.foreign.plain_text import shortened
from sim.foreign.untrusted import open_regular, read_at_most

TABLE = "ml-100k.item"  # as the recbole wheel has it: item, title, year, genres; by tabs, below a header line
BESIDE = {"u.data": ("u.item", TABLE), "ratings.dat": ("movies.dat",), "ratings.csv": ("movies.csv",)}
MOST_BYTES = 1 << 26  # of a file with titles; the file of the largest MovieLens set has four million
MOST_TITLE = 200  # characters


def clean(text: str) -> str:
    """Put a title into one line of limited length, in which all characters can be seen."""
    return shortened(text, MOST_TITLE)


def titles_of(item_names: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...] | None:
    """List the titles in the order of the items, "" where a title is not known; None if no title is known."""
    return tuple(known.get(name, "") for name in item_names) if any(known.values()) else None


def file_beside(ratings: Path) -> Path | None:
    """Find the file about items that belongs to a file of ratings."""
    known = (ratings.with_name(name) for name in BESIDE.get(ratings.name, ()))
    return next((path for path in known if path.is_file()), None)


def beside(ratings: Path, item_names: Sequence[str]) -> tuple[str, ...] | None:
    """Read the titles in the file that belongs to a file of ratings; None if there is no such file."""
    path, wanted, known = file_beside(ratings), set(item_names), {}
    if path is None:
        return None
    try:
        with open_regular(path) as stream:
            data = read_at_most(stream, MOST_BYTES)
        for item, title in _pairs(path.name, text_of(data)):
            if item.strip() in wanted:
                known[item.strip()] = clean(title)
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path} has no titles that can be read ({why}): correct that file, or remove it.") from None
    return titles_of(item_names, known)


def text_of(data: bytes) -> str:
    """Decode the file: newer sets are in UTF-8, older ones in Latin-1.

    Titles in Latin-1 are hardly ever valid UTF-8 if they have letters beyond ASCII.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (item, title) of each line; a line that is too short to have a title is skipped."""
    if name == "movies.csv":
        yield from ((row[0], row[1]) for row in csv.reader(io.StringIO(text, newline="")) if len(row) >= 2)
        return
    if name == TABLE:
        rows = table_rows(text)
        yield from ((item, f"{title} ({year})" if year.isdecimal() else title) for item, title, year, _ in rows)
        return
    separator = "|" if name == "u.item" else "::"
    for line in text.split("\n"):
        item, _, rest = line.partition(separator)
        title = rest.partition("|")[0] if separator == "|" else rest.rpartition("::")[0]
        if title:
            yield item, title


def table_rows(text: str) -> Iterator[list[str]]:
    """Yield item, title, year and genres of each line below the header; a line of another length is skipped."""
    rows = (line.rstrip("\r").split("\t") for line in text.split("\n")[1:])
    return (row for row in rows if len(row) == 4)
