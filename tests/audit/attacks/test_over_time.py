"""Attacks that put a run together: each finds a strong case, and claims nothing where there is only chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.basics import params_with

from protocol.arithmetic.factors import item_gradients, prediction_errors, step_user
from sim.api import run
from sim.audit.attacks.attack import attack
from sim.audit.attacks.coalition_views import Scene, Truth
from sim.audit.attacks.inference import Target, all_targets
from sim.audit.attacks.over_time.averaging import attack_average, pooled
from sim.audit.attacks.over_time.counts_over_time import ToldCounts, attack_changes, likely, told_counts
from sim.audit.attacks.re_identification import attack_identity, identify
from sim.audit.families.masked.disaggregation import attack_sums, guess, history_of, surest
from sim.audit.families.masked.sum_regression import Estimate, Population, SumHistory, estimate_ratings
from sim.audit.findings import goes_beyond
from sim.views.evidence import open_case

BOTH = ("recommender", "third_party")
SMALL = {"transport": "inprocess", "test_fraction": 0.0, "dim": 4}
CHURN = {**SMALL, "scheme": "dynamic", "data": "synthetic:40x24:.5", "iterations": 40, "join": 0.3, "leave": 0.1}


@pytest.fixture(scope="module")
def scene_of(tmp_path_factory):
    made = {}

    def make(members, **flags):
        key = repr(flags)
        if key not in made:
            folder = tmp_path_factory.mktemp("runs") / "run"
            assert run(out=folder, **flags)["completed"]
            made[key] = open_case(folder)
        return Scene(made[key], members, Truth(made[key], made[key].card.params.iterations))

    return make


def beyond(scene, findings):
    return [one for one in findings if goes_beyond(one, scene.case.card.scheme.known_weaknesses)]


# --- sums of many users ----------------------------------------------------------------------------------------------


def test_the_recommender_tells_users_apart_by_the_sums_that_they_were_in(scene_of):
    scene = scene_of(("recommender",), seed=2, epsilon=64.0, **CHURN)
    (finding,) = attack_sums(scene)
    assert finding.id == "disaggregation" and finding.severity == "weak" and not beyond(scene, [finding])
    assert finding.measured["ratings"] == 100 and finding.measured["iterations"] == 40
    assert finding.measured["interval"][0] > finding.chance["accuracy"] > 0.2
    assert finding in attack(scene.case, [("recommender",)]), "the audit asks it"


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_under_much_noise_sums_over_time_claim_nothing(scene_of, epsilon):
    (finding,) = attack_sums(scene_of(("recommender",), seed=1, epsilon=epsilon, **CHURN))
    assert finding.severity == "info" and (epsilon > 1) == (finding.measured["ratings"] > 0)


def test_the_history_is_what_users_contributed(scene_of):
    scene = scene_of(("recommender",), seed=2, epsilon=64.0, **CHURN)
    history = history_of(scene)
    for t in (0, 20, 39):
        there = [scene.truth.took_part(user, t) for user in range(40)]
        assert history.present[t].tolist() == there and any(there) and not all(there)
    noise = 2 * scene.params.noise_scale**2
    assert 0.5 < np.median(history.iteration[history.released]) / (noise * math.log(2)) < 1.5, "a median of Exp(1)"
    assert 0.3 < np.median(history.objective) / (noise * math.log(2)) < 3


def made_history(seed, noise):
    """Make the sums of 12 users of 6 items in 60 iterations by hand: no run, no codec, no role of a server."""
    rng = np.random.default_rng(seed)
    params, _ = params_with("masked", n_users=12, n_items=6, dim=4, iterations=60)
    users = rng.standard_normal((12, 4))
    users /= np.linalg.norm(users, axis=1)[:, None]
    factors = rng.standard_normal((6, 4)) + 0.3 * rng.standard_normal((60, 6, 4))
    held, present = rng.random((12, 6)) < 0.7, rng.random((60, 12)) < 0.6
    ratings = rng.integers(1, 6, (12, 6)).astype(float)
    sums = rng.standard_normal((60, 6, 4)) * noise
    for t, i in zip(*np.nonzero(present), strict=True):
        items = np.flatnonzero(held[i])
        errors = prediction_errors(ratings[i, items], users[i], factors[t, items])
        sums[t, items] += item_gradients(errors, users[i])
        users[i] = step_user(users[i], factors[t, items], errors, params.learning_rate, 0.0)
    fresh = np.full(sums.shape, noise**2)
    history = SumHistory(factors, sums, np.ones((60, 6), np.bool_), present, held, np.zeros((6, 4)), fresh)
    return history, params, ratings


@pytest.mark.parametrize(("noise", "found"), [(0.05, True), (500.0, False)])
def test_the_regression_finds_ratings_only_where_noise_leaves_them(noise, found):
    history, params, ratings = made_history(1, noise)
    public = Population(3.0, 2.0)
    estimate = estimate_ratings(history, params, public)
    seen = surest(estimate, history.held, public)
    assert len(seen[0]) == (history.held.sum() if found else 0)
    if not found:
        assert np.abs(estimate.mean - public.mean).max() < 0.5
        return
    scale, held = np.arange(1.0, 6.0), history.held
    assert np.corrcoef(estimate.mean[held], ratings[held])[0, 1] > 0.8
    guesses, fitting = guess(estimate, seen, scale, np.full(5, 0.2), public)
    assert (guesses == ratings[seen]).mean() > (fitting == ratings[seen]).mean() + 0.2


def test_a_choice_of_the_surest_ratings_is_by_variance_alone():
    variance = np.array([[0.5, 1.9], [1.0, 0.2]])
    found = Estimate(np.zeros((2, 2)), variance, np.zeros(2))
    users, items = surest(found, np.array([[True, True], [True, False]]), Population(3.0, 2.0))
    assert list(zip(users.tolist(), items.tolist(), strict=True)) == [(0, 0), (1, 0)]


# --- averages --------------------------------------------------------------------------------------------------------


NOISY = {**SMALL, "scheme": "direct", "data": "synthetic:40x60:.5", "iterations": 40, "seed": 1}


def test_averaging_all_uploads_reads_what_one_does_not(scene_of):
    scene = scene_of(("recommender",), epsilon=3.0, **NOISY)
    (finding,) = attack_average(scene)
    single = next(one for one in attack(scene.case, [("recommender",)]) if one.id == "rating-inference")
    assert finding.id == "composition" and finding.severity == "weak" and not beyond(scene, [finding])
    assert finding.measured["readings"] == 40 and finding.measured["ratings"] == single.measured["ratings"] > 100
    assert finding.measured["interval"][0] > finding.chance["accuracy"]
    assert finding.measured["accuracy"] > single.measured["accuracy"] + 0.05


def test_an_average_under_much_noise_claims_nothing(scene_of):
    scene = scene_of(("recommender",), epsilon=0.1, **NOISY)
    (finding,) = attack_average(scene)
    assert finding.severity == "info" and finding.measured["interval"][0] <= finding.chance["accuracy"]


def test_an_average_weighs_each_reading_by_its_envelope():
    ones = np.ones(2)
    near = Target(3, 7, 0, ones * 2, ones * 0.5, ones * 1, ones * 0, ones)
    far = Target(3, 7, 1, ones * 8, ones * 0.5, ones * 4, ones * 0, ones * 6)
    both = pooled([near, far])
    assert both.value == pytest.approx(ones * (0.8 * 2 + 0.2 * 8)) and both.factors == pytest.approx(ones * 2)
    assert both.fresh == pytest.approx(ones * 0.8) and both.constant == pytest.approx(ones * 0.5)
    assert both.variance == pytest.approx(ones * 1.3), "1/(1/1 + 1/4), and what is constant stays"


@pytest.mark.parametrize("members", [BOTH, ("recommender",)])
def test_readings_of_all_iterations_are_single_users_and_the_first_are_the_old_ones(scene_of, members):
    flags = {**SMALL, "scheme": "masked", "data": "synthetic:40x80:.04", "iterations": 5, "epsilon": 4.0, "seed": 4}
    scene = scene_of(members, **flags)
    every, first = list(all_targets(scene)), list(all_targets(scene, first=True))
    assert {one.iteration for one in every} == set(range(5)) and len(every) > 100
    for one in every[::7]:
        own = scene.truth.contribution(one.user, one.iteration)
        at = int(np.searchsorted(own.items, one.item))
        assert np.abs(one.value - own.noisy[at]).max() < 1e-9
    held = {(one.user, one.item): one.value.tolist() for one in reversed(every)}
    assert all(held[one.user, one.item] == one.value.tolist() for one in first if one.iteration == 0)


# --- counts ----------------------------------------------------------------------------------------------------------


FEW = {**SMALL, "scheme": "dynamic", "data": "synthetic:24x30:.4", "iterations": 40, "join": 0.1, "leave": 0.05}


def test_a_user_infers_what_others_rated_from_counts_that_change_with_them(scene_of):
    scene = scene_of(("user:1",), seed=2, epsilon=4.0, **FEW)
    (finding,) = attack_changes(scene)
    assert finding.id == "counts-over-time" and finding.severity == "weak" and not beyond(scene, [finding])
    assert finding.measured["interval"][0] > finding.chance["accuracy"] + 0.05
    assert finding in attack(scene.case, [("user:1",)]), "the audit asks it"


def test_counts_that_do_not_change_tell_nothing(scene_of):
    flags = {**SMALL, "scheme": "masked", "data": "synthetic:24x30:.4", "iterations": 4, "epsilon": 4.0, "seed": 2}
    (finding,) = attack_changes(scene_of(("user:1",), **flags))
    assert finding.severity == "info" and finding.measured == {"pairs": 0}


def test_the_times_of_nobody_tell_no_more_than_popularity(scene_of):
    """With times that are drawn, and not those of the users, guesses are no better than from popularity."""
    scene = scene_of(("user:1",), seed=2, epsilon=4.0, **FEW)
    told, rng = told_counts(scene), np.random.default_rng(5)
    rated = np.array([np.isin(told.items, scene.truth.ratings[f"user:{user}"].items) for user in range(2, 24)])
    gains = []
    for _ in range(40):
        guesses, popular = likely(told, np.cumsum(rng.integers(-1, 2, (22, 40)), axis=1) % 2 * 1.0, 23)
        gains.append((guesses == rated).mean() - (popular == rated).mean())
    assert np.mean(gains) < 2 * np.std(gains)


def test_counts_are_read_by_hand():
    """Two items; the user comes in iteration 2 and goes in iteration 4, and only the first count follows it."""
    counts = np.array([[3.0, 3.0], [3.0, 3.0], [4.0, 3.0], [4.0, 3.0], [3.0, 3.0]])
    guesses, popular = likely(ToldCounts(np.array([5, 9]), counts), np.array([[0.0, 0.0, 1.0, 1.0, 0.0]]), 7)
    assert guesses.tolist() == [[True, False]] and popular.tolist() == [[True, False]]
    more, _ = likely(ToldCounts(np.array([5, 9]), counts - 1), np.array([[0.0, 0.0, 1.0, 1.0, 0.0]]), 7)
    assert more[0, 0], "it is told by the changes, although few have rated it"


# --- supports --------------------------------------------------------------------------------------------------------


def test_a_few_known_items_name_a_user_among_supports(scene_of):
    flags = {**SMALL, "scheme": "masked", "data": "synthetic:40x80:.2", "iterations": 2, "epsilon": 1.0, "seed": 6}
    scene = scene_of(BOTH, **flags)
    found = attack_identity(scene)
    assert [one.severity for one in found] == ["weak", "weak"] and {one.id for one in found} == {"support"}
    for finding in found:
        by = [finding.measured["by_known_items"][known] for known in ("1", "2", "4", "8")]
        assert by == sorted(by) and by[-1] > 0.9 and finding.chance == {"accuracy": pytest.approx(1 / 40)}
        assert finding.measured["accuracy"] == by[2] > 0.5
    assert not beyond(scene_of(("recommender",), **flags), attack_identity(scene_of(("recommender",), **flags)))


def test_supports_that_are_all_alike_name_nobody(scene_of):
    flags = {**SMALL, "scheme": "masked", "data": "synthetic:12x6:.999", "iterations": 2, "epsilon": 1.0, "seed": 6}
    (finding,) = attack_identity(scene_of(("recommender",), **flags))
    assert finding.severity == "info" and finding.measured["accuracy"] == pytest.approx(1 / 12)


def test_rare_items_weigh_more_and_equal_rows_share():
    raters = {0: np.array([0, 1, 2, 3]), 1: np.array([0, 1]), 2: np.array([2])}
    assert identify(np.array([0]), raters, 4).tolist() == [0.25] * 4
    assert identify(np.array([0, 1]), raters, 4).tolist() == [0.5, 0.5, 0, 0]
    assert identify(np.array([1, 2]), raters, 4).tolist() == [0, 0, 1, 0], "one rare item is more than a common one"
    assert identify(np.array([9]), raters, 4).tolist() == [0.25] * 4, "an item that nobody named"
