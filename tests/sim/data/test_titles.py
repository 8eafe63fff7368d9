"""The titles of items: in a file beside the ratings or in a column of them, with any text in them."""

from __future__ import annotations

import pytest

from protocol.errors import BadInput
from sim.data import titles
from sim.data.ratings import load

MOVIELENS = {
    "u.item": ("u.data", "1\t{0}\t4\n2\t{1}\t3\n2\t{2}\t5\n", "latin-1",
               "1|Amélie (2001)|x|y\n3|Not rated|z\nbroken\n10|A, B|\n"),
    "ml-100k.item": ("u.data", "1\t{0}\t4\n2\t{1}\t3\n2\t{2}\t5\n", "utf-8",
                     "item\ttitle\tyear\tclass\n1\tAmélie\t2001\tx\n3\tNot rated\t1990\tz\nbroken\n10\tA, B\tV\t\n"),
    "movies.dat": ("ratings.dat", "1::{0}::4::9\n2::{1}::3::9\n2::{2}::5::9\n", "latin-1",
                   "1::Amélie (2001)::Drama\n3::Not rated::x\nbroken\n10::A, B::y\r\n"),
    "movies.csv": ("ratings.csv", "userId,movieId,rating,timestamp\n1,{0},4,9\n2,{1},3,9\n2,{2},5,9\n", "utf-8",
                   'movieId,title,genres\r\n1,Amélie (2001),x\r\n3,Not rated,x\r\nbroken\r\n10,"A, B",y\r\n'),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVIELENS)
def test_titles_stand_beside_the_ratings_of_movielens(tmp_path, name):
    ratings, text, encoding, named = MOVIELENS[name]
    (tmp_path / ratings).write_text(text.format(1, 10, 5))

    assert load(str(tmp_path)).item_titles is None
    (tmp_path / name).write_bytes(named.encode(encoding))
    found = load(str(tmp_path))
    assert dict(zip(found.item_names, found.item_titles or (), strict=True)) == {
        "1": "Amélie (2001)", "5": "", "10": "A, B",
    }  # fmt: skip
    assert load(str(tmp_path / ratings)).first_users(1).item_titles == found.item_titles
    (tmp_path / "other.tsv").write_text((tmp_path / ratings).read_text())
    assert load(str(tmp_path / "other.tsv"), (0.5, 5)).item_titles is None, "these titles are not of that file"


@pytest.mark.parametrize("column", ["title", "Item_Name", "name"])
def test_titles_stand_in_a_column_of_the_ratings(tmp_path, column):
    (tmp_path / "a.csv").write_text(f"user,item,rating,{column}\nann,tea,3,The tea\nann,rum,1,The rum\n")
    found = load(str(tmp_path / "a.csv"))
    assert (found.item_names, found.item_titles) == (("rum", "tea"), ("The rum", "The tea"))


def test_another_column_is_no_title(tmp_path):
    (tmp_path / "a.csv").write_text("user,item,rating,colour\nann,tea,3,green\n")
    assert load(str(tmp_path / "a.csv")).item_titles is None


def test_a_column_named_title_is_better_than_one_named_name(tmp_path):
    (tmp_path / "a.csv").write_text("user,name,item,rating,title\n1,Ann,7,3,\n2,Bob,7,3,Tea\n2,Bob,8,1,Rum\n")
    assert load(str(tmp_path / "a.csv")).item_titles == ("Tea", "Rum")


def test_titles_stand_in_a_column_of_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="the parquet extra is absent: pip install pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    columns = {"title": ["Tea", None, "Rum"], "rating": [4.0, 1.0, 5.0], "item": [10, 2, 3], "user": [9, 10, 9]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a")
    found = load(str(tmp_path / "a"))
    assert (found.item_names, found.item_titles) == (("2", "3", "10"), ("", "Rum", "Tea"))


def test_a_title_of_the_data_becomes_one_line_that_can_be_seen(tmp_path):
    (tmp_path / "u.data").write_text("1\t1\t4\n")
    (tmp_path / "u.item").write_bytes(b"1|\x1b[31m \t" + b"x" * 5000 + b"|\n")
    (title,) = load(str(tmp_path)).item_titles or ()
    assert title.startswith("⟨U+001B⟩[31m xxx") and len(title) == 200 and title.endswith("…")


def test_a_file_of_titles_that_is_cannot_be_read_is_refused_in_words(tmp_path, monkeypatch):
    (tmp_path / "u.data").write_text("1\t1\t4\n")
    (tmp_path / "u.item").write_text("1|Tea|\n" * 10)
    monkeypatch.setattr(titles, "MOST_BYTES", 20)
    with pytest.raises(
        BadInput, match=r"u\.item has no titles that can be read \(it has more than 20 bytes\): .*remove"
    ):
        load(str(tmp_path))
    (tmp_path / "ratings.csv").write_text("user,item,rating\n1,1,4\n")
    (tmp_path / "movies.csv").write_text("1," + "x" * 200_000)
    monkeypatch.setattr(titles, "MOST_BYTES", 1 << 20)
    with pytest.raises(BadInput, match=r"movies\.csv has no titles that can be read \(field larger"):
        load(str(tmp_path / "ratings.csv"))
