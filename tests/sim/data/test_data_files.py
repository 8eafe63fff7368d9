"""Rating files as people have them: other separators, packed, other column names, holes, repeats, broken lines."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from protocol.errors import BadInput, did_you_mean
from protocol.party.role import nearest_party
from sim.data import opening
from sim.data.rating_table import ReadingRules
from sim.data.ratings import available, load
from sim.plan.config import RunConfig, read_config
from sim.run.run import resume, run
from tests.sim.data.test_data import FORMATS, triples, write

SAME = [("9", "2", 5.0), ("9", "10", 4.0), ("10", "2", 1.0)]
NAMED = ReadingRules(("who", "movie", "stars"))


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS.keys())
def test_every_text_format_may_be_packed(tmp_path: Path, text: str) -> None:
    assert triples(load(write(tmp_path, gzip.compress(text.encode()), "any name"))) == SAME


def test_semicolons_separate_and_then_a_comma_may_be_a_decimal_point(tmp_path: Path) -> None:
    assert triples(load(write(tmp_path, "9;10;4\n10;2;1\n9;2;5\n"))) == SAME
    assert triples(load(write(tmp_path, 'user;item;rating\n"a;b";2;3,5\n'))) == [("a;b", "2", 3.5)]
    assert triples(load(write(tmp_path, "1;2;3,5;881250949\n1;3;4;0\n")))[0] == ("1", "2", 3.5)
    assert triples(load(write(tmp_path, "a;b;c,2,3\n"))) == [("a;b;c", "2", 3.0)], "commas where they are as many"


def test_a_folder_may_hold_the_packed_file(tmp_path: Path) -> None:
    text = "userId,movieId,rating,timestamp\n1,1,0.5,0\n"
    write(tmp_path, gzip.compress(text.encode()), "ratings.csv.gz")
    assert load(str(tmp_path)).rating_range == (0.5, 5.0)


def test_columns_go_by_the_names_that_the_person_gives(tmp_path: Path) -> None:
    path = write(tmp_path, "stars,note,movie,Who\n4,x,10,9\n1,x,2,10\n5,x,2,9\n")
    assert triples(load(path, reading=NAMED)) == SAME
    assert triples(load(write(tmp_path, "who\tmovie\tstars\n9\t2\t5\n"), reading=NAMED)) == SAME[:1]
    with pytest.raises(BadInput, match=r'the header has no column "stars" .* it has who, movie, star \(did you mean'):
        load(write(tmp_path, "who,movie,star\n9,2,5\n"), reading=NAMED)
    with pytest.raises(BadInput, match='the header has 2 columns "who"'):
        load(write(tmp_path, "who,who,movie,stars\n9,9,2,5\n"), reading=NAMED)
    with pytest.raises(BadInput, match="demo is not a file"):
        load("demo", reading=NAMED)


def test_columns_of_parquet_go_by_name_as_well(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the parquet extra is absent: pip install pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"stars": [4.0, 1.0, None, 5.0, 3.0], "movie": [10, 2, 4, 2, 2], "who": [9, 10, 9, 9, 9]}
    parquet.write_table(pyarrow.table({**columns, "day": [1, 1, 1, 7, 2]}), tmp_path / "a")
    reading = ReadingRules(("who", "movie", "stars", "day"), "last", "drop")
    assert triples(load(str(tmp_path / "a"), reading=reading)) == SAME


REPEATS = "1,2,3,50\n9,9,1,50\n1,2,5,20\n1,2,4,30\n"


@pytest.mark.parametrize(
    ("how", "text", "value"),
    [
        ("mean", REPEATS, 4.0),
        ("last", REPEATS, 3.0),  # by its time
        ("last", REPEATS.replace(",50", "").replace(",20", "").replace(",30", ""), 4.0),  # by its line
        ("last", "1,2,3,2005-09-06\n9,9,1,-\n1,2,5,2005-10-01\n1,2,4,1999-01-01\n", 5.0),
    ],
)
def test_of_a_pair_that_is_rated_twice_the_last_or_the_mean_is_taken(tmp_path: Path, how, text, value) -> None:
    ratings = load(write(tmp_path, text), reading=ReadingRules(on_duplicate=how))
    assert triples(ratings) == [("1", "2", value), ("9", "9", 1.0)]
    assert ratings.notes == (f"1 pairs of user and item are rated more than once: the {how} was taken.",)


def test_lines_with_holes_are_dropped_and_counted_if_the_person_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "1,2,3\n,2,4\n1,,4\n1,5,\n1,6,NaN\n1,7,good\n")
    with pytest.raises(BadInput, match=r"line 2: .* empty; fill it in, or leave such lines out with --on-missing drop"):
        load(path)
    with pytest.raises(BadInput, match=r'^[^\n]*line 6: the rating "good" is not a finite number; correct the line$'):
        load(path, reading=ReadingRules(on_missing="drop"))
    ratings = load(write(tmp_path, "1,2,3\n,2,4\n1,5,NA\n"), reading=ReadingRules(on_missing="drop"))
    assert triples(ratings) == [("1", "2", 3.0)]
    assert ratings.notes == ("2 lines without a user, an item or a rating were left out.",)


def test_all_bad_lines_are_counted_and_the_first_ten_named(tmp_path: Path) -> None:
    rows = ["1,1,3"] + [f"1,{item},x" for item in range(2, 40)] + ["1,2", "1,1,4", '"open']
    with pytest.raises(BadInput) as refused:
        load(write(tmp_path, "\n".join(rows)))
    lines = str(refused.value).splitlines()
    assert len(lines) == 11 and [line.partition("line ")[2].partition(":")[0] for line in lines[:10]] == [
        str(number) for number in range(2, 12)
    ]
    assert lines[-1] == "In all, 41 lines cannot be used."


def test_the_range_that_would_fit_is_proposed(tmp_path: Path) -> None:
    for text, fitting in (
        ("1,2,0.5\n1,3,5\n", ".5:5"), ("1,2,6\n1,3,2\n", "1:6"), ("1,2,0\n1,3,10\n", "0:10"),
        ("1,2,40\n1,3,100\n", "40:100"), ("1,2,-3\n1,3,-10\n", "-10:-3"), ("1;2;0,25\n", ".25:5"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=f"use --rating-range {fitting}\n?"):
            load(write(tmp_path, text))


def test_a_broken_parquet_file_is_named_as_such(tmp_path: Path) -> None:
    for content in (b"", b"\x15\x04\x15 broken PAR1", b"1,2,3\n"):
        with pytest.raises(BadInput, match=r"x\.parquet is not a readable Parquet file \(it does not begin with PAR1"):
            load(write(tmp_path, content, "x.parquet"))
    with pytest.raises(BadInput, match="is not text; name a file of ratings"):
        load(write(tmp_path, b"\x89PNG\x00\x00", "x.csv"))


def test_what_unpacks_to_more_than_ratings_do_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(opening, "SPARE_BYTES", 1 << 16)
    monkeypatch.setattr(opening, "BUFFER", 1 << 12)
    bomb = gzip.compress(b"1,2,3" + b" " * (1 << 22))
    with pytest.raises(BadInput, match="unpacks to more than 0 MB, as no ratings do"):
        load(write(tmp_path, bomb, "bomb.gz"))


def test_a_packed_file_that_was_cut_or_damaged_is_named_as_such(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"%d,1,3\n" % user for user in range(50_000)))
    for damaged in (whole[:-400], whole[:2000] + b"?" * 50 + whole[2050:], whole[:-4] + b"????"):
        with pytest.raises(BadInput, match=r"is not a whole \.gz file; fetch or pack it again"):
            load(write(tmp_path, damaged, "ratings.gz"))
    packed = gzip.compress(b"1,2,3\nJos\xe9,2,3\n")
    with pytest.raises(BadInput, match="line 2: save the file as UTF-8"):
        load(write(tmp_path, packed, "latin.gz"))


def test_a_run_records_how_its_file_was_read_so_that_it_can_go_on(tmp_path: Path) -> None:
    rows = [f"{user};{item};{1 + (user + item) % 5};" for user in range(6) for item in range(5)]
    path = write(tmp_path, "\n".join(["who;movie;stars;when", *rows, rows[0], "7;;3;"]), "mine.csv")
    flags = {"columns": "who,movie,stars", "on_duplicate": "mean", "on_missing": "drop", "data": path}
    sizes = {"scheme": "masked", "iterations": 2, "dim": 2, "transport": "inprocess"}
    summary = run(RunConfig(**flags, **sizes), out=tmp_path / "run")
    assert summary["users"] == 6
    assert summary["notes"][0] == "1 lines without a user, an item or a rating were left out."
    assert "the mean was taken" in summary["notes"][1]
    kept = read_config(tmp_path / "run/run.toml")
    assert (kept.columns, kept.on_duplicate, kept.on_missing) == ("who,movie,stars", "mean", "drop")
    views = tmp_path / "run/views"
    (tmp_path / "run/summary.json").unlink()
    for view in views.iterdir():
        view.write_bytes(view.read_bytes()[:-40])
    assert resume(tmp_path / "run")["item_factors_sha256"] == summary["item_factors_sha256"]
    names = json.loads((tmp_path / "run/names.json").read_text())
    assert names["users"] == [str(user) for user in range(6)]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"columns": "a,b"}, "--columns takes USER,ITEM,RATING"),
        ({"columns": "a,b,b"}, "--columns takes USER,ITEM,RATING"),
        ({"on_duplicate": "first"}, "--on-duplicate must be one of refuse, last, mean"),
        ({"on_missing": "keep"}, "--on-missing must be one of refuse, drop"),
        ({"data": "ml-100"}, r"did you mean ml-100k\?"),
        ({"scheme": "maskd"}, r"did you mean masked\?"),
        ({"scheme": "masked", "options": {"clp": 1}}, r"did you mean clip\?"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_the_nearest_name(tmp_path: Path, flags, words) -> None:
    with pytest.raises(BadInput, match=words):
        run(RunConfig(**flags), out=tmp_path / "run")


def test_every_set_that_keyhole_datasets_lists_is_named_where_one_is_unknown() -> None:
    with pytest.raises(BadInput) as refusal:
        load("nowhere")
    assert all(entry.name in str(refusal.value) for entry in available())


def test_columns_are_proposed_in_the_order_of_the_flag_and_quoted_for_the_shell(tmp_path: Path) -> None:
    for header, proposed in (
        ("stars,time,item,who", "--columns stars,item,who"),
        ("my user,item,my stars", "--columns 'my user,item,my stars'"),
        ("user,item,when", "--columns user,item,when"),
        ("user,item,date", "--columns user,item,RATING"),
    ):
        with pytest.raises(BadInput) as refusal:
            load(write(tmp_path, f"{header}\n{','.join('1234'[: header.count(',') + 1])}\n"))
        assert str(refusal.value).endswith(proposed)


def test_text_in_every_field_is_a_row_where_its_rating_is_missing(tmp_path: Path) -> None:
    ratings = load(write(tmp_path, "ann,heat,NA\nbob,heat,3\n"), reading=ReadingRules(on_missing="drop"))
    assert len(ratings) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('dim = "3"', "`$.dim` must be a whole number, not a text"),
        ('[run]\nepsilon = "4"', "`$.run.epsilon` must be a number, not a text"),
        ('rating-range = "15"', "`$.rating_range` must be a list, not a text"),
        ("rating-range = [1]", "`$.rating_range` must be a list of length 2, not 1"),
        ("seed = true", "`$.seed` must be a whole number or a text"),
        ("iterations = 99999999999999999", "`$.iterations` must be a whole number of at most 9007199254740992"),
        ("options = {rank = [1]}", "`$.options[...]` must be true or false or a whole number"),
    ],
)
def test_a_setting_of_another_type_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "run.toml").write_text(f"{text}\n")
    with pytest.raises(BadInput, match=re.escape(words)):
        read_config(tmp_path / "run.toml")


def test_settings_are_read_as_they_are_meant(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('epsilon = 4\nrating-range = [1, 5]\nseed = "12"\nusers-per-process = "auto"\n')
    config = read_config(tmp_path / "run.toml")
    assert (config.epsilon, config.rating_range, config.seed) == (4.0, (1.0, 5.0), 12)
    assert all(type(value) is float for value in (config.epsilon, *config.rating_range))


def test_an_unknown_setting_or_party_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("epsilom = 4\n")
    with pytest.raises(BadInput, match=r"unknown settings epsilom \(did you mean epsilon\?\)"):
        read_config(tmp_path / "run.toml")
    parties = ["recommender", "third_party", "user:17"]
    assert nearest_party("recomender", parties) == " (did you mean recommender?)"
    assert nearest_party("user17", parties) == " (did you mean user:17?)"
    assert nearest_party("user:18", parties) == nearest_party("xyz", parties) == did_you_mean("x", []) == ""
