"""`keyhole recommend`: what a user would be shown, from its view alone or from the model and the data."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tamper import bodies, copy_of, rebuild, view_of
from typer.testing import CliRunner

from protocol.party.profile import RIDGES
from protocol.party.view import END, INPUT
from protocol.schemes import SCHEMES
from sim import api
from sim.audit.audit import Audit
from sim.cli.app import app
from sim.folder.folder import read_summary
from sim.report.recommended import recommended_section
from sim.report.reported_run import ReportedRun

USERS = ("ann", "bob", "carl", "dora", "eve", "fred")
ITEMS = ("tea", "milk", "rum", "ale", "gin", "cola", "juice")
FACTORIZING = ("plain", "direct", "masked", "dynamic", "trusted")
SIBLINGS = ("covariance", "covariance-masked", "hardened", "hybrid", "laplace-ratings", "randomized-response")
KEYS = {
    "run", "user", "name", "scheme", "data", "basis", "note", "ridge", "predictions_sha256", "rating_range", "ratings",
    "unrated", "rated", "recommendations",
}  # fmt: skip


def keyhole(*arguments: object, columns: int = 200):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(columns)})


def refused(result: Any, code: int, *words: str) -> None:
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert result.stderr.startswith("keyhole: ") and result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def write_ratings(path: Path, column: str = "title", titles: dict[str, str] | None = None) -> Path:
    """Write ratings: user i rates item j unless i + 2j is a multiple of 3; every item has a title."""
    rows = [
        [user, item, 1 + (3 * i + 2 * j) % 5, (titles or {}).get(item, f"The {item}")]
        for i, user in enumerate(USERS)
        for j, item in enumerate(ITEMS)
        if (i + 2 * j) % 3
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["user", "item", "rating", column], *rows])
    return path


def make(folder: Path, scheme: str = "masked", **flags: Any) -> Path:
    folder.parent.mkdir(exist_ok=True, parents=True)
    sizes = {"dim": 2, "iterations": 4} if SCHEMES[scheme].factorizes else {}
    data = flags.pop("data", None) or write_ratings(folder.parent / "drinks.csv")
    settings = {"seed": 1, "transport": "inprocess", **sizes, **flags}
    assert api.run(out=folder, scheme=scheme, data=str(data), **settings)["completed"]
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Make a run that the tests only read."""
    return make(tmp_path_factory.mktemp("drinks") / "run")


@pytest.fixture(scope="module")
def blind(tmp_path_factory):
    """Make the same run without views; the tests only read it."""
    return make(tmp_path_factory.mktemp("blind") / "run", views="none")


def brought(folder: Path, party: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the items and ratings in the view of `party`."""
    (found,) = [body[1] for body in bodies(folder, party) if body[0] == INPUT]
    return np.frombuffer(found["items"], "<u4"), np.frombuffer(found["ratings"], "<f8")


# --- by hand ---------------------------------------------------------------------------------------------------------


def with_model(folder: Path, factors: list[list[float]]) -> Path:
    """Replace the V of the run by `factors`."""
    made = np.array(factors)
    np.save(folder / "model/item_factors.npy", made)
    summary = json.loads((folder / "summary.json").read_text())
    summary["item_factors_sha256"] = hashlib.sha256(made.astype("<f8").tobytes()).hexdigest()
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_one_rating_and_one_dimension_give_what_pencil_and_paper_give(tmp_path):
    """u = 1·4 / (1·1 + λ') = 1 with λ' = 3: every prediction is v itself, cut to 1 … 5."""
    data = tmp_path / "few.csv"
    data.write_text("user,item,rating\nann,a,4\nbob,b,3\nbob,c,2\nbob,d,2\nbob,e,2\n")
    flags = {"dim": 1, "views": "none", "test_fraction": 0.0, "options": {"profile_ridge": 3.0}}
    folder = with_model(make(tmp_path / "run", "plain", data=data, **flags), [[1.0], [4.0], [0.5], [6.0], [5.5]])
    found = api.recommend(folder, "ann")
    told = [(row["rank"], row["name"], row["predicted"], row["score"]) for row in found["recommendations"]]
    assert told == [(1, "d", 5.0, 6.0), (2, "e", 5.0, 5.5), (3, "b", 4.0, 4.0), (4, "c", 1.0, 0.5)]
    assert [(row["name"], row["stars"]) for row in found["rated"]] == [("a", 4.0)]
    assert (found["ridge"], found["ratings"], found["unrated"]) == (3.0, 1, 4)


def solved(factors: np.ndarray, ratings: np.ndarray, ridge: float) -> np.ndarray:
    return np.linalg.solve(factors.T @ factors + ridge * np.eye(factors.shape[1]), factors.T @ ratings)


def left_out_error(factors: np.ndarray, ratings: np.ndarray, ridge: float) -> float:
    """Compute the mean squared error of predicting each rating from a profile that was fitted without it."""
    places = range(len(ratings))
    rest = [np.delete(np.arange(len(ratings)), place) for place in places]
    guesses = [factors[n] @ solved(factors[rest[n]], ratings[rest[n]], ridge) for n in places]
    return float(((ratings - np.clip(guesses, 1, 5)) ** 2).mean())


@pytest.mark.parametrize("user", [0, 1, 4])
def test_order_and_stars_are_those_of_a_linear_solver(base, user):
    found = api.recommend(base, f"user:{user}")
    published = np.load(base / "model/item_factors.npy").astype(np.float32).astype(np.float64)
    items, ratings = brought(base, f"user:{user}")
    errors = {ridge: left_out_error(published[items], ratings, ridge) for ridge in RIDGES}
    assert errors[found["ridge"]] == pytest.approx(min(errors.values()), rel=1e-9)
    scores = published @ solved(published[items], ratings, found["ridge"])
    order = sorted(set(range(len(ITEMS))) - set(items.tolist()), key=lambda item: -scores[item])
    names = json.loads((base / "names.json").read_text())["items"]
    assert [row["item"] for row in found["recommendations"]] == order
    assert [row["name"] for row in found["recommendations"]] == [names[item] for item in order]
    stars = np.array([row["predicted"] for row in found["recommendations"]])
    np.testing.assert_allclose(stars, np.clip(scores[order], 1, 5), rtol=1e-9)
    assert {(row["item"], row["stars"]) for row in found["rated"]} == set(zip(items, ratings, strict=True))
    assert [row["stars"] for row in found["rated"]] == sorted(ratings, reverse=True)


# --- the document ----------------------------------------------------------------------------------------------------


def test_the_document_has_the_fields_of_its_contract(base):
    found = json.loads(keyhole("recommend", base, "ann", "--json", "--top", 2).stdout)
    assert set(found) == KEYS
    head = [found[name] for name in ("run", "user", "name", "scheme", "basis", "rating_range")]
    assert head == [str(base), "user:0", "ann", "masked", "view", [1.0, 5.0]]
    assert [set(row) for row in found["recommendations"]] == [
        {"rank", "item", "name", "title", "predicted", "score"}
    ] * 2
    assert [row["rank"] for row in found["recommendations"]] == [1, 2]
    assert all(set(row) == {"item", "name", "title", "stars"} for row in found["rated"])
    assert all(row["title"] == f"The {row['name']}" for row in [*found["rated"], *found["recommendations"]])
    assert found["ratings"] == len(found["rated"]) == len(ITEMS) - found["unrated"]
    (end,) = [body[1] for body in bodies(base, "user:0") if body[0] == END]
    assert found["predictions_sha256"] == end.hex()


def test_a_user_is_known_by_its_number_and_by_its_name_and_the_first_is_the_default(base):
    assert api.recommend(base, "user:3") == api.recommend(base, "dora")
    assert api.recommend(base) == api.recommend(base, "user:0") == api.load(base).recommend()
    assert len(api.load(base).recommend("bob", top=1)["recommendations"]) == 1


def test_all_unrated_items_come_if_more_are_asked_for_than_there_are(base):
    found = api.recommend(base, top=10**6)
    assert len(found["recommendations"]) == found["unrated"] > 0


@pytest.mark.parametrize("asked", ["dorra", "user:6", "user:٣", "user:-1", "user:" + "9" * 5000, "", "\x1b[31m", "3"])
def test_an_unknown_user_is_refused_in_one_sentence(base, asked):
    result = keyhole("recommend", base, asked)
    refused(result, 2, "user:0 … user:5")
    assert "\x1b" not in result.stderr and len(result.stderr) < 500


def test_the_nearest_names_are_proposed(base):
    refused(keyhole("recommend", base, "dorra"), 2, "did you mean dora")
    refused(keyhole("recommend", base, "User:3"), 2, "user:3")


def test_people_read_a_table_of_80_columns_with_the_best_own_ratings_below(base):
    shown = keyhole("recommend", base, "bob", columns=80)
    assert shown.exit_code == 0 and all(len(line) <= 80 for line in shown.stdout.splitlines())
    text, found = " ".join(shown.stdout.split()), api.recommend(base, "bob")
    assert "What user:1 ('bob' in the data) would be shown" in text
    for row in found["recommendations"]:
        assert row["title"] in text and f"{row['predicted']:.2f}" in text
    best = found["rated"][0]
    assert f"{best['title']} ({best['stars']:g})" in text and f"the best of its {found['ratings']} ratings" in text
    assert found["note"] in text


def test_the_end_of_a_run_names_the_command(tmp_path):
    flags = ("--transport", "inprocess", "--data", "synthetic:6x5:.5", "--iterations", 2, "--dim", 2, "--seed", 1)
    shown = keyhole("run", "--scheme", "masked", *flags, "--out", tmp_path / "run")
    assert f"Lists:  keyhole recommend {tmp_path / 'run'}" in shown.stdout.splitlines()


def test_the_help_has_an_example():
    shown = keyhole("recommend", "--help")
    assert shown.exit_code == 0 and "Example: keyhole recommend " in " ".join(shown.stdout.split())


# --- with and without views ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", FACTORIZING)
def test_the_model_and_the_data_give_what_the_view_gives(tmp_path, scheme):
    seen = api.recommend(make(tmp_path / "full", scheme), "user:2")
    other = api.recommend(make(tmp_path / "none", scheme, views="none"), "user:2")
    assert (seen["basis"], other["basis"]) == ("view", "model")
    assert seen["recommendations"] and other["predictions_sha256"] is None
    for name in ("recommendations", "rated", "ridge", "ratings", "unrated"):
        assert seen[name] == other[name]
    assert "this run kept no view of user:2" in other["note"]


def test_sixteen_bits_are_taken_as_they_were_sent(tmp_path):
    seen, other = (make(tmp_path / views, views=views, factor_bits=16) for views in ("full", "none"))
    assert api.recommend(seen, "eve")["recommendations"] == api.recommend(other, "eve")["recommendations"]


def test_of_a_sample_those_with_a_view_are_shown_from_it_and_the_others_from_the_model(tmp_path):
    folder = make(tmp_path / "run", views="sample:2")
    assert [api.recommend(folder, f"user:{user}")["basis"] for user in (0, 1, 3)] == ["view", "model", "view"]


@pytest.mark.parametrize("views", ["full", "none"])
def test_with_publish_rated_there_is_nothing_to_recommend(tmp_path, views):
    folder = make(tmp_path / "run", publish="rated", views=views)
    refused(keyhole("recommend", folder), 2, "nothing to recommend", "--publish all")


def test_without_views_and_data_a_sentence_says_what_is_missing(blind, tmp_path):
    folder = copy_of(blind, tmp_path)
    text = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(text.replace("drinks.csv", "gone.csv"))
    refused(keyhole("recommend", folder), 2, "kept no view of user:0", "needs the data", "gone.csv")


def test_without_views_and_model_a_sentence_says_what_is_missing(blind, tmp_path):
    folder = copy_of(blind, tmp_path)
    shutil.rmtree(folder / "model")
    refused(keyhole("recommend", folder), 2, "neither views of users nor model/item_factors.npy")


def test_other_data_than_that_of_the_run_is_refused(tmp_path):
    folder = make(tmp_path / "run", views="none")
    with (tmp_path / "drinks.csv").open("a") as file:
        file.write("zoe,tea,1,The tea\n")
    refused(keyhole("recommend", folder), 2, "not what it was then")


def test_a_model_that_is_not_that_of_the_run_is_named(blind, tmp_path):
    folder = copy_of(blind, tmp_path)
    np.save(folder / "model/item_factors.npy", 1 + np.load(folder / "model/item_factors.npy"))
    refused(keyhole("recommend", folder), 4, "does not have the digest")
    with_model(folder, [[1.0]])
    refused(keyhole("recommend", folder), 4, "is not an array of item factors")
    with_model(folder, [[1e300, 1.0]] * len(ITEMS))
    refused(keyhole("recommend", folder), 4, "would refuse what was published (OUT_OF_RANGE)")


def test_a_view_that_does_not_give_what_it_ended_with_is_named(base, tmp_path):
    folder = copy_of(base, tmp_path)
    contents = bodies(folder, "user:0")
    own = contents[1][1]
    contents[1][1] = {**own, "ratings": (6.0 - np.frombuffer(own["ratings"], "<f8")).tobytes()}
    rebuild(folder, "user:0", contents)
    refused(keyhole("recommend", folder), 4, "views/user-0.view", "does not end with what follows")
    assert api.recommend(folder, "bob") == {**api.recommend(base, "bob"), "run": str(folder)}


def test_a_user_that_did_not_finish_is_passed_over(base, tmp_path):
    folder = copy_of(base, tmp_path)
    contents = bodies(folder, "user:0")
    rebuild(folder, "user:0", [body for body in contents if body[0] != END])
    assert api.recommend(folder)["user"] == "user:1"
    refused(keyhole("recommend", folder, "ann"), 2, "user:0 did not complete", "another user")


def test_a_user_that_was_gone_is_not_given_what_it_was_never_sent(blind, tmp_path):
    folder = copy_of(blind, tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"gone": ["user:0"]}))
    assert api.recommend(folder)["user"] == "user:1"
    refused(keyhole("recommend", folder, "ann"), 2, "user:0 did not complete")


def test_an_aborted_run_is_refused_with_the_way_on(base, tmp_path):
    folder = copy_of(base, tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    abort = {"reason": "INTERRUPTED", "sentence": "interrupted"}
    (folder / "summary.json").write_text(json.dumps(summary | {"completed": False, "abort": abort}))
    refused(keyhole("recommend", folder), 2, f"keyhole resume {folder}")


# --- schemes that predict otherwise ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SIBLINGS)
def test_users_of_other_schemes_are_run_again_from_their_views(tmp_path, scheme):
    found = api.recommend(make(tmp_path / "run", scheme), "carl")
    assert (found["basis"], found["ridge"], found["name"]) == ("view", None, "carl")
    scores = [row["score"] for row in found["recommendations"]]
    assert len(scores) == found["unrated"] > 0 and scores == sorted(scores, reverse=True)
    assert all(row["predicted"] == min(max(row["score"], 1.0), 5.0) for row in found["recommendations"])


def test_a_user_of_laplace_ratings_predicts_what_it_was_sent(tmp_path):
    folder = make(tmp_path / "run", "laplace-ratings")
    (sent,) = api.view(folder, "user:2", kind="Recommendations", full=True)
    values = np.array(sent["fields"]["values"]).reshape(-1)
    for row in api.recommend(folder, "user:2")["recommendations"]:
        assert row["score"] == values[row["item"]]


@pytest.mark.parametrize("scheme", ["covariance", "laplace-ratings"])
def test_without_their_views_a_sentence_says_so(tmp_path, scheme):
    refused(
        keyhole("recommend", make(tmp_path / "run", scheme, views="servers")), 2, "in its view alone", "--views full"
    )


def test_a_view_of_theirs_that_was_altered_is_named(tmp_path):
    folder = make(tmp_path / "run", "covariance")
    contents = bodies(folder, "user:0")
    own = contents[1][1]
    contents[1][1] = {**own, "ratings": (6.0 - np.frombuffer(own["ratings"], "<f8")).tobytes()}
    rebuild(folder, "user:0", contents)
    refused(keyhole("recommend", folder), 4, "views/user-0.view")
    view_of(folder, "user:0").write_bytes(b"nothing")
    refused(keyhole("recommend", folder), 4)


# --- hostile names ---------------------------------------------------------------------------------------------------

BAD = {
    "titles are no list": {"titles": "abcdefg"},
    "titles are too few": {"titles": ["a"]},
    "titles are too many": {"titles": ["a"] * 1000},
    "titles are numbers": {"titles": list(range(len(ITEMS)))},
    "titles are nested": {"titles": [[["a"]]] * len(ITEMS)},
    "titles are null": {"titles": None},
    "users are too few": {"users": []},
    "users are a table": {"users": dict.fromkeys(USERS)},
    "items are null": {"items": None},
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_names_of_a_wrong_form_are_refused_in_one_sentence(base, tmp_path, change):
    folder = copy_of(base, tmp_path)
    names = json.loads((folder / "names.json").read_text())
    (folder / "names.json").write_text(json.dumps(names | change))
    refused(keyhole("recommend", folder), 2, "names.json is damaged", "remove it")
    (folder / "names.json").unlink()
    found = api.recommend(folder)
    assert found["name"] is None and {row["title"] for row in found["rated"]} == {None}
    assert f"item {found['recommendations'][0]['item']}" in keyhole("recommend", folder).stdout


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 9999, '{"users": NaN}', "\udcff", '{"users": ["a"]}'])
def test_a_file_of_names_that_is_no_table_is_refused(base, tmp_path, text):
    folder = copy_of(base, tmp_path)
    (folder / "names.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(keyhole("recommend", folder), 2, "names.json is damaged")


HOSTILE = {"tea": "\x1b[2J\u202eevil", "milk": "[bold red]x[/] <script>alert(1)</script>", "rum": "y" * 100_000}


def hostile(base: Path, where: Path) -> Path:
    folder = copy_of(base, where)
    names = json.loads((folder / "names.json").read_text())
    names["titles"] = [HOSTILE.get(name, "a\nb") for name in names["items"]]
    names["users"][0] = "\x1b]0;x\x07[/]"
    (folder / "names.json").write_text(json.dumps(names))
    return folder


def test_what_a_title_hides_is_seen_and_what_is_long_is_cut(base, tmp_path):
    folder = hostile(base, tmp_path)
    for user in range(len(USERS)):
        shown = keyhole("recommend", folder, f"user:{user}", columns=80)
        assert shown.exit_code == 0 and len(shown.stdout) < 20_000
        assert not set(shown.stdout) & {"\x1b", "\x07", "\u202e"}
        assert all(len(line) <= 80 for line in shown.stdout.splitlines())
        printed = keyhole("recommend", folder, f"user:{user}", "--json").stdout
        assert not set(printed) & {"\x1b", "\x07", "\u202e"}
        rows = json.loads(printed)
        titles = {row["name"]: row["title"] for row in [*rows["rated"], *rows["recommendations"]]}
        if user == 0:
            assert rows["name"] == "\x1b]0;x\x07[/]"
            assert "⟨U+001B⟩]0;x⟨U+0007⟩[/]" in " ".join(shown.stdout.split())
        assert len(titles["rum"]) == 200 and titles["tea"] == "⟨U+001B⟩[2J⟨U+202E⟩evil" and titles["ale"] == "a b"


def test_a_run_of_data_without_titles_has_none_in_its_folder(tmp_path):
    folder = make(tmp_path / "run", data="synthetic:6x5:.5")
    assert set(json.loads((folder / "names.json").read_text())) == {"users", "items"}
    found = api.recommend(folder)
    assert {row["title"] for row in [*found["rated"], *found["recommendations"]]} == {None}
    assert "title" not in keyhole("recommend", folder).stdout


# --- on the page -----------------------------------------------------------------------------------------------------


def shown_on_the_page(folder: Path) -> str:
    summary = read_summary(folder)
    assert summary is not None
    made = recommended_section.section(ReportedRun(summary, Audit(folder), {}))
    assert (made.id, made.title) == ("recommendations", "Recommendations")
    return str(made.html)


def test_the_page_shows_the_user_with_the_median_number_of_ratings(base):
    counts = sorted((len(brought(base, f"user:{user}")[0]), user) for user in range(len(USERS)))
    median = f"user:{counts[(len(counts) - 1) // 2][1]}"
    html, found = shown_on_the_page(base), api.recommend(base, median)
    assert html.startswith(f"<p>{median} (") and "the median number of ratings of all users" in html
    for row in found["recommendations"]:
        assert f'<td>{row["title"]}</td><td class="n">{row["predicted"]:.2f}</td>' in html
    for row in found["rated"]:
        assert f'<td>{row["title"]}</td><td class="n">{row["stars"]:g}</td>' in html


def test_the_page_shows_a_user_also_without_views(blind, base):
    assert "From the model and the data" in shown_on_the_page(blind)
    assert shown_on_the_page(blind).split()[0] == shown_on_the_page(base).split()[0]


def test_the_page_says_why_nothing_can_be_shown(tmp_path):
    html = shown_on_the_page(make(tmp_path / "run", publish="rated"))
    assert "Nothing can be shown to a user" in html and "--publish all" in html


def test_no_title_is_markup_on_the_page(base, tmp_path):
    html = shown_on_the_page(hostile(base, tmp_path))
    assert "<script" not in html and "&lt;script&gt;" in html
    assert not set(html) & {"\x1b", "\x07", "\u202e"} and len(html) < 20_000
