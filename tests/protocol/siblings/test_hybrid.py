"""`hybrid`: the perturbation of ratings, the recommender's model of them, and the protection that this gives."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.basics import FALSE_ALARM, received, shape_of, small_ratings, small_run
from support.covariance import hybrid_of_size
from support.meter import predicted_if_all_stay
from support.runs import factors_of, play
from support.snapshot import snapshot

from protocol.arithmetic.tape import Tape
from protocol.errors import BadInput, Reason, Rejected
from protocol.schemes import find_scheme
from protocol.schemes.covariance.averages import averages_of
from protocol.schemes.covariance.hybrid import perturbation, perturbed, within_reach
from protocol.schemes.covariance.model import measured, predictions
from protocol.schemes.covariance.totals import Book
from protocol.wire.messages import PerturbedRatings
from sim.bandwidth.bandwidth import bandwidth
from sim.plan.config import RunConfig
from sim.run.run import run as run_all
from sim.views.replay import replay
from sim.views.verify import verify
from tests.sim.bandwidth.test_traffic import metered

TAPE = Tape(bytes(range(32)))
CASES: list[dict[str, Any]] = [
    {},
    {"gamma": 0.0},
    {"gamma": 3.5, "items": 2},
    {"own_ratings": True},
    {"epsilon": math.inf},
    {"n_users": 20, "n_items": 90},
]


def test_the_perturbation_is_uniform_and_drawn_once():
    params = hybrid_of_size(2, 2, gamma=2.0)
    drawn = perturbation(params, TAPE, 20_000)
    assert stats.kstest(drawn, stats.uniform(-2, 4).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(drawn / 2, stats.uniform(-2, 4).cdf).pvalue < FALSE_ALARM, "another width would be found"
    assert np.array_equal(drawn, perturbation(params, TAPE, 20_000))
    assert not np.any(drawn == perturbation(params, Tape(bytes(32)), 20_000))


def test_what_is_sent_is_the_rating_within_gamma_and_stays_in_reach():
    params = hybrid_of_size(2, 2, gamma=0.1)
    ratings = np.random.default_rng(0).integers(1, 6, 5000).astype(float)
    sent = perturbed(params, TAPE, ratings)
    assert np.abs(sent - ratings).max() <= 0.1 + 1e-6 and sent.min() >= 0.9 and sent.max() <= 5.1
    assert within_reach(params, np.array([5.2, 0.8, 3.0])).tolist() == [5.1, 0.9, 3.0]


def test_bounded_noise_has_disjoint_supports():
    """With γ < .5 each r' can come from one rating only, so it gives the rating away and no ε is finite."""
    params = hybrid_of_size(2, 2, gamma=0.49)
    ratings = np.repeat(np.arange(1.0, 6), 1000)
    assert np.array_equal(np.rint(perturbed(params, TAPE, ratings)), ratings)
    wide = perturbed(hybrid_of_size(2, 2, gamma=3.5), TAPE, ratings)
    assert 0.2 < np.mean(np.clip(np.rint(wide), 1, 5) == ratings) < 0.6


def test_shrinking_follows_the_noisy_count():
    """GCnt = 24 of 4 users and 6 items: β_u = 6 and β_m = 4, to which 2 σ_MSum are added; never below a count of 1."""
    params = hybrid_of_size(4, 6, 1.0, gamma=1.0)
    sums, counts = np.full(6, 3.0), np.full(6, 4.0)
    averages = averages_of(params, np.concatenate([[0.0, 24.0], sums, counts]))
    assert averages.user_shrink == 6
    noise = 2 * (2 + 1) / 0.19  # κ Δ / θ_2
    assert averages.item_means == pytest.approx(3 + 3 / (4 + 4 + 2 * noise), abs=1e-6)
    assert averages_of(params, np.concatenate([[0.0, -9.0], sums, counts])).user_shrink == 1 / 4


@pytest.mark.parametrize("options", CASES, ids=str)
def test_a_run_publishes_what_the_formulas_give_for_perturbed_ratings(options):
    card, seats = small_run("hybrid", **options)
    run, params = play(card, seats), card.params
    users = [seat for seat in seats if seat.inputs is not None]
    sent = [perturbed(params, Tape(seat.tape_seed), seat.inputs.ratings) for seat in users]
    [tape] = [Tape(seat.tape_seed) for seat in seats if seat.party == "recommender"]
    book = Book.of((seat.inputs.items, values) for seat, values in zip(users, sent, strict=True))
    model = measured(params, book, tape)
    assert np.array_equal(run.outcome.item_factors, model.matrix())
    everything = np.arange(params.n_items, dtype=np.uint32)
    for seat, values in zip(users, sent, strict=True):
        used = seat.inputs.ratings if params.own_ratings else values
        expected = predictions(params, model, seat.inputs.items, used, everything)
        assert run.parties[seat.party].role.predict(everything) == pytest.approx(expected, abs=1e-9)


def test_the_recommender_is_sent_items_in_the_clear_and_no_rating(tmp_path):
    ratings = small_ratings(4, 5)
    card, seats = small_run("hybrid", gamma=1.0)
    play(card, seats, tmp_path, ["recommender"])
    for user, rated in enumerate(ratings):
        message = dict(received(card, tmp_path, "recommender"))[f"user:{user}"]
        assert message.items.tolist() == sorted(rated)
        true = np.array([rated[item] for item in sorted(rated)])
        assert not np.any(message.values[:, 0] == true) and np.abs(message.values[:, 0] - true).max() <= 1


def test_without_protection_nothing_is_perturbed_either():
    scheme = find_scheme("hybrid")
    card, _ = small_run("hybrid", gamma=2.0)
    other, params = scheme.unprotected(card.params)
    assert other is scheme and params == dataclasses.replace(card.params, epsilon=math.inf, gamma=0.0)


def rows(*numbers: float) -> Any:
    return np.array(numbers, np.float32).reshape(-1, 1)


def ids(*numbers: int) -> Any:
    return np.array(numbers, np.uint32)


SOUND = PerturbedRatings(ids(0, 1), rows(1.5, 6.0))
UPLOADS = {
    "from a user who does not exist": ("user:9", SOUND, Reason.UNKNOWN_SENDER),
    "twice": ("user:1", SOUND, Reason.DUPLICATE),
    "nothing": ("user:0", PerturbedRatings(ids(), rows()), Reason.WRONG_LENGTH),
    "a value too few": ("user:0", PerturbedRatings(ids(0, 1), rows(1.0)), Reason.WRONG_LENGTH),
    "an item too far": ("user:0", PerturbedRatings(ids(0, 5), rows(1.0, 1.0)), Reason.UNKNOWN_ITEM),
    "a value too far": ("user:0", PerturbedRatings(ids(0, 1), rows(1.0, 6.1)), Reason.OUT_OF_RANGE),
}


@pytest.mark.parametrize(("sender", "message", "reason"), UPLOADS.values(), ids=UPLOADS.keys())
def test_a_refused_upload_changes_nothing(sender, message, reason):
    card, seats = small_run("hybrid", gamma=1.0)
    role = card.scheme.make_role("recommender", card.setting, Tape(seats[0].tape_seed), None)
    assert role.receive("user:1", SOUND) == []
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason
    assert snapshot(role) == before
    assert role.receive("user:0", SOUND) == []


@pytest.mark.parametrize("options", CASES, ids=str)
def test_the_predicted_traffic_is_the_metered_traffic(options):
    card, seats = small_run("hybrid", **options)
    shape = shape_of(small_ratings(card.params.n_users, card.params.n_items), card.params.n_items)
    assert predicted_if_all_stay(card, shape) == metered(card, seats, handshakes=True)


def test_every_order_of_arrival_publishes_the_same():
    card, seats = small_run("hybrid", n_users=6, n_items=6)
    assert len({factors_of(card, seats, order=order).tobytes() for order in range(10)}) == 1


def test_a_demo_run_verifies_replays_and_counts_its_bytes(tmp_path):
    flags = {"scheme": "hybrid", "data": "demo-small", "transport": "inprocess"}
    config = RunConfig(**flags, epsilon=5.0, seed=1, options={"gamma": 0.5})
    summary = run_all(config, out=tmp_path / "run")
    assert summary["completed"] and summary["rejected"] == {}
    assert summary["accuracy"]["plain"]["test_rmse"] < summary["accuracy"]["test_rmse"] < 1.6
    assert verify(tmp_path / "run")["verified"]
    assert replay(tmp_path / "run")["identical"]
    assert bandwidth(tmp_path / "run")["match"]


def test_processes_publish_what_one_process_publishes(tmp_path):
    config = {"scheme": "hybrid", "data": "synthetic:6x12", "epsilon": 5.0, "seed": 1}
    processes = run_all(RunConfig(**config), out=tmp_path / "tcp")
    memory = run_all(RunConfig(**config, transport="inprocess"), out=tmp_path / "memory")
    assert processes["completed"] and processes["item_factors_sha256"] == memory["item_factors_sha256"]
    assert processes["accuracy"] == memory["accuracy"] and processes["bytes"] == memory["bytes"]


def test_the_account_is_of_what_is_published_and_says_what_the_recommender_gets():
    scheme, shape = find_scheme("hybrid"), shape_of(small_ratings(4, 5), 5)
    params, notes = scheme.make_params(shape, epsilon=2.0, gamma=1.0)
    found = scheme.account(params, Tape(bytes(32)), shape)
    assert notes == [] and found["epsilon"] == pytest.approx(2.0) and found["delta"] == 0
    assert found["to_recommender"] == math.inf and "disjoint supports" in found["method"]
    bare, _ = scheme.make_params(shape, epsilon=math.inf, gamma=0.0)
    assert scheme.account(bare, Tape(bytes(32)), shape)["epsilon"] == math.inf


@pytest.mark.parametrize("gamma", [-0.1, math.inf, math.nan])
def test_a_perturbation_that_is_none_is_refused_in_words(gamma):
    with pytest.raises(BadInput, match="gamma must be 0 or more"):
        hybrid_of_size(2, 2, gamma=gamma)
