"""The roles that cheat: each departs from the honest role in the one thing that its line in the table says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.basics import small_ratings, small_run
from support.runs import factors_of

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.cheats.cheat import CHEATS, check_cheat, parse_cheat
from protocol.cheats.joining import TIMES
from protocol.errors import BadInput, Reason
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Send, user_index, user_name
from protocol.schemes.factorization.honest_reach import plausible_envelopes
from protocol.wire.messages import (
    Contributors,
    ItemFactors,
    ItemFactorsInFull,
    MaskedGradient,
    MaskedTotal,
    OpenSum,
    Welcome,
    WelcomeInFull,
)
from sim.drivers.inprocess import InProcess

USERS, ITEMS, DIM, T = 6, 8, 3, 6
RATINGS = small_ratings(USERS, ITEMS)
SCHEMES = ("masked", "dynamic")


def run_with(cheat, scheme="masked", **options):
    """Run with a cheat and note every message that roles send: (sender, receiver, message); return (outcome, notes)."""
    settings = {"n_users": USERS, "n_items": ITEMS, "dim": DIM, "iterations": T, "ratings": RATINGS}
    card, seats = small_run(scheme, **settings, **options)
    driver, said = InProcess(dataclasses.replace(card, cheat=cheat or ""), seats), []
    for name, party in driver.parties.items():
        listen(name, party.role, said)
    return driver.run(), said, driver


def listen(name, role, said):
    for method in ("start", "receive", "tick"):
        real = getattr(role, method)

        def heard(*given, real=real):
            effects = real(*given)
            said.extend((name, one.to, one.message) for one in effects if isinstance(one, Send))
            return effects

        setattr(role, method, heard)


def of_kind(said, kind, iteration=None):
    return [
        (sender, to, message)
        for sender, to, message in said
        if isinstance(message, kind) and (iteration is None or message.iteration == iteration)
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_cheat_runs_to_the_end_with_every_honest_party(scheme):
    for name, cheat in CHEATS.items():
        if scheme not in cheat.schemes:
            continue
        outcome, _, driver = run_with(f"{name}:2" if cheat.numbered else name, scheme, wire=cheat.wires[0])
        assert outcome.abort is None and all(party.done for party in driver.parties.values()), name
        other = [party for party in driver.parties if not parse_cheat(outcome_name(name, cheat)).is_cheater(party)]
        assert all(type(driver.parties[party].role).__module__.startswith("protocol.schemes") for party in other)


def outcome_name(name, cheat):
    return f"{name}:2" if cheat.numbered else name


def test_an_equivocating_recommender_sends_long_factors_that_no_user_refuses():
    outcome, said, driver = run_with("recommender:equivocate")
    assert not outcome.rejected
    reach = driver.parties["user:0"].role.reach
    for t in range(1, T):
        sent = {to: message for _, to, message in of_kind(said, ItemFactors, t)}
        lengths = {to: np.linalg.norm(m.factors, axis=1) / reach.lengths(t, m.floors) for to, m in sent.items()}
        long = [to for to, shares in lengths.items() if (shares > 0.99).all()]
        assert long == [user_name(t % USERS)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_isolating_recommender_opens_sums_of_one_user_that_was_told_of_many(scheme):
    outcome, said, _ = run_with("recommender:isolate", scheme)
    assert not outcome.rejected
    raters = np.bincount([item for rated in RATINGS for item in rated], minlength=ITEMS)
    for t in range(T):
        [(_, _, opening)] = of_kind(said, OpenSum, t)
        [(_, to, offer)] = of_kind(said, ItemFactors, t)
        assert opening.users.tolist() == [user_index(to)] == [t % USERS] and set(opening.floors.tolist()) == {1}
        assert offer.floors.tolist() == raters[sorted(RATINGS[t % USERS])].tolist()
        [(_, _, total)] = of_kind(said, MaskedTotal, t)
        assert total.items.tolist() == sorted(RATINGS[t % USERS])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_narrowing_recommender_opens_the_items_of_one_user_and_the_others_are_refused(scheme):
    """User 0 rated four items, and no other user only items of these."""
    outcome, said, _ = run_with("recommender:narrow", scheme)
    for t in range(T):
        [(_, _, opening)] = of_kind(said, OpenSum, t)
        invited = [user_index(to) for _, to, _ in of_kind(said, ItemFactors, t)]
        victim = t % USERS
        assert opening.users.tolist() == invited == list(range(USERS)), "everybody is invited"
        assert opening.items.tolist() == sorted(RATINGS[victim]) and set(opening.floors.tolist()) == {1}
        [(_, _, announced)] = of_kind(said, Contributors, t)
        inside = [user for user in range(USERS) if set(RATINGS[user]) <= set(RATINGS[victim])]
        assert announced.users.tolist() == inside and victim in inside
    assert set(outcome.rejected) == {"UNKNOWN_ITEM"}


def test_shrunken_envelopes_are_the_smallest_that_users_take():
    outcome, said, _ = run_with("recommender:far-envelope", wire="paper")
    assert not outcome.rejected
    dealt = [*of_kind(said, WelcomeInFull), *of_kind(said, ItemFactorsInFull)]
    rows = np.concatenate([message.envelopes for _, _, message in dealt])
    assert plausible_envelopes(rows, ITEMS * (T + 1))
    assert not plausible_envelopes(rows[:1] * np.float32(0.99), ITEMS * (T + 1)) and rows.mean() < 0.01


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_users_are_dealt_envelopes_that_no_other_user_has(wire):
    outcome, said, _ = run_with("recommender:own-envelope", wire=wire)
    assert not outcome.rejected
    if wire == "compact":
        keys = [key for _, _, welcome in of_kind(said, Welcome) for key in welcome.item_keys]
        assert len(keys) == len(set(keys)) == sum(map(len, RATINGS))
    else:
        for kind in (WelcomeInFull, ItemFactorsInFull):
            rows = [row.tobytes() for _, _, message in of_kind(said, kind) for row in message.envelopes]
            assert len(rows) == len(set(rows)) == sum(map(len, RATINGS)) * (1 if kind is WelcomeInFull else T)


def test_an_adding_third_party_moves_every_sum_by_the_gradient_of_one_more_user():
    """Nobody refuses anything, and who contributed is announced as it is."""
    outcome, said, driver = run_with("third_party:add")
    honest = run_with(None)[1]
    assert not outcome.rejected and outcome.abort is None and not outcome.figures.get("struck")
    role, params = driver.parties[THIRD_PARTY].role, driver.card.params
    [(_, _, total)], [(_, _, true)] = of_kind(said, MaskedTotal, 0), of_kind(honest, MaskedTotal, 0)
    fixed = FixedPoint(driver.card.setting.ring, params.fraction_bits)
    added = fixed.decode(driver.card.setting.ring.subtract(total.values, true.values))
    ghost = np.tile(-2 * params.clip * role.direction, (ITEMS, 1))
    assert added == pytest.approx(ghost, abs=2.0**-params.fraction_bits)
    [(_, _, announced)], [(_, _, as_honest)] = of_kind(said, Contributors, 0), of_kind(honest, Contributors, 0)
    assert announced.digest == as_honest.digest


def test_a_crafting_recommender_turns_the_factors_of_victims_to_their_axes():
    settings = {"n_users": 4, "n_items": 8, "dim": 3, "iterations": 60, "ratings": small_ratings(4, 8)}
    card, seats = small_run("masked", epsilon=1e6, **settings)
    driver = InProcess(dataclasses.replace(card, cheat="recommender:craft"), seats)
    assert driver.run().abort is None
    for user, axis in ((0, 0), (1, 1), (2, 2), (3, 2)):
        assert driver.parties[user_name(user)].role.user_factors[axis] > 0.99


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_faint_envelope_is_the_least_of_many(scheme):
    from protocol.cheats.leading import objective_envelopes

    _, _, driver = run_with("recommender:envelope", scheme)
    role = driver.parties[RECOMMENDER].role
    assert len(set(role.item_keys)) == ITEMS
    assert objective_envelopes(role, role.item_keys).mean() < 0.6


def test_a_splitting_third_party_sends_what_leaves_one_message():
    outcome, said, driver = run_with("third_party:split")
    assert outcome.rejected == {Reason.WRONG_ITERATION.name: T - 1}, "the last one comes when the recommender is done"
    for t in range(T):
        (_, _, whole), (_, _, less) = of_kind(said, MaskedTotal, t)
        [(_, _, message)] = [row for row in of_kind(said, MaskedGradient, t) if row[0] == user_name(t % USERS)]
        left = driver.card.setting.ring.subtract(whole.values, less.values)
        assert left[np.isin(whole.items, message.items)].tolist() == message.values.tolist()
        assert not left[~np.isin(whole.items, message.items)].any()
    honest = small_run("masked", n_users=USERS, n_items=ITEMS, dim=DIM, iterations=T, ratings=RATINGS)
    assert outcome.item_factors.tobytes() == factors_of(*honest).tobytes()


def test_a_lying_third_party_and_a_poisoning_user_leave_sums_that_move_nothing():
    for cheat in ("third_party:lie", "user:poison"):
        outcome, _, _ = run_with(cheat, ring_bits=64)
        assert "left its message out" in outcome.figures["struck"]["user:0"], cheat
        assert outcome.figures["poisoned_sums"] == len(RATINGS[0])
        assert np.linalg.norm(outcome.item_factors, axis=1).max() < 10


def test_a_flooding_user_sends_each_message_many_times():
    _, said, _ = run_with("user:flood")
    sent = [row for row in of_kind(said, MaskedGradient, 0) if row[0] == "user:0"]
    assert len(sent) == TIMES and {id(message) for _, _, message in sent} == {id(sent[0][2])}


def test_sybils_send_their_masks_and_nothing_else():
    _, said, driver = run_with("user:sybil:2")
    ring, dealer = driver.card.setting.ring, driver.parties[RECOMMENDER].role.dealer
    for sender, to, message in of_kind(said, MaskedGradient):
        user = user_index(sender)
        left = ring.subtract(message.values, dealer.masks(user, message.iteration, message.items))
        assert to == THIRD_PARTY and left.any() == (user >= 2)


@pytest.mark.parametrize(
    ("text", "scheme", "words"),
    [
        ("recommender:lie", "masked", "There is no cheat 'recommender:lie'"),
        ("recommender:isolat", "masked", "did you mean recommender:isolate"),
        ("user", "masked", "There is no cheat"),
        ("user:sybil", "masked", "takes a number of users, such as user:sybil:3"),
        ("user:sybil:0", "masked", "takes a number of users"),
        ("user:sybil:x", "masked", "takes a number of users"),
        ("user:flood:3", "masked", "takes no number: user:flood"),
        ("recommender:own-envelope", "dynamic", "is a cheat of masked, not of dynamic"),
        ("recommender:envelope", "covariance", "is a cheat of masked and dynamic, not of covariance"),
    ],
)
def test_what_is_no_cheat_of_the_scheme_is_refused_in_words(text, scheme, words):
    with pytest.raises(BadInput, match=words):
        check_cheat(text, scheme)


def test_a_cheat_that_the_wire_form_does_not_allow_is_refused_in_words():
    check_cheat("recommender:far-envelope", "masked", "paper")
    with pytest.raises(BadInput, match="--cheat recommender:far-envelope needs --wire paper"):
        check_cheat("recommender:far-envelope", "masked", "compact")


@pytest.mark.parametrize("cheat", ["recommender:isolate", "recommender:narrow"])
def test_a_third_party_that_wants_two_refuses_to_open_a_sum_of_one(cheat):
    outcome, said, _ = run_with(cheat, min_contributors=2)
    assert outcome.rejected == {"OUT_OF_RANGE": 1} and not of_kind(said, MaskedTotal)
    assert outcome.abort.reason is Reason.STALLED
