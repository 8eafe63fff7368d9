"""Every pair of a run: the loss as the roles have it, bounds that no pair exceeds, and the worst of all."""

from __future__ import annotations

import numpy as np
import pytest
from support.audit import made

from protocol.party.role import RECOMMENDER, UserInput, user_index
from protocol.schemes.composition import gaussian_epsilon
from sim.audit.families.masked import pair_noise
from sim.audit.families.registry import family_of
from sim.audit.pairs.change import RatingChange, ends_of
from sim.audit.pairs.exposure import gaussian_mu_squared, information
from sim.audit.pairs.pairs import ask_pairs
from sim.audit.pairs.twice import run_twice
from sim.audit.truth import all_ratings

TO_THE_RECOMMENDER = (RECOMMENDER,)


def searched(folder, **flags):
    case = made(folder / "run", "masked", epsilon=1.0, **flags)
    exposure, ratings = family_of(case.card.scheme).exposure(case), all_ratings(case)
    return case, exposure, ratings, exposure.worst(TO_THE_RECOMMENDER, ratings)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    return searched(tmp_path_factory.mktemp("every"))


@pytest.fixture(scope="module")
def brief(tmp_path_factory):
    return searched(tmp_path_factory.mktemp("brief"), iterations=3)


def by_roles(case, exposure, own, user, item, least, most):
    """Compute μ of two ratings of `item` by running the user's role with each."""
    there = own.items == item
    sides = [UserInput(own.items, np.where(there, rating, own.ratings)) for rating in (least, most)]
    return exposure.loss(TO_THE_RECOMMENDER, run_twice(case, RatingChange(user, item, *sides))).mu


def test_the_loss_of_many_pairs_at_once_is_that_of_the_roles(held):
    case, exposure, ratings, _ = held
    for name in list(ratings)[::9]:
        own, user = ratings[name], user_index(name)
        course = exposure.every.courses[user]
        ours = course.losses(np.arange(len(own.items)))
        roles = [by_roles(case, exposure, own, user, int(item), 1.0, 5.0) for item in own.items]
        assert ours == pytest.approx(roles, rel=1e-4)
        assert course.losses(np.arange(len(own.items))[::-1]) == pytest.approx(ours[::-1])


def test_no_two_ratings_are_worth_more_than_the_bound(held):
    case, exposure, ratings, _ = held
    for name in list(ratings)[::5]:
        own, user = ratings[name], user_index(name)
        course = exposure.every.courses[user]
        bounds = course.bounds
        for place, item in enumerate(own.items[:4].tolist()):
            for two in ((1.0, 5.0), (1.0, 2.0), (2.5, 4.0)):
                mu = by_roles(case, exposure, own, user, item, *two)
                assert mu <= bounds[place]
                assert mu == pytest.approx(float(course.losses(np.array([place]), two)[0]), rel=1e-4)


def test_the_bounds_hold_for_all_pairs_and_leave_out_most_of_a_brief_run(held, brief):
    check_all_pairs(*held[1:])
    check_all_pairs(*brief[1:])
    assert brief[3].tried < brief[3].pairs / 5


def check_all_pairs(exposure, ratings, worst):
    mus = {}
    for user, course in exposure.every.courses.items():
        losses = course.losses(np.arange(len(course)))
        assert np.all(losses <= course.bounds)
        mus |= {(user, int(item)): float(mu) for item, mu in zip(course.items, losses, strict=True)}
    at = worst.change.user, worst.change.item
    assert max(mus, key=mus.get) == at and worst.mu == pytest.approx(mus[at])
    assert worst.complete and worst.pairs == len(mus) == sum(len(own.items) for own in ratings.values())
    item = exposure.accounted_order(TO_THE_RECOMMENDER)[0]
    of_item = exposure.worst(TO_THE_RECOMMENDER, ratings, item)
    assert of_item.mu == pytest.approx(max(mu for (_, one), mu in mus.items() if one == item))
    assert of_item.pairs == len(exposure.raters[item]) and of_item.change.item == item


def test_a_search_that_is_cut_short_says_so(held, monkeypatch):
    _, exposure, ratings, worst = held
    monkeypatch.setattr(pair_noise, "MOST_WORK", 200_000.0)
    short = exposure.worst(TO_THE_RECOMMENDER, ratings)
    assert not short.complete and short.mu <= worst.mu and short.tried < worst.tried
    monkeypatch.setattr(pair_noise, "MOST_NUMBERS", 10)
    assert exposure.worst(TO_THE_RECOMMENDER, ratings) is None


def test_the_audit_shows_the_worst_of_all_pairs_beside_what_is_accounted(held):
    case, exposure, _ratings, worst = held
    document, findings = ask_pairs(case, 4)
    (row,) = [row for row in document["epsilon"] if row["coalition"] == ["recommender"]]
    assert (row["user"], row["item"]) == (worst.change.user, worst.change.item)
    assert row["epsilon"] == pytest.approx(gaussian_epsilon(worst.mu), rel=1e-3)
    assert row["every_pair"]["complete"] and row["every_pair"]["in_question"] == worst.pairs
    for some in (row, row["worst_item"], row["median_item"]):
        assert some["epsilon"] == pytest.approx(some["every_pair"]["epsilon"], rel=1e-3)
        assert some["accounted_counted"] < some["accounted"]
        assert some["accounted_counted_worst_direction"] < some["accounted_worst_direction"]
    first = exposure.information.mean(axis=1)
    assert row["worst_item"]["item"] == int(np.argmax(first))
    found = next(one for one in findings if one.coalition == TO_THE_RECOMMENDER and one.id == "pair-epsilon")
    assert f"of all {worst.pairs} pairs of the run none is worse" in found.evidence


def test_the_two_ends_differ_in_one_rating_alone(held):
    case, _, ratings, _ = held
    own = ratings["user:3"]
    change = ends_of(case.card.params, 3, own, int(own.items[2]))
    assert change.ratings() == (1.0, 5.0)
    assert np.flatnonzero(change.before.ratings != change.after.ratings).tolist() == [2]


@pytest.mark.parametrize("overlap", [1.0, 0.4, np.array([[1.0, 0.5, 0.2], [0.5, 0.8, 0.3], [0.2, 0.3, 0.7]])])
def test_constant_noise_in_the_covariance_is_what_matrices_give(overlap):
    own = np.array([[1.0, 2.0], [3.0, 1e-6], [0.5, 4.0]])  # three releases, one with hardly any noise of its own
    common = np.array([5.0, 0.25])
    ours = information(own, common, overlap)
    for column in range(2):
        shared = np.full((3, 3), overlap) if isinstance(overlap, float) else overlap
        covariance = np.diag(own[:, column]) + common[column] * shared
        by_hand = np.ones(3) @ np.linalg.inv(covariance) @ np.ones(3)
        assert ours[column] == pytest.approx(by_hand)
        one = np.zeros((3, 2))
        one[:, column] = 2.0  # a shift of two in this coordinate alone
        assert gaussian_mu_squared(one, own, common, overlap)[0] == pytest.approx(4 * by_hand, rel=1e-6)
        assert isinstance(overlap, np.ndarray) or ours[column] < 1 / (common[column] * overlap)
