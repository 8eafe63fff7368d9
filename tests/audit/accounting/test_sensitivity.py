"""The effect of one flipped rating, checked by hand, by numerical derivatives and against the reference figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.audit import made
from support.basics import small_run

from protocol.arithmetic.tape import Tape
from protocol.party.role import UserInput
from protocol.schemes.factorization.trusted import (
    RatingBook,
    fresh_item_factors,
    noisy_item_factors,
    objective_noise,
    train,
)
from sim.audit.accounting.neighbours import flipped, sensitivity, spread
from sim.audit.families.factorization.reacting_factors import reacting_changes
from sim.audit.families.trusted.moving_factors import moving_losses
from sim.audit.families.trusted.trusted_noise import NoiseMap, read_publication
from sim.data.ratings import find
from sim.views.exhibits import Exhibits

# ---- small things


def test_a_rating_goes_to_the_farther_end():
    params, draw = small_run()[0].params, np.random.default_rng(1)
    assert [flipped(rating, params, draw) for rating in (1.0, 2.0, 4.0, 5.0)] == [5, 5, 1, 1]
    assert {flipped(3.0, params, draw) for _ in range(20)} == {1.0, 5.0}


def test_the_interval_of_a_median_by_hand():
    """9 values: P(2 ≤ Bin(9, ½) ≤ 7) = .961, so the interval is from the second to the eighth."""
    figures = spread(np.arange(1.0, 10.0))
    assert (figures["median"], figures["interval"], figures["largest"], figures["flips"]) == (5, [2, 8], 9, 9)
    assert figures["above"] == pytest.approx(8 / 9)
    assert figures["level"] == pytest.approx(1 - 2 * (1 + 9) / 2**9)
    few = spread(np.array([3.0, 1.0, 2.0]))
    assert (few["interval"], few["level"]) == ([1, 3], pytest.approx(0.75))
    assert spread(np.array([7.0]))["level"] == 0


# ---- trusted: from factors to noise


def small_book(iterations: int = 7, **options):
    """Six users, four items; item 3 has fewer raters than dimensions."""
    draw = np.random.default_rng(3)
    ratings = [{j: float(draw.integers(1, 6)) for j in range(3)} for _ in range(6)]
    ratings[0][3] = 5.0
    card, seats = small_run("trusted", n_items=4, dim=3, iterations=iterations, epsilon=2.0, ratings=ratings, **options)
    handed = {user: seat.inputs for user, seat in enumerate(seats[1:])}
    return RatingBook(handed, 4), card.params, Tape(seats[0].tape_seed)


def test_the_noise_is_recovered_from_what_the_steps_give():
    book, params, tape = small_book()
    users, _ = train(book, params, tape)
    published = noisy_item_factors(book, users, params, tape)
    noise, _ = NoiseMap(book, users, params, tape).after_steps(published)
    assert noise == pytest.approx(objective_noise(params, tape), abs=1e-8)
    other, _ = NoiseMap(book, np.roll(users, 1, axis=0), params, tape).after_steps(published)
    assert np.abs(other - noise).max() > 0.1  # with another U it would have been another noise


def test_the_minimiser_is_where_many_steps_end():
    book, params, tape = small_book(iterations=200_000, learning_rate=0.1)
    users = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 3)))[0]
    mapped = NoiseMap(book, users, params, tape)
    found = mapped.minimiser(objective_noise(params, tape))
    assert mapped.at_minimum(found)[0] == pytest.approx(objective_noise(params, tape))
    assert mapped.after_steps(found)[0] == pytest.approx(objective_noise(params, tape), rel=1e-6)


@pytest.mark.parametrize("way", ["after_steps", "at_minimum"])
def test_the_determinant_is_that_of_a_numerical_jacobian(way):
    book, params, tape = small_book()
    users, _ = train(book, params, tape)
    map_ = getattr(NoiseMap(book, users, params, tape), way)
    start = fresh_item_factors(params, tape)
    for item in range(4):
        columns = []
        for at in range(3):
            step = np.zeros_like(start)
            step[item, at] = 1e-4
            columns.append((map_(start + step)[0][item] - map_(start - step)[0][item]) / 2e-4)
        sign, log = np.linalg.slogdet(np.array(columns))
        assert sign != 0 and map_(start)[1][item] == pytest.approx(log, rel=1e-6)


def test_with_u_frozen_the_loss_is_that_of_one_shifted_noise_and_within_the_claim(tmp_path):
    """|Σ_l |η_l + 2u_l(r' − r)| − |η_l|| / b ≤ 2Δ|u|₁/b ≤ ε."""
    published = read_publication(made(tmp_path / "run", "trusted", epsilon=2.0))
    params, tape, twin = published.params, published.tape, np.random.default_rng(2)
    losses = moving_losses(published, 10, np.random.default_rng(2))
    assert 0 < losses["frozen"].max() <= 2.0 and len(losses["frozen"]) == 10
    book = RatingBook(published.handed, params.n_items)
    place = int(twin.choice(len(book.ratings), 10, replace=False)[0])
    shift = flipped(float(book.ratings[place]), params, twin) - book.ratings[place]
    user, noise = train(book, params, tape)[0][book.users[place]], objective_noise(params, tape)[book.items[place]]
    expected = abs(np.abs(noise + 2 * user * shift).sum() - np.abs(noise).sum()) / params.noise_scale
    assert losses["frozen"][0] == pytest.approx(expected, abs=1e-9)


def test_a_u_that_training_moves_is_found_and_one_that_stays_is_not(tmp_path):
    document, (finding,) = sensitivity(made(tmp_path / "moves", "trusted", epsilon=1.0))
    assert finding.id == "moving-user-factors" and finding.severity == "weak"
    assert document["shift"]["median"] > 1 and document["frozen"]["above"] == 0
    still = made(tmp_path / "stays", "trusted", epsilon=1.0, options={"learning_rate": 1e-9})
    document, (finding,) = sensitivity(still)
    assert finding.severity == "info"
    assert document["published"]["largest"] == pytest.approx(document["frozen"]["largest"], abs=1e-3)


# ---- direct, masked, dynamic: the user's role


@pytest.mark.parametrize("scheme", ["direct", "masked", "dynamic"])
def test_gradients_that_react_exceed_the_bound_and_those_of_a_fixed_u_do_not(tmp_path, scheme):
    document, (finding,) = sensitivity(made(tmp_path / "reacts", scheme))
    assert finding.id == "reacting-user-factors" and finding.severity == "weak"
    assert document["mean"]["median"] > document["first_iteration"]["median"]
    assert document["first_iteration"]["largest"] <= 1
    fixed = made(tmp_path / "fixed", scheme, options={"learning_rate": 1e-9})
    document, (finding,) = sensitivity(fixed)
    assert finding.severity == "info" and document["largest_iteration"]["largest"] <= 1


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_the_first_iteration_by_hand(tmp_path, wire):
    """u_i(0) has not reacted: the change is 2 |u|₁ |r − r'| over 2Δ√d, for the one flipped item."""
    case = made(tmp_path / "run", "masked", iterations=2, wire=wire)
    draw, twin = np.random.default_rng(4), np.random.default_rng(4)
    (change,) = reacting_changes(case, ["user:3"], 1, draw)
    twin.permutation(1)
    brought = Exhibits(case, ("user:3",)).brought("user:3")
    role = case.card.scheme.make_role("user:3", case.card.setting, brought.tape, brought.inputs)
    rating = float(brought.inputs.ratings[int(twin.integers(len(brought.inputs.ratings)))])
    moved = abs(flipped(rating, case.card.params, twin) - rating)
    assert len(change) == 2
    assert change[0] == pytest.approx(2 * np.abs(role.user_factors).sum() * moved / (2 * 4 * math.sqrt(10)))


def test_the_sample_repeats_itself_and_needs_views_and_a_claim(tmp_path):
    case = made(tmp_path / "run", "masked", iterations=3)
    assert sensitivity(case, 5) == sensitivity(case, 5)
    assert sensitivity(case, 5)[0]["mean"]["flips"] == 5
    assert sensitivity(made(tmp_path / "servers", "masked", iterations=3, views="servers")) == ({}, [])
    assert sensitivity(made(tmp_path / "inf", "masked", iterations=3, epsilon=math.inf)) == ({}, [])
    assert sensitivity(made(tmp_path / "plain", "plain", iterations=3)) == ({}, [])


def test_a_flip_changes_no_other_rating(tmp_path):
    case = made(tmp_path / "run", "trusted")
    before = {user: UserInput(own.items, own.ratings.copy()) for user, own in read_publication(case).handed.items()}
    publication = read_publication(case)
    moving_losses(publication, 3, np.random.default_rng(1))
    assert all((publication.handed[user].ratings == own.ratings).all() for user, own in before.items())


# ---- real ratings


@pytest.mark.slow
@pytest.mark.skipif(find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k")
class TestRealRatings:
    def test_the_exact_minimiser_loses_what_the_reference_says(self, tmp_path):
        """Reference: median 38 ε at ε = 1, dim 10, at most .59 with U frozen. 100 flips gave 45 [36, 53] and .56.

        The run decides which ratings are flipped; the interval must overlap with that of the 100 flips.
        """
        case = made(tmp_path / "run", "trusted", data="ml-100k", epsilon=1.0, iterations=100)
        document, (finding,) = sensitivity(case)
        print(document)
        low, high = document["minimiser"]["interval"]
        assert low < 53 and high > 36
        assert document["frozen"]["largest"] <= 0.65
        # the V that T steps publish loses far less: its log likelihood ratio is mostly within ε, its bound is not
        assert document["published"]["median"] < 1 < document["shift"]["median"] < document["minimiser"]["median"]
        assert finding.severity == "weak"

    def test_gradients_exceed_the_bound_as_the_reference_says(self, tmp_path):
        """Reference: 1.3 times (median) to 3 times. 943 users at ε = 8 gave 1.28 and 2.97; here 200 of them."""
        flags = {"data": "ml-100k", "epsilon": 8.0, "iterations": 100, "users": 200, "views": "sample:150"}
        document, _ = sensitivity(made(tmp_path / "run", "masked", **flags))
        print(document)
        assert document["mean"]["median"] == pytest.approx(1.3, abs=0.12)
        assert 2 < document["mean"]["largest"] < 5
        assert document["first_iteration"]["largest"] <= 1
