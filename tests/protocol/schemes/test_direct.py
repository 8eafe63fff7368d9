"""`direct`: uploads against Python floats, the law of both noises, a run without ρ, refusals, bytes, leakage."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support import reference as reference
from support.basics import FALSE_ALARM, received, shape_of, small_ratings, small_run
from support.meter import predicted_if_all_stay
from support.runs import factors_of, play, unit
from support.snapshot import snapshot

from protocol.arithmetic.tape import Tape, exponential
from protocol.card import Card, Seat
from protocol.errors import BadInput, Reason, Rejected
from protocol.params import Params
from protocol.party.role import Send, role_of
from protocol.schemes import find_scheme
from protocol.schemes.factorization.direct import Direct, DirectParams, DirectRecommender, DirectUser
from protocol.wire.messages import Finish, Hello, ItemFactors, Join, NoiseKeys, NoisyGradient, Publication
from sim.drivers.inprocess import InProcess
from sim.plan.config import check_options
from tests.protocol.schemes.test_trusted import RATINGS, f32, to_laplace, u32
from tests.sim.bandwidth.test_traffic import metered

DIRECT = "protocol.schemes.factorization.direct:Direct"
KEY = bytes(range(32))

Rows = dict[int, list[float]]  # by item


# ---- a whole run computed again, step by step, on Python floats


class Drawn:
    """The random values of a run, from the tapes alone: first factors, the keys' envelopes, normal draws."""

    def __init__(self, card: Card, seats: list[Seat]) -> None:
        self.params = card.params
        self.tapes = {seat.party: Tape(seat.tape_seed) for seat in seats}
        server, dim = self.tapes["recommender"], self.params.dim
        self.items = unit(server.normal(self.params.n_items, dim, "item factors"))
        keys = [server.key("item", item) for item in range(self.params.n_items)]
        self.envelopes = exponential(keys, dim, "eta", 0).tolist()
        self.scale = 8 * math.sqrt(dim) / self.params.epsilon

    def first(self, party: str) -> list[float]:
        return unit(self.tapes[party].normal(1, self.params.dim, "user factors"))[0]

    def shares(self, party: str, items: list[int], raters: Counter[int]) -> Rows:
        """Compute the share of η that `party` adds, by item."""
        normal = self.tapes[party].normal(len(items), self.params.dim, "eta", 0).tolist()
        return {
            item: reference.noise_share(self.scale, self.envelopes[item], raters[item], row)
            for item, row in zip(items, normal, strict=True)
        }

    def rho(self, party: str, items: list[int], iteration: int) -> Rows:
        normal = self.tapes[party].normal(len(items), self.params.dim, "rho", iteration).tolist()
        rows = zip(items, normal, strict=True)
        return {item: [to_laplace(n, self.scale) if self.scale else 0.0 for n in row] for item, row in rows}


def straight_line(card: Card, seats: list[Seat]) -> tuple[list[list[float]], dict[str, reference.User]]:
    """Compute (V, users) of a run; gradient, share and ρ are added as the formula says."""
    params, drawn = card.params, Drawn(card, seats)
    given = {seat.party: seat.inputs for seat in seats if seat.inputs is not None}
    raters = Counter(int(item) for own in given.values() for item in own.items)
    rated = {party: dict(zip(own.items.tolist(), own.ratings.tolist(), strict=True)) for party, own in given.items()}
    users = {party: reference.User(own, drawn.first(party), {}) for party, own in rated.items()}
    shares = {party: drawn.shares(party, list(own), raters) for party, own in rated.items()}
    rule = reference.Setting(
        0, 0, 0.0, params.clip, params.learning_rate, params.user_regularisation, params.item_regularisation
    )
    items = drawn.items
    for t in range(params.iterations):
        shown = {item: [reference.float32(x) for x in row] for item, row in enumerate(items)}
        sums: Rows = {item: [0.0] * params.dim for item in raters}
        for party, user in users.items():
            errors, clipped = reference.errors_of(user, shown, params.clip)
            user.clipped += clipped
            rho = drawn.rho(party, list(user.ratings), t)
            for item in user.ratings:
                for at, u in enumerate(user.factors):
                    upload = -2 * u * errors[item] + shares[party][item][at]
                    sums[item][at] += reference.float32(upload + rho[item][at] if params.rho else upload)
            user.factors = reference.moved_user(user, shown, errors, rule)
        for item, row in sums.items():
            items[item] = [
                v - rule.learning_rate * (s / raters[item] + 2 * rule.item_regularisation * v)
                for v, s in zip(items[item], row, strict=True)
            ]
    return items, users


SETTINGS: list[dict[str, Any]] = [
    {},
    {"rho": False},
    {"dim": 3, "n_users": 6, "iterations": 5, "epsilon": 100.0},
    {"clip": 1.5, "item_regularisation": 0.3, "user_regularisation": 0.2},
    {"dim": 1, "n_users": 1, "n_items": 1, "iterations": 1},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_a_run_is_the_rule_on_python_floats(options):
    """An upload below 2^6 may round to the other of two float32 neighbours, which moves v by at most 2^-5 · 2^-18."""
    card, seats = small_run(DIRECT, **options)
    run = play(card, seats)
    items, users = straight_line(card, seats)
    assert run.outcome.item_factors == pytest.approx(np.array(items), abs=1e-5)
    for party, user in users.items():
        assert run.parties[party].role.user_factors == pytest.approx(np.array(user.factors), abs=1e-5)
        assert run.parties[party].role.clipped == user.clipped


@pytest.mark.parametrize("rho", [True, False])
def test_without_noise_it_is_plain_bit_for_bit(rho):
    direct = factors_of(*small_run(DIRECT, epsilon=math.inf, n_users=6, iterations=5, rho=rho))
    plain = factors_of(*small_run("plain", n_users=6, iterations=5))
    assert direct.tobytes() == plain.tobytes()


# ---- one user, by hand


def lone_user(epsilon: float = math.inf, n_items: int = 1, dim: int = 1, iterations: int = 3, **options: Any) -> Any:
    """Return (the role of a user that rated everything with 5, its card), with the same tape every time."""
    ratings = [dict.fromkeys(range(n_items), 5.0)]
    card, seats = small_run(
        DIRECT, ratings=ratings, n_items=n_items, dim=dim, iterations=iterations, epsilon=epsilon, **options
    )
    return card.scheme.make_role("user:0", card.setting, Tape(seats[1].tape_seed), seats[1].inputs), card


def offer(iteration: int, factors: Any) -> ItemFactors:
    return ItemFactors(iteration, u32(), np.array(factors, np.float32))


def answer(user: DirectUser, iteration: int, factors: Any) -> np.ndarray:
    (send,) = user.receive("recommender", offer(iteration, factors))
    assert isinstance(send, Send) and send.to == "recommender" and send.message.iteration == iteration
    return send.message.values.astype(np.float64)


def test_an_upload_without_noise_is_the_gradient():
    """u = ±1 and v = u, so e = 5 − 1 = 4 and the gradient is −8 u."""
    user, _ = lone_user()
    [u] = user.user_factors
    assert abs(u) == 1
    user.receive("recommender", NoiseKeys(u32(1), (KEY,)))
    assert answer(user, 0, [[u]]).tolist() == [[-8 * u]]


def test_an_upload_is_gradient_plus_share_plus_rho():
    """The same user with both noises and a floor of one or four: with four the share falls to one half."""
    [u], tape = lone_user()[0].user_factors, lone_user()[0].tape
    [[normal]], [[n_rho]] = tape.normal(1, 1, "eta", 0).tolist(), tape.normal(1, 1, "rho", 0).tolist()
    [[h]] = exponential([KEY], 1, "eta", 0).tolist()
    b = 2 * 4 / 0.5
    for floor in (1, 4):
        share = b * math.sqrt(2 * h) * normal / math.sqrt(floor)
        for rho in (True, False):
            user, _ = lone_user(epsilon=0.5, rho=rho)
            user.receive("recommender", NoiseKeys(u32(floor), (KEY,)))
            expected = -8 * u + share + (to_laplace(n_rho, b) if rho else 0)
            assert answer(user, 0, [[u]]) == pytest.approx(np.array([[expected]]), rel=1e-6)


# ---- the law of the noises


N, D, EPSILON = 1500, 2, 0.5
SCALE = 8 * math.sqrt(D) / EPSILON


def uploads(rho: bool, iterations: int = 3) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return (uploads, gradients) of a lone user of N items; its factors give the gradients −2 u (5 − u·v)."""
    user, card = lone_user(EPSILON, N, D, iterations, rho=rho)
    keys = tuple(Tape(bytes(32)).key("item", item) for item in range(N))
    user.receive("recommender", NoiseKeys(np.full(N, 3, np.uint32), keys))
    shown = np.array(unit(Tape(bytes(32)).normal(N, D, "shown")), np.float32)
    sent, gradients = [], []
    for t in range(iterations):
        u = user.user_factors
        errors = np.clip(5.0 - (shown.astype(np.float64) * u).sum(axis=1), -card.params.clip, card.params.clip)
        gradients.append(-2 * errors[:, None] * u)
        sent.append(answer(user, t, shown))
    return sent, gradients


def own_share() -> np.ndarray:
    envelope = exponential([Tape(bytes(32)).key("item", item) for item in range(N)], D, "eta", 0).astype(np.float64)
    return SCALE * np.sqrt(2 * envelope / 3) * lone_user(EPSILON, N, D)[0].tape.normal(N, D, "eta", 0)


def test_what_is_left_of_an_upload_is_laplace_of_full_strength_and_fresh():
    """An upload minus gradient and share is tested per iteration and coordinate: one user has scale b, not b/√k."""
    left = [upload - gradient - own_share() for upload, gradient in zip(*uploads(rho=True), strict=True)]
    for residual in left:
        for column in residual.T:
            assert stats.kstest(column, stats.laplace(scale=SCALE).cdf).pvalue > FALSE_ALARM / 6
    columns = [column for residual in left for column in residual.T]
    for at, column in enumerate(columns):
        for other in columns[:at]:
            assert stats.spearmanr(column, other).pvalue > FALSE_ALARM / 15


def test_without_rho_the_difference_of_two_uploads_has_no_noise():
    """η cancels, so the difference of two gradients is left, up to float32. With ρ nothing cancels."""
    sent, gradients = uploads(rho=False)
    for later in (1, 2):
        noise = (sent[later] - sent[0]) - (gradients[later] - gradients[0])
        assert np.abs(noise).max() <= 2 * np.abs(sent).max() * 2.0**-24
        assert np.abs(gradients[later] - gradients[0]).max() > 1e-3
    assert np.abs(sent[0] - gradients[0] - own_share()).max() <= np.abs(sent).max() * 2.0**-24
    sent, gradients = uploads(rho=True)
    noise = (sent[1] - sent[0]) - (gradients[1] - gradients[0])
    assert np.abs(noise).mean() == pytest.approx(1.5 * SCALE, rel=0.1)  # E|X − Y| = 3b/2


def test_the_shares_of_an_item_sum_to_laplace_noise(tmp_path):
    """Three users, one iteration, no ρ: the sum of the uploads minus the gradients is η."""
    n_items = 1500
    ratings = [dict.fromkeys(range(n_items), 3.0)] * 3
    options = {"ratings": ratings, "n_items": n_items, "iterations": 1, "rho": False, "epsilon": EPSILON}
    card, seats = small_run(DIRECT, **options)
    play(card, seats, tmp_path, ["recommender"])
    sent = {who: m.values for who, m in received(card, tmp_path, "recommender") if isinstance(m, NoisyGradient)}
    drawn = Drawn(card, seats)
    shown = np.array(drawn.items).astype(np.float32).astype(np.float64)
    total = np.zeros((n_items, 2))
    for party, values in sent.items():
        u = np.array(drawn.first(party))
        total += values + 2 * (3.0 - (shown * u).sum(axis=1))[:, None] * u
    for column in total.T:
        assert stats.kstest(column, stats.laplace(scale=SCALE).cdf).pvalue > FALSE_ALARM / 2


# ---- parameters


def test_whether_rho_is_added_is_agreed_by_all_parties():
    scheme, shape = find_scheme(DIRECT), shape_of(RATINGS, 5)
    made = {rho: scheme.make_params(shape, dim=2, iterations=3, epsilon=1.0, rho=rho) for rho in (True, False)}
    (params, notes), (without, _) = made[True], made[False]
    assert isinstance(params, DirectParams) and isinstance(params, Params) and notes == []
    assert scheme.make_params(shape, dim=2, iterations=3, epsilon=1.0)[0] == params
    assert (params.rho, without.rho) == (True, False) and params.digest() != without.digest()
    assert Direct.params_class(**dataclasses.asdict(params)) == params
    assert params.clip == 32 * params.noise_scale + 3 * 4
    assert check_options(scheme, {"rho": "false"}) == {"rho": False}


def test_the_strongest_noise_that_is_accepted_stays_inside_what_may_be_sent():
    """A gradient is at most 2 C, and 52 random bits reach 71 b for a share and 37 b for ρ."""
    shape = shape_of([{0: 3.0}], 1)
    for exponent in range(0, 20):
        try:
            params, _ = Direct().make_params(shape, dim=1, iterations=1, epsilon=10.0**-exponent)
        except BadInput:
            break
        assert 2 * params.clip + 108 * params.noise_scale < 2.0**60
    assert exponent > 10


# ---- what must not matter, and what ends a run


def test_every_order_of_arrival_gives_the_same_factors():
    card, seats = small_run(DIRECT, n_users=6, n_items=6)
    expected = factors_of(card, seats).tobytes()
    assert {factors_of(card, seats, order=order).tobytes() for order in range(21)} == {expected}


def test_the_seed_decides_everything():
    first = factors_of(*small_run(DIRECT, seed=7))
    assert factors_of(*small_run(DIRECT, seed=7)).tobytes() == first.tobytes()
    assert (np.abs(factors_of(*small_run(DIRECT, seed=8)) - first) > 1e-6).all()
    assert factors_of(*small_run(DIRECT, seed=7, rho=False)).tobytes() != first.tobytes()


def test_factors_that_grow_without_bound_end_the_run():
    card, seats = small_run(DIRECT, learning_rate=2.0**70)
    outcome = InProcess(card, seats).run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DIVERGED


# ---- refusals


def refuse(role: Any, sender: str, message: Any, reason: Reason) -> None:
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, message)
    assert caught.value.reason is reason
    assert snapshot(role) == before


def two_item_user() -> DirectUser:
    """Make a user that rated items 0 and 1; dim 2, three iterations."""
    card, seats = small_run(DIRECT, ratings=RATINGS, n_items=5)
    return card.scheme.make_role("user:0", card.setting, Tape(seats[1].tape_seed), seats[1].inputs)


KEYS = NoiseKeys(u32(2, 2), (KEY, KEY))
TWO = [[1.0, 0.0], [0.0, 1.0]]


def test_a_user_refuses_wrong_keys():
    user = two_item_user()
    refuse(user, "recommender", offer(0, TWO), Reason.WRONG_KIND)  # it has no noise keys yet
    for sender in ("user:1", "third_party"):
        refuse(user, sender, KEYS, Reason.UNKNOWN_SENDER)
    for floors, keys in (([2], 2), ([2, 2, 2], 2), ([], 2), ([2, 2], 1), ([2, 2], 3), ([2], 1), ([], 0)):
        refuse(user, "recommender", NoiseKeys(u32(*floors), (KEY,) * keys), Reason.WRONG_LENGTH)
    refuse(user, "recommender", NoiseKeys(u32(2, 0), (KEY, KEY)), Reason.OUT_OF_RANGE)
    for message in (Join(u32(0)), NoisyGradient(0, f32([1, 0], [0, 1]))):
        refuse(user, "recommender", message, Reason.WRONG_KIND)
    assert user.receive("recommender", KEYS) == []
    refuse(user, "recommender", KEYS, Reason.WRONG_KIND)


def test_a_user_refuses_wrong_factors_and_a_wrong_end():
    user = two_item_user()
    user.receive("recommender", KEYS)
    refuse(user, "user:1", offer(0, TWO), Reason.UNKNOWN_SENDER)
    for iteration in (3, 4, 2**63):
        refuse(user, "recommender", offer(iteration, TWO), Reason.WRONG_ITERATION)
    for rows in (TWO[:1], [*TWO, TWO[0]], np.zeros((0, 2))):
        refuse(user, "recommender", offer(0, rows), Reason.WRONG_LENGTH)
    refuse(user, "recommender", ItemFactors(0, u32(2, 2), f32(*TWO)), Reason.WRONG_LENGTH)
    refuse(user, "recommender", offer(0, [[1.0, 0.0], [0.0, -(2.0**61)]]), Reason.OUT_OF_RANGE)
    first = answer(user, 0, TWO)
    refuse(user, "recommender", offer(0, TWO), Reason.WRONG_ITERATION)
    refuse(user, "recommender", offer(0, [[0.0, 0.0], [0.0, 0.0]]), Reason.WRONG_ITERATION)
    assert (answer(user, 1, TWO) != first).all()
    for end in (0, 1, 2, 4):
        refuse(user, "recommender", Finish(end), Reason.WRONG_ITERATION)
    refuse(user, "user:0", Finish(3), Reason.UNKNOWN_SENDER)
    refuse(user, "recommender", Finish(3), Reason.WRONG_KIND)  # nothing was published
    published = f32([1, 0], [0, 1], *[[0.5, 0.5]] * (user.params.n_items - 2))
    for wrong in (published[:-1], published[user.inputs.items]):
        refuse(user, "recommender", Publication(3, wrong), Reason.WRONG_LENGTH)
    assert user.receive("recommender", Publication(3, published)) == []
    refuse(user, "recommender", Publication(3, published), Reason.DUPLICATE)
    refuse(user, "recommender", offer(2, TWO), Reason.WRONG_ITERATION)
    [done] = user.receive("recommender", Finish(3))
    assert done.result is not None and len(done.result) == user.params.n_items


def test_a_recommender_refuses_wrong_uploads_and_goes_on():
    card, seats = small_run(DIRECT, ratings=RATINGS, n_items=5, iterations=1)
    role = DirectRecommender(card.setting, Tape(seats[0].tape_seed))
    sound = NoisyGradient(0, f32([1, 0], [0, 1]))
    refuse(role, "user:0", sound, Reason.UNKNOWN_SENDER)
    for user in (0, 1):
        assert role.receive(f"user:{user}", Join(u32(*RATINGS[user]))) == []
    refuse(role, "user:0", sound, Reason.WRONG_ITERATION)  # not everyone has joined
    refuse(role, "user:0", Join(u32(0)), Reason.DUPLICATE)
    opening = role.receive("user:2", Join(u32(*RATINGS[2])))
    assert [type(send.message) for send in opening] == [NoiseKeys] * 3 + [ItemFactors] * 3
    assert [send.message.floors.tolist() for send in opening[:3]] == [[2, 2], [2, 2], [2, 2, 1]]
    shared = [send.message.item_keys for send in opening[:3]]
    assert shared[0][0] == shared[2][0] and shared[0][1] == shared[1][0] and shared[1][1] == shared[2][1]
    assert len({key for keys in shared for key in keys}) == 4
    for sender in ("user:3", "third_party", "recommender"):
        refuse(role, sender, sound, Reason.UNKNOWN_SENDER)
    for iteration in (1, 2**63):
        refuse(role, "user:0", NoisyGradient(iteration, sound.values), Reason.WRONG_ITERATION)
    for rows in (f32([1, 0]), f32([1, 0], [0, 1], [0, 1]), f32()):
        refuse(role, "user:0", NoisyGradient(0, rows), Reason.WRONG_LENGTH)
    for value in (2.0**61, -(2.0**61)):
        refuse(role, "user:0", NoisyGradient(0, f32([1, 0], [0, value])), Reason.OUT_OF_RANGE)
    for message in (KEYS, offer(0, TWO), Finish(1)):
        refuse(role, "user:0", message, Reason.WRONG_KIND)
    assert role.receive("user:0", sound) == []
    refuse(role, "user:0", sound, Reason.DUPLICATE)
    refuse(role, "user:0", NoisyGradient(0, 2 * sound.values), Reason.DUPLICATE)
    before = role.item_factors.copy()
    assert role.receive("user:2", NoisyGradient(0, f32([4, 0], [0, 0], [64, -32]))) == []
    *ends, done = role.receive("user:1", NoisyGradient(0, f32([3, 5], [8, 2])))
    assert [(type(send.message), send.to, send.message.iteration) for send in ends] == [
        (kind, f"user:{n}", 1) for kind in (Publication, Finish) for n in range(3)
    ]
    assert all(np.array_equal(send.message.factors, done.result.astype(np.float32)) for send in ends[:3])
    # sums by item, divided by the number of raters
    means = np.array([[5 / 2, 0], [3 / 2, 6 / 2], [8 / 2, 2 / 2], [64, -32], [0, 0]])
    rated = np.array([[1], [1], [1], [1], [0]])
    expected = before - (means + 2 * 0.001 * before * rated) / 32
    assert done.result == pytest.approx(expected, abs=1e-12)


# ---- bytes


TRAFFIC: list[dict[str, Any]] = [
    {},
    {"rho": False},
    {"iterations": 300},
    {"n_users": 1, "n_items": 1, "dim": 1, "iterations": 1},
    {"n_users": 70, "n_items": 100, "dim": 260, "iterations": 1},
    {"n_users": 4, "n_items": 4000, "dim": 1, "iterations": 1},
]


@pytest.mark.parametrize("options", TRAFFIC, ids=str)
def test_the_predicted_traffic_is_the_metered_traffic(options):
    card, seats = small_run(DIRECT, **options)
    shape = shape_of(small_ratings(card.params.n_users, card.params.n_items), card.params.n_items)
    assert predicted_if_all_stay(card, shape) == metered(card, seats, handshakes=True)


@pytest.mark.parametrize("dim", [1, 3, 20])
def test_the_size_limit_leaves_room_for_the_largest_message(dim):
    items = 30
    shape = shape_of([dict.fromkeys(range(items), 3.0)] * 4, items)
    params, _ = Direct().make_params(shape, dim=dim, iterations=2)
    codec, rows = Direct().make_codec(params), np.ones((items, dim), np.float32)
    largest = (
        NoiseKeys(np.ones(items, np.uint32), (KEY,) * items),
        ItemFactors(10**7, u32(), rows),
        NoisyGradient(10**7, rows),
        Join(np.arange(items, dtype=np.uint32)),
    )
    for message in largest:
        assert len(codec.encode(message, 10**7)) <= codec.max_frame == Direct().max_frame(params) + 32


# ---- what the scheme says


def test_it_says_what_it_is_and_claims():
    scheme = find_scheme(DIRECT)
    for text in (scheme.name, scheme.title, scheme.source, scheme.unit, scheme.claims, *scheme.known_weaknesses):
        assert text.strip()
    assert "difference-attack" not in scheme.known_weaknesses  # it goes beyond the claims
    assert scheme.parties() == ("user", "recommender") and scheme.messages[0] is Hello


def test_what_is_accounted():
    """Two releases of dim 1 cost at most 2 ε, and more than one; without ρ or without noise there is no bound."""
    scheme, shape, tape = Direct(), shape_of(RATINGS, 5), Tape(bytes(32))

    def account(**options: Any) -> dict[str, Any]:
        params, _ = scheme.make_params(shape, dim=1, **options)
        return scheme.account(params, tape, shape)

    pytest.importorskip("dp_accounting")
    assert 0.9 < account(epsilon=1.0, iterations=1)["epsilon"] <= 1.001
    twice = account(epsilon=1.0, iterations=2)
    assert 1.5 < twice["epsilon"] <= 2.002 and (twice["claimed"], twice["basic"]) == (1.0, 2.0)
    for nothing, words in (({"epsilon": 1.0, "rho": False}, "difference of two uploads"), ({}, "no noise")):
        accounted = account(iterations=2, **nothing)
        assert accounted["epsilon"] == math.inf and words in accounted["method"]


@pytest.mark.parametrize("rho", [True, False])
def test_every_field_that_arrives_is_declared_and_every_declared_field_arrives(tmp_path: Path, rho: bool):
    card, seats = small_run(DIRECT, rho=rho)
    everyone = [seat.party for seat in seats]
    play(card, seats, tmp_path, everyone)
    arrived = [(role_of(party), message) for party in everyone for _, message in received(card, tmp_path, party)]
    assert {type(message) for _, message in arrived} == set(Direct.messages)
    assert all(len(message.floors) == 0 for _, message in arrived if isinstance(message, ItemFactors))
    fields = {
        (role, type(message).__name__, field.name)
        for role, message in arrived
        if not isinstance(message, Hello)
        for field in dataclasses.fields(message)
    }
    stated = [(leak.receiver, leak.kind, leak.field) for leak in Direct.leakage]
    assert len(stated) == len(set(stated)) and set(stated) == fields
    assert all(leak.words.strip() for leak in Direct.leakage)
