"""`keyhole compare`: rows from real runs, floors by hand, ε with its unit, and failures that their row names."""

from __future__ import annotations

import csv
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from protocol.errors import BadInput
from protocol.schemes import SCHEMES, Leak
from protocol.schemes.base import LEVELS, ItemFeatures
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.trusted import Trusted
from sim import api
from sim.bandwidth.bandwidth import bandwidth
from sim.cli.app import app
from sim.console import console
from sim.data.described_items import AUTO, describe_items
from sim.data.device_guesses import errors, floors, guess, own_ridge, user_means
from sim.data.ratings import Column, Dealt, find, load
from sim.experiments import compare as comparing
from sim.experiments import compare_files, compare_tables
from sim.experiments.compare import Comparison, compare, deal, meeting_unit, parse_settings, sees, trust, with_unit
from sim.foreign.plain_text import json_text
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import run

SMALL = ("--data", "synthetic:12x10:.5", "--iterations", "3", "--dim", "2")
QUICK = {"data": "synthetic:12x10:.5", "iterations": 3, "dim": 2}
ROW = {
    "scheme", "title", "trust", "test_rmse", "test_mae", "plain_test_rmse", "claimed_epsilon", "unit", "accounted",
    "recommender_sees", "determines", "bytes_per_user", "seconds", "iterations", "note", "ranges", "runs", "completed",
    "holds", "beats", "options", "known_weaknesses", "iterate_test_rmse", "plain_iterate_test_rmse",
}  # fmt: skip


class Runaway(Masked):
    """`masked` with a rate of 2^70: one step moves the factors beyond the range that may be sent."""

    options = {**Masked.options, "learning_rate": 2.0**70}  # noqa: RUF012

    def make_params(self, shape, **settings):
        return super().make_params(shape, **{"learning_rate": 2.0**70, **settings})


class Talkative(Trusted):
    """`trusted` that declares one more field, and a digest and a uniform field that tell nothing."""

    leakage = (
        *Trusted.leakage,
        Leak("recommender", "Publication", "factors", "a diary"),
        Leak("recommender", "Hello", "run_id", "a digest"),
        Leak("recommender", "Publication", "iteration", "only noise", uniform=True),
    )


class OneRound(Trusted):
    """A scheme for which --dim and --iterations mean nothing; it is run beside itself without noise."""

    factorizes = False

    def make_params(self, shape, **settings):
        return super().make_params(shape, dim=1, **settings)


RUNAWAY = "test_compare:Runaway"


def keyhole(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def strictly(text: str) -> Any:
    """Parse JSON as every reader does: without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def no_runs(*_: Any, **__: Any) -> None:
    raise AssertionError("something was run that should have been refused before")


# ---- floors


def dealt(train: list[list[float]], held_out: list[list[float]]) -> Dealt:
    def column(rows: list[list[float]]) -> Column:
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        values = np.array([value for row in rows for value in row])
        return Column(starts, np.arange(len(values), dtype=np.uint32), values)

    return Dealt(column(train), column(held_out))


def test_the_floors_by_hand():
    """The means 3 and 2 miss 4 and 5, 1 by 1, 3, −1; the constant 3.5 misses them by .5, 1.5, −2.5; 3 by 1, 2, −2."""
    data = dealt([[1, 5], [2]], [[4], [5, 1]])
    found = {floor.name: errors(floor, data) for floor in floors(data, (1.0, 5.0))}
    assert found == {
        "user-mean": {"test_rmse": pytest.approx(math.sqrt(11 / 3)), "test_mae": pytest.approx(5 / 3)},
        "constant": {"test_rmse": pytest.approx(math.sqrt(8.75 / 3)), "test_mae": pytest.approx(1.5)},
        "middle": {"test_rmse": pytest.approx(math.sqrt(3)), "test_mae": pytest.approx(5 / 3)},
    }


def test_the_constants_follow_the_scale_and_never_the_data():
    one, other = dealt([[1, 1]], [[1]]), dealt([[9, 9]], [[9]])
    for data in (one, other):
        found = {floor.name: floor.predictions.tolist() for floor in floors(data, (0.0, 10.0))}
        assert found["middle"] == [5.0] and found["constant"] == [6.25]
    assert guess((1.0, 5.0)) == 3.5


def test_a_user_without_ratings_has_the_middle_and_nothing_held_out_has_no_error():
    assert user_means(dealt([[], [2, 4, 3]], [[5], []]).train, 2.5).tolist() == [2.5, 3.0]
    data = dealt([[1, 5]], [[]])
    assert [errors(floor, data)["test_rmse"] for floor in floors(data, (1.0, 5.0))] == [None] * 3


def test_the_own_ridge_is_kernel_ridge_regression_on_public_columns_and_own_ratings_alone():
    """Worked out here once more; what other users rated is not in it, and without ratings it is 3.5."""
    flags, years = np.array([[1, 1], [0, 1], [1, 0], [0, 0]], bool), np.array([[0.5], [-1.0], [0.0], [0.25]])
    mine = ([1, 3], [4])
    first, second = (dealt([mine[0], other, []], [mine[1], [3], [2]]) for other in ([2], [5]))
    order = np.array([0, 2, 3, 0], np.uint32)
    for data in (first, second):
        data.train.items[:] = order[: len(data.train.items)]
        data.held_out.items[:] = np.array([1, 1, 3], np.uint32)
    features = ItemFeatures(flags, years)
    f = np.concatenate([flags / np.sqrt(np.maximum(flags.sum(axis=1, keepdims=True), 1)), years], axis=1)
    f = f - f.mean(axis=0)
    kernel = 0.1 + 0.05 * f @ f.T + 0.15 * np.exp(-((f[:, None] - f) ** 2).sum(axis=2) / 2)
    own = np.array([0, 2])
    fitted = np.linalg.solve(kernel[np.ix_(own, own)] + 0.85 * np.eye(2), np.array([1.0, 3.0]) - 3.5)
    found = [own_ridge(data, (1.0, 5.0), features) for data in (first, second)]
    assert found[0][0] == pytest.approx(3.5 + kernel[1, own] @ fitted) and found[0][0] < 3.4
    assert found[0][0] == found[1][0] and found[0][1] != found[1][1] and found[0][2] == 3.5
    names = [floor.name for floor in floors(first, (1.0, 5.0), features)]
    assert names == ["own-ridge", "user-mean", "constant", "middle"]


def test_floors_and_schemes_are_measured_on_the_same_ratings():
    ratings = load("demo-small")
    for seed in (1, 2):
        plan = make_plan(RunConfig(scheme="plain", data="demo-small", seed=seed))
        own, theirs = deal(ratings, seed), plan.data
        for name in ("train", "held_out"):
            ours, others = getattr(own, name), getattr(theirs, name)
            assert ours.items.tobytes() == others.items.tobytes() and ours.values.tobytes() == others.values.tobytes()
    assert deal(ratings, 1).held_out.items.tobytes() != deal(ratings, 2).held_out.items.tobytes()


@pytest.mark.slow
@pytest.mark.skipif(find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k")
def test_the_reference_figures_of_the_floors():
    """The mean of 3 splits is within .015 of own ridge .995, user mean 1.04, constants 3.5 1.122 and 3 1.2405."""
    ratings, reference = load("ml-100k"), {"own-ridge": 0.995, "user-mean": 1.04, "constant": 1.122, "middle": 1.2405}
    features = describe_items(ratings, AUTO)
    found: dict[str, list[float]] = {}
    for seed in (1, 2, 3):
        data = deal(ratings, seed)
        for floor in floors(data, ratings.rating_range, features):
            found.setdefault(floor.name, []).append(errors(floor, data)["test_rmse"])
    means = {name: float(np.mean(values)) for name, values in found.items()}
    print(f"ml-100k, mean of 3 splits: {means}")
    assert means == {name: pytest.approx(value, abs=0.015) for name, value in reference.items()}


# ---- rows


def test_the_document_on_the_demo_data():
    made = keyhole("--schemes", "trusted,masked", "--data", "demo-small", "--seed", 3, "--json")
    assert made.exit_code == 0, made.stderr
    document = strictly(made.stdout)
    assert (document["data"], document["seed"], document["seeds"]) == ("demo-small", 3, [3])
    assert [row["scheme"] for row in document["rows"]] == ["trusted", "masked"]
    for row in document["rows"]:
        assert set(row) == ROW and row["completed"]
        assert row["claimed_epsilon"] == 8.0 and row["unit"] and row["accounted"]["unit"]
        assert row["iterations"] == 20 and row["test_rmse"] > 0 and row["seconds"] > 0
        assert min(row["bytes_per_user"].values()) > 0
    assert [floor["floor"] for floor in document["floors"]] == ["user-mean", "constant", "middle"]
    assert all(floor["bytes_per_user"] == {"up": 0, "down": 0} for floor in document["floors"])
    assert document["rows"][0]["determines"] == "exact-individual"
    assert "every rating, as it is" in document["rows"][0]["recommender_sees"]
    assert document["rows"][1]["known_weaknesses"] == list(Masked.known_weaknesses)


def test_a_row_has_the_figures_of_the_run_itself(tmp_path):
    row = compare(Comparison(schemes=("dynamic",), data="demo-small", iterations=4, epsilon=2.0, seed=5))["rows"][0]
    flags = {"data": "demo-small", "iterations": 4, "epsilon": 2.0, "seed": 5, "transport": "inprocess"}
    summary = run(RunConfig(**flags, views="none"), out=tmp_path / "run")
    accuracy, privacy = summary["accuracy"], summary["privacy"]
    assert (row["test_rmse"], row["test_mae"]) == (accuracy["test_rmse"], accuracy["test_mae"])
    assert row["plain_test_rmse"] == accuracy["plain"]["test_rmse"]
    assert row["iterate_test_rmse"] == accuracy["iterate"]["test_rmse"] != row["test_rmse"]
    assert row["plain_iterate_test_rmse"] == accuracy["plain"]["iterate"]["test_rmse"]
    assert row["claimed_epsilon"] == privacy["claimed_epsilon"] == 2.0
    assert {name: row["accounted"][name] for name in privacy["accounted"]} == privacy["accounted"]
    counted = bandwidth(tmp_path / "run", "party")["rows"]  # another reader of the same folder
    up = sum(each["wire_bytes"] for each in counted if each["sender"].startswith("user:"))
    down = sum(each["predicted_bytes"] for each in counted if each["receiver"].startswith("user:"))
    assert row["bytes_per_user"] == {"up": round(up / 40), "down": round(down / 40)}


def test_mean_and_range_over_the_seeds():
    row, *_ = (found := compare(Comparison(schemes=("trusted",), seeds=3, seed=7, **QUICK)))["rows"]
    each = [one["test_rmse"] for one in row["runs"]]
    assert [one["seed"] for one in row["runs"]] == found["seeds"] == [7, 8, 9] and len(set(each)) == 3
    assert row["test_rmse"] == pytest.approx(sum(each) / 3)
    assert row["ranges"]["test_rmse"] == [min(each), max(each)]
    alone = compare(Comparison(schemes=("trusted",), seed=8, **QUICK))
    assert alone["rows"][0]["test_rmse"] == each[1]
    low, high = found["floors"][0]["ranges"]["test_rmse"]
    assert low <= alone["floors"][0]["test_rmse"] <= high and low < high


def test_the_worst_accounted_epsilon_of_the_seeds_is_the_one_shown():
    row = compare(Comparison(schemes=("masked",), seeds=3, **QUICK))["rows"][0]
    each = [one["accounted"]["epsilon"] for one in row["runs"]]
    assert len(set(each)) == 3 and row["accounted"]["epsilon"] == max(each)
    assert row["ranges"]["accounted_epsilon"] == [min(each), max(each)]


def test_of_several_epsilons_each_has_a_row_and_what_takes_none_is_run_once():
    asked = Comparison(schemes=("plain", "direct", "trusted"), epsilon=(1.0, 4.0), **QUICK)
    document = compare(asked)
    shown = [(row["scheme"], row["claimed_epsilon"]) for row in document["rows"]]
    assert shown == [("plain", None), ("direct", 1.0), ("direct", 4.0), ("trusted", 1.0), ("trusted", 4.0)]
    assert document["epsilon"] == [1.0, 4.0] and "--epsilon 1,4" in document["command"]
    one = compare(Comparison(schemes=("direct",), epsilon=4.0, **QUICK))["rows"][0]
    assert one["test_rmse"] == document["rows"][2]["test_rmse"] != document["rows"][1]["test_rmse"]
    with pytest.raises(BadInput, match="--epsilon must be above 0"):
        compare(Comparison(schemes=("direct",), epsilon=(1.0, 0.0), **QUICK))


@pytest.mark.parametrize(
    ("unit", "meets"),
    [
        ("user added or removed", "user added or removed, whole run"),
        ("rating added or removed", "rating added or removed, whole run"),
        ("entry of the rating vector, whole run", "rating added or removed, whole run"),
        ("rating value, whole run", "rating value, whole run"),
        ("a unit of one's own", "a unit of one's own"),
    ],
)
def test_units_of_the_same_meaning_meet(unit, meets):
    assert meeting_unit(unit) == meets


def test_epsilon_goes_to_every_scheme_that_takes_one():
    document = compare(Comparison(schemes=("plain", "trusted", "direct"), epsilon=math.inf, **QUICK))
    assert [row["claimed_epsilon"] for row in document["rows"]] == [None, "inf", "inf"]
    assert document["rows"][2]["accounted"]["epsilon"] == "inf" and document["epsilon"] == "inf"
    assert strictly(json_text(document)) == document


def test_dim_and_iterations_go_to_the_schemes_that_factorize():
    asked = {"data": "demo-small", "iterations": 3, "dim": 2}
    one, direct = compare(Comparison(schemes=("test_compare:OneRound", "direct"), epsilon=1.0, **asked))["rows"]
    assert one["completed"] and (one["iterations"], direct["iterations"]) == (1, 3)
    bare = compare(Comparison(schemes=("test_compare:OneRound",), epsilon=math.inf, **asked))["rows"][0]
    assert one["plain_test_rmse"] == bare["test_rmse"] != one["test_rmse"]


def test_all_schemes_are_compared_where_none_is_named(monkeypatch):
    asked: list[str] = []

    def failed(config: RunConfig, scheme: Any) -> dict[str, Any]:
        asked.append(config.scheme)
        return {"seed": 1, "reason": "not today"}

    monkeypatch.setattr(comparing, "_run", failed)
    compare(Comparison(data="demo-small"))
    assert asked == list(SCHEMES)


def test_options_reach_their_scheme_also_one_of_ones_own():
    assert parse_settings(["masked:clip=4", "mine:Careful:clip=5", "masked:min_contributors=2"]) == {
        "masked": {"clip": "4", "min_contributors": "2"},
        "mine:Careful": {"clip": "5"},
    }
    asked = {"schemes": ("masked", "direct"), **QUICK}
    bare, changed = (
        compare(Comparison(**asked, options=options))["rows"] for options in ({}, {"masked": {"min_contributors": "9"}})
    )
    assert bare[0]["test_rmse"] != changed[0]["test_rmse"] and bare[1]["test_rmse"] == changed[1]["test_rmse"]
    assert changed[0]["options"] == {"min_contributors": "9"}


def test_a_floor_is_beaten_by_what_is_below_it_and_by_nothing_else():
    document = compare(Comparison(schemes=("plain", "trusted"), data="demo-small"))
    for row in document["rows"]:
        assert row["beats"] == [floor["floor"] for floor in document["floors"] if row["test_rmse"] < floor["test_rmse"]]
    below = [{"floor": str(rmse), "test_rmse": rmse} for rmse in (1.0, 1.2, None)]
    assert comparing._beaten(1.1, below) == ["1.2"] and comparing._beaten(1.2, below) == []
    assert comparing._beaten(None, below) is None


def test_a_scheme_whose_users_have_no_iterate_has_no_other_reading():
    masked, covariance = compare(Comparison(schemes=("masked", "covariance"), **QUICK))["rows"]
    assert masked["ranges"]["iterate_test_rmse"] == [masked["iterate_test_rmse"]] * 2
    assert covariance["iterate_test_rmse"] is None and covariance["test_rmse"] > 0
    pair = f"{masked['iterate_test_rmse']:.3f}", f"{masked['plain_iterate_test_rmse']:.3f}"
    assert compare_tables.iterate(masked) == pair and compare_tables.iterate(covariance) == ("", "")


# ---- failures


def test_a_scheme_that_aborts_has_a_row_with_the_reason_and_the_others_go_on():
    made = keyhole(*SMALL, "--schemes", f"{RUNAWAY},trusted", "--json")
    assert made.exit_code == 0, made.stderr
    broken, fine = strictly(made.stdout)["rows"]
    assert set(broken) == ROW and not broken["completed"] and "DIVERGED" in broken["note"]
    assert broken["test_rmse"] is broken["seconds"] is broken["accounted"] is broken["beats"] is None
    assert fine["completed"] and fine["test_rmse"] > 0
    shown = keyhole(*SMALL, "--schemes", f"{RUNAWAY},trusted")
    assert shown.exit_code == 0 and "not run" in shown.stdout and "DIVERGED" in shown.stdout


def test_without_a_single_figure_it_ends_with_5_and_still_says_why(tmp_path):
    made = keyhole(*SMALL, "--schemes", RUNAWAY, "--json", "--out", tmp_path / "compared.csv")
    assert made.exit_code == 5 and "No scheme completed" in made.stderr
    assert "DIVERGED" in strictly(made.stdout)["rows"][0]["note"]
    assert "DIVERGED" in (tmp_path / "compared.csv").read_text("utf-8")


def test_a_scheme_that_does_not_suit_the_data_has_a_row_with_the_reason():
    rows = compare(Comparison(schemes=("masked", "plain"), epsilon=1e-14, **QUICK))["rows"]
    assert [row["completed"] for row in rows] == [False, True]
    assert "wrap mod 2^64" in rows[0]["note"] and rows[0]["unit"] == "rating value, per release"


def test_some_seeds_may_fail(monkeypatch):
    real = comparing._run

    def sometimes(config: RunConfig, scheme: Any) -> dict[str, Any]:
        return {"seed": 2, "reason": "out of luck"} if config.seed == 2 else real(config, scheme)

    monkeypatch.setattr(comparing, "_run", sometimes)
    row = compare(Comparison(schemes=("trusted",), seeds=2, **QUICK))["rows"][0]
    assert row["completed"] and row["test_rmse"] == row["runs"][0]["test_rmse"]
    assert "Not with seed 2: out of luck" in row["note"]


def test_who_interrupts_stops_the_comparison_and_not_one_run(monkeypatch):
    begun: list[str] = []

    def interrupted(config: RunConfig, **_: Any) -> dict[str, Any]:
        begun.append(config.scheme)
        return {"abort": {"reason": "INTERRUPTED", "sentence": "the run was interrupted"}}

    monkeypatch.setattr(comparing, "run", interrupted)
    made = keyhole("--schemes", "trusted,masked")
    assert made.exit_code == 5 and "Interrupted" in made.stderr and begun == ["trusted"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--schemes", "nothing"], ["plain", "masked"]),
        (["--schemes", ","], ["--schemes"]),
        (["--data", "no/such/file"], ["no/such/file"]),
        (["--users", "0"], ["200 users"]),
        (["--epsilon", "0"], ["--epsilon", "above 0"]),
        (["--epsilon", "nan"], ["--epsilon"]),
        (["--seeds", "0"], ["--seeds", "between 1 and"]),
        (["--seed", "-1"], ["--seed"]),
        (["--iterations", "0"], ["--iterations"]),
        (["--dim", "0"], ["--dim"]),
        (["--rating-range", "5"], ["LOW:HIGH"]),
        (["--set", "clip=4"], ["SCHEME:OPTION=VALUE", "clip=4"]),
        (["--set", "masked:clip"], ["SCHEME:OPTION=VALUE"]),
        (["--set", "masked:colour=red"], ["colour", "clip"]),
        (["--schemes", "plain", "--set", "masked:clip=4"], ["masked", "not compared", "plain"]),
        (["--out", "compared.txt"], [".json or .csv", "compared.txt"]),
        (["--out", "compared"], [".json or .csv"]),
        (["--out", "no/folder/compared.csv"], ["no folder no/folder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_is_refused_before_anything_runs(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(comparing, "run", no_runs)
    made = keyhole(*arguments)
    assert made.exit_code == 2 and made.stdout == "" and made.stderr.count("\n") == 1
    assert all(word in made.stderr for word in words), made.stderr


# ---- files, tables and words


def test_the_file_says_what_the_screen_says(tmp_path):
    asked = (*SMALL, "--schemes", "plain,direct", "--json", "--out")
    made = keyhole(*asked, tmp_path / "compared.json")
    assert strictly((tmp_path / "compared.json").read_text("utf-8")) == strictly(made.stdout)
    document = strictly(keyhole(*asked, tmp_path / "compared.csv").stdout)
    with (tmp_path / "compared.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines] == ["plain", "direct", "user-mean", "constant", "middle"]
    assert [line["kind"] for line in lines] == ["scheme"] * 2 + ["floor"] * 3
    plain, direct = lines[:2]
    assert plain["claimed_epsilon"] == "" and direct["claimed_epsilon"] == "8.0"
    assert direct["claimed_unit"] == "rating value, per release"
    assert direct["accounted_unit"] == "rating value, whole run"
    assert float(direct["test_rmse"]) == document["rows"][1]["test_rmse"]
    assert int(direct["bytes_per_user_up"]) == document["rows"][1]["bytes_per_user"]["up"]
    assert float(lines[2]["test_rmse"]) == document["floors"][0]["test_rmse"]


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "taken.csv").mkdir()
    with pytest.raises(BadInput, match="is a folder"):
        compare_files.check_file(tmp_path / "taken.csv")
    with pytest.raises(BadInput, match="Cannot write"):
        compare_files.write({"rows": [], "floors": []}, tmp_path / "taken.csv")


def test_the_table_has_no_epsilon_without_its_unit(monkeypatch):
    document = api.compare(schemes=["trusted", "direct"], seeds=2, **QUICK)
    for row in document["rows"]:
        assert compare_tables.claimed(row) == f"8 {row['unit']}"
        known = row["accounted"]["epsilon"]
        assert compare_tables.accounted(row) == (
            "no bound known" if known is None else f"{known:.3g} rating value, whole run (δ = 1e-05)"
        )
    monkeypatch.setattr(console.out, "width", 140)
    shown = " ".join(keyhole(*SMALL, "--schemes", "trusted,direct", "--seeds", 2).stdout.split())
    assert shown.count("8 rating value, once") == shown.count("8 rating value, per release") == 1
    assert "Every ε is the scheme's own published parameter" in shown and "not comparable" in shown
    assert "own mean" in shown and "nothing is sent" in shown and "seeds 1 to 2" in shown


def test_a_scheme_may_name_the_unit_of_what_it_accounts():
    assert with_unit({"epsilon": 3.0}, "rating value, per release")["unit"] == "rating value, whole run"
    assert with_unit({"epsilon": 3.0}, "entry")["unit"] == "entry, whole run"
    assert with_unit({"epsilon": 3.0, "unit": "vector"}, "entry")["unit"] == "vector"


def test_what_the_recommender_sees_is_the_declaration_without_what_tells_nothing():
    assert sees(Trusted()) == ["which items each user rated", "every rating, as it is"]
    assert sees(Talkative()) == ["which items each user rated", "every rating, as it is", "a diary"]
    for scheme in (found() for found in SCHEMES.values()):
        assert sees(scheme), scheme.name
    told = sees(SCHEMES["dynamic"]())
    assert "when each user comes online" in told and "the number of the iteration" not in told


def test_whom_users_must_trust_follows_from_what_the_scheme_permits():
    assert trust(Trusted()) == "the recommender with exact numbers of each user"
    assert "sums over users" in trust(Masked()) and "do not collude" in trust(Masked())
    assert "collude" not in trust(SCHEMES["direct"]())


def made_up(scheme: str, rmse: float, determines: str, accounted: float | None = 9.0) -> dict[str, Any]:
    beats = [name for name, floor in (("user-mean", 1.0), ("constant", 1.2)) if rmse < floor]
    known = {"epsilon": accounted, "unit": "rating, whole run", "method": "nothing bounds it"}
    row = {"scheme": scheme, "completed": True, "beats": beats, "claimed_epsilon": 1.0, "note": None, "holds": None}
    return {**row, "determines": determines, "accounted": known}


def test_who_loses_to_a_floor_or_tells_the_recommender_everything_is_named():
    rows = [
        made_up("good", 0.9, "aggregate"),
        made_up("fair", 1.1, "exact-individual"),
        made_up("poor", 1.2, "aggregate", accounted=None),
    ]
    below = [{"floor": name, "title": name, "needs": "nothing"} for name in ("user-mean", "constant")]
    told = compare_tables.sentences({"rows": rows, "floors": below})
    ends = [sentence.rpartition(": ")[2] for sentence in told]
    assert ends == ["fair, poor.", "poor.", "fair.", "nothing bounds it."]
    assert "no protection" in told[2]
    assert compare_tables.sentences({"rows": rows[:1], "floors": below}) == []


def test_no_word_or_id_is_broken_on_a_narrow_screen():
    flags = ["compare", "--data", "demo-small", "--iterations", "2", "--dim", "2", "--seeds", "2"]
    made = CliRunner().invoke(app, flags, env={"COLUMNS": "80"})
    assert made.exit_code == 0, made.stderr
    assert max(map(len, made.stdout.splitlines())) <= 80
    words = set(re.split(r"[\s,│┃;]+", made.stdout))
    whole = {*SCHEMES, *LEVELS[1:], *(name for scheme in SCHEMES.values() for name in scheme.known_weaknesses)}
    assert whole | {"accounted", "recommender", "weaknesses", "(unit_of=user:"} <= words


def test_the_help_has_the_iterations_of_every_demo():
    made = CliRunner().invoke(app, ["compare", "--help"], env={"COLUMNS": "200"})
    assert "(60 on demo, 20 on demo-small, else 100)" in made.stdout


def test_the_command_has_help_with_an_example():
    made = keyhole("--help")
    assert made.exit_code == 0 and "Example: keyhole compare" in " ".join(made.stdout.split())


def test_schemes_whose_claim_holds_come_first_by_unit_and_accuracy():
    document = compare(Comparison(**QUICK))
    kept = [row["scheme"] for row in document["rows"] if row["holds"]]
    assert kept and kept[0] == "hardened" == document["rows"][0]["scheme"]
    assert [row["scheme"] for row in document["rows"]][: len(kept)] == kept
    told = {row["scheme"]: row["holds"] for row in document["rows"]}
    assert (told["masked"], told["trusted"], told["covariance"], told["plain"]) == (False, None, None, None)
    assert compare_tables.sentences(document)[0].startswith("ε of the whole run is no larger than claimed: hardened (")
    by_rating = compare(Comparison(schemes=("hardened",), unit="rating", **QUICK))["rows"][0]
    assert by_rating["accounted"]["unit"] == "rating added or removed" and by_rating["holds"]
