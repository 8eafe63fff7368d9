"""The data that `--data` accepts and refuses, and the dealing of ratings to users."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protocol.arrays import Floats, Ints
from protocol.errors import BadInput
from sim.data import generate
from sim.data.ratings import Ratings, UserRatings, load, split

SEED = bytes(range(32))

# The same three ratings in every text format: user 9 rates items 10 and 2, user 10 rates item 2.
TAB = "9\t10\t4\t881250949\n10\t2\t1\t881250949\n9\t2\t5\t881250949\n"
FORMATS = {
    "tab": TAB,
    "tab without timestamp": "9\t10\t4\n10\t2\t1\n9\t2\t5\n",
    "tab with Windows line ends": TAB.replace("\n", "\r\n"),
    "colons": TAB.replace("\t", "::"),
    "commas": TAB.replace("\t", ","),
    "commas, a byte order mark and blank lines": "\ufeff\n" + TAB.replace("\t", ",").replace("\n", "\n\n"),
    "a header": "userId,movieId,rating,timestamp\n" + TAB.replace("\t", ","),
    "a header in another order": "rating,when,Item_ID,user\n4,x,10,9\n1,x,2,10\n5,x,2,9\n",
    "quotes": '"user","item","rating"\n"9","10","4"\n"10","2","1"\n"9","2","5.0"\n',
    "Netflix": "10:\n9,4,2005-09-06\n2:\n10,1,2005-09-06\n9,5,2005-09-06\n",
}


def write(folder: Path, text: str | bytes, name: str = "file") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def triples(ratings: Ratings) -> list[tuple[str, str, float]]:
    columns = zip(ratings.users, ratings.items, ratings.values, strict=True)
    return [(ratings.user_names[u], ratings.item_names[i], float(value)) for u, i, value in columns]


def made(counts: list[int]) -> Ratings:
    """Make ratings: user i rates items 0 .. counts[i]-1, each with a value that tells user and item."""
    users = np.repeat(np.arange(len(counts)), counts)
    items = np.concatenate([np.arange(count) for count in counts])
    names = tuple(map(str, range(len(counts)))), tuple(map(str, range(max(counts))))
    return Ratings("made", users, items, users * 1000.0 + items, *names, (1.0, 5.0))


def content(users: list[UserRatings]) -> list[list[bytes]]:
    return [[u.items.tobytes(), u.values.tobytes(), u.held_out_items.tobytes()] for u in users]


# ---- formats


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS.keys())
def test_every_format_gives_the_same_ratings(tmp_path: Path, text: str) -> None:
    ratings = load(write(tmp_path, text))
    assert ratings.user_names == ("9", "10") and ratings.item_names == ("2", "10")  # as numbers: 9 before 10
    assert triples(ratings) == [("9", "2", 5.0), ("9", "10", 4.0), ("10", "2", 1.0)]
    assert (ratings.n_users, ratings.n_items, len(ratings)) == (2, 2, 3)
    assert str((ratings.users.dtype, ratings.values.dtype)) == "(dtype('int64'), dtype('float64'))"
    assert ratings.rating_range == (1.0, 5.0)


def test_identifiers_that_are_not_plain_numbers_sort_as_text(tmp_path: Path) -> None:
    ratings = load(write(tmp_path, "9,user,4\n10,x,3\nann,x,2\n07,x,1\n"))
    assert ratings.user_names == ("07", "10", "9", "ann") and ratings.item_names == ("user", "x")


def test_only_the_latest_movielens_files_have_half_stars(tmp_path: Path) -> None:
    text = "userId,movieId,rating,timestamp\n1,1,0.5,0\n"
    assert load(write(tmp_path, text, "ratings.csv")).rating_range == (0.5, 5.0)
    for name, other in (("other.csv", text), ("ratings.csv", text.replace("userId", "user"))):
        with pytest.raises(BadInput, match=r"line 2: the rating 0\.5 is outside 1 to 5; .*--rating-range"):
            load(write(tmp_path, other, name))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the parquet extra is absent: pip install pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"rating": [4.0, 1.0, 5.0], "movieId": [10, 2, 2], "userId": [9, 10, 9]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a")
    assert triples(load(str(tmp_path / "a"))) == [("9", "2", 5.0), ("9", "10", 4.0), ("10", "2", 1.0)]
    parquet.write_table(pyarrow.table({**columns, "rating": [4.0, None, 5.0]}), tmp_path / "b")
    with pytest.raises(BadInput, match='b, row 2: the rating "" is not a finite number'):
        load(str(tmp_path / "b"))
    with pytest.raises(BadInput, match="not a readable Parquet file"):
        load(write(tmp_path, b"PAR1 broken", "c"))


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)  # makes the import fail
    with pytest.raises(BadInput, match=r'install the parquet extra: pip install "keyhole\[parquet\]"'):
        load(write(tmp_path, b"PAR1"))


# ---- refusals

BROKEN = {
    "a field too few": ("1\t2\t3\n1\t3\n", "file, line 2: 2 fields instead of 3"),
    "a field too many": ("1::2::3\n\n1::3::3::4\n", "file, line 3: 4 fields instead of 3"),
    "two columns": ("1,2\n", "file, line 1: 2 fields instead of 3 or 4"),
    "no separator": ("\n1 2 3\n", "file, line 2: no tab, ::, comma or semicolon"),
    "text for a rating": ("1,2,3\n1,3,good\n", 'file, line 2: the rating "good" is not a finite number'),
    "an unknown header": ("uid,iid,stars\n1,2,3\n", "file, line 1: .* if this is a header, name its columns"),
    "a header without rating": ("user,item,stars\n1,2,3\n", "file, line 1: the header names rating 0 times"),
    "a header with one known name": (
        "who,movie,stars\n1,2,3\n",
        "line 1: the header names user 0 times; .* with --columns who,movie,stars$",
    ),
    "an unknown header above bad rows": (
        "uid,iid,stars\n1,2,3\n1,2,x\n1,2,4\n",
        r"\A[^\n]*line 1: [^\n]* if this is a header, name its columns with --columns uid,iid,stars\Z",
    ),
    "an unknown header of five columns": ("no,uid,iid,stars,w\n1,2,3,4,5\n", "line 1: .* its columns with --columns"),
    "two user columns": ("user,userId,item,rating\n1,1,2,3\n", "file, line 1: the header names user 2 times"),
    "not a number": ("1,2,nan\n", "file, line 1: .*not a finite number"),
    "infinity": ("1,2,3\n1,3,inf\n", "file, line 2: .*not a finite number"),
    "a number that only Python reads": ("1,2,0_3\n", "file, line 1: .*not a finite number"),
    "above the range": ("1,2,3\n1,3,6\n", "line 2: the rating 6 is outside 1 to 5; .*--rating-range"),
    "below the range": ("1,2,0.5\n", "line 1: the rating 0.5 is outside 1 to 5; .*--rating-range"),
    "a pair twice": ("1,2,3\n9,9,1\n1,2,4\n1,2,5\n", r"line 3: user 1 rates item 2 again \(.* line 1\)"),
    "an empty user": ("1,2,3\n,2,4\n", "file, line 2: the user or the item is empty"),
    "an open quote": ('1,2,3\n"1,2,3\n', "file, line 2: unexpected end of data"),
    "Netflix with a stray row": ("1:\n5,3,2005-09-06\n5,3\n", "file, line 3: this is neither ITEM:"),
    "an empty file": ("", "file contains no ratings"),
    "a file of blank lines": ("\n \n", "file contains no ratings"),
    "nothing below the header": ("user,item,rating\n", "file contains no ratings"),
    "nothing below a Netflix item": ("1:\n", "file contains no ratings"),
    "another encoding": (b"1,2,3\nJos\xe9,2,3\n", "file, line 2: save the file as UTF-8"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(write(tmp_path, text))


def test_a_rating_range_of_ones_own(tmp_path: Path) -> None:
    path = write(tmp_path, "1,2,0\n1,3,10\n")
    assert load(path, (0.0, 10.0)).rating_range == (0.0, 10.0)
    assert load("demo", (0.0, 6.0)).rating_range == (0.0, 6.0)
    for bad in ((5.0, 1.0), (1.0, 1.0), (1.0, float("inf")), (float("nan"), 5.0)):
        with pytest.raises(BadInput, match="rating range"):
            load(path, bad)
    with pytest.raises(BadInput, match="demo has ratings from 1 to 5, not 2 to 5"):
        load("demo", (2.0, 5.0))


# ---- generated sets


def digest(ratings: Ratings) -> str:
    columns = (ratings.users.astype("<i8"), ratings.items.astype("<i8"), ratings.values.astype("<f8"))
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:16]


def test_demo_is_the_same_everywhere() -> None:
    """If this fails, every published figure about `demo` is void: do not just replace the digest."""
    assert digest(load("demo")) == "14c5673401545942"
    assert digest(load("demo-small")) == "c5e88f1fb6669475"


def test_demo_looks_like_ratings() -> None:
    ratings = load("demo")
    per_user, per_item = np.bincount(ratings.users), np.bincount(ratings.items, minlength=60)
    assert (ratings.n_users, ratings.n_items) == (200, 60)
    assert 0.45 <= len(ratings) / 12_000 <= 0.55
    assert per_user.min() >= 22 and per_user.max() >= 2 * per_user.min()
    assert np.median(per_user) < per_user.mean(), "more users are light than heavy"
    assert per_item.min() >= 30 and per_item.max() >= 2 * np.median(per_item)
    assert 3.3 <= ratings.values.mean() <= 3.7 and 1.0 <= ratings.values.std() <= 1.2
    stars = np.bincount(ratings.values.astype(int))[1:]
    assert stars.argmin() == 0 and stars.argmax() in (2, 3) and stars.min() > 0.05 * len(ratings)


def test_demo_has_names_and_titles_that_can_be_told_apart() -> None:
    ratings = load("demo")
    assert ratings.item_titles is not None
    assert len(set(ratings.item_titles)) == 60 == ratings.n_items
    assert len(set(ratings.user_names)) == 200 == ratings.n_users
    assert all(re.fullmatch(r"The [A-Z][A-Za-z-]+( [A-Z][a-z]+){1,2}", title) for title in ratings.item_titles)
    assert ratings.first_users(3).item_titles == ratings.item_titles
    assert load("demo-small").item_titles is None


def test_who_likes_a_title_likes_the_others_of_its_shelf() -> None:
    """The sign of a taste gives two shelves: over users, the mean stars of one rise where those of the other fall."""
    ratings, made = load("demo"), generate.demo()
    means = np.bincount(ratings.items, ratings.values) / np.bincount(ratings.items)
    rest = ratings.values - means[ratings.items]
    side = (made.item_tastes[:, 0] > 0)[ratings.items]
    of = [np.bincount(ratings.users[mask], rest[mask]) / np.bincount(ratings.users[mask]) for mask in (side, ~side)]
    assert np.corrcoef(*of)[0, 1] < -0.5


def test_a_small_demo_looks_like_ratings() -> None:
    ratings = load("demo-small")
    per_user, per_item = np.bincount(ratings.users), np.bincount(ratings.items, minlength=60)
    assert (ratings.n_users, ratings.n_items) == (40, 60)
    assert 0.2 <= len(ratings) / 2400 <= 0.3
    assert per_user.min() >= 8 and per_user.max() >= 2 * per_user.min()
    assert per_item.min() >= 1 and per_item.max() >= 3 * np.median(per_item)
    assert 3.3 <= ratings.values.mean() <= 3.7
    assert set(ratings.values) == {1.0, 2.0, 3.0, 4.0, 5.0}


def ridge(side: Ints, features: Floats, rest: Floats, count: int) -> Floats:
    rows = [(features[side == k], rest[side == k]) for k in range(count)]
    return np.array([np.linalg.solve(f.T @ f + 2 * np.eye(4), f.T @ r) for f, r in rows])


def test_factors_predict_the_small_demo_better_than_the_mean_of_the_user() -> None:
    """Alternating least squares of rank 4 around the mean is better only because the data have low rank."""
    users = split(load("demo-small"), 0.2, SEED)
    owner = np.repeat(np.arange(40), [len(user.items) for user in users])
    item = np.concatenate([user.items for user in users]).astype(np.int64)
    value = np.concatenate([user.values for user in users])
    factors = np.random.default_rng(1).normal(size=(60, 4))
    for _ in range(30):
        tastes = ridge(owner, factors[item], value - value.mean(), 40)
        factors = ridge(item, tastes[owner], value - value.mean(), 60)
    truth = np.concatenate([user.held_out_values for user in users])
    means = np.concatenate([np.full(len(user.held_out_items), user.values.mean()) for user in users])
    guess = np.concatenate([factors[user.held_out_items] @ tastes[u] for u, user in enumerate(users)])
    assert np.mean((guess + value.mean() - truth) ** 2) < 0.8 * np.mean((means - truth) ** 2)


@pytest.mark.parametrize(("source", "each"), [("50x40", 8), ("50x40:.1", 4), ("7x5:1:2", 5), ("9x9:.001", 1)])
def test_synthetic_has_the_size_that_was_asked_for(source: str, each: int) -> None:
    ratings = load("synthetic:" + source)
    n_users, n_items = map(int, source.split(":")[0].split("x"))
    assert (ratings.n_users, ratings.n_items) == (n_users, n_items)
    assert np.bincount(ratings.users).tolist() == [each] * n_users
    assert len(set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))) == n_users * each
    assert set(ratings.values) <= {1.0, 2.0, 3.0, 4.0, 5.0}


def test_synthetic_depends_on_its_parameters_and_on_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = digest(load("synthetic:50x40"))
    assert len({whole, digest(load("synthetic:50x40:.2:3")), digest(load("synthetic:50x40:.21"))}) == 3
    assert digest(load("synthetic:50x40:0.20:4")) == whole
    monkeypatch.setattr(generate, "CELLS_AT_ONCE", 7 * 40)  # seven users at a time
    assert digest(load("synthetic:50x40")) == whole


def test_large_synthetic_sets_take_seconds() -> None:
    start = time.perf_counter()
    assert len(load("synthetic:20000x1000:.02")) == 400_000
    assert len(load("synthetic:1000x10000:.002")) == 20_000
    assert time.perf_counter() - start < 10


WRONG = ["", ":", ":9", ":9x", ":9x9:x", ":9x9:.2:4:1", ":9x9:e", ":0x9", ":9x0", ":9x9:0", ":9x9:1.1"]
WRONG += [":9x9:-.1", ":9x9:.2:0", ":9x9:.2:1001", ":9999999999x1"]


@pytest.mark.parametrize("rest", WRONG)
def test_a_bad_synthetic_specification_is_refused(rest: str) -> None:
    with pytest.raises(BadInput, match=f'"synthetic{rest}" (is|needs)'):
        load("synthetic" + rest)


@pytest.mark.parametrize("limit", ["MAX_CELLS", "MAX_RATINGS"])
def test_a_synthetic_set_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(generate, limit, 99)  # small, so that the set is harmless if nothing refuses it
    assert len(load("synthetic:9x11:1")) == 99
    with pytest.raises(BadInput, match="too large"):
        load("synthetic:10x10:1")


# ---- dealing


def test_first_users_keeps_all_items(tmp_path: Path) -> None:
    ratings = load(write(tmp_path, TAB))
    first = ratings.first_users(1)
    assert triples(first) == [("9", "2", 5.0), ("9", "10", 4.0)] and first.user_names == ("9",)
    assert first.item_names == ("2", "10") and triples(ratings.first_users(2)) == triples(ratings)
    for count in (0, 3):
        with pytest.raises(BadInput, match=f"has 2 users; .* not {count}"):
            ratings.first_users(count)


# (ratings of the user, fraction, held out): 2.5 -> 2, 1.5 -> 1, 10.5 -> 10 (floats say 10.500000000000002),
# 2.6 -> 3, and never the last rating.
ROUNDING = [(25, 0.1, 2), (3, 0.5, 1), (150, 0.07, 10), (13, 0.2, 3), (1, 0.9, 0), (2, 0.99, 1), (9, 0.0, 0)]


@pytest.mark.parametrize(("count", "fraction", "held"), ROUNDING)
def test_split_rounds_halves_down_and_leaves_one(count: int, fraction: float, held: int) -> None:
    for user in split(made([count, count]), fraction, SEED):
        assert (len(user.held_out_items), len(user.items)) == (held, count - held)


def test_split_deals_each_rating_once_to_its_user() -> None:
    for u, user in enumerate(split(made([5, 1, 30]), 0.4, SEED)):
        assert sorted([*user.items, *user.held_out_items]) == list(range([5, 1, 30][u]))
        assert all(np.all(np.diff(a.astype(int)) > 0) for a in (user.items, user.held_out_items))
        assert user.values.tolist() == [u * 1000.0 + item for item in user.items]
        assert user.held_out_values.tolist() == [u * 1000.0 + item for item in user.held_out_items]
        assert user.items.dtype == user.held_out_items.dtype == np.uint32
        assert user.items.base is None and user.values.base is None  # no reference to the ratings of others


def test_split_depends_on_the_seed_and_on_nothing_else() -> None:
    ratings = made([8, 20, 30])
    mixed = np.random.default_rng(1).permutation(len(ratings))
    users, items, values = ratings.users[mixed], ratings.items[mixed], ratings.values[mixed]
    shuffled = replace(ratings, users=users, items=items, values=values)
    dealt = content(split(ratings, 0.3, SEED))
    assert content(split(shuffled, 0.3, SEED)) == dealt
    assert content(split(ratings.first_users(2), 0.3, SEED)) == dealt[:2]
    assert content(split(ratings, 0.3, bytes(32))) != dealt


def test_split_holds_out_every_item_equally_often() -> None:
    users = split(made([4] * 4000), 0.25, SEED)
    times = np.bincount([int(user.held_out_items[0]) for user in users])
    assert np.all(np.abs(times - 1000) < 137)  # five standard deviations of Binomial(4000, 1/4)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_bad_fraction_is_refused(fraction: float) -> None:
    with pytest.raises(BadInput, match="test fraction must be at least 0 and below 1"):
        split(made([3]), fraction, SEED)
