"""Parties by the identifiers of the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.audit import audited
from typer.testing import CliRunner

from protocol.errors import BadInput
from sim import api
from sim.cli.app import app
from sim.folder.naming import Names, read_names, resolve

PARTIES = frozenset({"recommender", "third_party", "user:0", "user:1", "user:2"})
HERE = Path("run")
RATINGS = [{0: 5.0, 1: 3.0}, {0: 2.0, 1: 4.0}, {0: 1.0, 1: 5.0}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return audited(tmp_path_factory.mktemp("named"), RATINGS).folder


def test_a_user_is_known_by_its_number_and_by_the_data_s_name(folder):
    assert resolve(folder, "u002") == resolve(folder, "user:2") == "user:2"
    assert resolve(folder, "recommender") == "recommender"


def test_the_name_of_a_party_comes_before_a_user_of_that_name():
    names = Names(["recommender", "user:0", "x"])
    assert names.party("recommender", PARTIES, HERE) == "recommender"
    assert names.party("user:0", PARTIES, HERE) == "user:0"


def test_an_unknown_name_is_answered_with_the_nearest(folder):
    with pytest.raises(BadInput, match=r"no party 'u0002': did you mean .*u002"):
        resolve(folder, "u0002")
    with pytest.raises(BadInput, match="recommender, third_party and user:0 … user:2"):
        resolve(folder, "zzzzzz")


def test_a_name_of_several_users_is_refused_with_their_numbers():
    with pytest.raises(BadInput, match="several users of run: say which, as user:0, user:2"):
        Names(["a", "b", "a"]).party("a", PARTIES, HERE)


def test_a_user_beyond_the_run_is_none_of_its_parties():
    with pytest.raises(BadInput, match="no party"):
        Names(["a", "b", "c", "d"]).party("d", PARTIES, HERE)


@pytest.mark.parametrize("text", ["", "[]", '{"users": 3, "items": []}', '{"users": [1], "items": []}', "{"])
def test_a_damaged_list_of_names_leaves_the_numbers(tmp_path, text):
    (tmp_path / "names.json").write_text(text)
    assert read_names(tmp_path).user("user:1") == "user:1"


def test_items_and_users_have_their_names(folder):
    names = read_names(folder)
    assert (names.user("user:1"), names.item(1), names.user("recommender")) == ("u001", "i001", "recommender")
    assert (names.user("user:99"), names.item(99)) == ("user:99", "99")


def test_commands_take_the_name(folder):
    invoke = CliRunner().invoke
    by_name = invoke(app, ["view", str(folder), "u001", "--json"])
    assert by_name.exit_code == 0 and by_name.stdout == invoke(app, ["view", str(folder), "user:1", "--json"]).stdout
    replayed = json.loads(invoke(app, ["replay", str(folder), "--party", "u001", "--json"]).stdout)
    assert [row["party"] for row in replayed["parties"]] == ["user:1"]
    sent = invoke(app, ["view", str(folder), "third_party", "--sender", "u001", "--json"])
    assert {row["sender"] for row in json.loads(sent.stdout)} == {"user:1"}
    assert next(iter(api.view(folder, "u001")))["fields"]["party"] == "user:1"


def test_a_coalition_takes_names(folder):
    given = ["audit", str(folder), "--only", "algebra", "--json", "--coalition", "recommender+u001"]
    document = json.loads(CliRunner().invoke(app, given).stdout)
    assert ["recommender", "user:1"] in [row["members"] for row in document["coalitions"]]
