"""Victims by name, and the knowledge of each coalition about one user."""

from __future__ import annotations

import json

import pytest
from support.audit import audited
from typer.testing import CliRunner

from sim.audit.audit import audit
from sim.cli.app import app

# item 0: three raters; item 1: two; item 2: u003 alone
RATINGS = [{0: 5.0, 1: 3.0}, {0: 2.0, 1: 4.0}, {0: 1.0}, {2: 4.0}]
BOTH = ["recommender", "third_party"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return audited(tmp_path_factory.mktemp("about"), RATINGS, epsilon=8.0).folder


@pytest.fixture(scope="module")
def document(folder):
    return audit(folder, ["recommender+u000"], only=["algebra"])


def coalition(document, members):
    return next(row for row in document["coalitions"] if row["members"] == members)


def test_both_servers_have_everybody_s_noisy_gradients_of_all_their_items(document):
    row = coalition(document, BOTH)
    found = {victim["user"]: victim for victim in row["victims"] if victim["what"] == "noisy gradients"}
    assert {user: victim["items"] for user, victim in found.items()} == {
        "u000": ["i000", "i001"], "u001": ["i000", "i001"], "u002": ["i000"]
    }  # fmt: skip
    assert found["u001"]["party"] == "user:1"
    assert len(found) <= row["individuals"]


def test_a_sum_of_one_contributor_names_that_one(document):
    (victim,) = coalition(document, ["recommender"])["victims"]
    assert (victim["user"], victim["items"]) == ("u003", ["i002"])
    assert victim["what"] == "gradients in sums without anybody else"
    finding = next(one for one in document["findings"]
                   if one["id"] == "single-contributor" and one["coalition"] == ["recommender"])  # fmt: skip
    assert finding["victims"] == [victim]


def test_the_last_contributor_of_a_sum_is_isolated_by_the_others(document):
    row = coalition(document, ["recommender", "user:0"])
    noisy = [(one["user"], one["items"]) for one in row["victims"] if one["what"] == "noisy gradients"]
    assert noisy == [("u001", ["i001"])]


def test_a_finding_that_found_nothing_has_no_victims(document):
    assert all(isinstance(one["victims"], list) for one in document["findings"])
    assert all(not one["victims"] for one in document["findings"] if one["severity"] == "info")


@pytest.mark.parametrize(
    ("user", "members", "knows", "group"),
    [
        ("u002", ["recommender"], "sums", 3),
        ("u002", ["third_party"], "nothing", None),
        ("u002", BOTH, "noisy", None),
        ("u003", ["recommender"], "noisy", None),
        ("user:0", ["recommender", "user:0"], "member", None),
        ("u001", ["recommender", "user:0"], "noisy", None),
    ],
)
def test_a_user_asks_what_each_coalition_knows_of_it(folder, user, members, knows, group):
    about = audit(folder, ["recommender+u000"], only=["algebra"], about=user)["about"]
    row = next(row for row in about["rows"] if row["members"] == members)
    assert row["knows"] == knows
    if group is not None:
        assert row["smallest_group"] == group


def test_without_noise_what_is_known_is_exact(tmp_path):
    case = audited(tmp_path, RATINGS, "plain")
    rows = audit(case.folder, only=["algebra"], about="u000")["about"]["rows"]
    assert next(row for row in rows if row["members"] == ["recommender"])["knows"] == "exact"


def test_the_command_shows_it_in_words_and_in_json(folder):
    given = ["audit", str(folder), "--only", "algebra", "--about", "u002"]
    text = " ".join(CliRunner().invoke(app, given).stdout.split())
    assert "What each coalition knows of u002 (user:2)" in text and "sums of 3 or more users" in text
    about = json.loads(CliRunner().invoke(app, [*given, "--json"]).stdout)["about"]
    assert (about["user"], about["party"]) == ("u002", "user:2") and about["rows"]


def test_an_unknown_user_is_refused_with_the_nearest(folder):
    found = CliRunner().invoke(app, ["audit", str(folder), "--only", "algebra", "--about", "u02"])
    assert found.exit_code == 2 and "did you mean" in found.output


def test_without_the_algebra_nobody_is_said_to_be_safe(folder):
    assert audit(folder, only=["inventory"], about="u002")["about"]["rows"] is None
