"""A peer that floods a party is barred: the view stays small, the role is told, and the run goes on without it."""

from __future__ import annotations

import pytest
from support.basics import small_run
from support.stage import Stage

from protocol.card import seat_party
from protocol.errors import Reason
from protocol.party import party as parties
from protocol.party.party import MORE_REFUSED, MOST_AGAIN
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.party.view import EVENT, REJECTED
from protocol.wire.messages import Again, Barred
from sim.plan.config import RunConfig
from sim.run.run import resume, run
from sim.views.verify import verify


def flood(stage, party, sender, frame, times):
    """Hand `party` the frame again and again, and tell it what a driver tells it; return the steps."""
    steps = []
    for _ in range(times):
        step = stage.hand_frame(sender, party, frame)
        steps.append(step)
        if step.barred is not None:
            told = stage.parties[party].tick(Barred(int(step.barred.partition(":")[2])))
            stage._settle(party, told)
    return steps


@pytest.fixture
def few(monkeypatch):
    """Bar a peer after few frames, so that the tests are short."""
    monkeypatch.setattr(parties, "MOST_REFUSED", 30)
    return 30


def test_a_flood_of_refused_frames_bars_the_peer_and_adds_few_records(few):
    stage = Stage(*small_run("masked"))
    stage.run_until(THIRD_PARTY, 2)
    before = len(stage.records(THIRD_PARTY))
    limit = few + MORE_REFUSED * stage.number("user:1", THIRD_PARTY)
    steps = flood(stage, THIRD_PARTY, "user:1", b"\xc1", limit + 300)
    assert {step.rejected for step in steps[:limit]} == {Reason.MALFORMED}
    assert {step.rejected for step in steps[limit:]} == {Reason.FLOOD}
    records = stage.records(THIRD_PARTY)[before:]
    floods = [record for record in records if record.type == REJECTED and record.fields[1] == "FLOOD"]
    assert len(floods) == 9, "one at 1, 2, 4 … 256"
    assert [record.fields for record in records if record.type == EVENT] == [["Barred", 1]], "told once"
    assert len(records) == limit + 9 + 1
    assert sum(not step.unrecorded for step in steps[limit:]) == 9


def test_a_party_that_comes_back_from_its_view_has_barred_the_same_peers(few):
    card, seats = small_run("masked")
    stage = Stage(card, seats)
    stage.run_until(THIRD_PARTY, 2)
    flood(stage, THIRD_PARTY, "user:1", b"\xc1", few + 10 * MORE_REFUSED)
    fresh, _ = seat_party(card, stage.seats[THIRD_PARTY], with_view=True)
    fresh.replay(stage.records(THIRD_PARTY)[2:])
    assert fresh.role.barred == {1} and fresh.view.head == stage.parties[THIRD_PARTY].view.head
    step = fresh.receive("user:1", b"\xc1")
    assert (step.rejected, step.barred) == (Reason.FLOOD, None)
    assert fresh.receive("user:2", b"\xc1").rejected is Reason.MALFORMED, "the others are heard"


def test_nobody_waits_for_a_barred_user():
    for scheme in ("masked", "dynamic"):
        stage = Stage(*small_run(scheme))
        stage.run_until(RECOMMENDER, 4)
        role = stage.parties[RECOMMENDER].role
        role.tick(Barred(1))
        assert 1 in role.struck and 1 not in role.taking_part() and "user:1" not in role.awaited()
        assert "user:1" in role.everyone(), "it is told the end"


def test_questions_without_end_are_answered_ever_less():
    stage = Stage(*small_run("masked"))
    stage.run_until(THIRD_PARTY, 2)
    party, before = stage.parties[THIRD_PARTY], len(stage.records(THIRD_PARTY))
    question = stage.codec.encode(Again(0, 1), 0)
    answered = [bool(stage.hand_frame("user:1", THIRD_PARTY, question).sends) for _ in range(1000)]
    assert answered[:MOST_AGAIN] == [True] * MOST_AGAIN
    assert [at + 1 for at, yes in enumerate(answered) if yes][MOST_AGAIN:] == [128, 256, 512]
    assert len(stage.records(THIRD_PARTY)) - before == MOST_AGAIN + 3
    assert not party.done


@pytest.mark.parametrize("transport", ["inprocess", "ipc"])
def test_a_run_with_a_flooding_user_ends_and_names_it(tmp_path, transport):
    """The user sends each message 200 times. Once it is barred, the third party waits for it no more."""
    config = RunConfig(
        scheme="masked", data="synthetic:6x8:.6", dim=2, iterations=10, seed=1, cheat="user:flood",
        transport=transport, users_per_process=6,
    )  # fmt: skip
    summary = run(config, out=tmp_path / "run")
    assert summary["completed"] and summary["figures"]["barred"] == ["user:0"]
    assert any("user:0 lost its place at the third party" in note for note in summary["notes"])
    assert summary["rejected"]["DUPLICATE"] + summary["rejected"].get("WRONG_ITERATION", 0) < 1400
    assert summary["rejected"]["FLOOD"] < 12
    assert verify(tmp_path / "run")["verified"] and resume(tmp_path / "run")["completed"]
