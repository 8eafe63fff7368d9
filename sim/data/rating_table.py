"""The table of ratings that is made from the rows of a file. Every row is checked; bad rows are counted and named."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arrays import Ints
from protocol.errors import BadInput
from sim.data.titles import clean, titles_of

Range = tuple[float, float]
Row = tuple[int, list[str]]

FIVE_STARS: Range = (1.0, 5.0)
HALF_STARS: Range = (0.5, 5.0)
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})  # texts that stand for a missing rating
ON_DUPLICATE, ON_MISSING = ("refuse", "last", "mean"), ("refuse", "drop")
MOST_NAMED = 10  # bad lines; further ones are only counted
_RANGE, _DROP = "use --rating-range", "--on-missing drop"


@dataclass(frozen=True, eq=False)
class Ratings:
    """One entry per rating in each of the three arrays; a user or an item may have none.

    Those of a file are sorted by (user, item), with indices that are dense and ordered by identifier.
    """

    name: str
    users: Ints
    items: Ints
    values: npt.NDArray[np.float64]
    user_names: tuple[str, ...]
    item_names: tuple[str, ...]
    rating_range: Range
    item_titles: tuple[str, ...] | None = None  # "" for an item without a title; items may share one
    notes: tuple[str, ...] = ()  # sentences for the person: what was left out or merged

    @property
    def n_users(self) -> int:
        return len(self.user_names)

    @property
    def n_items(self) -> int:
        return len(self.item_names)

    def __len__(self) -> int:
        return len(self.values)

    def first_users(self, count: int) -> Ratings:
        """Keep only the users with index below `count`. All items stay, also those without a rating then."""
        if not 1 <= count <= self.n_users:
            raise BadInput(f"{self.name} has {self.n_users} users; ask for 1 or more, up to all, not {count}")
        if count == self.n_users:
            return self
        kept = self.users < count
        return replace(
            self,
            users=self.users[kept],
            items=self.items[kept],
            values=self.values[kept],
            user_names=self.user_names[:count],
        )


@dataclass(frozen=True)
class ReadingRules:
    """The person's choices of how a file is read."""

    columns: tuple[str, ...] = ()  # names of the user, item, rating and (optional) time columns
    on_duplicate: str = "refuse"  # or the "last" rating of a pair, or their "mean"
    on_missing: str = "refuse"  # or "drop" lines without a user, an item or a rating


AS_IT_IS = ReadingRules()


@dataclass(frozen=True)
class Columns:
    """The places of the fields in a row."""

    width: int
    user: int = 0
    item: int = 1
    rating: int = 2
    half_stars: bool = False
    time: int | None = None
    decimal_comma: bool = False  # in files that are separated by semicolons
    title: int | None = None  # of the item


@dataclass
class BadLines:
    """Lines that cannot be used: all are counted, the first are named."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        self.count += 1
        if self.count <= MOST_NAMED:
            self.first.append((line, reason))

    def refuse(self, path: Path, unit: str, fitting: str) -> None:
        """Raise `BadInput` if there are bad lines; `fitting` is the range that all ratings of the file fit into."""
        if not self.count:
            return
        words = [f"{path}, {unit} {line}: {reason}" for line, reason in sorted(self.first)]
        words = [f"{sentence} {fitting}" if sentence.endswith(_RANGE) else sentence for sentence in words]
        more = [f"In all, {self.count:,} {unit}s cannot be used."] if self.count > 1 else []
        raise BadInput("\n".join([*words, *more]))


class BadRow(Exception):
    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def collect(
    path: Path,
    rows: Iterator[Row],
    layout: Columns,
    wanted: Range | None,
    reading: ReadingRules,
    faults: BadLines,
    unit: str,
) -> Ratings:
    limits = wanted or (HALF_STARS if layout.half_stars else FIVE_STARS)
    user_codes: dict[str, int] = {}
    item_codes: dict[str, int] = {}
    stars: dict[str, float] = {}
    titles: dict[str, str] = {}
    reasons: dict[str, str] = {}  # by text that is not a usable rating, the reason
    drops, dropped = reading.on_missing == "drop", 0
    time, times = layout.time if reading.on_duplicate == "last" else None, list[str]()
    users, items, lines, values = array("q"), array("q"), array("q"), array("d")
    for line, fields in rows:
        if len(fields) != layout.width:
            faults.add(line, f"{len(fields)} fields instead of {layout.width}; correct the line")
            continue
        user, item, text = fields[layout.user].strip(), fields[layout.item].strip(), fields[layout.rating]
        if text not in stars and text not in reasons:
            _judge(text, layout, limits, stars, reasons)
        if drops and (not user or not item or text.strip().lower() in MISSING):
            dropped += 1
        elif not user or not item:
            faults.add(line, f"the user or the item is empty; fill it in, or leave such lines out with {_DROP}")
        elif text in reasons:
            hint = " or, if this is a header, name its columns with --columns" if line == 1 and unit == "line" else ""
            faults.add(line, reasons[text] + ("" if reasons[text].endswith(_RANGE) else hint))
        else:
            users.append(user_codes.setdefault(user, len(user_codes)))
            items.append(item_codes.setdefault(item, len(item_codes)))
            values.append(stars[text])
            lines.append(line)
            if layout.title is not None and not titles.get(item):
                titles[item] = clean(fields[layout.title])
            if time is not None:
                times.append(fields[time].strip())
    if not values:
        faults.refuse(path, unit, _fitting(reasons, stars, layout, limits))
        raise BadInput(f"{path} contains no ratings; choose another file")
    user_names, dense_users = _dense(user_codes, np.array(users))
    item_names, dense_items = _dense(item_codes, np.array(items))
    order = np.lexsort((*_ranks(times), dense_items, dense_users))
    columns = (dense_users[order], dense_items[order], np.array(values)[order])
    table = Ratings(
        str(path), *columns, user_names, item_names, limits, titles_of(item_names, titles), _dropped(dropped, unit)
    )
    if reading.on_duplicate == "refuse":
        _refuse_repeats(table, np.array(lines)[order], faults)
    faults.refuse(path, unit, _fitting(reasons, stars, layout, limits))
    return table if reading.on_duplicate == "refuse" else _merge_repeats(table, reading.on_duplicate)


def _ranks(times: list[str]) -> list[npt.NDArray[Any]]:
    """Return the sort key of `times` in a list, which is empty without times.

    The key is numeric if all times are numbers, else it is text, which fits dates. Equal times stay in line order.
    """
    if not times:
        return []
    numbers = [known for text in times if (known := number(text)) is not None]
    return [np.array(numbers) if len(numbers) == len(times) else np.array(times)]


def _dropped(count: int, unit: str) -> tuple[str, ...]:
    return (f"{count:,} {unit}s without a user, an item or a rating were left out.",) if count else ()


def _merge_repeats(table: Ratings, how: str) -> Ratings:
    """Keep one rating for each pair of user and item: the last one, or the mean, as `how` says."""
    starts = np.flatnonzero(np.append(True, (np.diff(table.users) != 0) | (np.diff(table.items) != 0)))
    counts = np.diff(np.append(starts, len(table.values)))
    if len(starts) == len(table.values):
        return table
    last = table.values[starts + counts - 1]
    values = last if how == "last" else np.add.reduceat(table.values, starts) / counts
    words = f"{int((counts > 1).sum()):,} pairs of user and item are rated more than once: the {how} was taken."
    return replace(
        table, users=table.users[starts], items=table.items[starts], values=values, notes=(*table.notes, words)
    )


def number(text: str) -> float | None:
    """Parse a number; None if `text` is not a number. `float` alone would read 1_0 as ten."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _value(text: str, layout: Columns) -> float | None:
    return number(text.replace(",", ".") if layout.decimal_comma else text)


def _judge(text: str, layout: Columns, limits: Range, stars: dict[str, float], reasons: dict[str, str]) -> None:
    """Add the rating `text` to `stars` with its value, or to `reasons` with the reason why it is not usable.

    This is done once for each distinct text, and there are few of them.
    """
    value, (low, high) = _value(text, layout), limits
    if value is None or not math.isfinite(value):
        advice = f", or leave such lines out with {_DROP}" if text.strip().lower() in MISSING else ""
        reasons[text] = f'the rating "{text.strip()[:40]}" is not a finite number; correct the line{advice}'
    elif low <= value <= high:
        stars[text] = value
    else:
        reasons[text] = f"the rating {value:g} is outside {low:g} to {high:g}; correct it or {_RANGE}"


def _fitting(reasons: dict[str, str], stars: dict[str, float], layout: Columns, limits: Range) -> str:
    """Propose a --rating-range that all numbers of the file fit into; "" if no number is outside `limits`.

    It includes `limits`, unless different numbers all lie on the same side of them.
    """
    outside = [_value(text, layout) or 0.0 for text, reason in reasons.items() if reason.endswith(_RANGE)]
    if not outside:
        return ""
    low, high = min(every := [*outside, *stars.values()]), max(every)
    if low == high or (low <= limits[1] and high >= limits[0]):
        low, high = min(low, limits[0]), max(high, limits[1])
    return ":".join(f"{end:g}".replace("0.", ".", 1) if abs(end) < 1 else f"{end:g}" for end in (low, high))


def _dense(codes: dict[str, int], coded: Ints) -> tuple[tuple[str, ...], Ints]:
    """Sort the names, and turn each code into the position of its name.

    Whole numbers of any size sort by (length, text).
    """
    numeric = all(name.isascii() and name.isdigit() and (name[0] != "0" or name == "0") for name in codes)
    names = sorted(codes, key=(lambda name: (len(name), name)) if numeric else None)
    position = np.empty(len(codes), dtype=np.int64)
    position[[codes[name] for name in names]] = np.arange(len(codes))
    return tuple(names), position[coded]


def _refuse_repeats(table: Ratings, lines: Ints, faults: BadLines) -> None:
    """Count every repeated pair of user and item as a bad line, and name the first ones.

    `table` is sorted, so a pair is next to its repeat; they are in file order because the sort is stable.
    """
    repeats = np.flatnonzero((np.diff(table.users) == 0) & (np.diff(table.items) == 0))
    named = repeats[np.argsort(lines[repeats + 1])][:MOST_NAMED]
    for place in named.tolist():
        user, item = table.user_names[table.users[place]], table.item_names[table.items[place]]
        advice = "remove one of the two, or choose with --on-duplicate last or mean"
        again = f"user {user} rates item {item} again (before on line {lines[place]})"
        faults.add(int(lines[place + 1]), f"{again}; {advice}")
    faults.count += len(repeats) - len(named)
