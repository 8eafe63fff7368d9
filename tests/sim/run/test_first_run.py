"""The first run that a person makes: the defaults, on `demo`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sim.audit.audit import brief
from sim.data.device_guesses import errors, floors
from sim.data.ratings import load
from sim.experiments.compare import deal
from sim.plan.config import RunConfig, resolve
from sim.run.run import run


@pytest.mark.parametrize("scheme", ["dynamic", "masked"])
def test_a_run_with_the_defaults_beats_every_guess_for_which_nothing_leaves_the_device(tmp_path: Path, scheme: str):
    summary = run(RunConfig(scheme=scheme, seed=1, transport="inprocess", views="none"), out=tmp_path / "run")
    ratings = load("demo")
    dealt = deal(ratings, 1)
    assert summary["completed"] and summary["data"] == "demo"
    beaten = [errors(floor, dealt)["test_rmse"] for floor in floors(dealt, ratings.rating_range)]
    assert len(beaten) == 3 and summary["accuracy"]["test_rmse"] < min(beaten)


def test_the_defaults_of_a_data_set_are_recorded_and_give_way_to_what_is_asked(tmp_path: Path):
    small, _, _ = resolve(RunConfig(data="demo-small"))
    assert (small.iterations, small.join, small.leave) == (20, 0.005, 0.01)
    elsewhere, _, _ = resolve(RunConfig(data="synthetic:9x9"))
    assert (elsewhere.iterations, elsewhere.join, elsewhere.leave) == (100, 0.005, 0.01)
    masked, _, _ = resolve(RunConfig(scheme="masked"))
    assert (masked.iterations, masked.join, masked.leave) == (60, None, None)
    run(RunConfig(seed=1, iterations=2, leave=0.1, transport="inprocess", views="none"), out=tmp_path / "run")
    recorded = tomllib.loads((tmp_path / "run" / "run.toml").read_text("utf-8"))["run"]
    assert (recorded["iterations"], recorded["join"], recorded["leave"]) == (2, 0.2, 0.1)


def test_the_verdict_at_the_end_is_about_this_run_and_not_a_word_that_it_is_too_large(tmp_path: Path):
    summary = run(RunConfig(seed=1, transport="inprocess"), out=tmp_path / "run")
    document = brief(summary)
    assert isinstance(document, dict) and document["verdict"] == "within-claims"
    assert document["part"] == "the first 8 iterations"
    assert {tuple(row["members"]) for row in document["parties"]} > {("recommender",), ("third_party",), ("user:0",)}
    assert document["published_claim"]["status"] == "refuted"
