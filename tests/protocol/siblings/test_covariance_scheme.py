"""`covariance` as a scheme: what is sent, refused, published, predicted, counted and accounted."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from support.basics import received, shape_of, small_ratings, small_run
from support.meter import predicted_if_all_stay
from support.runs import factors_of, play
from support.snapshot import snapshot

from protocol.arithmetic.tape import Tape
from protocol.errors import BadInput, Reason, Rejected
from protocol.party.role import Done, Send
from protocol.schemes import find_scheme
from protocol.schemes.covariance.covariance import MOST_FACTOR, Covariance, LazyPublication
from protocol.schemes.covariance.model import measured, predictions
from protocol.schemes.covariance.totals import Book
from protocol.wire.messages import FactorModel, GradedRatings, NeighbourModel, RatingsHandover
from sim.bandwidth.bandwidth import bandwidth
from sim.plan.config import RunConfig
from sim.run.run import run as run_all
from sim.views.replay import replay
from sim.views.verify import verify
from tests.sim.bandwidth.test_traffic import metered

RATINGS = [{0: 1.0, 1: 4.0}, {1: 5.0, 2: 2.0}, {0: 3.0, 2: 4.0, 3: 1.0}]
CASES: list[dict[str, Any]] = [
    {},
    {"predictor": "knn"},
    {"predictor": "knn", "items": 2, "neighbours": 1},
    {"items": 3, "rank": 2, "noise": "laplace"},
    {"unit_of": "user", "cleaning": False},
    {"ratings": [{0: 1.25, 1: 4.1}, {1: 5.0, 2: 2.0}, {0: 3.0, 2: 4.0, 3: 1.0}, {4: 2.0}]},
    {"epsilon": math.inf},
    {"n_users": 30, "n_items": 300},
    {"n_users": 12, "n_items": 70, "predictor": "knn"},
]


def book_of(seats: list[Any]) -> Book:
    return Book.of([(seat.inputs.items, seat.inputs.ratings) for seat in seats if seat.inputs is not None])


@pytest.mark.parametrize("options", CASES, ids=str)
def test_a_run_publishes_what_the_formulas_give_and_users_predict_from_it(options):
    card, seats = small_run("covariance", **options)
    run = play(card, seats)
    [tape] = [Tape(seat.tape_seed) for seat in seats if seat.party == "recommender"]
    model = measured(card.params, book_of(seats), tape)
    assert np.array_equal(run.outcome.item_factors, model.matrix())
    everything = np.arange(card.params.n_items, dtype=np.uint32)
    for seat in seats:
        if seat.inputs is not None:
            expected = predictions(card.params, model, seat.inputs.items, seat.inputs.ratings, everything)
            assert run.parties[seat.party].role.predict(everything) == pytest.approx(expected, abs=1e-9)


def test_every_order_of_arrival_publishes_the_same():
    card, seats = small_run("covariance", n_users=6, n_items=6)
    expected = factors_of(card, seats).tobytes()
    assert {factors_of(card, seats, order=order).tobytes() for order in range(10)} == {expected}
    assert factors_of(*small_run("covariance", n_users=6, n_items=6, seed=2)).tobytes() != expected


def test_ratings_on_a_grid_travel_as_a_byte_each(tmp_path):
    card, seats = small_run("covariance", ratings=RATINGS, n_items=5)
    play(card, seats, tmp_path, ["recommender"])
    handed = dict(received(card, tmp_path, "recommender"))
    assert handed["user:0"].grades.tolist() == [0, 3] and handed["user:2"].grades.tolist() == [2, 3, 0]
    odd = [{0: 1.0, 1: 4.5}, *RATINGS[1:]]
    card, seats = small_run("covariance", ratings=odd, n_items=5)
    play(card, seats, tmp_path / "odd", ["recommender"])
    handed = dict(received(card, tmp_path / "odd", "recommender"))
    assert isinstance(handed["user:0"], RatingsHandover) and handed["user:0"].values.tolist() == [1.0, 4.5]


def test_nothing_that_a_user_is_sent_depends_on_its_own_average(tmp_path):
    """With factors every user is sent the same message; only the recommender and the user itself can compute r̄_u."""
    card, seats = small_run("covariance")
    users = [seat.party for seat in seats if seat.party != "recommender"]
    play(card, seats, tmp_path, users)
    told = [received(card, tmp_path, user)[-1][1] for user in users]
    assert len({tuple(getattr(one, field.name).tobytes() for field in dataclasses.fields(one)) for one in told}) == 1


def test_a_publication_is_a_sequence_that_makes_each_message_when_it_is_asked_for():
    made: list[int] = []

    def make(items: Any) -> Any:
        made.append(int(items[0]))
        return items

    whole = LazyPublication([("user:0", u32(7)), ("user:1", u32(8))], make, Done())
    assert len(whole) == 3 and made == []
    assert whole[2] == whole[-1] == Done() and made == []
    rest = whole[1:]
    assert len(rest) == 2 and rest[0].to == "user:1" and made == [8]
    assert [type(effect) for effect in whole] == [Send, Send, Done] and made == [8, 7, 8]
    with pytest.raises(IndexError):
        whole[3]


# --- refusals --------------------------------------------------------------------------------------------------------


def u32(*numbers: int) -> Any:
    return np.array(numbers, np.uint32)


def u8(*numbers: int) -> Any:
    return np.array(numbers, np.uint8)


def f32(*numbers: float) -> Any:
    return np.array(numbers, np.float32).reshape(-1, 1)


SOUND = GradedRatings(u32(0, 1), u8(0, 3))
HANDOVERS = {
    "from a user who does not exist": ("user:3", SOUND, Reason.UNKNOWN_SENDER),
    "from no user": ("third_party", SOUND, Reason.UNKNOWN_SENDER),
    "twice": ("user:1", SOUND, Reason.DUPLICATE),
    "nothing": ("user:0", GradedRatings(u32(), u8()), Reason.WRONG_LENGTH),
    "a value too few": ("user:0", GradedRatings(u32(0, 1), u8(0)), Reason.WRONG_LENGTH),
    "an item too far": ("user:0", GradedRatings(u32(0, 5), u8(0, 1)), Reason.UNKNOWN_ITEM),
    "a rating too high": ("user:0", GradedRatings(u32(0, 1), u8(0, 5)), Reason.OUT_OF_RANGE),
    "another form": ("user:0", RatingsHandover(u32(0), np.array([3.0])), Reason.WRONG_KIND),
    "another kind": ("user:0", FactorModel(f32(), u32(), f32()), Reason.WRONG_KIND),
}


@pytest.mark.parametrize(("sender", "message", "reason"), HANDOVERS.values(), ids=HANDOVERS.keys())
def test_a_refused_handover_changes_nothing(sender, message, reason):
    card, seats = small_run("covariance", ratings=RATINGS, n_items=5)
    role = card.scheme.make_role("recommender", card.setting, Tape(seats[0].tape_seed), None)
    assert role.receive("user:1", GradedRatings(u32(1, 2), u8(4, 1))) == []
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason
    assert snapshot(role) == before
    assert role.receive("user:2", GradedRatings(u32(0, 2, 3), u8(2, 3, 0))) == []
    *sends, done = role.receive("user:0", SOUND)
    assert [send.to for send in sends] == ["user:0", "user:1", "user:2"]
    assert isinstance(done, Done) and done.result.tobytes() == factors_of(card, seats).tobytes()
    with pytest.raises(Rejected, match="WRONG_KIND"):
        role.receive("user:0", SOUND)


MEANS, ALL = f32(1, 2, 3, 4, 5), u32(0, 1, 2, 3, 4)
GOOD_FACTORS = FactorModel(MEANS, ALL, f32(*range(10)))
FACTORS = {
    "from another user": ("user:1", GOOD_FACTORS, Reason.UNKNOWN_SENDER),
    "a mean too few": ("recommender", FactorModel(MEANS[1:], ALL, f32(*range(10))), Reason.WRONG_LENGTH),
    "a mean too high": ("recommender", FactorModel(MEANS + 1, ALL, f32(*range(10))), Reason.OUT_OF_RANGE),
    "an item too few": ("recommender", FactorModel(MEANS, ALL[1:], f32(*range(10))), Reason.WRONG_LENGTH),
    "an item too far": ("recommender", FactorModel(MEANS, ALL + 1, f32(*range(10))), Reason.UNKNOWN_ITEM),
    "a factor too few": ("recommender", FactorModel(MEANS, ALL, f32(*range(9))), Reason.WRONG_LENGTH),
    "a large factor": ("recommender", FactorModel(MEANS, ALL, f32(*range(9), 2 * MOST_FACTOR)), Reason.OUT_OF_RANGE),
    "another kind": ("recommender", SOUND, Reason.WRONG_KIND),
}


def neighbours(**changes: Any) -> NeighbourModel:
    """Make a model for user 0, which rated two items, with one neighbour for each of the five items."""
    shrink, among, near = np.array([20.0]), f32(0.5, 0.1, 0.5), u32(0, 1, 0, 1, 0)
    return dataclasses.replace(NeighbourModel(MEANS, ALL, shrink, among, near, f32(0.1, 0.2, 0, 0, 0)), **changes)


NEIGHBOURS = {
    "from another user": ("user:1", neighbours(), Reason.UNKNOWN_SENDER),
    "a mean too few": ("recommender", neighbours(averages=MEANS[1:]), Reason.WRONG_LENGTH),
    "an item too far": ("recommender", neighbours(covered=ALL + 1), Reason.UNKNOWN_ITEM),
    "two shrinks": ("recommender", neighbours(shrink=np.array([20.0, 20.0])), Reason.WRONG_LENGTH),
    "no shrink": ("recommender", neighbours(shrink=np.array([0.0])), Reason.OUT_OF_RANGE),
    "a pair too many": ("recommender", neighbours(among=f32(1, 0, 0, 0)), Reason.WRONG_LENGTH),
    "a neighbour too few": ("recommender", neighbours(neighbours=u32(0, 1, 0, 1)), Reason.WRONG_LENGTH),
    "a neighbour that is none": ("recommender", neighbours(neighbours=u32(0, 1, 0, 1, 2)), Reason.OUT_OF_RANGE),
    "a covariance too few": ("recommender", neighbours(covariances=f32(0, 0, 0, 0)), Reason.WRONG_LENGTH),
    "a large covariance": ("recommender", neighbours(covariances=f32(0, 0, 0, 0, 1e7)), Reason.OUT_OF_RANGE),
    "a large one among them": ("recommender", neighbours(among=f32(1, 1e7, 1)), Reason.OUT_OF_RANGE),
    "another kind": ("recommender", GOOD_FACTORS, Reason.WRONG_KIND),
}
PUBLISHED = [({"rank": 2}, GOOD_FACTORS, *case) for case in FACTORS.values()]
PUBLISHED += [({"predictor": "knn", "neighbours": 1}, neighbours(), *case) for case in NEIGHBOURS.values()]


NAMES = [*FACTORS, *(f"kNN: {name}" for name in NEIGHBOURS)]


@pytest.mark.parametrize(("options", "good", "sender", "message", "reason"), PUBLISHED, ids=NAMES)
def test_a_refused_publication_changes_nothing(options, good, sender, message, reason):
    card, seats = small_run("covariance", ratings=RATINGS, n_items=5, **options)
    role = card.scheme.make_role("user:0", card.setting, Tape(bytes(32)), seats[1].inputs)
    [send] = role.start()
    assert send.to == "recommender" and send.message.grades.tolist() == [0, 3]
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason
    assert snapshot(role) == before
    assert role.receive("recommender", good) == [Done()]
    assert np.all(np.isfinite(role.predict(ALL)))
    with pytest.raises(Rejected, match="DUPLICATE"):
        role.receive("recommender", good)


# --- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", CASES, ids=str)
def test_the_predicted_traffic_is_the_metered_traffic(options):
    card, seats = small_run("covariance", **options)
    given = options.get("ratings") or small_ratings(card.params.n_users, card.params.n_items)
    assert predicted_if_all_stay(card, shape_of(given, card.params.n_items)) == metered(card, seats, handshakes=True)


@pytest.mark.parametrize("predictor", ["svd", "knn"])
def test_the_size_limit_leaves_room_for_the_largest_message(predictor):
    everything = [dict.fromkeys(range(40), 3.5)] * 4
    params, notes = Covariance().make_params(shape_of(everything, 40), predictor=predictor)
    assert notes == []
    codec, ids, near = Covariance().make_codec(params), np.arange(40, dtype=np.uint32), 40 * 20
    pairs = np.ones((40 * 41 // 2, 1), np.float32)
    largest: Any = FactorModel(np.ones((40, 1), np.float32), ids, np.ones((near, 1), np.float32))
    if predictor == "knn":
        places = np.full(near, 39, np.uint32)
        largest = NeighbourModel(largest.averages, ids, np.ones(1), pairs, places, np.ones((near, 1), np.float32))
    for message in (largest, RatingsHandover(ids, np.ones(40))):
        assert len(codec.encode(message, 2**32)) <= codec.max_frame
    if predictor == "knn":
        assert codec.decode(codec.encode(largest, 1))[1].neighbours.tolist() == [39] * near


# --- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"predictor": "knn"}, {"noise": "laplace", "unit_of": "user", "items": 20}], ids=str
)
def test_a_demo_run_verifies_replays_and_counts_its_bytes(tmp_path, options):
    flags = {"scheme": "covariance", "data": "demo-small", "transport": "inprocess"}
    config = RunConfig(**flags, epsilon=5.0, seed=1, options=options)
    summary = run_all(config, out=tmp_path / "run")
    assert summary["completed"] and summary["rejected"] == {} and summary["iterations"] == 1
    assert summary["accuracy"]["plain"]["test_rmse"] < summary["accuracy"]["test_rmse"] < 1.6
    assert summary["figures"]["covered_items"] == (options.get("items") or 60)
    assert 0 < summary["figures"]["clamped_fraction"] < 1
    assert verify(tmp_path / "run")["verified"]
    assert replay(tmp_path / "run")["identical"]
    assert bandwidth(tmp_path / "run")["match"]


def test_processes_publish_what_one_process_publishes(tmp_path):
    config = {"scheme": "covariance", "data": "synthetic:6x12", "epsilon": 5.0, "seed": 1}
    processes = run_all(RunConfig(**config), out=tmp_path / "tcp")
    memory = run_all(RunConfig(**config, transport="inprocess"), out=tmp_path / "memory")
    assert processes["completed"] and processes["processes"] == {"recommender": 1, "user": 6}
    assert processes["item_factors_sha256"] == memory["item_factors_sha256"]
    assert processes["accuracy"] == memory["accuracy"] and processes["bytes"] == memory["bytes"]
    assert verify(tmp_path / "tcp")["verified"] and bandwidth(tmp_path / "tcp")["match"]


# --- what the scheme says --------------------------------------------------------------------------------------------


def account(**options: Any) -> dict[str, Any]:
    scheme, shape = find_scheme("covariance"), shape_of(small_ratings(4, 5), 5)
    params, _ = scheme.make_params(shape, **options)
    return scheme.account(params, Tape(bytes(32)), shape)


def test_the_account_is_of_everything_that_is_published():
    gaussian = account(epsilon=2.0)
    assert gaussian["epsilon"] == pytest.approx(7.77, abs=0.005) and gaussian["delta"] == 1e-5
    assert gaussian["published_formula"] == pytest.approx(10.3, abs=0.05)
    assert gaussian["mu"] == pytest.approx(1.6256, abs=1e-4)
    laplace = account(epsilon=2.0, noise="laplace", unit_of="user")
    assert (laplace["epsilon"], laplace["delta"]) == (pytest.approx(2.0), 0.0) and "one user" in laplace["method"]
    assert account(epsilon=math.inf)["epsilon"] == math.inf
    assert account(epsilon=2.0, joint=False)["epsilon"] > gaussian["epsilon"]


def test_a_printed_form_is_said_to_be_one():
    scheme, shape = find_scheme("covariance"), shape_of(small_ratings(4, 5), 5)
    notes = {
        name: scheme.make_params(shape, epsilon=1.0, **options)[1]
        for name, options in {
            "default": {},
            "joint": {"joint": False},
            "bound": {"printed_bound": True, "noise": "laplace"},
            "L2": {"printed_bound": True},
        }.items()
    }
    assert notes["default"] == notes["L2"] == []
    assert "as printed" in notes["joint"][0] and "too small" in notes["bound"][0]


def test_options_are_refused_in_words_before_anything_starts(tmp_path):
    config = RunConfig(scheme="covariance", data="demo-small", transport="inprocess", options={"noise": "loud"})
    with pytest.raises(BadInput, match="noise must be one of gaussian, laplace, not 'loud'"):
        run_all(config, out=tmp_path / "run")
