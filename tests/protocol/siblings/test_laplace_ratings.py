"""`laplace-ratings`: its messages, its refusals, and bytes that depend on the draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.basics import received, shape_of, small_run
from support.runs import play
from support.snapshot import snapshot

from protocol.arithmetic.tape import Tape
from protocol.errors import Reason, Rejected
from protocol.party.role import Done
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.laplace_ratings import LaplaceRatings
from protocol.schemes.collection.mechanisms import ModifiedLaplace
from protocol.wire.messages import PerturbedRatings, Recommendations
from sim.bandwidth.bandwidth import bandwidth
from sim.bandwidth.prediction import predict
from sim.plan.config import RunConfig
from sim.run.run import run
from tests.protocol.wire.test_formula import both

NAME = "laplace-ratings"
RATINGS = [{0: 1.0, 1: 4.0}, {1: 5.0, 2: 2.0}, {0: 3.0, 2: 4.0, 3: 1.0}]
DEMO = {"scheme": NAME, "data": "demo-small", "seed": 3, "transport": "inprocess", "views": "none"}


def perturbed(*pairs: tuple[int, float]) -> PerturbedRatings:
    items = np.array([item for item, _ in pairs], np.uint32)
    return PerturbedRatings(items, np.array([[value] for _, value in pairs], np.float32).reshape(-1, 1))


def test_the_recommender_receives_what_the_mechanism_leaves_of_the_vector_and_nothing_else(tmp_path):
    card, seats = small_run(NAME, ratings=RATINGS, n_items=5, epsilon=1.0)
    play(card, seats, folder=tmp_path, views=[seat.party for seat in seats])
    heard = dict(received(card, tmp_path, "recommender"))
    tapes = {seat.party: Tape(seat.tape_seed) for seat in seats}
    for user, rated in enumerate(RATINGS):
        items, values = np.array([*rated], np.uint32), np.array([*rated.values()])
        sent, numbers = ModifiedLaplace(1.0).answer(
            tapes[f"user:{user}"], items, Grid(1.0, 5.0, 1.0).scaled(values), 5
        )
        message = heard[f"user:{user}"]
        assert message.items.tolist() == sent.tolist()
        assert message.values[:, 0].tobytes() == numbers.tobytes()


def test_without_noise_the_ratings_travel_on_the_scale_from_minus_one_to_one():
    card, seats = small_run(NAME, ratings=RATINGS, n_items=5, epsilon=math.inf)
    role = card.scheme.make_role("user:2", card.setting, Tape(seats[3].tape_seed), seats[3].inputs)
    [send] = role.start()
    assert send.message.items.tolist() == [0, 2, 3] and send.message.values[:, 0].tolist() == [0, 0.5, -1]


SOUND = perturbed((0, -1.0), (1, 0.5))
BAD = {
    "from a user who does not exist": ("user:3", SOUND, Reason.UNKNOWN_SENDER),
    "twice": ("user:1", SOUND, Reason.DUPLICATE),
    "a number too few": ("user:0", PerturbedRatings(SOUND.items, SOUND.values[:1]), Reason.WRONG_LENGTH),
    "an item too far": ("user:0", perturbed((5, 0.0)), Reason.UNKNOWN_ITEM),
    "further than noise reaches": ("user:0", perturbed((0, 1 + 37 * 2 / 8.0)), Reason.OUT_OF_RANGE),
    "another kind": ("user:0", Recommendations(np.ones((5, 1), np.float32)), Reason.WRONG_KIND),
}


@pytest.mark.parametrize(("sender", "message", "reason"), BAD.values(), ids=BAD.keys())
def test_a_refused_vector_changes_nothing(sender, message, reason):
    card, _ = small_run(NAME, ratings=RATINGS, n_items=5, epsilon=8.0)
    role = card.scheme.make_role("recommender", card.setting, Tape(bytes(32)), None)
    assert role.receive("user:1", perturbed()) == []  # everything may have been dropped
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason and snapshot(role) == before
    assert role.receive("user:2", perturbed((0, 0.0), (4, 1 + 35 * 2 / 8.0))) == []
    *sends, done = role.receive("user:0", SOUND)
    assert [send.to for send in sends] == ["user:0", "user:1", "user:2"] and isinstance(done, Done)
    assert role.facts()["cells"] == [2, 0, 2]


@pytest.mark.parametrize("epsilon", [0.5, 8.0, math.inf])
def test_the_formula_gives_the_bytes_of_the_cells_that_were_drawn(epsilon):
    measured, formula, _ = both(scheme=NAME, dim=1, iterations=1, epsilon=epsilon)
    assert formula == measured


def test_before_a_run_the_bytes_are_an_expectation_that_the_run_is_near(tmp_path):
    before = predict(RunConfig(**DEMO, epsilon=2.0))
    run(RunConfig(**DEMO, epsilon=2.0), out=tmp_path / "run")
    after = bandwidth(tmp_path / "run")
    assert before["basis"] == "expectation" and after["match"]
    assert before["total"]["predicted_bytes"] == pytest.approx(after["total"]["predicted_bytes"], rel=0.03)
    assert before["total"]["predicted_bytes"] != after["total"]["predicted_bytes"]


def test_a_run_tells_rho_the_residual_and_theorem_3(tmp_path):
    summary = run(RunConfig(**DEMO, epsilon=16.0), out=tmp_path / "run")
    figures = summary["figures"]
    assert figures["residual"] == pytest.approx(figures["rho"], rel=2e-4) and figures["rank"] >= 1
    assert figures["theorem_3"]["bound"] > figures["rho"] and figures["met"] and not figures["zero"]
    assert figures["gap"] < 0.01


def test_a_radius_of_ones_own_replaces_the_one_that_follows(tmp_path):
    summary = run(RunConfig(**DEMO, epsilon=2.0, options={"rho": 5.0}), out=tmp_path / "run")
    assert summary["figures"]["rho"] == 5.0 and not summary["figures"]["zero"]
    assert summary["figures"]["residual"] == pytest.approx(5.0, rel=2e-4)


def test_the_size_limit_leaves_room_for_the_largest_message():
    items, scheme = 30, LaplaceRatings()
    params, _ = scheme.make_params(shape_of([dict.fromkeys(range(items), 3.0)] * 4, items), epsilon=1.0)
    made = scheme.make_codec(params)
    assert len(made.encode(perturbed(*((item, 0.5) for item in range(items))), 2**32)) <= made.max_frame
