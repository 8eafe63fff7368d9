"""A user that does not do its part loses its place and is named; the run goes on without it."""

from __future__ import annotations

import numpy as np
import pytest
from support.basics import small_ratings, small_run
from support.runs import factors_of

from protocol.card import Card
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Send
from protocol.schemes.factorization.machines.struck import crowding, poisoner
from protocol.wire.messages import BlindedShare, Join, MaskedGradient, MaskedTotal
from sim.drivers.inprocess import InProcess

USERS, ITEMS, DIM, T = 6, 8, 2, 4
RATINGS = small_ratings(USERS, ITEMS)


def u32(*numbers):
    return np.array(numbers, np.uint32)


def play_with(card: Card, seats, party: str, kind: type, change, iteration: int = 0):
    """Run with a `party` that changes its messages of `kind` from `iteration` on; return (outcome, driver)."""
    driver = InProcess(card, seats)
    role = driver.parties[party].role

    def tampered(effects):
        return [
            Send(one.to, change(one.message))
            if isinstance(one, Send)
            and isinstance(one.message, kind)
            and getattr(one.message, "iteration", 0) >= iteration
            else one
            for one in effects
        ]

    start, receive = role.start, role.receive
    role.start = lambda: tampered(start())
    role.receive = lambda sender, message: tampered(receive(sender, message))
    return driver.run(), driver


def run_of(scheme: str, wire: str = "compact", **options):
    settings = {"n_users": USERS, "n_items": ITEMS, "dim": DIM, "iterations": T, "wire": wire, "epsilon": 100.0}
    return small_run(scheme, ratings=RATINGS, ring_bits=64, **settings, **options)


def fewer(message):
    """Leave out the first item, of items and values."""
    return type(message)(message.iteration, message.items[1:], message.values[1:])


def more(message):
    """Add an item that the user has not joined with, and that others rate."""
    extra = next(item for item in range(ITEMS) if item not in message.items)
    at = int(np.searchsorted(message.items, extra))
    items = np.insert(message.items, at, extra).astype(np.uint32)
    return type(message)(message.iteration, items, np.insert(message.values, at, message.values[0], axis=0))


def extreme(message):
    """Send half the ring in every word: far beyond any honest value, whatever the mask."""
    half = message.values.dtype.type(1 << 62)
    return type(message)(message.iteration, message.items, message.values + half)


CHEATS = {
    "fewer items": (fewer, "it sent other items than it joined with, in iteration 1"),
    "more items": (more, "it sent other items than it joined with, in iteration 1"),
    "extreme values": (extreme, "the sums with it were beyond what honest users can make, and no others"),
}


@pytest.mark.parametrize(("scheme", "wire"), [("masked", "compact"), ("masked", "paper"), ("dynamic", "paper")])
def test_a_user_that_cheats_is_named_and_the_run_goes_on(scheme, wire):
    for cheat, (change, words) in CHEATS.items():
        outcome, driver = play_with(*run_of(scheme, wire), "user:1", MaskedGradient, change, iteration=1)
        assert outcome.abort is None and outcome.item_factors is not None, cheat
        assert list(outcome.figures["struck"]) == ["user:1"] and words in outcome.figures["struck"]["user:1"], cheat
        assert any("user:1 lost its place" in note for note in outcome.figures["notes"])
        recommender = driver.parties[RECOMMENDER].role
        assert 1 not in recommender.dealt and len(recommender.dealt) == USERS - 1
        assert all(party.done for party in driver.parties.values()), "it is told the end like everybody"
        assert np.linalg.norm(outcome.item_factors, axis=1).max() < 10, "what it sent has moved nothing far"


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_a_user_that_joins_with_more_than_planned_is_left_out(scheme):
    """User 2 claims every item, so some have a rater more than the ring was chosen for."""
    card, seats = run_of(scheme)
    raters = np.bincount([item for rated in RATINGS for item in rated], minlength=ITEMS)
    assert card.params.max_raters == raters.max() < USERS
    outcome, driver = play_with(card, seats, "user:2", Join, lambda join: Join(np.arange(ITEMS, dtype=np.uint32)))
    assert outcome.abort is None and list(outcome.figures["struck"]) == ["user:2"]
    assert "more raters than the parameters allow" in outcome.figures["struck"]["user:2"]
    assert 2 not in driver.parties[RECOMMENDER].role.dealt
    without = raters - [item in RATINGS[2] for item in range(ITEMS)]
    assert driver.parties[RECOMMENDER].role.n_raters.tolist() == without.tolist()


def test_an_honest_run_names_nobody_and_is_what_it_was():
    card, seats = run_of("masked")
    outcome, _ = play_with(card, seats, "user:1", BlindedShare, fewer)
    assert outcome.abort is None and "struck" not in outcome.figures and not outcome.figures.get("notes")
    assert outcome.item_factors.tobytes() == factors_of(card, seats).tobytes()


def test_totals_that_no_masks_fit_move_nothing_and_no_user_is_named():
    """The third party releases zeros: what is left is the masks, so the sums are garbage."""
    card, seats = run_of("masked")

    def zeros(total):
        return type(total)(total.iteration, total.items, np.zeros_like(total.values))

    outcome, _ = play_with(card, seats, THIRD_PARTY, MaskedTotal, zeros)
    assert outcome.abort is None and outcome.figures["struck"] == {}
    assert outcome.figures["poisoned_sums"] >= T * ITEMS / 2


def test_only_a_user_that_nobody_shares_the_blame_with_is_named():
    supports = {0: u32(0, 1, 2, 3), 1: u32(0, 1), 2: u32(0, 1, 4, 5, 6)}
    released = u32(0, 1, 2, 3, 4, 5, 6)
    assert poisoner(u32(0, 1, 2, 3), released, supports) == 0
    assert poisoner(u32(4, 5, 6), released, supports) == 2
    assert poisoner(u32(0, 1), released, {0: supports[0], 1: supports[1]}) == 1, "half of the other's sums were sound"
    assert poisoner(u32(0), released, supports) is None, "it may be any of them"
    assert poisoner(u32(3, 4), released, supports) is None, "no single user was in both"
    twins = {0: u32(0, 1), 1: u32(0, 1)}
    assert poisoner(u32(0, 1), released, twins) is None


def test_the_user_with_the_most_items_is_left_out_of_a_crowd():
    supports = {0: u32(0, 1), 1: u32(0), 2: u32(0, 1, 2), 3: u32(3, 4, 5, 6)}
    assert crowding(supports, 7, 3) is None
    assert crowding(supports, 7, 2) == 2
    assert crowding({1: u32(0), 0: u32(0)}, 7, 1) == 0, "the last that joined"
