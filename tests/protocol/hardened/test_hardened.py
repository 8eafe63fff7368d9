"""`hardened`: whole runs, what each role refuses, and what happens to users that stay away."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from support.basics import params_with, received, small_run
from support.runs import play
from support.snapshot import snapshot

from actors.own_scheme import load_scheme
from protocol.arithmetic.tape import Tape
from protocol.errors import Aborted, BadInput, Rejected
from protocol.party.role import Send
from protocol.schemes.base import ItemFeatures
from protocol.schemes.hardened.budget import mu_of
from protocol.schemes.hardened.dense_sum import NOTHING, digest_of
from protocol.schemes.hardened.hardened import Hardened, colluders
from protocol.schemes.hardened.hardened_params import keeps_claim
from protocol.schemes.hardened.hardened_roles import (
    HardenedRecommender,
    HardenedThirdParty,
    HardenedUser,
    masks_of,
    posterior_of,
)
from protocol.schemes.hardened.item_counts import pack_counts, unpack_counts
from protocol.schemes.hardened.item_features import pack_features, unpack_features
from protocol.schemes.hardened.item_table import ItemTable
from protocol.schemes.hardened.share_law import draw_shares
from protocol.schemes.hardened.taste import Taste, learn, second_vector
from protocol.schemes.hardened.unit_vectors import first_vector
from protocol.wire.messages import Agreed, Contributors, Deadline, Gone, Join, MaskedPart, MaskWelcome, PartTotal
from sim.api import bandwidth, replay, verify
from sim.drivers.inprocess import InProcess
from sim.folder.folder import read_run
from sim.plan.config import RunConfig
from sim.run.run import run

USERS, ITEMS = 12, 9


def cast(unit="user", **options):
    card, seats = small_run("hardened", n_users=USERS, n_items=ITEMS, unit=unit, **options)
    return card, seats, [seat.inputs for seat in seats if seat.inputs is not None]


@pytest.mark.parametrize("unit", ["user", "rating", "value"])
def test_what_is_published_follows_from_the_vectors_and_the_shares_alone(unit):
    """The same sums, added up without messages, rings and masks."""
    card, seats, inputs = cast(unit)
    params, total = card.params, 0
    tapes = {seat.party: Tape(seat.tape_seed) for seat in seats}
    for user, own in enumerate(inputs):
        shares = draw_shares(tapes[f"user:{user}"], params.first_scale, params.lengths[0], "share", 0)
        total = total + first_vector(params, own.items, own.ratings) + shares
    table = ItemTable.of(posterior_of(params, total / params.whole, USERS), params.described())
    published = play(card, seats).outcome.item_factors
    assert np.array_equal(published, np.stack([table.quality, table.popularity], axis=1))


class Watched(InProcess):
    """A run that notes the length of every frame."""

    def put(self, edge, frame):
        self.sent.append((edge, len(frame)))
        super().put(edge, frame)


def test_two_rounds_follow_from_their_sums_too():
    card, seats, inputs = cast(rounds=2)
    params, run_ = card.params, play(card, seats)
    user = run_.parties["user:3"].role
    total = 0
    for number, own in enumerate(inputs):
        tape = Tape(next(seat.tape_seed for seat in seats if seat.party == f"user:{number}"))
        total = total + second_vector(params, user.table, dataclasses.replace(user.taste, learned=None), own.items,
                                      own.ratings) + draw_shares(tape, params.second_scale, params.lengths[1],
                                                                 "share", 1)  # fmt: skip
    leader = run_.parties["recommender"].role
    taste = learn(params, Taste(user.taste.covered, user.basis), leader.values, total / params.whole,
                  leader.found.counts, USERS)  # fmt: skip
    assert np.array_equal(taste.learned, user.learned) and (user.learned != user.basis[user.covered]).any()
    assert np.array_equal(run_.outcome.item_factors[:, 2:][user.covered], user.learned)
    assert sum(part**2 for part in (params.mu(10),)) == pytest.approx(mu_of(8.0, 1e-5) ** 2, rel=1e-6)
    assert params.squares == (2 * 1024**2, 1024**2)


def test_a_hostile_table_moves_no_user_beyond_the_bound_of_round_two():
    """Whatever the recommender publishes, what a user adds is short enough: random, huge, degenerate tables."""
    card, _, inputs = cast(rounds=2)
    params, draw, longest = card.params, np.random.default_rng(1), 0
    m, q = params.n_items, params.directions
    for turn in range(2000):
        size = 10.0 ** draw.integers(-3, 6)
        basis = draw.standard_normal((m, q)) * size if turn % 3 else np.full((m, q), size)
        frame = np.array([*draw.uniform(-60, 60, 2), *(10.0 ** draw.uniform(-30, 1, 2))])
        table = ItemTable(draw.uniform(-10, 10, m), draw.uniform(-60, 60, m), frame)
        own = inputs[turn % USERS]
        with np.errstate(all="ignore"):
            made = second_vector(params, table, Taste(np.arange(m), basis), own.items, own.ratings)
        longest = max(longest, int(np.sum(made * made)))
    assert 0.99 * params.squares[1] < longest <= params.squares[1]


def test_nothing_that_is_sent_depends_on_what_was_rated_but_the_values():
    """Kinds, order, receivers and lengths of all messages are the same for other ratings of other items."""
    shapes = []
    for ratings in (None, [{0: 5.0}] * USERS, [dict.fromkeys(range(ITEMS), 1.0)] * USERS):
        card, seats, _ = cast(ratings=ratings, rounds=2)
        run_ = Watched(card, seats)
        run_.sent = []
        assert run_.run().abort is None
        shapes.append(run_.sent)
    assert shapes[0] == shapes[1] == shapes[2]


def state_of(role):
    return snapshot({name: value for name, value in vars(role).items() if name not in ("setting", "params", "tape")})


def refused(role, sender, message):
    before = state_of(role)
    with pytest.raises(Rejected) as error:
        role.receive(sender, message)
    assert state_of(role) == before, "a refused message changes nothing"
    return error.value.reason.name


def test_a_user_uploads_once():
    card, _, inputs = cast()
    role = HardenedUser(card.setting, Tape(bytes(32)), inputs[0])
    welcome = MaskWelcome(bytes(32), NOTHING)
    assert refused(role, "third_party", welcome) == "UNKNOWN_SENDER"
    assert refused(role, "recommender", MaskWelcome(bytes(32), np.ones(2, np.uint32))) == "WRONG_LENGTH"
    (sent,) = role.receive("recommender", welcome)
    assert isinstance(sent, Send) and sent.to == "third_party"
    assert refused(role, "recommender", welcome) == "DUPLICATE"
    assert refused(role, "recommender", MaskWelcome(bytes([1]) * 32, NOTHING)) == "DUPLICATE", "no second upload"
    again = HardenedUser(card.setting, Tape(bytes(32)), inputs[0]).receive("recommender", welcome)[0]
    assert np.array_equal(again.message.values, sent.message.values), "a retry is the same bytes"
    rows, ring = card.params.lengths[0], card.setting.ring
    bare = ring.to_signed(ring.subtract(sent.message.values, masks_of(card.setting, bytes(32), 0)))[:, 0]
    shares = draw_shares(Tape(bytes(32)), card.params.first_scale, rows, "share", 0)
    assert np.array_equal(bare - shares, first_vector(card.params, inputs[0].items, inputs[0].ratings))


@pytest.mark.parametrize(
    "weaker",
    [
        {"first_scale": 3 << 16},
        {"first_scale": 0},
        {"first_scale": -1},  # less, by the least step of a scale
        {"min_contributors": 9},
        {"epsilon": 0.999},
        {"delta": 9e-6},
        {"rounds": 2, "iterations": 2},  # a second round that has no noise
        {"rounds": 2, "iterations": 2, "second_scale": 1 << 25},
        {"fraction_bits": 11},
    ],
    ids=str,
)
def test_no_user_adds_anything_under_less_noise_than_its_epsilon_needs(weaker):
    card, _, inputs = cast(epsilon=1.0)
    step = {"first_scale": card.params.first_scale - 1} if weaker.get("first_scale") == -1 else {}
    setting = dataclasses.replace(card.setting, params=dataclasses.replace(card.params, **(weaker | step)))
    role = HardenedUser(setting, Tape(bytes(32)), inputs[0])
    with pytest.raises(Aborted, match=r"TOO_LITTLE_NOISE: .*adds nothing \(ε .* at δ "):
        role.receive("recommender", MaskWelcome(bytes(32), NOTHING))
    assert not role.mask_key and role.iteration < 0


@pytest.mark.parametrize("unit", ["user", "rating"])
@pytest.mark.parametrize("epsilon", [0.02, 0.5, 1.0, 8.0, 20.0, math.inf])
def test_users_take_part_under_the_scales_that_are_chosen(unit, epsilon):
    for users, items, options in ((40, 9, {}), (943, 1682, {"spare": 0.5}), (10**5, 30, {"delta": 1e-9})):
        made, _ = params_with("hardened", n_users=users, n_items=items, epsilon=epsilon, unit=unit, **options)
        assert keeps_claim(made)
    both, _ = params_with("hardened", n_users=943, n_items=1682, epsilon=epsilon, rounds=2)
    assert keeps_claim(both)


class Weak(Hardened):
    """Its servers state noise for a tenth of the users that may contribute."""

    def make_params(self, shape, **settings):
        params, notes = super().make_params(shape, **settings)
        return dataclasses.replace(params, first_scale=params.first_scale // 3), notes


@pytest.mark.parametrize("transport", ["ipc", "inprocess"])
def test_a_run_whose_parameters_state_too_little_noise_ends_in_words_before_any_upload(tmp_path, transport):
    load_scheme("test_hardened:Weak")
    summary = run(RunConfig(scheme="test_hardened:Weak", data="demo-small", seed=1, transport=transport),
                  out=tmp_path / "run")  # fmt: skip
    assert summary["abort"]["reason"] == "TOO_LITTLE_NOISE" and "adds nothing" in summary["abort"]["sentence"]
    heard = received(read_run(tmp_path / "run")[1], tmp_path / "run", "third_party")
    assert not [one for _, one in heard if isinstance(one, MaskedPart)]


def with_parts(card, users):
    role = HardenedThirdParty(card.setting)
    rows = card.setting.ring.zeros(card.params.lengths[0], 1)
    effects = [role.receive(f"user:{user}", MaskedPart(0, NOTHING, rows)) for user in range(users)]
    return role, effects


def test_the_third_party_closes_once_and_enforces_the_floor():
    card, *_ = cast()
    floor = card.params.min_contributors
    assert floor == 10, "a tenth of 12 users, rounded up, may be missing"
    role, effects = with_parts(card, floor)
    assert [len(each) for each in effects] == [1] + [0] * (floor - 1), "the first starts the timer"
    (closed,) = role.tick(Deadline(0))
    users = np.arange(floor, dtype=np.uint32)
    assert np.array_equal(closed.message.users, users) and closed.message.digest == digest_of(0, users)
    late = MaskedPart(0, NOTHING, card.setting.ring.zeros(card.params.lengths[0], 1))
    assert refused(role, "user:11", late) == "WRONG_ITERATION"
    assert role.tick(Deadline(0)) == [] == role.tick(Gone(11))
    assert refused(role, "user:1", Agreed(0, closed.message.digest)) == "UNKNOWN_SENDER"
    with pytest.raises(Aborted, match="DISAGREEMENT"):
        role.receive("recommender", Agreed(0, bytes(32)))
    total, _ = role.receive("recommender", Agreed(0, closed.message.digest))
    assert isinstance(total.message, PartTotal)
    assert refused(role, "recommender", Agreed(0, closed.message.digest)) == "WRONG_KIND", "no second total"

    role, _ = with_parts(card, floor - 1)
    with pytest.raises(Aborted, match="nothing is released"):
        role.tick(Deadline(0))


def test_the_third_party_refuses_what_is_no_part():
    card, *_ = cast()
    role, _ = with_parts(card, 1)
    rows = card.setting.ring.zeros(card.params.lengths[0], 1)
    assert refused(role, "user:0", MaskedPart(0, NOTHING, rows)) == "DUPLICATE"
    assert refused(role, "user:1", MaskedPart(1, NOTHING, rows)) == "WRONG_ITERATION"
    assert refused(role, "user:1", MaskedPart(0, NOTHING, rows[:5])) == "WRONG_LENGTH"
    assert refused(role, "user:1", MaskedPart(0, np.ones(1, np.uint32), rows)) == "WRONG_LENGTH"
    assert refused(role, "user:12", MaskedPart(0, NOTHING, rows)) == "UNKNOWN_SENDER"
    assert refused(role, "recommender", MaskedPart(0, NOTHING, rows)) == "UNKNOWN_SENDER"


def test_the_recommender_agrees_only_with_whom_it_dealt_masks_to():
    card, seats, _ = cast()
    role = HardenedRecommender(card.setting, Tape(seats[0].tape_seed))
    for user in range(USERS - 1):
        role.receive(f"user:{user}", Join(NOTHING))
    assert refused(role, "user:0", Join(NOTHING)) == "DUPLICATE"
    assert refused(role, "user:11", Join(np.zeros(1, np.uint32))) == "WRONG_LENGTH"
    dealt = role.tick(Gone(11))
    assert [send.to for send in dealt] == [f"user:{user}" for user in range(USERS - 1)]
    for users in ([*range(USERS)], [*range(9, 12)]):
        named = np.array(users, np.uint32)
        with pytest.raises(Aborted, match="dealt no masks"):
            role.receive("third_party", Contributors(0, named, NOTHING, digest_of(0, named)))
    few = np.arange(5, dtype=np.uint32)
    assert refused(role, "third_party", Contributors(0, few, NOTHING, digest_of(0, few))) == "OUT_OF_RANGE"
    assert refused(role, "third_party", PartTotal(0, card.setting.ring.zeros(2, 1))) == "WRONG_KIND"


def test_a_run_without_enough_users_ends_before_anybody_uploads():
    card, seats, _ = cast()
    role = HardenedRecommender(card.setting, Tape(seats[0].tape_seed))
    for user in range(9):
        role.receive(f"user:{user}", Join(NOTHING))
    role.tick(Gone(9))
    role.tick(Gone(10))
    with pytest.raises(Aborted, match="9 of 10 joined"):
        role.tick(Gone(11))


# --- parameters ------------------------------------------------------------------------------------------------------


def test_parameters_are_refused_in_words():
    for options, words in (
        ({"unit": "item"}, "--unit must be one of user, rating, value"),
        ({"delta": 0.6}, "--delta"),
        ({"spare": 1.0}, "spare"),
        ({"epsilon": 1e-4}, "too small for 12 users"),
        ({"unit": "value", "rounds": 2}, "Only the unit user has a second round"),
    ):
        with pytest.raises(BadInput, match=words):
            cast(**options)
    assert cast(epsilon=math.inf)[0].params.first_scale == 0


def test_more_users_collude_less_epsilon_holds():
    params = cast(spare=0.5)[0].params
    left = colluders(params)
    assert left["0"] < left["1"] < left["10 %"] < left["50 %"] <= params.epsilon
    assert colluders(cast()[0].params)["50 %"] > 8.0
    account = Hardened().account(params, Tape(bytes(32)), None)
    assert 7.999 < account["epsilon"] <= 8.0


def test_descriptions_of_items_travel_unchanged():
    draw = np.random.default_rng(1)
    flags, numbers = draw.random((30, 19)) < 0.2, draw.integers(-55, 36, (30, 2)) / 21
    text = pack_features(ItemFeatures(flags, numbers))
    found = unpack_features(text, 30, 19, 2)
    assert np.array_equal(found.flags, flags) and np.allclose(found.numbers, numbers)
    for bad in ("!", "AAAA", text[:-8]):
        with pytest.raises(ValueError, match="descriptions"):
            unpack_features(bad, 30, 19, 2)
    with pytest.raises(BadInput, match="item-features none"):
        pack_features(ItemFeatures(draw.random((10**4, 250)) < 0.5, np.zeros((10**4, 0))))


def test_public_counts_travel_unchanged_and_with_the_unit_value_alone():
    counts = np.random.default_rng(1).geometric(0.02, 5000) - 1
    text = pack_counts(counts)
    assert np.array_equal(unpack_counts(text, 5000), counts)
    for bad in ("!", "AAAA", text[:400], ""):
        with pytest.raises(ValueError, match="counts of items"):
            unpack_counts(bad, 5000)
    with pytest.raises(BadInput, match="--unit rating"):
        pack_counts(np.random.default_rng(1).integers(0, 10**6, 20_000))
    card, _, inputs = cast("value")
    raters = np.bincount(np.concatenate([own.items for own in inputs]), minlength=ITEMS)
    assert np.array_equal(card.params.raters(), raters)
    assert not cast("rating")[0].params.item_counts and not cast()[0].params.item_counts
    _, notes = params_with("hardened", n_users=USERS, n_items=ITEMS, unit="value", epsilon=8.0)
    assert "public how many users rated each item" in notes[-1]


def test_where_users_drop_out_public_counts_are_taken_in_proportion():
    params = cast("value")[0].params
    noisy = np.linspace(-3, 3, ITEMS)
    assert np.allclose(posterior_of(params, noisy, 6).counts, params.raters() / 2, rtol=0.1, atol=0.2)


def test_a_larger_unit_is_taken_where_shares_would_be_too_small():
    made, _ = params_with("hardened", n_users=2_000_000, n_items=5, epsilon=8.0, delta=1e-5)
    assert made.first_scale >= 2 << 16 and made.fraction_bits > 10 and made.ring_bits > 24


# --- from the command line -------------------------------------------------------------------------------------------


def test_a_run_of_processes_is_the_run_of_one_process_and_can_be_checked(tmp_path):
    made = {}
    for transport in ("ipc", "inprocess"):
        folder = tmp_path / transport
        config = RunConfig(scheme="hardened", data="demo-small", seed=1, transport=transport, options={"rounds": 2})
        made[transport] = run(config, out=folder)
        assert verify(folder)["findings"] == [] and replay(folder)["identical"]
        assert bandwidth(folder)["match"]
    assert made["ipc"]["item_factors_sha256"] == made["inprocess"]["item_factors_sha256"]
    assert made["ipc"]["accuracy"]["test_rmse"] == made["inprocess"]["accuracy"]["test_rmse"] < 2
    assert made["ipc"]["privacy"]["accounted"]["epsilon"] <= 8.0
    assert any("spends ε 8" in note for note in made["ipc"]["notes"])


def test_a_budget_is_kept():
    from sim.plan.plan import make_plan

    config = RunConfig(scheme="hardened", data="demo-small", seed=1, epsilon=2.0, budget=2.0)
    make_plan(config)
    with pytest.raises(BadInput, match=r"would spend ε 2 .*above the budget of 1"):
        make_plan(dataclasses.replace(config, budget=1.0))
    with pytest.raises(BadInput, match="budget of 8"):
        make_plan(RunConfig(scheme="masked", data="demo-small", seed=1, epsilon=8.0, budget=8.0))
