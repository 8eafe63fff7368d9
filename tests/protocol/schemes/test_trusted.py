"""`trusted`: training and publishing against Python floats, the noise and its place, refusals, bytes, leakage."""

from __future__ import annotations

import dataclasses
import math
import struct
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support import reference as reference
from support.basics import FALSE_ALARM, Rated, codec_with, received, shape_of, small_ratings, small_run
from support.meter import predicted_if_all_stay
from support.runs import factors_of, play, unit
from support.snapshot import snapshot
from support.stage import Stage
from support.wire import Form, framed

from protocol.arithmetic.noise import laplace
from protocol.arithmetic.tape import Tape
from protocol.card import Card, Seat
from protocol.errors import BadInput, Reason, Rejected
from protocol.party.role import Done, Send, role_of
from protocol.schemes import find_scheme
from protocol.schemes.factorization.trusted import Trusted, TrustedRecommender
from protocol.wire.codec import Codec
from protocol.wire.messages import Hello, Publication, RatingsHandover
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig, check_options
from sim.plan.plan import make_plan
from sim.run.run import run as run_all
from tests.sim.bandwidth.test_traffic import metered

TRUSTED = "protocol.schemes.factorization.trusted:Trusted"
RATINGS = [{0: 1.0, 1: 4.0}, {1: 5.0, 2: 2.0}, {0: 3.0, 2: 4.0, 3: 1.0}]

Rows = list[list[float]]


# ---- the whole computation again, step by step, on Python floats


def to_laplace(normal: float, scale: float) -> float:
    """Return the value that a Laplace variable exceeds as often as a normal one exceeds `normal`."""
    beyond = math.erfc(abs(normal) / math.sqrt(2)) / 2
    return math.copysign(scale * math.log(1 / (2 * beyond)), normal)


class Drawn:
    """The random draws of the recommender, from its tape alone."""

    def __init__(self, card: Card, seats: list[Seat]) -> None:
        params = card.params
        [tape] = [Tape(seat.tape_seed) for seat in seats if seat.party == "recommender"]
        self.users = unit(tape.normal(params.n_users, params.dim, "user factors"))
        self.items = unit(tape.normal(params.n_items, params.dim, "item factors"))
        self.fresh = unit(tape.normal(params.n_items, params.dim, "published item factors"))
        b = 2 * 4.0 * math.sqrt(params.dim) / params.epsilon
        normal = tape.normal(params.n_items, params.dim, "eta").tolist()
        self.noise = [[to_laplace(n, b) if b else 0.0 for n in row] for row in normal]


def errors_of(ratings: list[Rated], users: Rows, items: Rows) -> dict[tuple[int, int], float]:
    return {
        (i, j): rating - sum(u * v for u, v in zip(users[i], items[j], strict=True))
        for i, rated in enumerate(ratings)
        for j, rating in rated.items()
    }


def moved_items(ratings: list[Rated], users: Rows, items: Rows, noise: Rows, params: Any) -> Rows:
    errors, moved = errors_of(ratings, users, items), []
    for j, old in enumerate(items):
        raters = [i for i, rated in enumerate(ratings) if j in rated]
        if not raters:
            moved.append(old)
            continue
        new = []
        for at, v in enumerate(old):
            total = sum(-2 * users[i][at] * errors[i, j] for i in raters) + noise[j][at]
            new.append(v - params.learning_rate * (total / len(raters) + 2 * params.item_regularisation * v))
        moved.append(new)
    return moved


def moved_users(ratings: list[Rated], users: Rows, items: Rows, params: Any) -> Rows:
    errors, moved = errors_of(ratings, users, items), []
    for i, old in enumerate(users):
        new = []
        for at, u in enumerate(old):
            pull = sum(items[j][at] * errors[i, j] for j in ratings[i])
            slope = -2 / len(ratings[i]) * pull + 2 * params.user_regularisation * u
            new.append(u - params.learning_rate * slope)
        length = math.sqrt(sum(x * x for x in new))
        moved.append([x / length for x in new] if length > 1 else new)
    return moved


def trained(ratings: list[Rated], drawn: Drawn, params: Any) -> tuple[Rows, Rows]:
    users, items, silence = drawn.users, drawn.items, [[0.0] * params.dim] * params.n_items
    for _ in range(params.iterations):
        users, items = moved_users(ratings, users, items, params), moved_items(ratings, users, items, silence, params)
    return users, items


def published(ratings: list[Rated], users: Rows, start: Rows, noise: Rows, params: Any) -> Rows:
    for _ in range(params.iterations):
        start = moved_items(ratings, users, start, noise, params)
    return start


SETTINGS: list[dict[str, Any]] = [
    {},
    {"epsilon": math.inf},
    {"epsilon": 0.5, "dim": 3, "n_users": 6, "iterations": 7},
    {"item_regularisation": 0.3, "user_regularisation": 0.2, "learning_rate": 0.1},
    {"dim": 1, "n_users": 1, "n_items": 1, "iterations": 1},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_a_run_is_the_rule_on_python_floats(options):
    card, seats = small_run(TRUSTED, **options)
    params, run = card.params, play(card, seats)
    ratings = small_ratings(params.n_users, params.n_items)
    drawn = Drawn(card, seats)
    users, _ = trained(ratings, drawn, params)
    items = published(ratings, users, drawn.fresh, drawn.noise, params)
    assert run.outcome.item_factors == pytest.approx(np.array(items), abs=1e-9)
    assert run.parties["recommender"].role.profiles == pytest.approx(np.array(users), abs=1e-9)
    sent = [[reference.float32(x) for x in row] for row in run.outcome.item_factors.tolist()]
    for number in range(params.n_users):
        role = run.parties[f"user:{number}"].role
        assert role.user_factors.tolist() == [0.0] * params.dim  # the recommender keeps them
        assert role.published.tolist() == sent


def test_two_steps_by_hand():
    """dim 1, one rating of 5, γ = 1/32, no regularisation, first factors all 1; both phases have two steps.

    Training: e = 4, u = 1 + 2·4/32 = 1.25, back to 1, and so again. Publishing: v = 1 + 8/32 = 1.25, e = 3.75,
    v = 1.25 + 7.5/32 = 1.484375. With noise η each step subtracts η/32 more.
    """
    for seed in range(1, 100):
        silence = {"user_regularisation": 0.0, "item_regularisation": 0.0}
        options = {"ratings": [{0: 5.0}], "n_items": 1, "dim": 1, "iterations": 2, "seed": seed, **silence}
        card, seats = small_run(TRUSTED, epsilon=math.inf, **options)
        drawn = Drawn(card, seats)
        if drawn.users == drawn.items == drawn.fresh == [[1.0]]:
            break
    run = play(card, seats)
    assert run.outcome.item_factors.tolist() == [[1.484375]]
    assert run.parties["recommender"].role.profiles.tolist() == [[1.0]]
    card, seats = small_run(TRUSTED, epsilon=1.0, **options)
    [[eta]] = Drawn(card, seats).noise
    first = 1.25 - eta / 32
    assert factors_of(card, seats) == pytest.approx(np.array([[first + (2 * (5 - first) - eta) / 32]]), rel=1e-12)


def test_publishing_begins_with_fresh_factors_and_never_with_the_trained_ones():
    """Without noise nothing hides a difference, and after five steps the factors still depend on the first ones."""
    card, seats = small_run(TRUSTED, epsilon=math.inf, iterations=5)
    params, drawn = card.params, Drawn(card, seats)
    ratings = small_ratings(params.n_users, params.n_items)
    users, after = trained(ratings, drawn, params)
    factors = factors_of(card, seats)
    for wrong in (after, published(ratings, users, after, drawn.noise, params)):
        assert (np.abs(factors - np.array(wrong)).max(axis=1) > 0.01).all()
    assert (np.abs(factors - np.array(published(ratings, users, drawn.items, drawn.noise, params))) > 1e-3).any()
    assert factors == pytest.approx(np.array(published(ratings, users, drawn.fresh, drawn.noise, params)), abs=1e-12)


def test_an_item_that_nobody_rated_keeps_its_random_factors():
    card, seats = small_run(TRUSTED, ratings=RATINGS, n_items=5)
    assert factors_of(card, seats)[4] == pytest.approx(np.array(Drawn(card, seats).fresh[4]), abs=1e-15)


def test_errors_are_never_clipped():
    assert not hasattr(small_run(TRUSTED)[0].params, "clip")
    with pytest.raises(BadInput, match="no option 'clip'"):
        check_options(Trusted(), {"clip": 1.0})


# ---- the noise


@pytest.mark.parametrize("iterations", [1, 2, 9])
def test_the_noise_is_constant_and_laplace_in_what_is_published(iterations):
    """With one user of factor u and dim 1, a step is v <- a v + c, a = 1 − 2γ(u² + μ), c = γ (2 u r − η). So

        v(T) = a^T v(0) + c (1 − a^T) / (1 − a),

    and each η follows from v(T), if it is the same in all T steps. The law of η is tested by Kolmogorov–Smirnov.
    """
    n_items, epsilon = 2000, 0.5
    ratings = [{item: 1.0 + item % 5 for item in range(n_items)}]
    card, seats = small_run(TRUSTED, ratings=ratings, n_items=n_items, dim=1, iterations=iterations, epsilon=epsilon)
    run, params = play(card, seats), card.params
    u, rate = run.parties["recommender"].role.profiles[0, 0], params.learning_rate
    drawn = Drawn(card, seats)
    a = 1 - 2 * rate * (u * u + params.item_regularisation)
    start = np.array(drawn.fresh)[:, 0]
    c = (run.outcome.item_factors[:, 0] - a**iterations * start) * (1 - a) / (1 - a**iterations)
    eta = 2 * u * np.array(list(ratings[0].values())) - c / rate
    assert eta == pytest.approx(np.array(drawn.noise)[:, 0], abs=1e-6)
    b = 2 * 4 * math.sqrt(1) / epsilon
    assert stats.kstest(eta, stats.laplace(scale=b).cdf).pvalue > FALSE_ALARM


def test_the_noise_has_the_scale_of_lemma_1_in_every_coordinate():
    card, seats = small_run(TRUSTED, ratings=[{0: 3.0}], n_items=1000, dim=10, epsilon=1.0)
    noise = np.array(Drawn(card, seats).noise)
    drawn = laplace(Tape(seats[0].tape_seed), card.params.noise_scale, 1000, 10, "eta")
    assert drawn == pytest.approx(noise, rel=1e-9)
    for column in drawn.T:
        assert stats.kstest(column, stats.laplace(scale=8 * math.sqrt(10)).cdf).pvalue > FALSE_ALARM / 10


def test_without_noise_the_noise_is_zero():
    assert not laplace(Tape(bytes(32)), 0.0, 3, 2, "eta").any()


def test_the_noise_is_that_of_the_quantiles():
    class Fixed(Tape):
        def normal(self, rows, dim, *name):
            return stats.norm.ppf([[0.5, 0.75, 0.25], [0.995, 1e-9, 0.5 + 1e-9]])

    expected = [[0, 2 * math.log(2), -2 * math.log(2)], [2 * math.log(100), 2 * math.log(2e-9), 4e-9]]
    assert laplace(Fixed(bytes(32)), 2.0, 2, 3) == pytest.approx(np.array(expected), rel=1e-6)


# ---- what must not matter, and what ends a run


def test_every_order_of_arrival_gives_the_same_factors():
    card, seats = small_run(TRUSTED, n_users=6, n_items=6)
    expected = factors_of(card, seats).tobytes()
    assert {factors_of(card, seats, order=order).tobytes() for order in range(21)} == {expected}


def test_the_seed_decides_everything():
    first = factors_of(*small_run(TRUSTED, seed=7))
    assert factors_of(*small_run(TRUSTED, seed=7)).tobytes() == first.tobytes()
    assert (np.abs(factors_of(*small_run(TRUSTED, seed=8)) - first) > 1e-6).all()


def test_factors_that_grow_without_bound_end_the_run():
    card, seats = small_run(TRUSTED, learning_rate=2.0**70)
    outcome = InProcess(card, seats).run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DIVERGED
    assert "training step 0" in str(outcome.abort) and outcome.item_factors is None


def test_the_person_is_told_the_accuracy_of_what_was_published(tmp_path):
    flags = {"scheme": TRUSTED, "data": "demo-small", "transport": "inprocess"}
    config = RunConfig(**flags, epsilon=8.0, dim=2, iterations=30, seed=1)
    summary = run_all(config, out=tmp_path / "run")
    assert summary["completed"] and summary["clipped"] == 0 and summary["notes"] == []
    plan = make_plan(config)
    run = play(plan.card, plan.seats())
    errors = []
    for number, own in enumerate(plan.data):
        role = run.parties[f"user:{number}"].role
        user, items = role.profile.factors.tolist(), role.published.tolist()
        for item, rating in zip(own.items.tolist(), own.values.tolist(), strict=True):
            guess = sum(u * v for u, v in zip(user, items[item], strict=True))
            errors.append(abs(rating - min(5.0, max(1.0, guess))))
    assert summary["accuracy"]["train_mae"] == pytest.approx(sum(errors) / len(errors), rel=1e-9)
    assert summary["accuracy"]["test_rmse"] is not None


# ---- refusals


def u32(*numbers: int) -> Any:
    return np.array(numbers, np.uint32)


def f32(*rows: Any) -> Any:
    return np.array(rows, np.float32).reshape(-1, 2)


def handover(*rated: tuple[int, float]) -> RatingsHandover:
    return RatingsHandover(u32(*(item for item, _ in rated)), np.array([value for _, value in rated], np.float64))


SOUND = handover((0, 1.0), (1, 4.0))
ABOVE, BELOW = math.nextafter(5.0, 6.0), math.nextafter(1.0, 0.0)
HANDOVERS = {
    "from a user who does not exist": ("user:3", SOUND, Reason.UNKNOWN_SENDER),
    "from no user": ("third_party", SOUND, Reason.UNKNOWN_SENDER),
    "from itself": ("recommender", SOUND, Reason.UNKNOWN_SENDER),
    "twice": ("user:1", SOUND, Reason.DUPLICATE),
    "nothing": ("user:0", handover(), Reason.WRONG_LENGTH),
    "a value too few": ("user:0", RatingsHandover(u32(0, 1), np.array([3.0])), Reason.WRONG_LENGTH),
    "a value too many": ("user:0", RatingsHandover(u32(0), np.array([3.0, 3.0])), Reason.WRONG_LENGTH),
    "values for nothing": ("user:0", RatingsHandover(u32(), np.array([3.0])), Reason.WRONG_LENGTH),
    "an item too far": ("user:0", handover((0, 1.0), (5, 2.0)), Reason.UNKNOWN_ITEM),
    "a rating too high": ("user:0", handover((0, 1.0), (1, ABOVE)), Reason.OUT_OF_RANGE),
    "a rating too low": ("user:0", handover((0, BELOW), (1, 2.0)), Reason.OUT_OF_RANGE),
    "another kind": ("user:0", Publication(3, f32([1, 0])), Reason.WRONG_KIND),
}


@pytest.mark.parametrize(("sender", "message", "reason"), HANDOVERS.values(), ids=HANDOVERS.keys())
def test_a_refused_handover_changes_nothing(sender, message, reason):
    card, seats = small_run(TRUSTED, ratings=RATINGS, n_items=5)
    role = TrustedRecommender(card.setting, Tape(seats[0].tape_seed))
    assert role.receive("user:1", handover((1, 5.0), (2, 2.0))) == []
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason
    assert snapshot(role) == before
    # and the run goes on to the same result
    assert role.receive("user:2", handover((0, 3.0), (2, 4.0), (3, 1.0))) == []
    *sends, done = role.receive("user:0", SOUND)
    assert [send.to for send in sends] == ["user:0", "user:1", "user:2"]
    assert isinstance(done, Done) and done.result.tobytes() == factors_of(card, seats).tobytes()
    before = snapshot(role)
    with pytest.raises(Rejected, match="WRONG_KIND"):
        role.receive("user:0", SOUND)
    assert snapshot(role) == before


FIVE = f32([1, 0], [0, 1], [1, 1], [0, 0], [2, 1])
PUBLISHED = {
    "from another user": ("user:1", Publication(3, FIVE), Reason.UNKNOWN_SENDER),
    "too early": ("recommender", Publication(2, FIVE), Reason.WRONG_ITERATION),
    "an item too few": ("recommender", Publication(3, FIVE[:4]), Reason.WRONG_LENGTH),
    "an item too many": ("recommender", Publication(3, f32(*FIVE, [0, 1])), Reason.WRONG_LENGTH),
    "its own items alone": ("recommender", Publication(3, FIVE[:2]), Reason.WRONG_LENGTH),
    "large factors": ("recommender", Publication(3, f32(*FIVE[:4], [0, -(2.0**61)])), Reason.OUT_OF_RANGE),
    "another kind": ("recommender", SOUND, Reason.WRONG_KIND),
}


@pytest.mark.parametrize(("sender", "message", "reason"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_a_refused_publication_changes_nothing(sender, message, reason):
    card, seats = small_run(TRUSTED, ratings=RATINGS, n_items=5)
    role = card.scheme.make_role("user:0", card.setting, Tape(bytes(32)), seats[1].inputs)
    [send] = role.start()
    assert isinstance(send, Send) and send.to == "recommender"
    assert (send.message.items.tolist(), send.message.values.tolist()) == ([0, 1], [1.0, 4.0])
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason
    assert snapshot(role) == before
    [done] = role.receive("recommender", Publication(3, FIVE))
    assert role.iteration == card.params.iterations
    # its ratings 1 and 4 of items with factors (1, 0) and (0, 1): u = (1, 4) / (1 + λ'), predictions in [1, 5]
    fitted = np.array([1.0, 4.0]) / (1 + role.profile.ridge)
    np.testing.assert_allclose(role.profile.factors, fitted)
    np.testing.assert_allclose(done.result, np.clip(FIVE @ fitted, 1, 5))


def test_ratings_that_are_no_numbers_do_not_pass_the_codec():
    stage = Stage(*small_run(TRUSTED, ratings=RATINGS, n_items=5))
    before = snapshot(stage.parties["recommender"].role)
    for value in (math.nan, math.inf, -math.inf):
        step, _ = stage.hand("user:0", "recommender", handover((0, 1.0), (1, value)))
        assert step.rejected is Reason.OUT_OF_RANGE
    assert snapshot(stage.parties["recommender"].role) == before
    stage.finish()


# ---- frames and bytes


def codec(dim: int = 2) -> Codec:
    return codec_with(Trusted.messages, Form(64), dim)


def test_ratings_travel_as_little_endian_doubles():
    values = [1.0, 4.5, -0.1, 1e300, 5e-324]
    ids = struct.pack("<5I", *range(5))
    frame = framed(1, 7, ids, struct.pack("<5d", *values))
    assert codec().encode(handover(*enumerate(values)), 7) == frame
    number, message = codec(dim=3).decode(frame)
    assert (number, type(message)) == (7, RatingsHandover)
    assert message.values.dtype == np.float64 and message.values.tolist() == values
    assert codec().decode(framed(1, 0, b"", b""))[1].values.shape == (0,)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bytes(7), Reason.WRONG_LENGTH),
        (bytes(12), Reason.WRONG_LENGTH),
        (8, Reason.MALFORMED),
        (struct.pack("<2d", 1.0, math.nan), Reason.OUT_OF_RANGE),
        (struct.pack("<2d", -math.inf, 1.0), Reason.OUT_OF_RANGE),
    ],
)
def test_what_are_no_real_numbers_is_refused(content, reason):
    with pytest.raises(Rejected) as caught:
        codec().decode(framed(1, 0, bytes(4), content))
    assert caught.value.reason is reason


TRAFFIC: list[dict[str, Any]] = [
    {},
    {"iterations": 300},
    {"n_users": 1, "n_items": 1, "dim": 1},
    {"n_users": 70, "n_items": 100, "dim": 260, "iterations": 1},
    {"n_users": 4, "n_items": 9000, "dim": 1, "iterations": 1},
]


@pytest.mark.parametrize("options", TRAFFIC, ids=str)
def test_the_predicted_traffic_is_the_metered_traffic(options):
    card, seats = small_run(TRUSTED, **options)
    shape = shape_of(small_ratings(card.params.n_users, card.params.n_items), card.params.n_items)
    assert predicted_if_all_stay(card, shape) == metered(card, seats, handshakes=True)


def test_the_size_limit_leaves_room_for_the_largest_message():
    items, dim = 30, 3
    shape = shape_of([dict.fromkeys(range(items), 3.0)] * 4, items)
    params, notes = Trusted().make_params(shape, dim=dim, iterations=2)
    assert notes == []
    made, ids = Trusted().make_codec(params), np.arange(items, dtype=np.uint32)
    for message in (
        RatingsHandover(ids, np.ones(items)),
        Publication(2, np.ones((items, dim), np.float32)),
    ):
        assert len(made.encode(message, 2**32)) <= made.max_frame == Trusted().max_frame(params) + 32


# ---- what the scheme says


def test_it_says_what_it_is_and_claims():
    scheme = find_scheme(TRUSTED)
    for text in (scheme.name, scheme.title, scheme.source, scheme.unit, scheme.claims):
        assert text.strip()
    assert scheme.known_weaknesses == ("moving-user-factors", "support")
    assert scheme.parties() == ("user", "recommender") and scheme.messages[0] is Hello
    card, seats = small_run(TRUSTED)
    accounted = scheme.account(card.params, Tape(seats[0].tape_seed), shape_of(small_ratings(4, 5), 5))
    assert accounted["epsilon"] is None and accounted["method"].startswith("not bounded")


def test_every_field_that_arrives_is_declared_and_every_declared_field_arrives(tmp_path):
    card, seats = small_run(TRUSTED)
    everyone = [seat.party for seat in seats]
    play(card, seats, tmp_path, everyone)
    arrived = [(role_of(party), message) for party in everyone for _, message in received(card, tmp_path, party)]
    assert {type(message) for _, message in arrived} == set(Trusted.messages)
    fields = {
        (role, type(message).__name__, field.name)
        for role, message in arrived
        if not isinstance(message, Hello)
        for field in dataclasses.fields(message)
    }
    stated = [(leak.receiver, leak.kind, leak.field) for leak in Trusted.leakage]
    assert len(stated) == len(set(stated)) and set(stated) == fields
    assert all(leak.words.strip() for leak in Trusted.leakage)
