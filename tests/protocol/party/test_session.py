"""A session accepts each frame once and in order, and gives a reason when it refuses one."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
from support.basics import small_run
from support.snapshot import snapshot
from support.wire import NO_HEAD, WIRE_VERSION, framed

from protocol.card import seat_party
from protocol.errors import Reason, Rejected
from protocol.party.party import Party
from protocol.party.session import REMEMBERED, Session
from protocol.wire.messages import Finish, Hello, Join

RUN_ID, PARAMS = b"\x11" * 32, b"\x22" * 32
HELLO = Hello(WIRE_VERSION, RUN_ID, PARAMS)
PEER = "user:0"


def frame_at(number: int) -> bytes:
    return b"frame %d" % number


def after(numbers: int) -> Session:
    """Return a session that has accepted `numbers` frames of one peer: a Hello, and then Finish frames."""
    session = Session(HELLO)
    for number in range(numbers):
        hear(session, number)
    return session


def hear(session: Session, number: int, message: object = None, frame: bytes | None = None, peer: str = PEER) -> None:
    """Handle a frame as a party does: check it, and only then accept it."""
    message = message or (HELLO if number == 0 else Finish(number))
    frame = frame or frame_at(number)
    session.check(peer, number, frame, message)
    session.accept(peer, frame)


def refusal(session: Session, number: int, message: object = None, frame: bytes | None = None) -> Reason:
    before = snapshot(session)
    with pytest.raises(Rejected) as caught:
        hear(session, number, message, frame)
    assert snapshot(session) == before, "a refusal changes nothing"
    return caught.value.reason


# --- order -------------------------------------------------------------------------------------------------------


def test_numbers_are_accepted_in_order():
    session = Session(HELLO)
    for number in range(5):
        hear(session, number)
    hear(session, 5)


@pytest.mark.parametrize("ahead", [1, 2, 1000, 2**64 - 1 - 3])
def test_a_number_too_far_is_a_gap(ahead):
    session = after(3)
    assert refusal(session, 3 + ahead) is Reason.GAP
    hear(session, 3)


def test_the_same_bytes_again_are_a_replay():
    session = after(5)
    assert [refusal(session, number) for number in range(5)] == [Reason.REPLAYED] * 5
    hear(session, 5)


def test_other_bytes_under_a_used_number_are_a_conflict():
    session = after(5)
    assert [refusal(session, number, frame=b"other") for number in range(5)] == [Reason.CONFLICT] * 5
    # bytes that were accepted under another number are other bytes, too
    assert refusal(session, 2, frame=frame_at(3)) is Reason.CONFLICT
    hear(session, 5)


def test_only_so_many_digests_are_remembered():
    """After 100 frames the last 64 are compared; an older one counts as replayed whatever it holds."""
    assert REMEMBERED == 64
    session = after(100)
    assert refusal(session, 36, frame=b"other") is Reason.CONFLICT
    assert refusal(session, 36) is Reason.REPLAYED
    assert refusal(session, 35, frame=b"other") is Reason.REPLAYED
    assert refusal(session, 0, frame=b"other") is Reason.REPLAYED
    hear(session, 100)


def test_every_peer_has_its_own_numbers():
    session = after(3)
    hear(session, 0, peer="user:1")
    hear(session, 3)
    hear(session, 1, peer="user:1")
    with pytest.raises(Rejected, match="GAP"):
        session.check("user:1", 4, frame_at(4), Finish(4))


def test_sending_counts_per_receiver_and_apart_from_receiving():
    session = after(3)
    assert (session.next_to(PEER), session.next_to("third_party")) == (0, 0)
    session.sent(PEER)
    session.sent(PEER)
    assert (session.next_to(PEER), session.next_to("third_party")) == (2, 0)
    hear(session, 3)


def test_it_says_how_many_frames_of_a_peer_have_used_up_their_number():
    session = after(3)
    assert (session.received_from(PEER), session.received_from("user:1")) == (3, 0)
    refusal(session, 7)
    refusal(session, 2)
    assert session.received_from(PEER) == 3


def test_a_frame_of_which_only_the_digest_is_known_counts_like_the_frame():
    """The record of a refusal holds only the digest, and a session is rebuilt from it."""
    session = after(2)
    session.note(PEER, hashlib.sha256(b"frame 2").digest())
    assert session.received_from(PEER) == 3
    assert refusal(session, 2, frame=b"frame 2") is Reason.REPLAYED
    assert refusal(session, 2, frame=b"frame 3") is Reason.CONFLICT
    hear(session, 3)


# --- Hello -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", [{"wire_version": 4}, {"wire_version": 6}, {"run_id": b"\x12" * 32}, {"params_digest": b"\x23" * 32}]
)
def test_a_hello_of_another_version_run_or_parameters(other):
    session = Session(HELLO)
    assert refusal(session, 0, dataclasses.replace(HELLO, **other)) is Reason.VERSION
    hear(session, 0)  # the right one is still accepted


def test_the_first_frame_is_a_hello():
    session = Session(HELLO)
    assert refusal(session, 0, Finish(0)) is Reason.VERSION
    assert refusal(session, 1, Finish(0)) is Reason.GAP


def test_there_is_one_hello():
    assert refusal(after(1), 1, HELLO) is Reason.WRONG_KIND
    assert refusal(after(9), 9, HELLO) is Reason.WRONG_KIND


# --- through a party: which frames use up their number ------------------------------------------------------------


def recommender() -> tuple[Party, list[np.ndarray]]:
    """Return the recommender of a run with two users after the Hello of user 0, and the items that each user rated."""
    card, seats = small_run(n_users=2, n_items=3)
    party, _ = seat_party(card, seats[0], with_view=True)
    assert hear_party(party, 0, Hello(WIRE_VERSION, card.run_id, card.params_digest)) is None
    return party, [seat.inputs.items for seat in seats[2:]]


def hear_party(party: Party, number: int, message: object) -> Reason | None:
    return party.receive("user:0", party.codec.encode(message, number)).rejected


def test_a_frame_that_the_role_refused_has_used_up_its_number():
    party, supports = recommender()
    assert hear_party(party, 1, Finish(0)) is Reason.WRONG_KIND
    assert hear_party(party, 1, Finish(0)) is Reason.REPLAYED
    assert hear_party(party, 1, Join(supports[0])) is Reason.CONFLICT
    assert hear_party(party, 2, Join(supports[0])) is None
    assert list(party.role.supports) == [0]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\xc1", Reason.MALFORMED),
        (b"\x93\x01\x01\xc5\x00\x04" + bytes(4) + NO_HEAD, Reason.NOT_CANONICAL),
        (bytes(100_000), Reason.OVERSIZED),
        (framed(1, 1, bytes(6)), Reason.WRONG_LENGTH),  # three items take the bits of one byte
        (framed(1, 1, b"\x08"), Reason.NOT_CANONICAL),
        (framed(1, 7, b"\x01"), Reason.GAP),
    ],
)
def test_a_frame_that_could_not_be_read_has_not(frame, reason):
    party, supports = recommender()
    assert party.receive("user:0", frame).rejected is reason
    assert hear_party(party, 1, Join(supports[0])) is None
    assert list(party.role.supports) == [0]


def test_a_party_refuses_a_peer_of_another_run_until_the_right_hello_comes():
    card, seats = small_run(n_users=2, n_items=3)
    party, _ = seat_party(card, seats[0], with_view=False)
    ours = Hello(WIRE_VERSION, card.run_id, card.params_digest)
    assert hear_party(party, 0, dataclasses.replace(ours, run_id=bytes(32))) is Reason.VERSION
    assert hear_party(party, 0, dataclasses.replace(ours, params_digest=bytes(32))) is Reason.VERSION
    assert hear_party(party, 0, dataclasses.replace(ours, wire_version=1)) is Reason.VERSION
    assert hear_party(party, 0, ours) is None
    assert hear_party(party, 0, ours) is Reason.REPLAYED
    assert hear_party(party, 1, ours) is Reason.WRONG_KIND
    assert hear_party(party, 1, Join(seats[2].inputs.items)) is None
