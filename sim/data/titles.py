"""What items are called: the files with titles that MovieLens puts beside its ratings.

They are other people's text: so much is read and no more, and every title becomes one line that can be seen.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from protocol.errors import BadInput
from sim.foreign.plain_text import shortened
from sim.foreign.untrusted import open_regular, read_at_most

BESIDE = {"u.data": "u.item", "ratings.dat": "movies.dat", "ratings.csv": "movies.csv"}
MOST_BYTES = 1 << 26  # of a file with titles; that of the largest MovieLens set has four million
MOST_TITLE = 200  # characters


def clean(text: str) -> str:
    """One line without characters that cannot be seen, and not too long."""
    return shortened(text, MOST_TITLE)


def titles_of(item_names: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...] | None:
    """In the order of the items, "" where one is not known; None if none is."""
    return tuple(known.get(name, "") for name in item_names) if any(known.values()) else None


def beside(ratings: Path, item_names: Sequence[str]) -> tuple[str, ...] | None:
    """Read the file of titles that belongs to a file of ratings; None if there is none."""
    if ratings.name not in BESIDE:
        return None
    path, wanted, known = ratings.with_name(BESIDE[ratings.name]), set(item_names), {}
    if not path.is_file():
        return None
    try:
        with open_regular(path) as stream:
            data = read_at_most(stream, MOST_BYTES)
        for item, title in _pairs(path.name, _text(data)):
            if item.strip() in wanted:
                known[item.strip()] = clean(title)
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path} has no titles that can be read ({why}): correct that file, or remove it.") from None
    return titles_of(item_names, known)


def _text(data: bytes) -> str:
    """Older sets are in Latin-1, newer ones in UTF-8; hardly a text in the one is one in the other, too."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    """(item, title) of each line; what has no title is passed over."""
    if name == "movies.csv":
        yield from ((row[0], row[1]) for row in csv.reader(io.StringIO(text, newline="")) if len(row) >= 2)
        return
    separator = "|" if name == "u.item" else "::"
    for line in text.split("\n"):
        item, _, rest = line.partition(separator)
        title = rest.partition("|")[0] if separator == "|" else rest.rpartition("::")[0]
        if title:
            yield item, title
