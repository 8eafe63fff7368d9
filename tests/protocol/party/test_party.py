"""A party: its records before its frames, its first and last messages, and its view as a replay script."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import struct
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from support.basics import small_run
from support.runs import Directed
from support.stage import Stage
from support.wire import NO_HEAD, WIRE_VERSION, framed

from actors.journal import view_path
from protocol.card import Card, Seat, seat_party
from protocol.errors import Reason
from protocol.party.party import Party, Step, read_event, result_digest
from protocol.party.role import RECOMMENDER, THIRD_PARTY, UserInput
from protocol.party.view import END, EVENT, INPUT, RECEIVED, REJECTED, SENT, read_records
from protocol.wire.messages import Churn, Deadline, Due, Gone, ItemFactors
from sim.drivers.inprocess import InProcess

RUNS = {"compact": ("masked", "compact"), "paper": ("masked", "paper"), "plain": ("plain", "compact")}


def finished(run: str) -> Stage:
    scheme, wire = RUNS[run]
    stage = Stage(*small_run(scheme, wire=wire))
    stage.finish()
    return stage


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def sent_records(step: Step) -> list[list[Any]]:
    return [[SENT, out.to, out.kind, out.iteration, len(out.frame), sha(out.frame)] for out in step.sends]


def bodies(step: Step) -> list[list[Any]]:
    """Return the bodies of the records of `step`, parsed without the reader: length (4), body, hash (32)."""
    return [msgpack.unpackb(record[4:-32]) for record in step.records]


# --- Hello -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS)
def test_a_hello_goes_out_before_the_first_message_to_each_peer_and_numbers_follow(run):
    stage = finished(run)
    hello = framed(0, 0, WIRE_VERSION, stage.card.run_id, stage.card.params_digest)
    edges: dict[tuple[str, str], list[bytes]] = {}
    for sender, to, frame in stage.sent:
        edges.setdefault((sender, to), []).append(frame)
    users = 4
    assert len(edges) == (2 * users if run == "plain" else 3 * users + 2)
    for frames in edges.values():
        assert frames[0][:-32] == hello[:-32]
        bodies = [msgpack.unpackb(frame[:-32]) for frame in frames]
        assert [body[1] for body in bodies] == list(range(len(frames)))
        assert 0 not in [body[0] for body in bodies[1:]], "no second Hello"


def test_a_start_says_hello_and_join_in_this_order():
    card, seats = small_run()
    party, opening = seat_party(card, seats[2], with_view=True)
    step = party.start()
    assert [(out.to, out.kind, out.iteration) for out in step.sends] == [
        (RECOMMENDER, "Hello", -1),
        (RECOMMENDER, "Join", -1),
    ]
    assert seats[2].inputs.items.tolist() == [0, 1, 2, 4]
    hello, join = (out.frame for out in step.sends)
    assert hello == framed(0, 0, WIRE_VERSION, card.run_id, card.params_digest, head=opening[-32:])
    assert join == framed(1, 1, b"\x17", head=step.records[0][-32:])


# --- records -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS)
def test_every_step_returns_the_record_of_its_input_and_then_one_for_each_send(run, monkeypatch):
    steps: list[tuple[str | None, bytes, Step]] = []
    start, receive = Party.start, Party.receive

    def watched_start(self: Party) -> Step:
        steps.append((None, b"", start(self)))
        return steps[-1][2]

    def watched_receive(self: Party, sender: str, frame: bytes) -> Step:
        steps.append((sender, frame, receive(self, sender, frame)))
        return steps[-1][2]

    monkeypatch.setattr(Party, "start", watched_start)
    monkeypatch.setattr(Party, "receive", watched_receive)
    finished(run)
    assert sum(len(step.sends) for _, _, step in steps) > 20
    assert sum(step.done for _, _, step in steps) == (5 if run == "plain" else 6)
    for sender, frame, step in steps:
        records = bodies(step)
        if sender is not None:
            assert records.pop(0) == [RECEIVED, sender, frame]
        ends = [records.pop()] if step.done else []
        assert records == sent_records(step)
        assert [record[0] for record in ends] == [END] * step.done


@pytest.mark.parametrize("run", RUNS)
def test_the_driver_writes_before_it_speaks(run, tmp_path, monkeypatch):
    """Whenever a frame arrives, the view file of its sender already has the record of its sending."""
    scheme, wire = RUNS[run]
    card, seats = small_run(scheme, wire=wire, n_users=3, n_items=3, iterations=2)
    receive = Party.receive
    arrivals = 0

    def watched(self: Party, sender: str, frame: bytes) -> Step:
        nonlocal arrivals
        arrivals += 1
        with open(view_path(str(tmp_path), sender), "rb") as stream:
            sent = [record.fields for record in read_records(stream) if record.type == SENT]
        assert [self.name, sha(frame)] in [[fields[0], fields[-1]] for fields in sent]
        return receive(self, sender, frame)

    monkeypatch.setattr(Party, "receive", watched)
    everyone = frozenset(seat.party for seat in seats)
    outcome = InProcess(card, seats, run_folder=str(tmp_path), with_view=everyone).run()
    assert outcome.item_factors is not None and arrivals > 15


def test_a_party_without_a_view_says_the_same_with_no_head_and_records_nothing():
    card, seats = small_run()
    with_view, _ = seat_party(card, seats[2], with_view=True)
    without, opening = seat_party(card, seats[2], with_view=False)
    assert opening == b"" and without.view is None
    stage = finished("compact")
    inputs = [frame for sender, to, frame in stage.sent if (sender, to) == (RECOMMENDER, "user:0")]
    steps = [(without.start(), with_view.start())]
    for frame in inputs:
        steps.append((without.receive(RECOMMENDER, frame), with_view.receive(RECOMMENDER, frame)))
    for silent, written in steps:
        assert silent.records == [] and written.records != []
        assert [out.frame for out in silent.sends] == [out.frame[:-32] + NO_HEAD for out in written.sends]
        assert NO_HEAD not in [out.frame[-32:] for out in written.sends]
    assert sum(len(silent.sends) for silent, _ in steps) == 2 + 1 + 3  # Hellos, Join, an answer to each iteration
    assert without.receive(RECOMMENDER, b"\xc1").records == []
    assert without.done and with_view.done


def test_a_step_names_what_it_received():
    card, seats = small_run()
    party, _ = seat_party(card, seats[2], with_view=True)
    hello = framed(0, 0, WIRE_VERSION, card.run_id, card.params_digest)
    step = party.receive(RECOMMENDER, hello)
    assert (step.kind, step.iteration, step.rejected) == ("Hello", -1, None)
    step = party.receive(RECOMMENDER, framed(11, 1, 7))
    assert (step.kind, step.iteration, step.rejected) == ("Finish", 7, Reason.WRONG_ITERATION)
    step = party.receive(RECOMMENDER, b"\xc1")
    assert (step.kind, step.rejected) == ("", Reason.MALFORMED)


def test_a_refused_frame_leaves_its_digest_and_not_its_bytes():
    card, seats = small_run()
    party, _ = seat_party(card, seats[2], with_view=True)
    frame = b"\xc1" * 50
    step = party.receive("user:3", frame)
    assert bodies(step) == [[REJECTED, "user:3", "MALFORMED", 50, sha(frame), False]]
    assert frame not in step.records[0]


# --- the clock ---------------------------------------------------------------------------------------------------


def test_a_deadline_is_an_input_and_is_recorded_before_what_it_causes():
    """The third party has one gradient of four when the deadline of iteration 0 passes."""
    card, seats = small_run()
    stage = Stage(card, seats)
    stage.run_until(THIRD_PARTY, 2)
    party = stage.parties[THIRD_PARTY]
    step = party.tick(Deadline(0))
    assert [(out.to, out.kind, out.iteration) for out in step.sends] == [
        (RECOMMENDER, "Hello", -1),
        (RECOMMENDER, "Contributors", 0),
    ]
    first, *others = bodies(step)
    assert first == [EVENT, "Deadline", 0]
    assert others == sent_records(step)
    again = party.tick(Deadline(0))
    assert again.sends == [] and bodies(again) == [[EVENT, "Deadline", 0]]


def test_a_deadline_after_the_end_is_not_recorded():
    stage = finished("compact")
    party = stage.parties[THIRD_PARTY]
    records = party.view.records
    step = party.tick(Deadline(3))
    assert (step.records, step.sends, step.done) == ([], [], False)
    assert party.view.records == records


def test_the_third_party_asks_for_a_deadline_when_it_opens():
    card, seats = small_run()
    stage = Stage(card, seats)
    stage.run_until(RECOMMENDER, 4)
    [opening] = [frame for _, to, frame in stage.sent if to == THIRD_PARTY and frame[1] == 4]
    fresh, _ = seat_party(card, seats[1], with_view=False)
    assert fresh.receive(RECOMMENDER, framed(0, 0, WIRE_VERSION, card.run_id, card.params_digest)).timers == []
    assert fresh.receive(RECOMMENDER, opening).timers == [0]


@pytest.mark.parametrize("event", [Deadline(-2), Churn(3, True), Churn(0, False), Due(1, (0, 7)), Due(0, ()), Gone(5)])
def test_an_event_is_read_back_from_its_record(event):
    kind, *fields = msgpack.unpackb(msgpack.packb([type(event).__name__, *dataclasses.astuple(event)]))
    assert read_event(kind, *fields) == event
    for place in range(len(fields)):
        for wrong in (None, "0", 1.0, b"", [[0]], ["x"], [True], *([True] if isinstance(fields[place], int) else [0])):
            if type(wrong) is not type(fields[place]) or isinstance(wrong, list):
                with pytest.raises(ValueError, match=kind):
                    read_event(kind, *fields[:place], wrong, *fields[place + 1 :])
    for other in (fields[:-1], [*fields, 0]):
        with pytest.raises(ValueError, match=kind):
            read_event(kind, *other)


# --- the end -----------------------------------------------------------------------------------------------------


def test_the_digest_of_a_result_is_over_its_float64_bytes_in_row_order():
    assert result_digest(None) == bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    # sign, exponent 1023 or 1024, fraction: the last byte in memory comes first in the number
    one, two = bytes(6) + b"\xf0\x3f", bytes(7) + b"\x40"
    three, four = bytes(6) + b"\x08\x40", bytes(6) + b"\x10\x40"
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert result_digest(rows) == sha(one + two + three + four)
    assert result_digest(rows.T) == sha(one + three + two + four)
    assert result_digest(rows.astype(">f8")) == result_digest(rows)


@pytest.mark.parametrize("run", RUNS)
def test_the_last_record_of_everyone_is_the_end_with_the_digest_of_the_result(run):
    stage = finished(run)
    for name, party in stage.parties.items():
        records = stage.records(name)
        assert [record.number for record in records if record.type == END] == [len(records) - 1]
        if name != THIRD_PARTY:
            numbers = party.result.ravel().tolist()
            assert len(numbers) == (10 if name == RECOMMENDER else 5)  # factors of five items, or ratings of them
            assert records[-1].fields == [sha(struct.pack(f"<{len(numbers)}d", *numbers))]
        else:
            assert party.result is None and records[-1].fields == [sha(b"")]


# --- the view is the replay script -------------------------------------------------------------------------------


def replay(card: Card, party: str, view: bytes) -> bytes:
    """Return the view that a fresh `party` writes when it gets the input, tape and received frames of `view`."""
    records = list(read_records(io.BytesIO(view)))
    assert records[1].type == INPUT
    [brought] = records[1].fields
    inputs = None
    if "items" in brought:
        inputs = UserInput(np.frombuffer(brought["items"], "<u4"), np.frombuffer(brought["ratings"], "<f8"))
    fresh, opening = seat_party(card, Seat(party, brought["tape_seed"], inputs), with_view=True)
    written = bytearray(opening)
    steps = [fresh.start()]
    for record in records:
        if record.type == RECEIVED:
            steps.append(fresh.receive(*record.fields))
        elif record.type == EVENT:
            steps.append(fresh.tick(Deadline(record.fields[1])))
    sent = [record for step in steps for record in sent_records(step)]
    assert sent == [[SENT, *record.fields] for record in records if record.type == SENT], party
    for step in steps:
        written += b"".join(step.records)
    return bytes(written)


@pytest.mark.parametrize("order", [None, 5])
@pytest.mark.parametrize("run", RUNS)
def test_a_party_replays_from_its_view_byte_for_byte(run, order, tmp_path):
    scheme, wire = RUNS[run]
    card, seats = small_run(scheme, wire=wire)
    everyone = frozenset(seat.party for seat in seats)
    outcome = Directed(card, seats, run_folder=str(tmp_path), with_view=everyone, order=order).run()
    assert outcome.item_factors is not None and not outcome.rejected
    for party in everyone:
        view = Path(view_path(str(tmp_path), party)).read_bytes()
        assert replay(card, party, view) == view


@pytest.mark.parametrize("silent", [[0, 1, 2], [1]])
def test_a_third_party_whose_patience_ended_replays_as_well(silent, tmp_path):
    """User 3 does not answer some iterations: these end by their deadline, which the view holds as an event."""
    card, seats = small_run(dropout_allowance=0.5)
    everyone = frozenset(seat.party for seat in seats)
    driver = InProcess(card, seats, run_folder=str(tmp_path), with_view=everyone)
    role = driver.parties["user:3"].role
    answer = role.receive

    def receive(sender: str, message: Any) -> Any:
        return [] if isinstance(message, ItemFactors) and message.iteration in silent else answer(sender, message)

    role.receive = receive
    outcome = driver.run()
    assert outcome.item_factors is not None and outcome.abort is None
    view = Path(view_path(str(tmp_path), THIRD_PARTY)).read_bytes()
    events = [record.fields for record in read_records(io.BytesIO(view)) if record.type == EVENT]
    assert events == [["Deadline", iteration] for iteration in silent], "no other deadline passed"
    assert replay(card, THIRD_PARTY, view) == view


def test_another_tape_replays_to_other_frames():
    """The frames depend on the tape; otherwise the tests above would prove nothing."""
    stage = finished("compact")
    card, seats = small_run()
    gradient = [frame[:-32] for sender, to, frame in stage.sent if (sender, to) == ("user:0", THIRD_PARTY)][1]
    inputs = [frame for sender, to, frame in stage.sent if (sender, to) == (RECOMMENDER, "user:0")][:3]
    for seed, same in ((seats[2].tape_seed, True), (bytes(32), False)):
        party, _ = seat_party(card, Seat("user:0", seed, seats[2].inputs), with_view=False)
        steps = [party.start(), *(party.receive(RECOMMENDER, frame) for frame in inputs)]
        answers = [out.frame[:-32] for step in steps for out in step.sends if out.kind == "MaskedGradient"]
        assert (answers == [gradient]) is same
