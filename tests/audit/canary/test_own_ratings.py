"""Canaries among a run's own ratings: what one release tells of them, to whom, and what a fault changes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.audit import load_scheme

from sim.api import run
from sim.audit.audit import Audit
from sim.audit.canary.bound_rows import findings_of
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.own_run import OWN, OWN_CONFIDENCE, own_in_words
from sim.audit.families.factorization.own_ratings import PlayedOnce, measure_own
from sim.audit.families.registry import family_of
from sim.audit.findings import verdict
from sim.views.evidence import open_case

SEED = bytes(range(32))
FLAGS = {"data": "synthetic:40x300:.2", "epsilon": 1.0, "dim": 1, "iterations": 2, "transport": "inprocess", "seed": 1}


def case_of(folder, scheme="masked", **flags):
    run(out=folder, scheme=scheme, **{**FLAGS, "test_fraction": 0.0, **flags})
    return open_case(folder)


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return case_of(tmp_path_factory.mktemp("own") / "masked")


def by_name(rows):
    return {row.statistic.name: row for row in rows}


def test_an_item_each_is_played_and_the_outsider_learns_what_is_claimed_and_the_recommender_more(masked):
    shown = [[], []]
    for number in range(9):
        rows, own = measure_own(masked, 2000, bytes([number]) * 32)
        assert own["canaries"] == own["items"] == 298 and own["releases"] == 1 and own["dim"] == 1
        assert own["largest_loss"] == {"median": pytest.approx(1, abs=1e-3), "most": pytest.approx(1, abs=1e-3)}
        assert len({row.observed.items.tobytes() for row in rows}) == 1
        named = by_name(rows)
        assert not named["released sums"].exceeds
        shown[0].append(named["released sums"].alone.epsilon)
        shown[1].append(named["likelihood ratio given the envelopes"].alone.epsilon)
    assert 0.5 < np.median(shown[0]) < 1 < 1.5 < np.median(shown[1])


def test_every_statistic_rests_on_the_one_run_theorem(masked):
    rows, _ = measure_own(masked, 2000, SEED)
    assert all(row.arm == OWN and row.statistic.reacting and row.bound.method == "guesses" for row in rows)


def test_the_law_of_the_envelopes_shows_nearly_all_of_the_shifts(masked):
    _, own = measure_own(masked, 2000, SEED)
    law = own["known_law"]
    assert 0.8 < law["shown_share"] <= 1.02
    assert all(law["shown"][item] == pytest.approx(law["true"][item], rel=0.45) for item in ("median", "worst"))
    assert 1 < law["without_law"] < law["true"]["worst"]
    words = own_in_words(own)
    assert (
        "298 canaries" in words
        and "for the worst" in words
        and own_in_words(None) == own_in_words({"canaries": 0}) == ""
    )


def test_the_sums_are_foretold_but_for_the_noise(tmp_path):
    case = case_of(tmp_path / "quiet", epsilon=1e6, dim=3)
    rows, own = measure_own(case, 2000, SEED)
    played: PlayedOnce = rows[0].observed
    expected = np.where(played.greatest[:, None], played.shifts, 0)
    assert np.allclose(played.sums, expected, atol=0.05) and np.abs(played.shifts).sum(axis=1).min() > 5
    assert rows[0].bound.epsilon == rows[0].bound.certifiable, "hardly any noise: every guess is right"
    assert own["largest_loss"]["most"] <= 1e6 * (1 + 1e-6)


def test_a_budget_bounds_the_canaries(masked):
    rows, own = measure_own(masked, 50, SEED)
    assert own["canaries"] == 50 == len(rows[0].observed)


@pytest.mark.parametrize("scheme", ["direct", "dynamic"])
def test_other_factorizations_are_played_too(tmp_path, scheme):
    case = case_of(tmp_path / scheme, scheme, dim=2)
    rows, own = measure_own(case, 2000, SEED)
    found = findings_of(rows, OWN_CONFIDENCE)
    assert own["canaries"] > 250 and verdict(found, case.card.scheme.known_weaknesses) == "within-claims"
    assert not any(row.exceeds for row in rows if row.statistic.kind == "noise")
    assert ("uploads" in by_name(rows)) == (scheme == "direct") == (own["known_law"] is None)


def test_too_little_noise_shows_on_ones_own_ratings(tmp_path):
    load_scheme("support.schemes.noise_faults:HalfNoise")
    rows, _ = measure_own(case_of(tmp_path / "half", "support.schemes.noise_faults:HalfNoise"), 2000, SEED)
    assert by_name(rows)["released sums"].exceeds
    assert ("missing-noise", "break") in {(one.id, one.severity) for one in findings_of(rows, OWN_CONFIDENCE)}


@pytest.mark.parametrize("scheme", ["laplace-ratings", "randomized-response"])
def test_entries_of_ones_own_vectors_show_nearly_what_is_claimed(tmp_path, scheme):
    case = case_of(tmp_path / "run", scheme, dim=None, iterations=None)
    shown = []
    for number in range(3):
        (row,), own = family_of(case.card.scheme).measure_own(case, 2000, bytes([number]) * 32)
        assert own["canaries"] == 2000 == len(row.observed) and own["users"] == 40 and not row.exceeds
        assert own["largest_loss"]["most"] <= 1 + 1e-6
        shown.append(row.alone.epsilon)
    assert 0.75 < np.median(shown) < 1


@pytest.mark.parametrize("scheme", ["trusted", "covariance"])
def test_where_nothing_is_known_the_small_problem_is_asked_alone_in_words(tmp_path, scheme):
    settings = {"dim": 2} if scheme == "trusted" else {"dim": None, "iterations": None}
    case = case_of(tmp_path / "run", scheme, data="synthetic:8x6:.5", **settings)
    with pytest.raises(CannotBeMeasured, match=r"released sums|Nothing is known"):
        family_of(case.card.scheme).measure_own(case, 100, SEED)


def test_the_audit_puts_them_first_and_small_leaves_them_out(masked):
    live = Audit(masked.folder)
    both = live.ask(only=("empirical",), repetitions=1000)
    rows = both["empirical"]["rows"]
    assert [row["arm"] for row in rows[:2]] == [OWN, OWN] and rows[2]["arm"] == "release"
    assert both["empirical"]["own_ratings"]["canaries"] == 298
    (headline,) = [one for one in both["findings"] if one["id"] == "missing-noise" and one["coalition"] == []]
    assert "ne run of these ratings with 298 canaries at ε = 1" in headline["title"], "it replaces its equal"
    small = live.ask(only=("empirical",), repetitions=1000, canaries=0)
    assert small["reused"] == [] and small["empirical"]["own_ratings"]["canaries"] == 0
    assert OWN not in {row["arm"] for row in small["empirical"]["rows"]}
    json.dumps(both, allow_nan=False, default=float)
