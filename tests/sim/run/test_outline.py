"""The data of a prediction: counted where they can be made, described by their shape where they are too large."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from protocol.errors import BadInput
from sim.bandwidth.outline import inclusion, outline
from sim.bandwidth.prediction import predict
from sim.data import generate
from sim.plan.config import RunConfig
from sim.plan.expect import expect
from sim.plan.plan import make_plan
from tests.sim.run.test_expect import totals

SIZES = ("synthetic:2000x500:.03", "synthetic:3000x2000:.02", "synthetic:4000x3000:.005")
FLAGS: tuple[dict[str, Any], ...] = ({"scheme": "masked"}, {}, {"online": 50}, {"options": {"min_contributors": 3}})


@pytest.mark.parametrize("data", SIZES)
def test_described_by_its_shape_data_costs_what_it_costs_when_it_is_made(data, monkeypatch):
    enough = generate.MAX_CELLS
    for flags in FLAGS:
        config, found = RunConfig(data=data, iterations=10, **flags), []
        for cells in (enough, 1):
            monkeypatch.setattr(generate, "MAX_CELLS", cells)
            made = outline(config)
            assert made.made == (cells > 1)
            course = expect(made.scheme, made.params, made.crowd, made.config.join, made.config.leave).course
            found.append((made.params, totals(made.scheme, made.params, course, by_row=False)))
        (exact, counted), (guess, described) = found
        assert described == pytest.approx(counted, rel=0.005) and guess.ring_bits == exact.ring_bits
        assert guess.max_raters == pytest.approx(exact.max_raters, rel=0.05)  # of the most popular item


def test_popularity_decides_how_likely_an_item_is_rated():
    """30,000 users who choose 12 of 400 items by the generator's own rule; four groups of a hundred ranks."""
    rarity = 1 + np.arange(400) + generate.HEAD_SHARE * 400
    _, items = generate._choose(generate.Draws("test"), np.full(30_000, 12), rarity)
    chances, sizes = inclusion(400, 12)
    assert sizes.sum() == 400 and chances @ sizes == pytest.approx(12)
    expected = (chances * sizes).reshape(4, 100).sum(axis=1)
    assert np.bincount(items // 100) / 30_000 == pytest.approx(expected, rel=0.01)


def test_items_are_never_more_than_certain():
    chances, sizes = inclusion(50, 40)
    assert chances.max() == 1 and chances @ sizes == pytest.approx(40)
    assert inclusion(50, 50)[0].tolist() == [1.0] * 50


def test_the_largest_sizes_take_seconds_and_little_memory():
    tracemalloc.start()
    began = time.perf_counter()
    for flags in ({}, {"online": 100_000}, {"scheme": "masked"}):
        document = predict(RunConfig(data="synthetic:100000000x1000000:.00002", **flags))
        assert document["users"] == 10**8 and document["items"] == 10**6 and document["described"]
        assert document["ratings"] == 16 * 10**8
    seconds, (_, most) = time.perf_counter() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 20 and most < 200e6


def test_without_a_seed_the_items_with_a_rater_are_those_of_the_mean_seed():
    """In sparse data a tenth of the items loses all its raters; each seed takes other items."""
    flags: dict[str, Any] = {"data": "synthetic:40x60:.05", "scheme": "masked", "test_fraction": 0.4, "iterations": 2}
    rated = [make_plan(RunConfig(**flags, seed=seed)).shape.rated_items for seed in range(300)]
    made = outline(RunConfig(**flags))
    mean, doubt = made.crowd.items.reaching(1, None)
    assert mean == pytest.approx(np.mean(rated), abs=4 * np.std(rated) / np.sqrt(300))
    assert doubt > 1 and any("--seed" in note for note in made.notes)


def test_a_seed_or_nothing_held_out_leaves_no_doubt():
    for flags in ({"seed": 1}, {"test_fraction": 0.0}):
        made = outline(RunConfig(scheme="masked", data="demo-small", **flags))
        assert made.crowd.items.reaching(1, None)[1] == 0 and made.notes == []


def test_with_a_seed_those_who_are_really_there_must_be_enough_to_commit():
    """Four of eight users are expected at the start; with some seeds fewer than three are there."""
    flags: dict[str, Any] = {"data": "synthetic:8x5:.5", "join": 0.5, "leave": 0.5}
    refusals = set()
    for seed in range(40):
        config, found = RunConfig(**flags, seed=seed), []
        for prepare in (make_plan, outline):
            try:
                prepare(config)
                found.append("")
            except BadInput as refusal:
                found.append(str(refusal))
        assert found[0] == found[1]
        refusals.add(found[0][:20])
    assert refusals == {"", "The pre-commitment n"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"data": "synthetic:100000000x1000000:2"}, "density"),
        ({"data": "synthetic:100000000"}, "USERSxITEMS"),
        ({"data": "synthetic:100000000x1000000:.01", "users": 10**9}, "100000000 users"),
        ({"data": "synthetic:100000000x1000000:.01", "rating_range": (2.0, 5.0)}, "1 to 5"),
        ({"data": "synthetic:100000000x1000000:.01", "online": 10**8 + 1}, "--online"),
        ({"data": "synthetic:100000000x1000000:.5", "epsilon": 1e-9}, "wrap mod 2"),
        ({"data": "synthetic:2x10:.5", "join": 0.0, "leave": 0.0}, "committers"),
        ({"data": "synthetic:100000000x1000000:.01", "join": 0.0, "leave": 0.1}, "online at the start"),
        ({"data": "demo-small", "join": 0.001, "leave": 1.0}, "online at the start"),
        ({"data": "demo-small", "join": 0.001, "leave": 1.0, "seed": 1}, "pre-commitment needs 3"),
    ],
    ids=str,
)
def test_what_could_not_run_is_not_predicted(flags, words):
    with pytest.raises(BadInput, match=words):
        outline(RunConfig(**flags))
