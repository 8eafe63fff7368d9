"""The message Again: when a party asks for lost frames, the exact bytes of the answer, and how many frames are kept."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgpack
import numpy as np
import pytest
from support.basics import codec_with
from support.replay import played
from support.wire import NO_HEAD, WIRE_VERSION, Form, code_of, framed

from actors.journal import derive_again
from protocol.errors import Reason
from protocol.party import party as party_module
from protocol.party.party import Outgoing, Party, Step
from protocol.party.role import Done, Effects, Role, Send
from protocol.party.view import EVENT, REJECTED, ViewWriter
from protocol.schemes import SCHEMES
from protocol.wire.messages import Finish, Join

RUN_ID, PARAMS = b"\x11" * 32, b"\x22" * 32
AGAIN, FINISH = code_of("plain", "Again"), code_of("plain", "Finish")


class Speaker(Role):
    """A role that answers a Finish with a Join of `iteration` items; iteration 999 ends it."""

    def receive(self, sender: str, message: Any) -> Effects:
        if not isinstance(message, Finish):
            return []
        return [Done()] if message.iteration == 999 else [Send(sender, Join(np.arange(message.iteration)))]


def speaker(with_view: bool = True) -> Party:
    codec = codec_with(SCHEMES["plain"].messages, Form(32), max_frame=1 << 20)
    return Party("recommender", Speaker(), codec, RUN_ID, PARAMS, ViewWriter() if with_view else None)


def frame(number: int, size: int = 0) -> bytes:
    """Return a peer's frame with this `number`: its Hello, or a Finish that makes the speaker send `size` items."""
    return framed(0, 0, WIRE_VERSION, RUN_ID, PARAMS) if number == 0 else framed(FINISH, number, size)


def hear(party: Party, peer: str, *numbers: int, size: int = 0) -> list[Outgoing]:
    """Send `party` the frames of `peer` with these `numbers`, and return what it sends."""
    steps = [party.receive(peer, frame(number, size)) for number in numbers]
    assert not any(step.rejected for step in steps)
    return [out for step in steps for out in step.sends]


def again(received: int, answer: int = 0, number: int = 0) -> bytes:
    return framed(AGAIN, number, received, answer)


def bodies(step: Step) -> list[list[Any]]:
    return [msgpack.unpackb(record[4:-32]) for record in step.records]


def resent(step: Step) -> list[bytes]:
    assert {out.kind for out in step.sends} <= {"Again", "resend"}
    return [out.frame for out in step.sends if out.kind == "resend"]


# --- asking and answering --------------------------------------------------------------------------------------------


def test_a_party_that_comes_back_says_what_it_has_of_each_and_wants_to_hear_the_same():
    party = speaker()
    hear(party, "user:0", 0, 1, 2)
    hear(party, "user:1", 0)
    head, records = party.view.head, party.view.records
    asked = party.ask_again(["user:0", "user:1", "user:2"])
    assert asked == [
        Outgoing(f"user:{user}", "Again", -1, framed(AGAIN, 0, received, 1, head=head))
        for user, received in ((0, 3), (1, 1), (2, 0))
    ]
    assert (party.view.head, party.view.records) == (head, records), "a question is no part of the view"


def test_the_answer_is_the_same_bytes_from_the_number_that_is_missing_on():
    party = speaker()
    sent = [out.frame for out in hear(party, "user:0", 0, 1, 2, 3)]
    assert len(sent) == 4, "Hello and three answers"
    hear(party, "user:1", 0, 1)
    for received in range(5):
        step = party.receive("user:0", again(received))
        assert resent(step) == sent[received:]
        assert [(out.to, out.kind, out.iteration) for out in step.sends] == [("user:0", "resend", -1)] * (4 - received)
        assert (step.kind, step.rejected, step.wants, step.done) == ("Again", None, None, False)
        assert bodies(step) == [[EVENT, "Again", "user:0", received]]


def test_who_asks_for_an_answer_is_told_last_what_has_come_and_that_asks_for_none():
    party = speaker()
    sent = [out.frame for out in hear(party, "user:0", 0, 1)]
    step = party.receive("user:0", again(1, answer=1))
    told = framed(AGAIN, 0, 2, 0, head=step.records[0][-32:])
    assert [(out.kind, out.frame) for out in step.sends] == [("resend", sent[1]), ("Again", told)]
    reply = speaker().receive("recommender", told)
    assert reply.sends == [] and reply.wants is None, "or they would never stop"


def test_who_was_sent_nothing_is_sent_nothing_again():
    party = speaker()
    for received in (0, 1, 2**64 - 1):
        step = party.receive("user:7", again(received))
        assert (step.sends, step.wants) == ([], None)
    assert hear(party, "user:7", 0, 1)[0].frame[:3] == b"\x95\x00\x00", "the Hello comes first all the same"


def test_who_has_more_than_was_ever_sent_is_sent_nothing():
    party = speaker()
    hear(party, "user:0", 0, 1, 2)
    for received in (3, 4, 2**64 - 1):
        step = party.receive("user:0", again(received))
        assert (step.sends, step.wants) == ([], None)


def test_asking_again_uses_up_no_number_and_may_come_before_the_hello():
    party = speaker()
    assert party.receive("user:0", again(0)).rejected is None
    sent = hear(party, "user:0", 0)
    for _ in range(3):
        assert party.receive("user:0", again(0, answer=1)).rejected is None
    assert sent == [] and len(hear(party, "user:0", 1, 2)) == 3


@pytest.mark.parametrize("number", [1, 2, 200])
def test_again_with_a_number_is_malformed(number):
    party = speaker()
    hear(party, "user:0", 0, 1)
    data = again(0, 1, number)
    step = party.receive("user:0", data)
    assert (step.rejected, step.sends, step.wants) == (Reason.MALFORMED, [], None)
    assert [body[:4] for body in bodies(step)] == [[REJECTED, "user:0", "MALFORMED", len(data)]]
    assert bodies(step)[0][5] is False
    assert len(hear(party, "user:0", 2)) == 1


def test_a_party_that_has_finished_still_answers_and_writes_nothing():
    party = speaker()
    sent = [out.frame for out in hear(party, "user:0", 0, 1, 2)]
    party.receive("user:0", frame(3, 999))
    assert party.done
    head, records = party.view.head, party.view.records
    step = party.receive("user:0", again(1, answer=1))
    assert step.sends[-1].frame == framed(AGAIN, 0, 4, 0, head=head)
    assert resent(step) == sent[1:]
    assert (step.records, step.done, step.rejected) == ([], False, None)
    assert party.receive("user:0", again(0, number=5)).rejected is Reason.MALFORMED
    assert (party.view.head, party.view.records) == (head, records)


def test_a_party_without_a_view_asks_and_answers_without_a_head():
    party = speaker(with_view=False)
    sent = [out.frame for out in hear(party, "user:0", 0, 1, 2)]
    assert party.ask_again(["user:0"])[0].frame == framed(AGAIN, 0, 3, 1, head=NO_HEAD)
    step = party.receive("user:0", again(0))
    assert (resent(step), step.records) == (sent, [])


# --- a gap -----------------------------------------------------------------------------------------------------------


def test_a_gap_is_asked_about_once_until_it_has_closed():
    party = speaker()
    hear(party, "user:0", 0, 1)
    step = party.receive("user:0", frame(3))
    assert step.rejected is Reason.GAP
    assert [(out.to, out.kind) for out in step.sends] == [("user:0", "Again")]
    assert step.sends[0].frame == framed(AGAIN, 0, 2, 0, head=step.records[0][-32:])
    for number in (4, 5, 3):
        step = party.receive("user:0", frame(number))
        assert (step.rejected, step.sends) == (Reason.GAP, [])
    hear(party, "user:0", 2, 3, 4)
    step = party.receive("user:0", frame(6))
    assert step.rejected is Reason.GAP
    assert [out.frame for out in step.sends] == [framed(AGAIN, 0, 5, 0, head=step.records[0][-32:])]


def test_every_peer_has_its_own_gap():
    party = speaker()
    for peer in ("user:0", "user:1"):
        assert [out.to for out in party.receive(peer, frame(1)).sends] == [peer]
    for peer in ("user:0", "user:1"):
        assert party.receive(peer, frame(1)).sends == []


def test_two_parties_mend_a_gap_by_themselves():
    """The second of four frames is lost. The third shows the gap, and the answer holds the lost frame and the rest."""
    receiver, sender = speaker(), speaker()
    sent = [out.frame for out in hear(sender, "recommender", 0, 1, 2, 3, size=5)]
    assert receiver.receive("recommender", sent[0]).rejected is None
    [question] = receiver.receive("recommender", sent[2]).sends
    answer = resent(sender.receive("recommender", question.frame))
    assert answer == sent[1:]
    assert [receiver.receive("recommender", data).rejected for data in answer] == [None] * 3


# --- how much is kept ------------------------------------------------------------------------------------------------


def test_four_frames_are_kept_for_each_peer_and_older_ones_are_asked_for():
    """The party sends eight frames, a Hello and seven answers; those with the numbers 4 to 7 are kept."""
    assert party_module.KEPT_FRAMES == 4
    party = speaker()
    sent = [out.frame for out in hear(party, "user:0", *range(8))]
    hear(party, "user:1", *range(3))
    for received in range(9):
        step = party.receive("user:0", again(received))
        assert resent(step) == sent[max(received, 4) :]
        assert step.wants == (("user:0", received, 4) if received < 4 else None)
    assert len(resent(party.receive("user:1", again(0)))) == 3


def test_the_latest_frame_of_every_peer_is_kept_and_older_ones_as_long_as_there_is_room(monkeypatch):
    """An answer of 60 items has 3 + 242 + 32 = 277 bytes: array, kind, number, 4 · 60 with a header of two, head."""
    monkeypatch.setattr(party_module, "KEPT_BYTES", 276)
    party = speaker()
    latest = {}
    for peer in ("user:0", "user:1", "user:2"):
        hear(party, peer, 0)
        [_, *_, large] = hear(party, peer, 1, 2, size=60)
        assert len(large.frame) == 277
        latest[peer] = large.frame
    for peer, frame in latest.items():
        step = party.receive(peer, again(0))
        assert (resent(step), step.wants) == ([frame], (peer, 0, 2))
    [small] = hear(party, "user:0", 3, size=3)
    step = party.receive("user:0", again(0))
    assert (resent(step), step.wants) == ([small.frame], ("user:0", 0, 3))
    [smaller] = hear(party, "user:0", 4, size=3)
    assert resent(party.receive("user:0", again(0))) == [small.frame, smaller.frame]
    party.forget("user:0")
    assert resent(party.receive("user:0", again(0))) == []


@pytest.mark.parametrize("limit", [300, 1000, 4000, 100_000])
def test_what_is_kept_is_what_a_list_of_the_latest_frames_keeps(monkeypatch, limit):
    """A new frame drops the oldest one of its peer if that has five. Then, while the frames that are no peer's latest
    exceed the limit together, the one that first ceased to be its peer's latest is dropped."""
    monkeypatch.setattr(party_module, "KEPT_BYTES", limit)
    party, chance = speaker(), random.Random(limit)
    peers = [f"user:{user}" for user in range(6)]
    heard: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    kept: list[tuple[str, int, bytes]] = []  # without the latest of each peer
    latest: dict[str, tuple[str, int, bytes]] = {}
    dropped = 0
    for _ in range(400):
        peer = chance.choice(peers)
        for out in hear(party, peer, heard[peer], size=chance.choice([0, 5, 20, 60, 200])):
            kept += [latest[peer]] if peer in latest else []
            latest[peer] = (peer, numbers[peer], out.frame)
            numbers[peer] += 1
            own = [entry for entry in kept if entry[0] == peer]
            if len(own) > 3:
                kept.remove(own[0])
            while sum(len(data) for _, _, data in kept) > limit:
                del kept[0]
                dropped += 1
        heard[peer] += 1
        for name in peers:
            step = party.receive(name, again(0))
            own = [latest[name]] if name in latest else []
            mine = [(number, data) for owner, number, data in kept + own if owner == name]
            assert resent(step) == [data for _, data in mine]
            oldest = mine[0][0] if mine else numbers[name]
            assert step.wants == ((name, 0, oldest) if oldest else None)
        assert party._older_bytes == sum(len(data) for _, _, data in kept) <= limit
        assert list(party._older) == [(owner, number) for owner, number, _ in kept]
    assert (dropped > 100) == (limit < 100_000)


# --- what is not kept follows from the view ---------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "wire"), [("plain", "compact"), ("masked", "paper"), ("dynamic", "compact")])
def test_every_frame_can_be_derived_again_from_the_view(scheme, wire, tmp_path):
    run = played(scheme, wire, 4, 0.15)
    for name in run.parties:
        path = tmp_path / f"{name}.view"
        path.write_bytes(run.views[name])
        for peer in run.parties:
            sent = [out.frame for out in run.frames(name) if out.to == peer]
            for first, end in ((0, len(sent)), (0, 1), (1, len(sent) - 1), (len(sent) - 1, len(sent) + 5), (2, 2)):
                derived = derive_again(run.card, run.seats[name], str(path), peer, first, end)
                assert [out.frame for out in derived] == sent[max(first, 0) : max(end, 0)]
                assert {(out.to, out.kind, out.iteration) for out in derived} <= {(peer, "resend", -1)}


def test_what_is_derived_and_what_is_kept_are_all_frames(tmp_path):
    run = played("plain", seed=4, loss=0.15)
    path = tmp_path / "one.view"
    path.write_bytes(run.views["recommender"])
    sent = [out.frame for out in run.frames("recommender") if out.to == "user:1"]
    step = run.parties["recommender"].receive("user:1", again(0))
    assert len(sent) == 6 and step.wants == ("user:1", 0, 2)  # Hello, three iterations, Publication, Finish
    older = derive_again(run.card, run.seats["recommender"], str(path), *step.wants)
    assert [out.frame for out in older] + resent(step) == sent
