"""Known answers: the files in `vectors/`, whose bytes were written by hand and are explained one by one.

`ok_*` are frames with their contents. Together they are also the whole traffic of a third party that serves one
iteration of two users and 300 items in a ring of 8 bits. `*_bad_*` are frames that this third party must refuse:
after the frames under `before` (names of `ok_*`), for the reason that the file and its name give.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.basics import codec_with
from support.snapshot import snapshot
from support.wire import FIELDS, KINDS, NO_HEAD, Form, assert_holds, code_of, framed, message_of

from protocol.arithmetic.ring import Ring
from protocol.errors import Reason
from protocol.party.party import Outgoing, Party
from protocol.party.view import PREAMBLE, REJECTED, ViewWriter, read_records
from protocol.schemes import SCHEMES, Setting
from protocol.schemes.factorization.factorization import MaskedParams
from protocol.schemes.factorization.masked_roles import ThirdParty
from protocol.wire.codec import Codec, head_in
from protocol.wire.messages import Again

RUN_ID = b"\x11" * 32
PARAMS_DIGEST = b"\x22" * 32
MAX_FRAME = 160  # of a message; the head comes on top
USERS, ITEMS = 2, 300

# Reasons that no single frame or message causes; they are tested in test_aborts.py and with the drivers.
OF_THE_RUN = {
    Reason.DISAGREEMENT,
    Reason.DIVERGED,
    Reason.FLOOD,
    Reason.TOO_FEW_ONLINE,
    Reason.TOO_FEW_SHARES,
    Reason.TOO_LITTLE_NOISE,
    Reason.STALLED,
    Reason.DISK_FULL,
    Reason.PARTY_DIED,
    Reason.SCHEME_FAILED,
    Reason.INTERRUPTED,
}

FILES = sorted((Path(__file__).parents[2] / "vectors").glob("*.json"))
VECTORS = {path.stem: json.loads(path.read_text("utf-8")) for path in FILES}
OK = {name: vector for name, vector in VECTORS.items() if name.startswith("ok_")}
BAD = {name: vector for name, vector in VECTORS.items() if "_bad_" in name}


def from_hex(text: str) -> bytes:
    """Read hexadecimal `text`; `11*32` is the byte 11 thirty-two times."""
    digits, _, times = text.partition("*")
    return bytes.fromhex(digits) * int(times or 1)


def joined(pieces: list[list[str]]) -> bytes:
    assert all(note for _, note in pieces), "every piece is explained"
    return b"".join(from_hex(digits) for digits, _ in pieces)


def frame(name: str) -> bytes:
    return joined(VECTORS[name]["bytes"])


def contents(vector: dict[str, Any]) -> list[Any]:
    """Return the fields in the order of the wire, with bytes instead of their hexadecimal form."""
    kinds = FIELDS[vector["kind"]]
    assert list(vector["fields"]) == list(kinds)
    read = {"bytes32": from_hex, "keys": lambda keys: [from_hex(key) for key in keys]}
    return [read.get(how, lambda same: same)(vector["fields"][name]) for name, how in kinds.items()]


def codec_of(scheme: str, ring_bits: int, wire: str = "compact", factor_bits: int = 32) -> Codec:
    packed = (USERS, ITEMS) if wire == "compact" else None
    return codec_with(SCHEMES[scheme].messages, Form(ring_bits, factor_bits, packed), 2, MAX_FRAME)


def third_party(view: ViewWriter | None) -> Party:
    """Make the third party of a run with two users, 300 items, two coordinates, one iteration, mod 256."""
    params = MaskedParams(
        scheme="masked",
        n_users=USERS,
        n_items=ITEMS,
        dim=2,
        iterations=1,
        rating_min=1.0,
        rating_max=5.0,
        epsilon=1.0,
        learning_rate=0.5,
        user_regularisation=0.0,
        item_regularisation=0.0,
        clip=1.0,
        max_raters=2,
        wire="compact",
        ring_bits=8,
        fraction_bits=0,
        factor_bits=32,
        dropout_allowance=0.0,
        min_contributors=1,
        publish="all",
        profile_ridge=0.0,
    )
    role = ThirdParty(Setting(params, RUN_ID, Ring(8)))
    return Party("third_party", role, codec_of("masked", 8), RUN_ID, PARAMS_DIGEST, view)


# --- sound frames ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OK)
def test_a_sound_frame_says_this_and_is_said_like_this(name):
    vector = OK[name]
    ring_bits, dim = vector["ring_bits"], vector["dim"]
    codec = codec_of(vector["scheme"], ring_bits, vector["wire"], vector.get("factor_bits", 32))
    sequence, message = codec.decode(frame(name))
    assert (sequence, type(message).__name__) == (vector["sequence"], vector["kind"])
    assert_holds(message, contents(vector), ring_bits, dim)
    cls = (*SCHEMES[vector["scheme"]].messages, Again)[code_of(vector["scheme"], vector["kind"])]
    head = from_hex(vector["head"])
    assert codec.encode(message_of(cls, contents(vector), ring_bits, dim), vector["sequence"], head) == frame(name)
    assert head_in(frame(name)) == head


def test_every_kind_of_message_has_a_vector():
    assert {vector["kind"] for vector in OK.values()} == {*KINDS["masked"], *KINDS["plain"], "Again"}


@pytest.mark.parametrize("with_view", [False, True])
def test_one_iteration_of_a_third_party_byte_for_byte(with_view):
    """With a view only the head of a frame differs: it is the head of the chain before the record of the sending."""
    party = third_party(ViewWriter() if with_view else None)
    assert party.start().sends == []
    head = bytes(32)

    def hear(sender: str, name: str) -> list[tuple[str, bytes]]:
        nonlocal head
        step = party.receive(sender, frame(name))
        assert step.rejected is None
        assert len(step.records) == with_view * (1 + len(step.sends) + step.done)
        sent = []
        for at, out in enumerate(step.sends):
            assert out.frame[-32:] == (step.records[at][-32:] if with_view else NO_HEAD)
            sent.append((out.to, out.frame[:-32] + NO_HEAD))
        for record in step.records:
            assert record[-32:] == hashlib.sha256(head + record[:-32]).digest()
            head = record[-32:]
        return sent

    for sender in ("recommender", "user:0", "user:1"):
        assert hear(sender, "ok_hello") == []
    assert hear("recommender", "ok_open_sum") == []
    assert hear("user:1", "ok_masked_gradient_user_1") == []
    assert hear("user:0", "ok_masked_gradient_user_0") == [
        ("recommender", frame("ok_hello")),
        ("recommender", frame("ok_contributors")),
    ]
    assert hear("recommender", "ok_agreed") == [("recommender", frame("ok_masked_total"))]
    assert not party.done
    assert hear("recommender", "ok_finish") == []
    assert party.done and party.result is None


def test_the_digest_of_the_contributors_is_over_these_bytes():
    vector = OK["ok_contributors"]
    preimage = joined(vector["digest_of"])
    assert hashlib.sha256(preimage).hexdigest() == vector["fields"]["digest"] == OK["ok_agreed"]["fields"]["digest"]


# --- frames to refuse -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD)
def test_a_bad_frame_is_refused_for_its_reason_and_changes_nothing(name):
    vector = BAD[name]
    party = third_party(ViewWriter())
    for sender, earlier in vector["before"]:
        assert party.receive(sender, frame(earlier)).rejected is None
    before, head = snapshot(party.role), party.view.head
    step = party.receive(vector["sender"], frame(name))
    assert step.rejected is Reason[vector["reason"]]
    assert (step.sends, step.timers, step.done) == (asks(vector, step.records[-1][-32:]), [], False)
    assert snapshot(party.role) == before
    [record] = only_records(step.records, head)
    digest = hashlib.sha256(frame(name)).digest()
    assert record == [REJECTED, vector["sender"], vector["reason"], len(frame(name)), digest, vector["uses_its_number"]]


def asks(vector: dict[str, Any], head: bytes) -> list[Outgoing]:
    """Return the expected Again after a gap (no number, `has` frames have come, no answer wanted), else nothing."""
    if vector["reason"] != "GAP":
        return []
    return [Outgoing(vector["sender"], "Again", -1, framed(13, 0, vector["has"], 0, head=head))]


def only_records(records: list[bytes], head: bytes) -> list[list[Any]]:
    """Return the contents of `records`, after a check that they continue the chain at `head`."""
    bodies = []
    for record in records:
        assert record[-32:] == hashlib.sha256(head + record[:-32]).digest()
        head = record[-32:]
        # put in a file of its own, so that the reader of views can read it
        alone = record[:-32] + hashlib.sha256(bytes(32) + record[:-32]).digest()
        [read] = read_records(io.BytesIO(PREAMBLE + alone))
        bodies.append([read.type, *read.fields])
    return bodies


@pytest.mark.parametrize("name", BAD)
def test_a_file_is_named_for_its_reason(name):
    assert name.partition("_bad_")[2].startswith(BAD[name]["reason"].lower())
    assert BAD[name]["note"]


def test_every_reason_that_a_frame_or_a_message_can_cause_has_a_vector():
    met = {Reason[vector["reason"]] for vector in BAD.values()}
    assert met.isdisjoint(OF_THE_RUN)
    assert met | OF_THE_RUN == set(Reason)


def test_a_file_is_either_sound_or_bad():
    assert OK and BAD and OK.keys() | BAD.keys() == VECTORS.keys()
