"""A refused message changes nothing, leaves one record, and does not stop the run.

Every role is tested in every state of a small run. In each state it receives every kind of fault
(`support/attackers/faults.py`): wrong kinds, senders, iterations, lengths, values and items, second answers, and frames
that are no messages.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.attackers.faults import (
    DIM,
    ITEMS,
    RATINGS,
    USERS,
    Cases,
    Setup,
    T,
    Truth,
    changed,
    for_masked_recommender,
    for_masked_user,
    for_plain_recommender,
    for_plain_user,
    for_third_party,
    frame_faults,
    u32,
)
from support.basics import small_run
from support.snapshot import snapshot
from support.stage import Stage
from support.wire import KINDS, code_of, framed

from protocol.errors import Reason, Rejected
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.wire.messages import ItemFactorsInFull, MaskedGradient, MaskedTotal, OpenSum


@functools.cache
def materials(setup: Setup) -> Any:
    options = {"min_contributors": 2} if setup.scheme == "masked" else {}
    return small_run(setup.scheme, n_items=ITEMS, dim=DIM, iterations=T, wire=setup.wire, ratings=RATINGS, **options)


def make_stage(setup: Setup) -> Stage:
    def late(stage: Stage, receiver: str, message: Any) -> bool:
        if not isinstance(message, OpenSum):
            return False
        gradients = [m for _, m in stage.heard[receiver] if isinstance(m, MaskedGradient)]
        return sum(m.iteration == message.iteration for m in gradients) < setup.held

    return Stage(*materials(setup), late)


@functools.cache
def undisturbed(setup: Setup) -> Stage:
    stage = make_stage(setup)
    stage.finish()
    assert not any(stage.rejections(party) for party in stage.parties)
    return stage


class Part(NamedTuple):
    party: str
    cases: Callable[[int, Truth, Setup], Cases]
    messages: int  # received in the whole run


MASKED = [
    Part("user:1", for_masked_user, 1 + T + 2),
    Part(RECOMMENDER, for_masked_recommender, USERS + 2 * T),
]
SUMS = Part(THIRD_PARTY, for_third_party, T * (USERS + 2) + 1)
PARTS = {
    Setup("masked"): [*MASKED, SUMS],
    Setup("masked", "paper"): [*MASKED, SUMS],
    Setup("masked", held=1): [SUMS],
    Setup("masked", held=USERS): [SUMS],
    Setup("plain"): [
        Part("user:1", for_plain_user, T + 2),
        Part(RECOMMENDER, for_plain_recommender, USERS + T * USERS),
    ],
}
STATES = [
    pytest.param(setup, part, k, id=f"{setup.scheme}-{setup.wire}-held{setup.held}-{part.party}-after{k}")
    for setup, parts in PARTS.items()
    for part in parts
    for k in range(part.messages)
]


@pytest.mark.parametrize(("setup", "part", "k"), STATES)
def test_a_refused_message_changes_nothing(setup, part, k):
    reference = undisturbed(setup)
    truth = reference.heard[part.party]
    assert len(truth) == part.messages
    stage = make_stage(setup)
    stage.run_until(part.party, k)
    party = stage.parties[part.party]
    expected: list[list[Any]] = []
    thrown: set[str] = set()
    again = code_of(setup.scheme, "Again")

    def check(fault: str, sender: str, frame: bytes, step: Any, reason: Reason, read: bool) -> None:
        assert step.rejected is reason, f"{fault}: {step.rejected}"
        assert (step.timers, step.done, len(step.records)) == ([], False, 1), fault
        asked = [framed(again, 0, stage.number(sender, part.party), 0, head=step.records[0][-32:])]
        assert [out.frame for out in step.sends] == (asked if reason is Reason.GAP else []), fault
        assert snapshot(party.role) == before, fault
        assert (party.done, party.result) == (False, None), fault
        expected.append([sender, reason.name, len(frame), hashlib.sha256(frame).digest(), read])
        thrown.add(step.kind)

    before = snapshot(party.role)
    for case in part.cases(k, truth, setup):
        step, frame = stage.hand(case.sender, part.party, case.message)
        check(case.fault, case.sender, frame, step, case.reason, case.read)
    peer = "user:0" if part.party == RECOMMENDER else RECOMMENDER
    for fault, frame, reason in frame_faults(stage, part.party, peer):
        check(fault, peer, frame, stage.hand_frame(peer, part.party, frame), reason, False)

    assert thrown - {""} == {*KINDS[setup.scheme], "Again"}, "every kind was tried"
    stage.finish()
    assert stage.rejections(part.party) == expected
    assert not any(stage.rejections(name) for name in stage.parties if name != part.party)
    assert [(who, to, frame[:-32]) for who, to, frame in stage.sent] == [
        (who, to, frame[:-32]) for who, to, frame in reference.sent
    ], "the same messages leave as in an undisturbed run"
    theirs, ours = ([sent for sent in run.sent if sent[0] != part.party] for run in (reference, stage))
    assert ours == theirs, "and only the head of the view that has refusals in it differs"
    ours, theirs = (each.parties[RECOMMENDER].result for each in (stage, reference))
    assert ours.tobytes() == theirs.tobytes()


def test_a_snapshot_shows_damage_done_in_place():
    """The tests above rely on this."""
    stage = make_stage(Setup("plain"))
    stage.run_until(RECOMMENDER, USERS + 1)
    role = stage.parties[RECOMMENDER].role
    before = snapshot(role)
    assert snapshot(role) == before
    role.item_factors[3, 1] += 1e-12
    assert snapshot(role) != before
    role.item_factors[3, 1] -= 1e-12
    role.supports = dict(reversed(role.supports.items()))
    assert snapshot(role) != before


# --- ring elements that no frame can carry, handed straight to the role: a ring of 24 bits in words of 32 --------


@pytest.mark.parametrize(
    ("party", "kind", "field"),
    [
        ("user:1", ItemFactorsInFull, "masks"),
        (THIRD_PARTY, MaskedGradient, "values"),
        (RECOMMENDER, MaskedTotal, "values"),
    ],
)
@pytest.mark.parametrize("wrong", ["element", "type"])
def test_what_is_no_element_of_the_ring_is_out_of_range(party, kind, field, wrong):
    card, seats = small_run(n_items=ITEMS, iterations=T, wire="paper", ratings=RATINGS, ring_bits=24)
    whole, stage = Stage(card, seats), Stage(card, seats)
    whole.finish()
    k = next(n for n, (_, message) in enumerate(whole.heard[party]) if isinstance(message, kind))
    sender, due = whole.heard[party][k]
    stage.run_until(party, k)
    values = getattr(due, field).astype(np.uint64 if wrong == "type" else np.uint32)
    if wrong == "element":
        values[-1, -1] = 2**24
    role = stage.parties[party].role
    before = snapshot(role)
    with pytest.raises(Rejected) as caught:
        role.receive(sender, changed(due, **{field: values}))
    assert caught.value.reason is Reason.OUT_OF_RANGE
    assert snapshot(role) == before
    role.receive(sender, due)
    assert snapshot(role) != before


def test_a_user_that_was_not_invited_is_refused():
    stage = make_stage(Setup("masked"))
    stage.run_until(THIRD_PARTY, 0)
    opening = OpenSum(0, u32(0, 2), u32(0, 1, 2, 3), u32(2, 2, 2, 2))
    assert stage.hand(RECOMMENDER, THIRD_PARTY, opening)[0].rejected is None
    role = stage.parties[THIRD_PARTY].role
    before = snapshot(role)
    gradient = MaskedGradient(0, u32(1), np.ones((1, DIM), np.uint32))
    assert stage.hand("user:1", THIRD_PARTY, gradient)[0].rejected is Reason.UNKNOWN_SENDER
    assert snapshot(role) == before
    assert stage.hand("user:2", THIRD_PARTY, gradient)[0].rejected is None


# --- the end --------------------------------------------------------------------------------------------------------

PARTIES = [
    pytest.param(setup, part.party, id=f"{setup.scheme}-{part.party}")
    for setup in (Setup("masked"), Setup("plain"))
    for part in PARTS[setup]
]


@pytest.mark.parametrize(("setup", "name"), PARTIES)
def test_a_party_that_has_finished_accepts_nothing_and_its_view_is_closed(setup, name):
    """It refuses the messages that it received before, the same for iteration T, and frames that are no messages."""
    stage = make_stage(setup)
    stage.finish()
    party = stage.parties[name]
    before = snapshot([party.role, party.result, party.view])
    again = stage.heard[name]
    onwards = [(sender, changed(message, iteration=T)) for sender, message in again if hasattr(message, "iteration")]
    assert onwards
    for sender, message in again + onwards:
        frame = stage.codec.encode(message, stage.number(sender, name))
        for data, reason in ((frame, Reason.WRONG_KIND), (b"\xc1", Reason.MALFORMED)):
            step = party.receive(sender, data)
            assert step.rejected is reason
            assert (step.records, step.sends, step.timers, step.done) == ([], [], [], False)
            assert snapshot([party.role, party.result, party.view]) == before


@pytest.mark.parametrize("kind", [OpenSum, MaskedGradient])
def test_the_third_party_serves_no_iteration_behind_the_last(kind):
    """All T iterations are released and Finish is due; instead, iteration T is opened or answered."""
    stage = make_stage(Setup("masked"))
    stage.run_until(THIRD_PARTY, T * (USERS + 2))
    role = stage.parties[THIRD_PARTY].role
    before = snapshot(role)
    sender, message = next((who, what) for who, what in stage.heard[THIRD_PARTY] if isinstance(what, kind))
    assert stage.hand(sender, THIRD_PARTY, changed(message, iteration=T))[0].rejected is Reason.WRONG_ITERATION
    assert snapshot(role) == before


@pytest.mark.parametrize("setup", [Setup("masked"), Setup("masked", "paper"), Setup("plain")], ids=str)
def test_a_user_to_whom_factors_were_published_takes_part_in_no_further_iteration(setup):
    truth = [message for _, message in undisturbed(setup).heard["user:1"]]
    *_, offer, published, finish = truth
    stage = make_stage(setup)
    stage.run_until("user:1", len(truth) - 3)
    role = stage.parties["user:1"].role
    assert stage.hand(RECOMMENDER, "user:1", published)[0].rejected is None
    before = snapshot(role)
    assert stage.hand(RECOMMENDER, "user:1", offer)[0].rejected is Reason.WRONG_ITERATION
    assert snapshot(role) == before
    assert stage.hand(RECOMMENDER, "user:1", finish)[0].done
