"""`keyhole bandwidth RUN`: the same run on the other wire, one user, the largest rows, and without the ratings."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from support.tamper import small_folder

from sim import api
from sim.plan.config import RunConfig
from sim.run.run import run as make_run
from tests.sim.cli.test_cli import keyhole, refused

FLAGS = {"data": "synthetic:12x10:.4", "dim": 2, "iterations": 6, "seed": 1, "transport": "inprocess"}
CHURN = {"join": 0.5, "leave": 0.3}
SCHEMES: list[dict[str, Any]] = [{"scheme": "masked"}, {"scheme": "dynamic", **CHURN}]


def made(folder: Path, **flags: Any) -> Path:
    assert make_run(RunConfig(**{**FLAGS, **flags}), out=folder)["completed"]
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Make a run that the tests only read."""
    return made(tmp_path_factory.mktemp("runs") / "run", **SCHEMES[1])


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["iteration"], row["sender"], row["receiver"], row["kind"], row["messages"]


@pytest.mark.parametrize("by", [None, "party"])
@pytest.mark.parametrize("flags", SCHEMES, ids=lambda flags: flags["scheme"])
def test_a_run_on_the_other_wire_costs_what_such_a_run_really_costs(tmp_path, flags, by):
    folders = {wire: made(tmp_path / wire, wire=wire, **flags) for wire in ("compact", "paper")}
    for own, other in (("compact", "paper"), ("paper", "compact")):
        formula, real = api.bandwidth(folders[own], by=by, wire=other), api.bandwidth(folders[other], by=by)
        assert {key(row): row["predicted_bytes"] for row in formula["rows"]} == {
            key(row): row["wire_bytes"] for row in real["rows"]
        }
        assert formula["total"]["predicted_bytes"] == real["total"]["wire_bytes"]
        assert formula["total"]["run_bytes"] == api.bandwidth(folders[own])["total"]["wire_bytes"]
        assert (formula["wire"], formula["run_wire"], formula["match"]) == (other, own, None)


def test_people_read_both_wires_side_by_side_in_80_columns(run):
    result = keyhole("bandwidth", run, "--wire", "paper", columns=80)
    assert result.exit_code == 0 and max(map(len, result.stdout.splitlines())) <= 80
    assert "paper / compact" in result.stdout and "ItemFactorsWithPieces" in result.stdout
    assert "measured" in keyhole("bandwidth", run, "--wire", "compact").stdout  # the run's own wire


def test_a_wire_that_cannot_be_is_refused(run, tmp_path):
    refused(keyhole("bandwidth", run, "--wire", "thin"), 2, "compact", "paper")
    refused(keyhole("bandwidth", made(tmp_path / "plain", scheme="plain"), "--wire", "paper"), 2, "leave --wire out")
    narrow = made(tmp_path / "narrow", scheme="masked", factor_bits=16)
    refused(keyhole("bandwidth", narrow, "--wire", "paper"), 2, "16-bit")


def test_the_rows_of_one_user_are_those_that_it_sent_or_received(run):
    whole = api.bandwidth(run, by="party")["rows"]
    found = api.bandwidth(run, user="user:3")
    assert found["rows"] == [row for row in whole if "user:3" in (row["sender"], row["receiver"])]
    assert found["by"] == "party" and found["chosen"]["wire_bytes"] == sum(row["wire_bytes"] for row in found["rows"])
    name = json.loads((run / "names.json").read_text())["users"][3]
    assert api.bandwidth(run, user=name)["rows"] == found["rows"]  # the data's own identifier
    assert api.bandwidth(run, user="user:3", wire="paper")["chosen"]["wire_bytes"] is None
    refused(keyhole("bandwidth", run, "--user", "user:99"), 2, "has no user 'user:99'")
    refused(keyhole("bandwidth", run, "--user", "user:3", "--by", "kind"), 2, "--by kind")
    refused(keyhole("bandwidth", "--predict", "--user", "user:3"), 2, "--user")


def test_the_largest_rows_and_their_total(run):
    whole, found = api.bandwidth(run), api.bandwidth(run, top=3)
    sizes = sorted((row["wire_bytes"] for row in whole["rows"]), reverse=True)
    assert [row["wire_bytes"] for row in found["rows"]] == sizes[:3]
    assert found["chosen"]["of"] == len(sizes) and found["chosen"]["wire_bytes"] == sum(sizes)
    assert found["total"] == whole["total"]
    printed = keyhole("bandwidth", run, "--top", "3").stdout
    assert f"{sum(sizes):,}" in printed and "smaller rows are not shown" in printed
    predicted = keyhole("bandwidth", "--predict", "--by", "kind", "--top", "2", "--json").stdout
    assert len(json.loads(predicted)["rows"]) == 2


def test_by_party_people_read_twenty_rows_and_programs_all(run):
    rows = len(api.bandwidth(run, by="party")["rows"])
    assert rows > 60
    printed = keyhole("bandwidth", run, "--by", "party").stdout
    assert len(re.findall(r"^ (?:iterations|set-up) ", printed, re.M)) == 20
    assert f"{rows - 20} smaller rows are not shown: --top {rows}" in printed
    assert len(list(csv.reader(io.StringIO(keyhole("bandwidth", run, "--by", "party", "--csv").stdout)))) == rows + 1
    every = keyhole("bandwidth", run, "--by", "party", "--top", str(rows)).stdout
    assert "not shown" not in every and len(every.splitlines()) > rows


# --- without the ratings ---------------------------------------------------------------------------------------------


@pytest.fixture
def handed_over(tmp_path):
    """Give a function that makes a run folder without its ratings file; `views` is the flag of `keyhole run`."""

    def make(views: str, **flags: Any) -> Path:
        file = tmp_path / "ratings.csv"
        rows = [f"u{u},i{i},{1 + u * i % 5}\n" for u in range(8) for i in range(7) if (3 * u + i) % 3 or u < 2]
        file.write_text("user,item,rating\n" + "".join(rows))
        folder = made(tmp_path / f"run-{views}", **{"data": str(file), "views": views, **flags})
        file.unlink()
        return folder

    return make


@pytest.mark.parametrize("views", ["full", "servers"])
@pytest.mark.parametrize("scheme", ["plain", "trusted", "direct", "masked", "dynamic"])
def test_what_users_rated_stands_in_the_views(handed_over, views, scheme):
    folder = handed_over(views, scheme=scheme, iterations=2)
    found = api.bandwidth(folder)
    assert found["match"] is True and found["supports"]["from"] == "views" and found["prediction_note"] is None
    printed = " ".join(keyhole("bandwidth", folder).stdout.split())
    assert "is from the views instead" in printed and "Count and formula are equal" in printed


def test_where_nothing_says_what_users_rated_the_rest_is_answered(handed_over):
    folder = handed_over("none", scheme="masked")
    found = api.bandwidth(folder)
    assert found["match"] is None and found["total"]["predicted_bytes"] is None and found["total"]["wire_bytes"] > 0
    assert "put the same data there" in found["prediction_note"] and found["rows"]
    result = keyhole("bandwidth", folder)
    assert result.exit_code == 0 and "Not predicted" in result.stdout
    refused(keyhole("bandwidth", folder, "--wire", "paper"), 2, "put the same data there")


def test_a_view_that_is_broken_says_nothing_of_what_users_rated(handed_over):
    folder = handed_over("full", scheme="masked")
    path = folder / "views" / "user-2.view"
    path.write_bytes(path.read_bytes()[:100])
    found = api.bandwidth(folder)
    assert found["total"]["predicted_bytes"] is None and "user-2.view" in found["prediction_note"]


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("starts", [True, False])
def test_the_page_is_opened_in_the_browser_or_it_is_said_that_there_is_none(tmp_path, monkeypatch, starts):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)) or starts)
    monkeypatch.setattr("sim.report.reported_run.ask_for_page", lambda live, **given: None)
    monkeypatch.setattr("sim.report.page.report_page", lambda run: "<!doctype html>")
    folder = small_folder(tmp_path / "run")
    result = keyhole("report", folder, "--open")
    assert result.exit_code == 0 and opened == [(folder / "report.html").absolute().as_uri()]
    assert ("No browser" in result.stderr) is not starts
    shutil.rmtree(folder)
