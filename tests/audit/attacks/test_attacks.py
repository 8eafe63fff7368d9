"""Attacks on small runs of every scheme: a coalition's guesses from its own views, beside truth and chance."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from support.audit import isolating_users
from support.basics import params_with

from protocol.arithmetic.factors import item_gradients, prediction_errors, step_user
from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.errors import BadInput, Bug
from protocol.party.role import user_name
from sim.api import run
from sim.audit import truth
from sim.audit.attacks.attack import attack
from sim.audit.attacks.coalition_views import Scene, Truth
from sim.audit.attacks.difference import TwoUploads, recover, round_to
from sim.audit.attacks.inference import ceiling, targets
from sim.audit.attacks.posterior import SharedGradients, posterior
from sim.audit.attacks.support import auc, cross_validated
from sim.audit.families.masked.unmasking import unmasked
from sim.audit.scoring import clopper_pearson, score
from sim.views.evidence import open_case
from sim.views.exhibits import Exhibits

BOTH = ("recommender", "third_party")
SMALL = {"data": "synthetic:24x30:.3", "transport": "inprocess", "test_fraction": 0.0, "seed": 5, "dim": 4}
STATIC = {"scheme": "masked", "iterations": 4, "epsilon": 1.0}
CHURN = {"scheme": "dynamic", "iterations": 6, "epsilon": 1.0, "join": 0.4, "leave": 0.3, "online": 14}
RUNS = {
    "masked": STATIC,
    "masked paper": {**STATIC, "wire": "paper"},
    "dynamic": CHURN,
    "dynamic paper": {**CHURN, "wire": "paper"},
    "direct": {"scheme": "direct", "iterations": 3, "epsilon": 1.0},
    "direct no rho": {"scheme": "direct", "iterations": 3, "epsilon": 1.0, "no_rho": True},
    "plain": {"scheme": "plain", "iterations": 3},
    "trusted": {"scheme": "trusted", "iterations": 3, "epsilon": 1.0},
}


@pytest.fixture(scope="module")
def case_of(tmp_path_factory):
    made = {}

    def make(name, **flags):
        key = repr((name, flags))
        if key not in made:
            folder = tmp_path_factory.mktemp("runs") / "run"
            assert run(out=folder, **{**SMALL, **RUNS[name], **flags})["completed"]
            made[key] = open_case(folder)
        return made[key]

    return make


@pytest.fixture(scope="module")
def found_by():
    """Give a function that attacks as one coalition and remembers the findings."""
    made = {}

    def find(case, *members):
        if (case.folder, members) not in made:
            made[case.folder, members] = attack(case, [members])
        return made[case.folder, members]

    return find


def only(findings, identifier):
    found = [finding for finding in findings if finding.id == identifier]
    assert len(found) == 1, [finding.id for finding in findings]
    return found[0]


# --- only what the coalition has -----------------------------------------------------------------------------------


def test_an_attack_cannot_read_another_view(case_of):
    case = case_of("masked")
    with pytest.raises(Bug, match="the view of recommender is not one of third_party"):
        list(unmasked(Scene(case, ("third_party",), Truth(case, 2))))
    with pytest.raises(Bug, match="the view of user:1 is not one of user:2"):
        Exhibits(case, ("user:2",)).brought("user:1")


@pytest.mark.parametrize("name", ["masked", "dynamic paper", "direct no rho"])
def test_guesses_do_not_change_when_the_views_of_others_are_gone(case_of, name, tmp_path):
    """A coalition makes the same guesses in a folder that has only its own views."""
    case = case_of(name)
    members = BOTH if "third_party" in case.parties else ("recommender",)
    poor = tmp_path / "poor"
    shutil.copytree(case.folder, poor)
    for view in (poor / "views").rglob("*.view"):
        if view.stem not in members:
            view.unlink()
    known = Truth(case, 3)  # which users can be scored decides the sample, not the guess
    rich, bare = Scene(case, members, known), Scene(open_case(poor), members, known)
    if bare.masks:
        pairs = list(zip(unmasked(rich), unmasked(bare), strict=True))
        assert pairs and all((one.words == two.words).all() for one, two in pairs)
    assert [round_.factors.tobytes() for round_ in rich.recommender.rounds.values()] == [
        round_.factors.tobytes() for round_ in bare.recommender.rounds.values()
    ]


def test_a_coalition_of_nobody_and_a_run_without_user_views_are_refused_in_words(case_of, tmp_path):
    with pytest.raises(BadInput, match="has no party user:99"):
        attack(case_of("masked"), [("user:99",)])
    run(out=tmp_path / "run", **{**SMALL, **STATIC, "views": "servers"})
    with pytest.raises(BadInput, match="--views full"):
        attack(open_case(tmp_path / "run"), [("recommender",)])


# --- the truth -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["masked", "masked paper", "dynamic", "dynamic paper"])
def test_what_users_are_said_to_contribute_adds_up_to_the_released_sums(case_of, name):
    """Σ of the contributions (and committed noise), all without masks, is the sum that the recommender opened."""
    case = case_of(name)
    params, ring = case.card.params, case.card.setting.ring
    scene = Scene(case, ("recommender",), Truth(case, params.iterations))
    stories = {user: scene.truth.story(user) for user in range(params.n_users)}
    for t, found in scene.recommender.rounds.items():
        parts = [(own.items, own.words) for story in stories.values() for own in story.contributions
                 if own.iteration == t]  # fmt: skip
        parts += [story.committed[a] for story in stories.values() for a in story.committed if len(found.items)]
        everything = np.arange(params.n_items, dtype=np.uint32)
        sums = ring.sum_by_item(parts, everything, params.dim)
        assert len(found.items) and (sums[found.items] == found.words).all()


def test_a_contribution_is_the_gradient_and_its_noise(case_of):
    case = case_of("masked", epsilon=math.inf)
    fixed = FixedPoint(case.card.setting.ring, case.card.params.fraction_bits)
    for own in truth.contributions(case, "user:3"):
        assert np.abs(own.noisy - own.gradient).max() <= 2.0 ** -(case.card.params.fraction_bits + 1)
        assert (fixed.decode(own.words) == own.noisy).all()
    noisy = truth.contributions(case_of("masked"), "user:3")
    assert all(np.abs(own.noisy - own.gradient).max() > 0.1 for own in noisy)


# --- unmasking and isolating -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["masked", "masked paper", "dynamic", "dynamic paper"])
def test_both_servers_read_every_upload_to_the_last_bit(case_of, name, found_by):
    case = case_of(name)
    finding = next(found for found in found_by(case, *BOTH) if "rows" in found.measured)
    sent = sum(len(own.items) for user in truth.known_users(case) for own in truth.contributions(case, user))
    assert finding.id == "unmasking" and finding.severity == "weak"
    assert finding.measured["rows"] == finding.measured["rows_exact"] == sent > 0
    assert finding.measured["max_error_ring_units"] == 0


@pytest.mark.parametrize("name", ["masked", "masked paper", "dynamic", "dynamic paper"])
def test_the_recommender_and_all_raters_but_one_isolate_the_last(case_of, name):
    case = case_of(name)
    found = attack(case, [("recommender", *isolating_users(case)), ("recommender",)])
    finding = only([one for one in found if len(one.coalition) > 1], "unmasking")
    assert finding.severity == "weak" and finding.measured["max_error_ring_units"] == 0
    assert finding.measured["sums"] == finding.measured["sums_exact"] >= 3


@pytest.mark.parametrize("name", ["masked", "masked paper", "dynamic", "dynamic paper", "direct"])
def test_users_read_sums_off_the_factors(case_of, name, found_by):
    case = case_of(name)
    users = isolating_users(case)
    finding = only(found_by(case, *users), "released-sums")
    assert finding.severity == "weak" and finding.measured["sums_recovered"] == finding.measured["sums"] >= 10
    assert finding.measured["single_user_sums_recovered"] >= 1
    assert finding.measured["max_error"] < 1e-3 and finding.chance["sums_recovered"] < finding.measured["sums"] / 2


def test_a_coalition_that_isolates_nobody_finds_nothing(case_of):
    """The coalition is one rater of items that many users rated."""
    case = case_of("masked", data="synthetic:12x4:.99")
    found = attack(case, [("recommender", "user:0"), ("recommender",), ("user:0",)])
    assert not [finding for finding in found if finding.id == "unmasking" and finding.severity != "info"]
    assert only([one for one in found if one.coalition == ("user:0",)], "released-sums").measured[
        "single_user_sums"
    ] == 0


# --- ratings ---------------------------------------------------------------------------------------------------------


def test_without_noise_and_masks_two_uploads_give_every_rating(case_of, found_by):
    broken = only(found_by(case_of("direct no rho"), "recommender"), "difference-attack")
    assert broken.severity == "break" and broken.measured["accuracy"] == 1.0 and broken.chance["accuracy"] < 0.6
    plain = only(found_by(case_of("plain"), "recommender"), "difference-attack")
    assert plain.severity == "weak" and plain.measured["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("name", "members"), [("direct", ("recommender",)), ("masked", BOTH), ("masked", BOTH[1:]), ("dynamic", BOTH)]
)
def test_with_noise_or_masks_two_uploads_give_no_more_than_chance(case_of, name, members, found_by):
    finding = only(found_by(case_of(name), *members), "difference-attack")
    assert finding.severity == "info" and finding.measured["interval"][0] <= finding.chance["accuracy"]


def test_the_difference_attack_knows_its_own_model():
    """Made by hand, in exact arithmetic: no run, no codec."""
    rng = np.random.default_rng(1)
    params, _ = params_with("direct", n_users=1, n_items=12, dim=6, iterations=2)
    ratings, profile = rng.integers(1, 6, 12).astype(float), rng.standard_normal(6)
    profile /= np.linalg.norm(profile)
    before, after, noise = (rng.standard_normal((12, 6)) for _ in range(3))
    errors = prediction_errors(ratings, profile, before)
    moved = step_user(profile, before, errors, params.learning_rate, params.user_regularisation)
    first = item_gradients(errors, profile) + 30 * noise
    second = item_gradients(prediction_errors(ratings, moved, after), moved) + 30 * noise
    found = recover(TwoUploads(first, second, before, after), params)
    assert (round_to(found.ratings, np.arange(1.0, 6.0)) == ratings).all() and found.misfit < 1e-6
    spoilt = recover(TwoUploads(first, second + rng.laplace(0, 20, second.shape), before, after), params)
    assert spoilt.misfit > 5


def test_the_posterior_is_certain_without_noise_and_the_prior_under_much():
    rng = np.random.default_rng(2)
    scale, prior = np.arange(1.0, 6.0), np.array([0.1, 0.1, 0.2, 0.4, 0.2])
    profile, factors = rng.standard_normal(5), rng.standard_normal((8, 5)) / 3
    profile /= np.linalg.norm(profile)
    ratings = rng.integers(1, 6, 8).astype(float)
    values = -2 * np.outer(ratings - factors @ profile, profile)
    sure = posterior(SharedGradients(values, np.full((8, 5), 1e-8), factors), scale, prior, rng)
    assert (scale[sure.argmax(axis=1)] == ratings).all() and sure.max(axis=1).min() > 0.999
    vague = posterior(SharedGradients(values, np.full((8, 5), 1e6), factors), scale, prior, rng)
    assert np.abs(vague - prior).max() < 0.01
    assert np.allclose(sure.sum(axis=1), 1) and np.allclose(vague.sum(axis=1), 1)


SPARSE = {"data": "synthetic:60x120:.03"}  # many items have one rater, many two


@pytest.mark.parametrize("name", ["masked", "dynamic"])
def test_the_recommender_infers_ratings_of_single_raters_only_without_noise(case_of, name, found_by):
    flags = {**SPARSE, **({"online": 60, "join": 1.0, "leave": 0.0} if name == "dynamic" else {})}
    open_ = only(found_by(case_of(name, epsilon=math.inf, **flags), "recommender"), "rating-inference")
    assert open_.severity == "info" and open_.measured["accuracy"] == 1.0 and open_.measured["ratings"] >= 20
    assert open_.measured["interval"][0] > open_.chance["accuracy"] + 0.2
    noisy = only(found_by(case_of(name, **flags), "recommender"), "rating-inference")
    assert noisy.severity == "info" and noisy.measured["ratings"] == open_.measured["ratings"]
    assert noisy.measured["interval"][0] <= noisy.chance["accuracy"]


def test_a_user_infers_the_other_rating_of_an_item_of_two_only_without_noise(case_of):
    open_, noisy = case_of("masked", epsilon=math.inf, **SPARSE), case_of("masked", **SPARSE)
    users = tuple(map(user_name, range(30)))
    assert len(targets(Scene(open_, users, Truth(open_, 4)))) >= 10
    found = only(attack(open_, [users]), "rating-inference")
    assert found.measured["accuracy"] >= 0.9 and found.measured["interval"][0] > found.chance["accuracy"]
    found = only(attack(noisy, [users]), "rating-inference")
    assert found.measured["interval"][0] <= found.chance["accuracy"]


def test_what_epsilon_permits():
    assert ceiling(0.2, math.log(4)) == pytest.approx(0.5)  # odds 1:4 times 4
    assert ceiling(0.3, 0) == pytest.approx(0.3) and ceiling(0.3, math.inf) == 1.0


# --- counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["masked", "dynamic", "direct", "plain"])
def test_single_contributors_are_counted_as_by_hand(case_of, name, found_by):
    case = case_of(name)
    by_sum = {}
    for user in truth.known_users(case):
        for own in truth.contributions(case, user):
            for item in own.items:
                by_sum[own.iteration, int(item)] = by_sum.get((own.iteration, int(item)), 0) + 1
    single = [key for key, count in by_sum.items() if count == 1]
    finding = only(found_by(case, "recommender"), "single-contributor")
    assert finding.measured["sums"] == len(single) and finding.measured["items"] == len({item for _, item in single})
    assert finding.measured["fraction_of_sums"] == pytest.approx(len(single) / len(by_sum))
    assert finding.severity == ("weak" if single else "info")


def test_no_sum_of_one_is_no_weakness(case_of, found_by):
    finding = only(found_by(case_of("masked", options={"min_contributors": 2}), "recommender"), "single-contributor")
    assert finding.severity == "info" and finding.measured == {"items": 0, "sums": 0, "fraction_of_sums": 0.0}


@pytest.mark.parametrize("name", list(RUNS))
def test_servers_read_the_support(case_of, name, found_by):
    case = case_of(name)
    for server in case.card.scheme.servers:
        finding = only([one for one in found_by(case, server) if "precision" in one.measured], "support")
        assert finding.severity == "weak" and finding.measured["precision"] == 1.0
        assert finding.measured["recall"] == 1.0 or (server == "third_party" and "dynamic" in name)
        assert "no u.user" in finding.evidence and finding.chance["precision"] < 0.5


def test_an_area_under_the_curve_by_hand_and_of_noise():
    assert auc(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True])) == 0.75
    rng = np.random.default_rng(3)
    labels = rng.random(300) < 0.4
    told = csr_matrix(np.column_stack([labels * 1.0, rng.random((300, 20)) < 0.3]).astype(float))
    blind = csr_matrix((rng.random((300, 20)) < 0.3).astype(float))
    assert auc(cross_validated(told, labels, rng), labels) > 0.95
    assert abs(auc(cross_validated(blind, labels, rng), labels) - 0.5) < 0.12  # 3.5 standard errors


@pytest.mark.parametrize("name", ["masked", "dynamic", "dynamic paper", "direct"])
def test_servers_know_who_took_part_and_users_know_counts(case_of, name, found_by):
    case = case_of(name)
    for server in case.card.scheme.servers:
        finding = only(found_by(case, server), "membership")
        assert finding.severity == "info" and finding.measured["accuracy"] == 1.0
        assert (finding.chance["accuracy"] < 1) == name.startswith("dynamic")
    user = only(found_by(case, "user:2"), "membership")
    assert user.severity == "info" and 0 < user.measured["rated"] <= 1
    assert ("present" in user.measured) == name.startswith("dynamic")


# --- figures ---------------------------------------------------------------------------------------------------------


def test_an_audit_repeats_itself(case_of):
    again = [attack(case_of("direct no rho"), [("recommender",), ("user:1",)]) for _ in range(2)]
    assert again[0] == again[1] and len(again[0]) >= 6


def test_what_a_server_does_alone_is_not_repeated_for_its_coalitions(case_of):
    found = attack(case_of("masked"), [("recommender",), ("third_party",), BOTH])
    assert [finding.id for finding in found if finding.coalition == BOTH] == [
        "unmasking", "unmasking", "unmasking", "difference-attack"
    ]  # fmt: skip
    assert sum(finding.id == "support" for finding in found) == 4


def test_intervals_hold_what_they_should():
    low, high = clopper_pearson(7, 10)
    assert (low, high) == (pytest.approx(0.3475, abs=1e-4), pytest.approx(0.9333, abs=1e-4))
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(200):
        hits = [(rng.random(20) < 0.5).astype(float) for _ in range(30)]
        found = score(hits, [np.zeros(20)] * 30, rng)
        held += found.interval[0] <= 0.5 <= found.interval[1]
    assert 175 <= held <= 200  # 95 %, give or take four standard errors and the bootstrap's optimism
    same = score([np.ones(20)] * 30, [np.ones(20)] * 30, rng)
    assert not same.above_chance and same.accuracy == 1.0
