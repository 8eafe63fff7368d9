"""Runs that must end although no message is wrong by itself: disagreement, divergence, too many raters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.attackers.faults import DIM, ITEMS, RATINGS, USERS, T, changed, u32
from support.basics import received, small_run
from support.snapshot import snapshot
from support.stage import Stage

from protocol.arithmetic.factors import FACTOR_LIMIT
from protocol.card import seat_party
from protocol.errors import Aborted, Reason
from protocol.party.party import Step
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Send
from protocol.party.view import RECEIVED
from protocol.wire.messages import Agreed, Contributors, MaskedTotal
from sim.drivers.inprocess import InProcess

# The number of raters of each of the items 0 to 3; all items are opened, and all raters contribute.
COUNTS = [2, 2, 2, 1]


def before_agreement(wire: str = "compact") -> tuple[Stage, Contributors]:
    """Run until the recommender waits for the contributors of iteration 0; return the stage and the true message."""
    card, seats = small_run(n_items=ITEMS, dim=DIM, iterations=T, ratings=RATINGS, wire=wire)
    whole, stage = Stage(card, seats), Stage(card, seats)
    whole.finish()
    stage.run_until(RECOMMENDER, USERS)
    truth = whole.heard[RECOMMENDER][USERS][1]
    assert isinstance(truth, Contributors) and truth.counts.tolist() == COUNTS
    return stage, truth


def assert_aborted(step: Step, reason: Reason, detail: str) -> None:
    assert step.abort is not None and step.abort.reason is reason
    assert detail in step.abort.detail
    assert (step.rejected, step.sends, step.timers, step.done) == (None, [], [], False)


LIES: dict[str, tuple[str, dict[str, Any]]] = {
    "a count too high": ("other counts or another digest", {"counts": u32(2, 2, 2, 2)}),
    "a count too low": ("other counts or another digest", {"counts": u32(2, 2, 1, 1)}),
    "no counts": ("other counts or another digest", {"counts": u32(0, 0, 0, 0)}),
    "another digest": ("other counts or another digest", {"digest": bytes(32)}),
    "a user left out": ("other counts or another digest", {"users": u32(0, 1)}),
    "a user that was dealt no masks": ("was dealt no masks", {"users": u32(0, 1, 2, 3)}),
    "only a user that was dealt no masks": ("was dealt no masks", {"users": u32(2**32 - 1)}),
}


@pytest.mark.parametrize("lie", LIES)
def test_the_recommender_ends_a_run_in_which_the_contributors_are_not_those_it_dealt_masks_to(lie):
    """The test uses the paper's wire, which can name users that do not exist."""
    stage, truth = before_agreement("paper")
    detail, fields = LIES[lie]
    role = stage.parties[RECOMMENDER].role
    before = snapshot(role)
    step, frame = stage.hand(THIRD_PARTY, RECOMMENDER, changed(truth, **fields))
    assert_aborted(step, Reason.DISAGREEMENT, detail)
    assert snapshot(role) == before
    last = stage.records(RECOMMENDER)[-1]
    assert (last.type, last.fields) == (RECEIVED, [THIRD_PARTY, frame]), "the evidence is in the view"
    fresh, _ = seat_party(stage.card, stage.seats[RECOMMENDER], with_view=True)
    assert_aborted(fresh.replay(stage.records(RECOMMENDER)[2:]), Reason.DISAGREEMENT, detail)


def test_the_truth_is_agreed_to():
    stage, truth = before_agreement()
    step, _ = stage.hand(THIRD_PARTY, RECOMMENDER, truth)
    assert [(out.to, out.kind) for out in step.sends] == [(THIRD_PARTY, "Agreed")]


def test_fewer_contributors_are_agreed_to_if_counts_and_digest_say_the_same():
    """User 2 (items 0, 2, 3) stayed away: items 0, 1, 2 and 3 have 1, 2, 1 and 0 contributors."""
    stage, _ = before_agreement()
    preimage = b"\x92\xaccontributors\x00" + b"\x92\x00\xc4\x08" + u32(0, 1).tobytes() + b"\x92\x01\xc4\x08"
    digest = hashlib.sha256(preimage + u32(1, 2).tobytes()).digest()
    announced = Contributors(0, u32(0, 1), u32(1, 2, 1, 0), digest)
    step, _ = stage.hand(THIRD_PARTY, RECOMMENDER, announced)
    assert [(out.to, out.kind) for out in step.sends] == [(THIRD_PARTY, "Agreed")]


def test_the_third_party_releases_nothing_for_another_digest():
    card, seats = small_run(n_items=ITEMS, dim=DIM, iterations=T, ratings=RATINGS)
    stage = Stage(card, seats)
    stage.run_until(THIRD_PARTY, 1 + USERS)
    role = stage.parties[THIRD_PARTY].role
    before = snapshot(role)
    step, frame = stage.hand(RECOMMENDER, THIRD_PARTY, Agreed(0, bytes(32)))
    assert_aborted(step, Reason.DISAGREEMENT, "iteration 0")
    assert snapshot(role) == before
    last = stage.records(THIRD_PARTY)[-1]
    assert (last.type, last.fields) == (RECEIVED, [RECOMMENDER, frame])


# --- the driver says so -----------------------------------------------------------------------------------------------


def lying(driver: InProcess, party: str, kind: type, lie: Callable[[Any], Any]) -> None:
    """Make `party` alter with `lie` every message of `kind` that it sends."""
    role = driver.parties[party].role
    honest = role.receive

    def receive(sender: str, message: Any) -> Any:
        effects = honest(sender, message)
        return [
            Send(effect.to, lie(effect.message))
            if isinstance(effect, Send) and isinstance(effect.message, kind)
            else effect
            for effect in effects
        ]

    role.receive = receive


@pytest.mark.parametrize(
    ("party", "kind", "field", "value"),
    [
        (THIRD_PARTY, Contributors, "digest", bytes(32)),
        (THIRD_PARTY, Contributors, "users", u32(0, 7)),
        (RECOMMENDER, Agreed, "digest", bytes(32)),
    ],
)
def test_a_run_without_agreement_has_no_result(party, kind, field, value, tmp_path):
    card, seats = small_run(n_items=ITEMS, dim=DIM, iterations=T, ratings=RATINGS, wire="paper")
    everyone = frozenset(seat.party for seat in seats)
    driver = InProcess(card, seats, run_folder=str(tmp_path), with_view=everyone)
    lying(driver, party, kind, lambda message: changed(message, **{field: value}))
    outcome = driver.run()
    assert outcome.abort is not None and outcome.abort.reason is Reason.DISAGREEMENT
    assert outcome.item_factors is None
    assert driver.parties[RECOMMENDER].role.iteration == 0
    # the deceived party has the lie in its view, as the last message that it received
    deceived = RECOMMENDER if party == THIRD_PARTY else THIRD_PARTY
    sender, message = received(card, tmp_path, deceived)[-1]
    assert sender == party and isinstance(message, kind)
    assert snapshot(getattr(message, field)) == snapshot(value)


def test_a_total_that_is_refused_leaves_the_factors_alone():
    """The total lacks the last item, so it is refused and no factor moves."""
    card, seats = small_run(n_items=ITEMS, dim=DIM, iterations=T, ratings=RATINGS)
    stage = Stage(card, seats)
    stage.run_until(RECOMMENDER, USERS + 1)
    role = stage.parties[RECOMMENDER].role
    before = role.item_factors.tobytes()
    total = MaskedTotal(0, u32(0, 1, 2), np.zeros((3, DIM), np.uint32))
    assert stage.hand(THIRD_PARTY, RECOMMENDER, total)[0].rejected is Reason.UNKNOWN_ITEM
    assert role.item_factors.tobytes() == before


# --- divergence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["plain", "masked"])
def test_a_run_whose_factors_leave_their_range_ends(scheme):
    """With a learning rate of 2^80 the first step moves some factor by far more than 2^60."""
    card, seats = small_run(scheme, learning_rate=2.0**80)
    driver = InProcess(card, seats)
    outcome = driver.run()
    assert outcome.abort is not None
    assert (outcome.abort.reason, outcome.abort.detail) == (Reason.DIVERGED, "iteration 0")
    assert outcome.item_factors is None
    factors = driver.parties[RECOMMENDER].role.item_factors
    assert np.abs(factors).max() <= 1, "still the factors of unit length that the run began with"


def test_the_limit_itself_is_not_beyond_it():
    """v = 0, one rater, no regularisation, γ = 2^60: v' = −2^60 · sum."""
    card, seats = small_run(
        "plain", n_items=1, dim=1, iterations=1, ratings=[{0: 3.0}], learning_rate=2.0**60, item_regularisation=0.0
    )
    stage = Stage(card, seats)
    stage.run_until(RECOMMENDER, 1)
    role = stage.parties[RECOMMENDER].role
    assert FACTOR_LIMIT == 2.0**60
    for sign in (1.0, -1.0):
        role.item_factors = np.zeros((1, 1))
        role.move(u32(0), np.array([[-sign]]))
        assert role.item_factors.tolist() == [[sign * 2.0**60]]
        role.item_factors = np.zeros((1, 1))
        with pytest.raises(Aborted) as caught:
            role.move(u32(0), np.array([[-sign * (1 + 2.0**-52)]]))
        assert caught.value.reason is Reason.DIVERGED
        assert role.item_factors.tolist() == [[0.0]]
