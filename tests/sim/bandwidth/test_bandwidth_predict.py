"""`keyhole bandwidth --predict`: the bytes of a run that is not made, beside those of the same run when it is."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from sim import api
from sim.folder.traffic import COLUMNS
from sim.plan.config import RunConfig
from sim.run.run import run as make_run
from tests.sim.bandwidth.test_bandwidth import DATA, RUNS, printed
from tests.sim.cli.test_cli import keyhole, refused

STAYS = [name for name in RUNS if "dynamic" not in name or name.endswith("everyone stays")]
SMALL: dict[str, Any] = {"data": DATA, "dim": 2, "iterations": 6, "seed": 1}


@pytest.mark.parametrize("name", STAYS)
def test_the_prediction_for_users_who_stay_is_the_run_row_by_row(tmp_path, name):
    flags = {**SMALL, **RUNS[name]}
    predicted = api.predict_bandwidth(**flags)
    assert predicted["basis"] == "exact"
    assert make_run(RunConfig(**flags, transport="inprocess"), out=tmp_path / "run")["completed"]
    measured = api.bandwidth(tmp_path / "run")
    for figure in ("messages", "payload_bytes", "predicted_bytes"):
        assert _figures(predicted["rows"], figure) == _figures(measured["rows"], figure)
    assert predicted["total"]["predicted_bytes"] == measured["total"]["wire_bytes"]
    assert all(type(row["predicted_bytes"]) is int for row in predicted["rows"])
    assert predicted["paper"] == measured["paper"]


def _figures(rows: list[dict[str, Any]], figure: str) -> dict[tuple[Any, ...], Any]:
    return {tuple(row[column] for column in COLUMNS[:4]): row[figure] for row in rows}


def test_a_user_of_hardened_sends_ten_kilobytes_where_there_are_943_users_and_1682_items():
    """3,364 ring elements of 24 bits in one frame; beside it greetings and CURVE handshakes with two servers."""
    for epsilon, unit in ((0.5, "user"), (1.0, "user"), (8.0, "user"), (1.0, "rating")):
        document = api.predict_bandwidth(
            scheme="hardened", data="synthetic:943x1682:.063", epsilon=epsilon, unit=unit, seed=1
        )
        rows = [row for row in document["rows"] if "user" in (row["sender"], row["receiver"])]
        assert document["basis"] == "exact" and {row["messages"] for row in rows} == {943}
        up = {(row["receiver"], row["kind"]): row["predicted_bytes"] / 943 for row in rows if row["sender"] == "user"}
        down = sum(row["predicted_bytes"] / 943 for row in rows if row["receiver"] == "user")
        assert up["third_party", "MaskedPart"] == 3364 * 3 + 83 <= 11_000
        assert sum(up.values()) == 10_175 + 1_484 and down <= 15_000


def test_under_churn_it_is_an_expectation_and_says_so():
    document = printed("--predict", "--data", DATA, "--join", ".5", "--leave", ".3", "--seed", "1")
    assert document["basis"] == "expectation"
    assert document["online"]["present"] == pytest.approx(12 * 5 / 8)
    rows = [row for row in document["rows"] if row["kind"] == "MaskedGradient"]
    assert len(rows) == 100 and rows[0]["messages"] == pytest.approx(7.5)
    assert "an expectation" in keyhole("bandwidth", "--predict", "--data", DATA).stdout


def test_nothing_is_measured_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = printed("--predict", "--data", "demo-small", "--scheme", "masked", "--seed", "1")
    assert document["match"] is None and document["total"]["wire_bytes"] is None
    assert document["total"]["kernel_bytes"] is None and {row["wire_bytes"] for row in document["rows"]} == {None}
    assert list(tmp_path.iterdir()) == []


def test_without_a_seed_only_what_depends_on_it_is_in_doubt():
    """`plain` never names the rated items; some of demo-small have few raters, and a seed may hold all of them out."""
    assert api.predict_bandwidth(scheme="plain", data="demo-small")["basis"] == "exact"
    document = api.predict_bandwidth(scheme="masked", data="demo-small")
    assert document["basis"] == "expectation" and any("--seed" in note for note in document["notes"])
    assert api.predict_bandwidth(scheme="masked", data="demo-small", test_fraction=0.0)["basis"] == "exact"
    dense = api.predict_bandwidth(scheme="masked", data="synthetic:200x20:.8")
    assert dense["basis"] == "exact" and dense["notes"] == []


def test_a_whole_number_that_is_only_expected_is_not_called_exact(tmp_path):
    """Two users with the same two items hold out one each, so 3 of the 4 items are expected to have a rater."""
    file = tmp_path / "ratings.csv"
    file.write_text("user,item,rating\na,1,3\na,2,3\nb,1,3\nb,2,3\nc,3,3\nc,4,3\nd,3,3\nd,4,3\n")
    document = api.predict_bandwidth(scheme="masked", data=str(file), test_fraction=0.5)
    assert document["items_per_iteration"] == pytest.approx({"opened": 3.0, "released": 3.0})
    assert document["basis"] == "expectation"
    # half of the 200 users are online on average, and half of all come or go; every item has a rater
    half = api.predict_bandwidth(data="synthetic:200x20:.8", join=0.5, leave=0.5, seed=1)
    assert half["basis"] == "expectation" and half["online"]["invited"] == 100


def test_a_scheme_that_exchanges_nothing_in_its_iterations_is_all_set_up_and_end():
    document = api.predict_bandwidth(scheme="trusted", data="demo-small", seed=1)
    assert {row["iteration"] for row in document["rows"]} == {-1, 20} and document["matrix"] is None
    assert [row["kind"] for row in document["rows"] if row["iteration"] == 20] == ["Publication"]
    assert document["projection"]["links"] == [] and document["per_user_iteration"] is None
    assert any("of its set-up and its end" in note for note in document["notes"])
    shown = keyhole("bandwidth", "--predict", "--data", "demo-small", "--scheme", "trusted").stdout
    assert "of its set-up and its end" in " ".join(shown.split())


@pytest.mark.parametrize("by", ["iteration", "edge", "kind"])
def test_groupings_of_a_prediction_add_up(by):
    flags = ("--predict", "--data", DATA, "--seed", "1")
    document, whole = printed(*flags, "--by", by), printed(*flags)
    total = sum(row["predicted_bytes"] for row in document["rows"])
    assert total == pytest.approx(whole["total"]["predicted_bytes"]) and document["by"] == by
    rows = list(csv.DictReader(io.StringIO(keyhole("bandwidth", *flags, "--by", by, "--csv").stdout)))
    assert [float(row["predicted_bytes"]) for row in rows] == [row["predicted_bytes"] for row in document["rows"]]
    assert {row["wire_bytes"] for row in rows} == {""}


def test_people_read_assumptions_totals_and_times():
    flags = ("--data", "demo-small", "--scheme", "masked", "--seed", "1", "--link", "sea=1/1/600")
    text = keyhole("bandwidth", "--predict", *flags).stdout
    for words in (
        "Predicted, exactly",
        "Nothing was run",
        "Totals of each server, an iteration every 5 s",
        "sea: 1 Mbit/s down",
        "5 message rounds",
        "headers of TCP and IP are not included",
        "--wire compact",
    ):
        assert words in " ".join(text.split())


def test_the_figures_of_the_largest_sizes_are_printed_in_one_document():
    result = keyhole("bandwidth", "--predict", "--data", "synthetic:100000000x1000000:.00002", "--json")
    document = json.loads(result.stdout)
    third_party = document["projection"]["servers"]["third_party"]
    # every third of 10^8 users is there and sends 16 items: 16 rows of 10 ring values, item numbers of 20 bits, framing
    assert third_party["received_per_iteration"] == pytest.approx(1e8 / 3 * (16 * 10 * 4 + 40 + 82), rel=0.01)
    assert third_party["received_per_day"] == pytest.approx(17_280 * third_party["received_per_iteration"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "1e-9", "--set", "ring_bits=32"], ["wrap mod 2^32"]),
        (["--set", "committers=41"], ["pre-commitment", "41", "40"]),
        (["--online", "41"], ["--online", "40", "41"]),
        (["--join", "0", "--leave", ".1"], ["pre-commitment needs 3", "online at the start"]),
        (["--data", "no/such/file"], ["no/such/file"]),
        (["--data", "synthetic:12"], ["USERSxITEMS"]),
        (["--users", "41"], ["40", "41"]),
        (["--scheme", "nothing"], ["plain", "masked"]),
        (["--scheme", "plain", "--wire", "paper"], ["plain", "--wire"]),
        (["--iterations", "0"], ["--iterations"]),
        (["--iterations", "20001"], ["at most 20000"]),
        (["--link", "wifi=-1/5/1"], ["or more", "wifi"]),
        (["--link", "wifi"], ["NAME=DOWN/UP/LATENCY_MS"]),
        (["--iteration-seconds", "0"], ["--iteration-seconds"]),
        (["--by", "party"], ["--by"]),
        (["--by", "colour"], ["--by"]),
        (["--json", "--csv"], ["--json", "--csv"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_prediction_that_is_impossible_ends_with_2_and_the_reason(arguments, words):
    refused(keyhole("bandwidth", "--predict", "--data", "demo-small", *arguments), 2, *words)


def test_faults_are_not_predicted_and_that_is_said():
    assert any("--faults" in note for note in api.predict_bandwidth(scheme="plain", faults="1:.1")["notes"])
