"""Ratings: loading them, and dividing them among the users.

`load` takes what the person wrote after `--data`: `demo`, `demo-small`, `synthetic:...`, `netflix-shaped`, a named
MovieLens set or a path.
Loaded ratings are sorted by (user, item) and indices follow the identifiers, so the order of rows in a file
never matters.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import overload

import numpy as np

from protocol.arrays import Flags, Floats, Ids, Ints
from protocol.errors import BadInput, did_you_mean
from sim.data import formats, generate, titles
from sim.data.rating_table import AS_IT_IS, ReadingRules
from sim.data.rating_table import Ratings as Ratings

FOLDER_FILES = ("u.data", "ratings.dat", "ratings.csv", "u.data.gz", "ratings.dat.gz", "ratings.csv.gz")
SYNTHETIC = "synthetic:USERSxITEMS[:DENSITY[:RANK]]"
NETFLIX_SHAPED = "netflix-shaped"
DEMOS = {"demo": generate.demo, "demo-small": generate.demo_small}
DEMO_TITLES = {"demo": "made by Keyhole, with titles", "demo-small": "smaller, for quick trials"}


@dataclass(frozen=True, eq=False)
class UserRatings:
    """The ratings of one user: those to train on and the held-out ones, each with strictly increasing items."""

    items: Ids
    values: Floats
    held_out_items: Ids
    held_out_values: Floats


@dataclass(frozen=True, eq=False)
class Column:
    """Ratings of all users, one after the other: those of user i are `starts[i]` to `starts[i + 1]`."""

    starts: Ints
    items: Ids
    values: Floats

    @property
    def counts(self) -> Ints:
        return np.diff(self.starts)

    def owners(self) -> Ints:
        """Return the user of each rating."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    def of(self, user: int) -> tuple[Ids, Floats]:
        """Copy the items and values of one user.

        A numpy view would hold the ratings of all other users, too, through its `.base`.
        """
        part = slice(self.starts[user], self.starts[user + 1])
        return self.items[part].copy(), self.values[part].copy()


@dataclass(frozen=True, eq=False)
class Dealt(Sequence[UserRatings]):
    """The ratings of all users, divided.

    A user's ratings are copied out when they are asked for, because copies for a whole crowd would fill the memory.
    """

    train: Column
    held_out: Column

    def __len__(self) -> int:
        return len(self.train.starts) - 1

    @overload
    def __getitem__(self, user: int) -> UserRatings: ...
    @overload
    def __getitem__(self, user: slice) -> list[UserRatings]: ...
    def __getitem__(self, user: int | slice) -> UserRatings | list[UserRatings]:
        if isinstance(user, slice):
            return [self[place] for place in range(*user.indices(len(self)))]
        user = range(len(self))[user]  # IndexError beyond the last user; -1 is the last user
        return UserRatings(*self.train.of(user), *self.held_out.of(user))


@dataclass(frozen=True)
class DataSet:
    """One line of `keyhole datasets`. Sizes that the person chooses are None; `where` is None if the set is absent."""

    name: str
    title: str
    users: int | None
    items: int | None
    ratings: int | None
    where: str | None
    how: str


@dataclass(frozen=True)
class NamedData:
    """A set that is known by name. `items` counts only the rated items, as loading does."""

    title: str
    file: str
    users: int
    items: int
    ratings: int


NAMED = {
    "ml-100k": NamedData("MovieLens 100K, 1998", "u.data", 943, 1682, 100_000),
    "ml-1m": NamedData("MovieLens 1M, 2003", "ratings.dat", 6040, 3706, 1_000_209),
    "ml-latest-small": NamedData("MovieLens latest small, 2018", "ratings.csv", 610, 9724, 100_836),
}


# ---- loading


def load(
    source: str, rating_range: tuple[float, float] | None = None, reading: ReadingRules = AS_IT_IS
) -> Ratings:
    """Load the ratings that `source` names; `rating_range` replaces the range that its format implies."""
    if rating_range is not None:
        _check_range(rating_range)
    if reading.columns and is_generated(source):
        raise BadInput(f"{source} is not a file, so it has no columns; leave out --columns")
    if source in DEMOS:
        return _generated(source, DEMOS[source](), rating_range)
    if source == "synthetic" or source.startswith("synthetic:"):
        return _generated(source, generate.synthetic(source), rating_range)
    if source == NETFLIX_SHAPED:
        return _generated(source, generate.netflix_shaped(), rating_range)
    path = file_of(source)
    read = formats.read(path, rating_range, reading)
    return replace(read, name=source, item_titles=read.item_titles or titles.beside(path, read.item_names))


def is_generated(source: str) -> bool:
    """Tell whether Keyhole generates the ratings that `source` names."""
    return source in DEMOS or source == NETFLIX_SHAPED or source.partition(":")[0] == "synthetic"


def _check_range(rating_range: tuple[float, float]) -> None:
    low, high = rating_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise BadInput(
            f"the rating range {low:g} to {high:g} is empty; give the lower number first, both finite"
        )


def _generated(source: str, made: generate.Generated, rating_range: tuple[float, float] | None) -> Ratings:
    low, high = rating_range or generate.STARS
    if low > generate.STARS[0] or high < generate.STARS[1]:
        raise BadInput(f"{source} has ratings from 1 to 5, not {low:g} to {high:g}; leave out --rating-range")
    user_names = made.user_names or tuple(map(str, range(made.n_users)))
    item_names = tuple(map(str, range(made.n_items)))
    columns = (made.users, made.items, made.values)
    return Ratings(source, *columns, user_names, item_names, (low, high), made.item_titles)


def file_of(source: str) -> Path:
    """Find the file of ratings that `source`, a name or a path, means."""
    if source in NAMED:
        folder = find(source)
        if folder is None:
            hint = f"or set KEYHOLE_DATA to the folder that contains {source}"
            raise BadInput(f'run "keyhole fetch {source}" {hint}')
        return folder / NAMED[source].file
    path = Path(os.path.expanduser(source))  # `--data=~/x` is not expanded by every shell
    if not source or not os.path.exists(path):
        names = ", ".join([*DEMOS, SYNTHETIC, NETFLIX_SHAPED, *NAMED])
        near = did_you_mean(source, [*DEMOS, "synthetic", NETFLIX_SHAPED, *NAMED])
        raise BadInput(f'there is no file or folder "{source}"; give a path or one of {names}{near}')
    return _file_in(path) if path.is_dir() else path


def _file_in(folder: Path) -> Path:
    for name in FOLDER_FILES:
        if (folder / name).is_file():
            return folder / name
    raise BadInput(f"{folder} contains none of {', '.join(FOLDER_FILES)}; name the file itself")


def cache_folder() -> Path:
    """Return the folder for downloads. A relative XDG_CACHE_HOME is ignored, as the XDG rules demand."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path(os.path.expanduser("~/.cache"))) / "keyhole"


def find(name: str) -> Path | None:
    """Find the folder of the set `name`; None if it is not on this machine."""
    roots = [Path(root)] if (root := os.environ.get("KEYHOLE_DATA")) else []
    for folder in (root / name for root in [*roots, cache_folder()]):
        if (folder / NAMED[name].file).is_file():
            return folder
    return None


def available() -> list[DataSet]:
    """List all data sets that `--data` knows by name."""
    sets, sizes = [], (generate.NETFLIX_USERS, generate.NETFLIX_ITEMS, generate.NETFLIX_RATINGS)
    for name, title in DEMO_TITLES.items():
        made = DEMOS[name]()
        sets.append(DataSet(name, title, made.n_users, made.n_items, len(made.values), "built in", f"--data {name}"))
    sets.append(DataSet(SYNTHETIC, "made to measure", None, None, None, "built in", "--data synthetic:200x100"))
    title = "generated, in the size of the paper's Netflix sample"
    sets.append(DataSet(NETFLIX_SHAPED, title, *sizes, "built in", f"--data {NETFLIX_SHAPED} --online 1000"))
    for name, named in NAMED.items():
        where = find(name)
        how = f"keyhole fetch {name}" if where is None else f"--data {name}"
        place = None if where is None else str(where)
        sets.append(DataSet(name, named.title, named.users, named.items, named.ratings, place, how))
    return sets


# ---- dividing


def split(ratings: Ratings, fraction: float, seed: bytes) -> Dealt:
    """Divide `ratings` among the users, and hold out a random `fraction` of each user's; one always stays for training.

    Each rating gets one random word, and the ratings of a user with the smallest words are held out. Words are
    drawn in the order of (user, item), so the draw depends neither on the order of rows nor, with `first_users`,
    on the number of later users.
    """
    if not 0 <= fraction < 1:
        raise BadInput(f"the test fraction must be at least 0 and below 1, not {fraction:g}")
    users, items, values = _sorted(ratings)
    counts = np.bincount(users, minlength=ratings.n_users)
    held_counts = held_out_counts(counts, fraction)
    held = _smallest_words(users, counts, held_counts, seed)
    train = Column(_starts(counts - held_counts), items[~held], values[~held])
    return Dealt(train, Column(_starts(held_counts), items[held], values[held]))


def _sorted(ratings: Ratings) -> tuple[Ints, Ids, Floats]:
    """Return users, items and values sorted by (user, item); loaded ratings are sorted already."""
    users, items, values = ratings.users, ratings.items, ratings.values
    steps = np.diff(users)
    if not np.all((steps > 0) | ((steps == 0) & (np.diff(items) > 0))):
        order = np.lexsort((items, users))
        users, items, values = users[order], items[order], values[order]
    return users, items.astype(np.uint32), values


def _starts(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def held_out_counts(counts: Ints, fraction: float) -> Ints:
    """Compute fraction * n for each count n, with halves rounded down, in whole numbers.

    In floats, .07 * 150 is a little more than 10.5 and would be rounded up.
    """
    part = Fraction(fraction).limit_denominator(1_000_000)
    # ceil(part * n - 1/2)
    rounded = -((part.denominator - 2 * part.numerator * counts) // (2 * part.denominator))
    return np.asarray(np.clip(rounded, 0, np.maximum(counts - 1, 0)), dtype=np.int64)


def _smallest_words(users: Ints, counts: Ints, wanted: Ints, seed: bytes) -> Flags:
    """Mark the `wanted[i]` ratings of user i that have the smallest random words.

    The words are raw, because numpy promises that these are the same in all its versions.
    """
    key = hashlib.sha256(b"keyhole split " + seed).digest()[:16]
    words = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(len(users))
    order = np.lexsort((words, users))
    place = np.arange(len(users)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.zeros(len(users), dtype=np.bool_)
    chosen[order] = place < np.repeat(wanted, counts)
    return chosen
