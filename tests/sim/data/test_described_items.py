"""Public descriptions of items: from the files beside MovieLens ratings, from a CSV of one's own, or none."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.errors import BadInput
from sim.data.described_items import describe_items
from sim.data.ratings import load
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import run

U_DATA = "1\t7\t5\t1\n1\t9\t1\t1\n2\t7\t3\t1\n2\t8\t4\t1\n"
BESIDE = {  # the same three films in each of the formats
    "u.item": (
        "u.data",
        U_DATA,
        "7|One (1995)|01-Jan-1995||url|0|1|1\n8|Two||||1|0|0\n9|Three (1900)|01-Jan-1900||u|0|0|0\n",
    ),
    "ml-100k.item": (
        "u.data",
        U_DATA,
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        "7\tOne\t1995\tB C\n8\tTwo\tV\tA\n9\tThree\t1900\t\nbroken\n",
    ),
    "movies.dat": (
        "ratings.dat",
        U_DATA.replace("\t", "::"),
        "7::One (1995)::B|C\n8::Two::A\n9::Three (1900)::\n",
    ),
    "movies.csv": (
        "ratings.csv",
        "userId,movieId,rating,timestamp\n" + U_DATA.replace("\t", ","),
        'movieId,title,genres\n7,One (1995),B|C\n8,Two,A\n9,"Three (1900)",\n',
    ),
}


@pytest.mark.parametrize("beside", BESIDE)
def test_genres_and_years_are_read_from_the_file_beside_the_ratings(beside, tmp_path):
    name, ratings, text = BESIDE[beside]
    (tmp_path / name).write_text(ratings)
    read = load(str(tmp_path / name))
    assert describe_items(read, "auto") is None, "there is no such file yet"
    (tmp_path / beside).write_text(text)
    found = describe_items(read, "auto")
    rows = {item: found.flags[at] for at, item in enumerate(read.item_names)}
    assert (rows["7"].sum(), rows["8"].sum()) == (2, 1) and not (rows["7"] & rows["8"]).any()
    assert np.rint(found.numbers[:, 0] * 21 + 1985).tolist() == [1995, 1990, 1930], "no year: 1990; from 1930 on"
    assert describe_items(read, "none") is None


def test_a_csv_of_ones_own_describes_items_and_is_checked(tmp_path):
    ratings, own = tmp_path / "drinks.csv", tmp_path / "about.csv"
    ratings.write_text("user,item,rating\na,tea,5\na,milk,1\nb,tea,3\n")
    read = load(str(ratings))
    assert describe_items(read, "auto") is None
    own.write_text("item,hot,price\nmilk,0,1\ntea,1,3\n")
    found = describe_items(read, str(own))
    at = read.item_names.index("tea")
    assert found.flags[:, 0].tolist() == [index == at for index in range(2)] and abs(found.numbers[at, 0]) == 1.0
    config = RunConfig(scheme="hardened", data=str(ratings), item_features=str(own), seed=1, transport="inprocess")
    params = make_plan(config).card.params
    assert (params.flag_columns, params.number_columns) == (1, 1) and params.described().shape == (2, 2)
    assert make_plan(RunConfig(scheme="masked", data=str(ratings), seed=1)).shape.features is None
    for text, words in (
        ("item,hot\nmilk,0\n", "does not describe 1 of the items, such as tea"),
        ("item,hot\nmilk,0\ntea,warm\n", "does not describe items"),
        ("item,hot\nmilk,0\ntea,nan\n", "does not describe items"),
        ("item\nmilk\ntea\n", "does not describe items"),
        ("", "does not describe items"),
    ):
        own.write_text(text)
        with pytest.raises(BadInput, match=words):
            describe_items(read, str(own))
    with pytest.raises(BadInput, match="cannot be read"):
        describe_items(read, str(tmp_path / "nothing.csv"))


def test_a_run_that_has_descriptions_is_measured_against_a_ridge_that_needs_nobody_else(tmp_path):
    ratings, about = tmp_path / "films.csv", tmp_path / "about.csv"
    rows = [f"u{u},i{i},{1 + u * i % 5}" for u in range(10) for i in range(8) if (u + i) % 4]
    ratings.write_text("\n".join(["user,item,rating", *rows]) + "\n")
    about.write_text("item,odd,size\n" + "".join(f"i{i},{i % 2},{i * i}\n" for i in range(8)))
    names = {}
    for choice in (str(about), "none"):
        config = RunConfig(scheme="hardened", data=str(ratings), item_features=choice, seed=1, transport="inprocess")
        summary = run(config, out=tmp_path / f"run{len(names)}")
        names[choice] = [guess["name"] for guess in summary["accuracy"]["on_device"]]
    assert names == {str(about): ["own-ridge", *names["none"]], "none": ["user-mean", "constant", "middle"]}
