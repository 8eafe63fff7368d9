"""`randomized-response`: its messages, its refusals, and what a run says about its recovery."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.basics import received, shape_of, small_run
from support.runs import play
from support.snapshot import snapshot

from protocol.arithmetic.tape import Tape
from protocol.errors import BadInput, Reason, Rejected
from protocol.party.role import Done
from protocol.schemes import Shape
from protocol.schemes.collection.mechanisms import RandomizedResponse
from protocol.schemes.collection.randomized_response import RandomizedResponseRatings
from protocol.wire.level_vectors import digits_bytes
from protocol.wire.messages import RandomizedLevels, Recommendations
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import run
from tests.protocol.wire.test_formula import both

NAME = "randomized-response"
RATINGS = [{0: 1.0, 1: 4.0}, {1: 5.0, 2: 2.0}, {0: 3.0, 2: 4.0, 3: 1.0}]
DEMO = {"scheme": NAME, "data": "demo-small", "seed": 3, "transport": "inprocess", "views": "none"}


def levels(*digits: float) -> RandomizedLevels:
    return RandomizedLevels(np.array(digits, np.float32)[:, None])


def recommended(*numbers: float) -> Recommendations:
    return Recommendations(np.array(numbers, np.float32)[:, None])


def test_the_recommender_receives_what_the_mechanism_leaves_of_the_vector_and_nothing_else(tmp_path):
    card, seats = small_run(NAME, ratings=RATINGS, n_items=5, epsilon=1.0)
    play(card, seats, folder=tmp_path, views=[seat.party for seat in seats])
    heard = {sender: message for sender, message in received(card, tmp_path, "recommender") if sender != "recommender"}
    tapes = {seat.party: Tape(seat.tape_seed) for seat in seats}
    for user, rated in enumerate(RATINGS):
        entries = np.array([rated.get(item, 0) for item in range(5)], np.uint8)
        sent = RandomizedResponse(1.0, 5).answer(tapes[f"user:{user}"], entries)
        assert heard[f"user:{user}"].levels[:, 0].tolist() == sent.tolist()


def test_without_noise_the_vector_is_the_ratings_and_another_seed_changes_nothing():
    answers = []
    for seed in (1, 2):
        card, seats = small_run(NAME, ratings=RATINGS, n_items=5, epsilon=math.inf, seed=seed)
        role = card.scheme.make_role("user:2", card.setting, Tape(seats[3].tape_seed), seats[3].inputs)
        [send] = role.start()
        answers.append(send.message.levels[:, 0].tolist())
    assert answers == [[3, 0, 4, 1, 0]] * 2


BAD = {
    "from a user who does not exist": ("user:3", levels(0, 0, 0, 0, 0), Reason.UNKNOWN_SENDER),
    "from itself": ("recommender", levels(0, 0, 0, 0, 0), Reason.UNKNOWN_SENDER),
    "twice": ("user:1", levels(0, 0, 0, 0, 0), Reason.DUPLICATE),
    "an entry too few": ("user:0", levels(0, 0, 0, 0), Reason.WRONG_LENGTH),
    "an entry too many": ("user:0", levels(0, 0, 0, 0, 0, 0), Reason.WRONG_LENGTH),
    "a level too high": ("user:0", levels(0, 0, 0, 0, 6), Reason.OUT_OF_RANGE),
    "below none": ("user:0", levels(-1, 0, 0, 0, 0), Reason.OUT_OF_RANGE),
    "between two levels": ("user:0", levels(0, 0, 2.5, 0, 0), Reason.OUT_OF_RANGE),
    "another kind": ("user:0", recommended(3, 3, 3, 3, 3), Reason.WRONG_KIND),
}


@pytest.mark.parametrize(("sender", "message", "reason"), BAD.values(), ids=BAD.keys())
def test_a_refused_vector_changes_nothing(sender, message, reason):
    card, _ = small_run(NAME, ratings=RATINGS, n_items=5)
    role = card.scheme.make_role("recommender", card.setting, Tape(bytes(32)), None)
    assert role.receive("user:1", levels(0, 5, 2, 0, 0)) == []
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason
    assert snapshot(role) == before
    assert role.receive("user:2", levels(3, 0, 4, 1, 0)) == []
    *sends, done = role.receive("user:0", levels(1, 4, 0, 0, 0))
    assert [send.to for send in sends] == ["user:0", "user:1", "user:2"] and isinstance(done, Done)
    with pytest.raises(Rejected, match="WRONG_KIND"):
        role.receive("user:0", levels(1, 4, 0, 0, 0))


ANSWERS = {
    "from another user": ("user:1", recommended(3, 3, 3, 3, 3), Reason.UNKNOWN_SENDER),
    "an item too few": ("recommender", recommended(3, 3, 3, 3), Reason.WRONG_LENGTH),
    "above the scale": ("recommender", recommended(3, 3, 3, 3, 5.1), Reason.OUT_OF_RANGE),
    "below the scale": ("recommender", recommended(0.9, 3, 3, 3, 3), Reason.OUT_OF_RANGE),
    "another kind": ("recommender", levels(0, 0, 0, 0, 0), Reason.WRONG_KIND),
}


@pytest.mark.parametrize(("sender", "message", "reason"), ANSWERS.values(), ids=ANSWERS.keys())
def test_a_refused_answer_changes_nothing(sender, message, reason):
    card, seats = small_run(NAME, ratings=RATINGS, n_items=5, add_user_mean=True)
    role = card.scheme.make_role("user:0", card.setting, Tape(bytes(32)), seats[1].inputs)
    role.start()
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason and snapshot(role) == before
    assert role.receive("recommender", recommended(1, 2, 3, 4, 5)) == [Done()]
    # it rated item 0 with 1 and item 1 with 4: r̄ = (0 + 2)/(2 + 20)
    assert role.predict(np.array([0, 4], np.uint32)) == pytest.approx([1 + 2 / 22, 5 + 2 / 22])


# ---- whole runs


def test_a_run_tells_rho_the_residual_and_theorem_3(tmp_path):
    summary = run(RunConfig(**DEMO, epsilon=8.0), out=tmp_path / "run")
    figures = summary["figures"]
    assert summary["completed"] and figures["recovery"] == "completion" and not figures["zero"] and figures["met"]
    assert figures["residual"] == pytest.approx(figures["rho"], rel=2e-4) and figures["rank"] >= 1
    assert figures["theorem_3"]["bound"] > figures["rho"]
    assert any(note.startswith("Recovered by (4): ρ = ") for note in summary["notes"])
    assert any(note.startswith("Theorem 3:") for note in summary["notes"])
    assert summary["accuracy"]["plain"]["test_rmse"] > 0.5  # at ε = ∞, not a constant
    assert summary["privacy"]["accounted"]["epsilon"] == 8.0


def test_a_run_says_that_the_answer_is_zero(tmp_path):
    """At ε = 1 the recovered matrix is zero: all predictions are 3, and the error is that of 3."""
    summary = run(RunConfig(**DEMO, epsilon=1.0), out=tmp_path / "run")
    assert summary["figures"]["zero"] and summary["figures"]["rank"] == 0
    assert summary["figures"]["residual"] <= summary["figures"]["rho"]
    assert any(note.startswith("M = 0") for note in summary["notes"])
    held_out = make_plan(RunConfig(**DEMO, epsilon=1.0)).data.held_out.values
    assert summary["accuracy"]["test_rmse"] == pytest.approx(float(np.sqrt(((held_out - 3) ** 2).mean())))


def test_means_and_the_users_own_mean_are_options(tmp_path):
    alone = run(RunConfig(**DEMO, epsilon=8.0, options={"recovery": "means"}), out=tmp_path / "alone")
    both_ = {"recovery": "means", "add_user_mean": "true"}
    added = run(RunConfig(**DEMO, epsilon=8.0, options=both_), out=tmp_path / "added")
    assert alone["figures"]["recovery"] == "means" and "rank" not in alone["figures"]
    assert added["accuracy"]["train_rmse"] < alone["accuracy"]["train_rmse"]


def test_processes_repeat_the_in_process_run_bit_for_bit(tmp_path):
    flags = {"scheme": NAME, "data": "demo-small", "users": 12, "seed": 3, "epsilon": 6.0}
    processes = run(RunConfig(**flags), out=tmp_path / "tcp")
    memory = run(RunConfig(**flags, transport="inprocess", views="none"), out=tmp_path / "memory")
    assert processes["completed"] and processes["rejected"] == {}
    assert processes["item_factors_sha256"] == memory["item_factors_sha256"]
    assert processes["accuracy"] == memory["accuracy"] and processes["figures"] == memory["figures"]


def test_the_formula_gives_the_bytes():
    measured, formula, _ = both(scheme=NAME, dim=1, iterations=1, epsilon=2.0)
    assert formula == measured
    frames = measured[-1, "user", "recommender", "RandomizedLevels"]
    # array, kind, number, two bytes of length, the digits, 32 bytes of head
    assert frames[1] == frames[0] * (3 + 2 + digits_bytes(60, 6) + 32)


@pytest.mark.parametrize("items", [1, 60, 3000])
def test_the_size_limit_leaves_room_for_the_largest_message(items):
    shape = shape_of([dict.fromkeys(range(items), 3.0)] * 4, items)
    scheme = RandomizedResponseRatings()
    params, _ = scheme.make_params(shape, epsilon=1.0)
    made = scheme.make_codec(params)
    for message in (levels(*[5] * items), recommended(*[3] * items)):
        assert len(made.encode(message, 2**32)) <= made.max_frame
        back = made.decode(made.encode(message, 7))[1]
        assert snapshot(back) == snapshot(message)


# ---- options


def made_with(step: float | None = 1.0, **options) -> tuple:
    shape = Shape(3, 5, (1.0, 5.0), (2, 2, 3), np.array([2, 2, 2, 1, 0]), step=step)
    return RandomizedResponseRatings().make_params(shape, epsilon=1.0, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recovery": "magic"}, "recovery must be one of completion, means"),
        ({"rho": math.inf}, "rho must be above 0"),
        ({"rho": -1.0}, "rho must be above 0"),
        ({"rho0": 1.5}, "rho0 is on the scale"),
        ({"theta_square": -0.1}, "theta_square is on the scale"),
        ({"gamma": 0.0}, "gamma must be above 0"),
        ({"step": None}, "needs ratings on a grid"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, words):
    assert made_with()[0].grid.levels == 5
    with pytest.raises(BadInput, match=words):
        made_with(**options)


def test_half_stars_have_nine_levels_and_the_vector_is_longer():
    params, _ = made_with(step=0.5)
    assert params.grid.levels == 9
    assert len(RandomizedResponseRatings().make_codec(params).encode(levels(9, 0, 1, 2, 3), 1)) == 3 + 2 + 3 + 32


def test_the_account_is_per_entry_per_vector_and_for_two_users():
    params, _ = made_with()
    account = RandomizedResponseRatings().account(params, Tape(bytes(32)), shape_of(RATINGS, 5))
    assert (account["epsilon"], account["delta"], account["vector"]) == (1.0, 0.0, 5.0)
    assert account["two_users_most"] == 5.0  # 2 + 3 ratings
