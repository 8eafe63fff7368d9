"""Signatures under finished views: valid for exactly what was signed, and made with a secret that no view holds."""

from __future__ import annotations

import dataclasses
import hashlib

import msgpack
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from support.replay import RUN_SEED, RUNS, played
from support.wire import pack_bin, pack_uint

from protocol.card import tape_seed
from protocol.party.signing import Signer, is_signed, make_signer
from protocol.party.view import END, RECEIVED, SIGNED

RUN_ID, HEAD = b"\x11" * 32, b"\x22" * 32
SIGNER = make_signer(RUN_SEED, "user:7")


def statement(run_id: bytes, party: str, records: int, head: bytes) -> bytes:
    """Pack ["keyhole view", run id, party, records, head] as msgpack by hand; strings are shorter than 32 bytes."""
    name = bytes([0xA0 + len(party)]) + party.encode()
    return b"\x95\xackeyhole view" + pack_bin(run_id) + name + pack_uint(records) + pack_bin(head)


@pytest.mark.parametrize(("scheme", "wire"), RUNS)
def test_the_last_record_of_everyone_is_a_signature_under_all_the_others(scheme, wire):
    run = played(scheme, wire, 4, 0.15)
    for name in run.parties:
        *_, end, last = records = run.records(name)
        assert (end.type, last.type) == (END, SIGNED)
        public = records[0].fields[5]
        assert public == run.seats[name].signer.public
        [signature] = last.fields
        Ed25519PublicKey.from_public_bytes(public).verify(
            signature, statement(run.card.run_id, name, len(records) - 1, end.head)
        )
        assert is_signed(public, signature, run.card.run_id, name, len(records) - 1, end.head)


def test_a_party_without_a_key_ends_with_the_end():
    run = played("masked")
    party = run.fresh("user:1", signer=None)
    steps = [party.start(), *(getattr(party, told.how)(*told.given) for told in run.after("user:1", 2))]
    assert steps[-1].done
    assert [msgpack.unpackb(record[4:-32])[0] for record in steps[-1].records] == [RECEIVED, END]


def test_a_signature_holds_for_what_was_signed_and_for_nothing_else():
    signature = SIGNER.sign(RUN_ID, "user:7", 40, HEAD)
    sound = (SIGNER.public, signature, RUN_ID, "user:7", 40, HEAD)
    assert is_signed(*sound)
    others = [
        [make_signer(RUN_SEED, "user:8").public, bytes(32), b"\xff" * 32, SIGNER.public[:-1], b""],
        [*flips(signature), SIGNER.sign(RUN_ID, "user:7", 41, HEAD), signature[:-1], signature + b"\x00", b""],
        [*flips(RUN_ID), RUN_ID[:-1], b""],
        ["user:8", "user:77", "user:", "recommender", ""],
        [39, 41, 0, 40 + 2**32],
        [*flips(HEAD), HEAD[:-1], b""],
    ]
    for place, wrong in enumerate(others):
        for value in wrong:
            assert not is_signed(*sound[:place], value, *sound[place + 1 :]), (place, value)


def flips(data: bytes) -> list[bytes]:
    """Return a copy of `data` for each of its bytes, with one bit of that byte changed."""
    return [data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :] for at in range(len(data))]


def test_a_signature_is_over_these_bytes():
    signature = SIGNER.sign(RUN_ID, "user:7", 300, HEAD)
    key = Ed25519PublicKey.from_public_bytes(SIGNER.public)
    key.verify(signature, statement(RUN_ID, "user:7", 300, HEAD))
    with pytest.raises(InvalidSignature):
        key.verify(signature, statement(RUN_ID, "user:7", 301, HEAD))


# --- the secret --------------------------------------------------------------------------------------------------


def test_the_key_follows_from_the_seed_of_the_run_and_the_party():
    assert make_signer(RUN_SEED, "user:7") == SIGNER
    made = [make_signer(seed, party) for seed in (RUN_SEED, bytes(32)) for party in ("user:7", "user:8", "recommender")]
    assert len({signer.secret for signer in made}) == len({signer.public for signer in made}) == 6
    assert {len(signer.secret) for signer in made} == {32}
    assert SIGNER.secret != tape_seed(RUN_SEED, "user:7")


@pytest.mark.parametrize("scheme", ["plain", "masked", "dynamic"])
def test_no_view_holds_a_secret_or_what_it_follows_from(scheme):
    run = played(scheme, seed=4, loss=0.15)
    for holder in run.parties:
        view = bytes(run.views[holder])
        assert RUN_SEED not in view
        for seat in run.seats.values():
            assert seat.signer.secret not in view
            assert hashlib.sha256(seat.signer.secret).digest() not in view
            assert (seat.signer.public in view) == (seat.party == holder), "the key to check it with stands in its own"


def test_the_secret_is_not_printed():
    seat = dataclasses.replace(played("masked").seats["user:1"], signer=SIGNER)
    for text in (repr(SIGNER), str(SIGNER), f"{SIGNER!r}", repr([SIGNER]), repr(seat)):
        assert "redacted" in text
        assert SIGNER.secret.hex() not in text and repr(SIGNER.secret) not in text
    assert repr(Signer(b"\x01" * 32, b"\x02" * 32)) == "Signer(redacted)"
