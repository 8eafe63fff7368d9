"""View files: their exact bytes, the detection of every change, and no secret of one party in the view of another."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.basics import small_run

from actors.journal import Journal, view_path
from protocol.card import Card, Seat, seat_party
from protocol.errors import BadInput
from protocol.party.role import UserInput
from protocol.party.signing import Signer
from protocol.party.view import (
    END,
    EVENT,
    HEADER,
    INPUT,
    MOST_RECORD_BYTES,
    PREAMBLE,
    RECEIVED,
    REJECTED,
    SENT,
    SIGNED,
    Broken,
    Differs,
    Header,
    Record,
    ViewWriter,
    WholeRecords,
    read_records,
)
from protocol.wire.messages import Welcome
from sim.drivers.inprocess import InProcess


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def read(view: bytes) -> list[Record]:
    return list(read_records(io.BytesIO(view)))


def fault(view: bytes) -> str:
    with pytest.raises(Broken) as caught:
        read(view)
    return str(caught.value)


def sealed(head: bytes, body: bytes) -> bytes:
    """Build a record by hand: length, body, hash over the previous hash, the length and the body."""
    length = struct.pack("<I", len(body))
    return length + body + sha(head + length + body)


SAMPLE_HEADER = Header(b"\x11" * 32, "user:7", "masked", b"\x22" * 32, True, b"\x55" * 32)


def sample() -> tuple[bytes, list[bytes], ViewWriter]:
    """Return (preamble, records, writer) of a small view that has one record of each type."""
    writer = ViewWriter()
    opening = writer.opening(SAMPLE_HEADER, {"tape_seed": b"\x33" * 32})
    first, second = split(opening[len(PREAMBLE) :])
    rest = [
        writer.received("recommender", b"\x93\x0b\x01\x02"),
        writer.sent("third_party", "MaskedGradient", 3, b"some frame"),
        writer.rejected("user:1", "MALFORMED", b"\xc1", False),
        writer.event("Deadline", 3),
        writer.end(b"\x44" * 32),
        writer.signed(b"\x66" * 64),
    ]
    return opening[: len(PREAMBLE)], [first, second, *rest], writer


def split(data: bytes) -> Iterator[bytes]:
    while data:
        size = 4 + int.from_bytes(data[:4], "little") + 32
        yield data[:size]
        data = data[size:]


# --- the format --------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_view():
    preamble, records, writer = sample()
    assert preamble == b"KEYHOLE-VIEW" + b"\x03\x00"  # format 3
    bodies = [
        # [0, run id, party, scheme, digest of the parameters, simulation, key of the signature]
        b"\x97\x00\xc4\x20" + b"\x11" * 32 + b"\xa6user:7" + b"\xa6masked" + b"\xc4\x20" + b"\x22" * 32 + b"\xc3"
        b"\xc4\x20" + b"\x55" * 32,
        # [1, {what the party brought}]
        b"\x92\x01\x81\xa9tape_seed\xc4\x20" + b"\x33" * 32,
        # [2, sender, the whole frame]
        b"\x93\x02\xabrecommender\xc4\x04\x93\x0b\x01\x02",
        # [3, receiver, kind, iteration, size, digest]
        b"\x96\x03\xabthird_party\xaeMaskedGradient\x03\x0a\xc4\x20" + sha(b"some frame"),
        # [4, sender, reason, size, digest, whether the frame used up its number]
        b"\x96\x04\xa6user:1\xa9MALFORMED\x01\xc4\x20" + sha(b"\xc1") + b"\xc2",
        # [5, kind, iteration]
        b"\x93\x05\xa8Deadline\x03",
        # [6, digest of the result]
        b"\x92\x06\xc4\x20" + b"\x44" * 32,
        # [7, signature]
        b"\x92\x07\xc4\x40" + b"\x66" * 64,
    ]
    head = bytes(32)
    for record, body in zip(records, bodies, strict=True):
        assert record == sealed(head, body)
        head = record[-32:]
    assert (writer.head, writer.records) == (head, 8)


def test_what_was_written_is_read_back():
    preamble, records, writer = sample()
    back = read(preamble + b"".join(records))
    assert [record.type for record in back] == [HEADER, INPUT, RECEIVED, SENT, REJECTED, EVENT, END, SIGNED]
    assert [record.number for record in back] == list(range(8))
    assert [record.head for record in back] == [record[-32:] for record in records]
    assert back[0].fields == [b"\x11" * 32, "user:7", "masked", b"\x22" * 32, True, b"\x55" * 32]
    assert back[1].fields == [{"tape_seed": b"\x33" * 32}]
    assert back[2].fields == ["recommender", b"\x93\x0b\x01\x02"]
    assert back[3].fields == ["third_party", "MaskedGradient", 3, 10, sha(b"some frame")]
    assert back[4].fields == ["user:1", "MALFORMED", 1, sha(b"\xc1"), False]
    assert back[5].fields == ["Deadline", 3]
    assert back[6].fields == [b"\x44" * 32]
    assert back[7].fields == [b"\x66" * 64]
    assert back[-1].head == writer.head


@pytest.mark.parametrize("simulation", [True, False])
def test_a_view_says_whether_its_run_was_a_simulation(simulation):
    card, seats = small_run()
    card = Card(card.scheme, card.params, card.run_id, simulation)
    _, opening = seat_party(card, seats[3], with_view=True)
    assert read(opening)[0].fields == [card.run_id, "user:1", "masked", card.params_digest, simulation, b""]


def test_a_view_says_under_which_key_it_will_be_signed():
    card, seats = small_run()
    _, opening = seat_party(card, replace(seats[3], signer=Signer(b"\x01" * 32, b"\x02" * 32)), with_view=True)
    assert read(opening)[0].fields == [card.run_id, "user:1", "masked", card.params_digest, True, b"\x02" * 32]
    assert b"\x01" * 32 not in opening


def test_a_view_opens_with_what_the_party_brought():
    card, seats = small_run(ratings=[{1: 4.0, 3: 2.0}, {0: 1.0}])
    user, recommender = (read(seat_party(card, seats[at], with_view=True)[1])[1].fields[0] for at in (2, 0))
    assert user == {
        "tape_seed": seats[2].tape_seed,
        "items": b"\x01\x00\x00\x00\x03\x00\x00\x00",
        "ratings": bytes(6) + b"\x10\x40" + bytes(7) + b"\x40",  # 4.0 and 2.0
    }
    assert recommender == {"tape_seed": seats[0].tape_seed}


# --- damage ------------------------------------------------------------------------------------------------------


def test_any_flipped_bit_is_noticed_and_its_record_named():
    preamble, records, _ = sample()
    view = preamble + b"".join(records)
    number_at = [n for n, record in enumerate(records) for _ in record]
    for place in range(len(view)):
        for bit in range(8):
            broken = bytearray(view)
            broken[place] ^= 1 << bit
            if place < len(preamble):
                assert fault(bytes(broken)) == "the file does not begin like a view of this format version"
            else:
                assert fault(bytes(broken)).startswith(f"record {number_at[place - len(preamble)]} ")


def test_what_comes_before_the_damage_is_still_given_out():
    preamble, records, _ = sample()
    view = bytearray(preamble + b"".join(records))
    view[len(preamble) + len(b"".join(records[:4])) + 10] ^= 1
    reading = read_records(io.BytesIO(bytes(view)))
    assert [next(reading).number for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(Broken, match="record 4 does not fit the hash chain"):
        next(reading)


def test_a_cut_inside_a_record_names_it():
    preamble, records, _ = sample()
    start = len(preamble)
    for number, record in enumerate(records):
        view = preamble + b"".join(records)
        for length in range(1, len(record)):
            assert fault(view[: start + length]) == f"record {number} is cut off"
        start += len(record)
    assert all("begin" in fault(preamble[:length]) for length in range(len(preamble)))


def test_a_cut_between_records_shows_in_their_number_and_in_the_head():
    """The chain cannot show such a cut; the number of records and the head that the run keeps of a view do."""
    preamble, records, writer = sample()
    for kept in range(len(records)):
        back = read(preamble + b"".join(records[:kept]))
        assert len(back) == kept != writer.records
        assert not back or back[-1].head != writer.head


def test_a_removed_record_is_noticed():
    preamble, records, _ = sample()
    for gone in range(len(records) - 1):
        view = preamble + b"".join(records[:gone] + records[gone + 1 :])
        assert fault(view) == f"record {gone} does not fit the hash chain"


def test_exchanged_and_repeated_records_are_noticed():
    preamble, records, _ = sample()
    for at in range(len(records) - 1):
        swapped = [*records[:at], records[at + 1], records[at], *records[at + 2 :]]
        assert fault(preamble + b"".join(swapped)) == f"record {at} does not fit the hash chain"
    for at in range(len(records)):
        repeated = [*records[: at + 1], records[at], *records[at + 1 :]]
        assert fault(preamble + b"".join(repeated)) == f"record {at + 1} does not fit the hash chain"


def test_a_record_of_another_view_does_not_fit():
    preamble, records, _ = sample()
    other = ViewWriter()
    other.opening(replace(SAMPLE_HEADER, party="user:8"), {"tape_seed": b"\x33" * 32})
    foreign = other.received("recommender", b"\x93\x0b\x01\x02")
    assert foreign[:-32] == records[2][:-32]
    assert fault(preamble + b"".join([*records[:2], foreign, *records[3:]])).startswith("record 2 does not fit")


ODD_BODIES = {
    "not msgpack": (b"\xc1", "record 1 cannot be read"),
    "two values": (b"\x91\x05\x91\x05", "record 1 cannot be read"),
    "empty": (b"", "record 1 cannot be read"),
    "no list": (b"\x05", "record 1 is of no known type"),
    "an empty list": (b"\x90", "record 1 is of no known type"),
    "type 9": (b"\x91\x09", "record 1 is of no known type"),
    "type -1": (b"\x91\xff", "record 1 is of no known type"),
    "type true": (b"\x92\xc3\x80", "record 1 is of no known type"),
    "type 2.0": (b"\x93\xca\x40\x00\x00\x00\xa1a\xc4\x00", "record 1 is of no known type"),
    "a received frame without a sender": (b"\x92\x02\xc4\x00", "record 1 does not have the fields of its type"),
    "a received frame that is a string": (b"\x93\x02\xa1a\xa1b", "record 1 does not have the fields of its type"),
    "a field too many": (b"\x94\x02\xa1a\xc4\x00\x00", "record 1 does not have the fields of its type"),
    "an input of no names": (b"\x92\x01\x90", "record 1 does not have the fields of its type"),
    "an end without a digest": (b"\x91\x06", "record 1 does not have the fields of its type"),
    "an event without a kind": (b"\x91\x05", "record 1 does not have the fields of its type"),
    "an event whose kind is a number": (b"\x92\x05\x01", "record 1 does not have the fields of its type"),
    "a type in words": (b"\x91\xa3end", "record 1 is of no known type"),
}


@pytest.mark.parametrize("name", ODD_BODIES)
def test_a_record_that_fits_the_chain_but_is_none(name):
    body, words = ODD_BODIES[name]
    preamble, records, _ = sample()
    assert fault(preamble + records[0] + sealed(records[0][-32:], body)) == words


def test_a_claimed_length_is_checked_before_it_is_read():
    class Stream(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size is not None and size < MOST_RECORD_BYTES
            return super().read(size)

    view = PREAMBLE + struct.pack("<I", MOST_RECORD_BYTES + 1)
    with pytest.raises(Broken, match=f"record 0 claims {MOST_RECORD_BYTES + 1} bytes"):
        list(read_records(Stream(view)))


@pytest.mark.parametrize("version", [0, 1, 2, 4, 3 << 8])
def test_another_format_version_is_not_read(version):
    _, records, _ = sample()
    assert "format version" in fault(b"KEYHOLE-VIEW" + struct.pack("<H", version) + b"".join(records))


def test_a_difference_is_a_fault_that_names_its_record():
    difference = Differs(17, "is not what this role does")
    assert isinstance(difference, Broken) and difference.number == 17
    assert str(difference) == "record 17 is not what this role does"


# --- what a crash leaves --------------------------------------------------------------------------------------------


def test_every_whole_record_is_read_from_every_cut():
    """For every cut the reader gives the whole records before it, and the place where the last of them ends."""
    preamble, records, _ = sample()
    view = preamble + b"".join(records)
    ends = [len(preamble)]
    for record in records:
        ends.append(ends[-1] + len(record))
    for cut in range(len(preamble), len(view) + 1):
        whole = WholeRecords(io.BytesIO(view[:cut]))
        numbers = [record.number for record in whole]
        fitting = sum(end <= cut for end in ends[1:])
        assert (numbers, whole.end) == (list(range(fitting)), ends[fitting])


def test_damage_before_the_last_record_is_not_taken_for_a_crash():
    preamble, records, _ = sample()
    view = bytearray(preamble + b"".join(records))
    view[len(preamble) + len(records[0]) + 10] ^= 1
    with pytest.raises(Broken, match="record 1 does not fit the hash chain"):
        list(WholeRecords(io.BytesIO(bytes(view))))


# --- the files of a run ------------------------------------------------------------------------------------------


def with_marked_ratings(seats: list[Seat]) -> list[Seat]:
    """Give every rating of the run a different number whose bytes occur nowhere by chance."""
    marked, count = [], 0
    for seat in seats:
        if seat.inputs is not None:
            ratings = np.array([1 + 4 * (count + n + 0.5) / 97 for n in range(len(seat.inputs.items))])
            count += len(ratings)
            seat = replace(seat, inputs=UserInput(seat.inputs.items, ratings))
        marked.append(seat)
    return marked


def run_with_views(folder: Path, scheme: str, wire: str) -> tuple[Card, list[Seat], dict[str, bytes], InProcess]:
    card, seats = small_run(scheme, wire=wire)
    seats = with_marked_ratings(seats)
    before = os.umask(0)  # the mode must not depend on the person's umask
    try:
        driver = InProcess(card, seats, run_folder=str(folder), with_view=frozenset(seat.party for seat in seats))
        assert driver.run().item_factors is not None
    finally:
        os.umask(before)
    views = {seat.party: Path(view_path(str(folder), seat.party)).read_bytes() for seat in seats}
    return card, seats, views, driver


@pytest.mark.parametrize(("scheme", "wire"), [("masked", "compact"), ("masked", "paper"), ("plain", "compact")])
def test_the_views_of_a_run_are_private_files_that_read_back(scheme, wire, tmp_path):
    card, seats, views, driver = run_with_views(tmp_path, scheme, wire)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [path.name for path in files] == sorted(f"{seat.party.replace(':', '-')}.view" for seat in seats)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "views").stat().st_mode) == 0o700
    for party, view in views.items():
        records = read(view)
        assert records[0].fields == [card.run_id, party, scheme, card.params_digest, True, b""]
        assert [records[0].type, records[1].type, records[-1].type] == [HEADER, INPUT, END]
        assert driver.outcome.views[party] == (len(records), records[-1].head)


def test_nothing_follows_the_end_of_a_view(tmp_path):
    """No party was late, so no deadline is recorded, neither before nor behind the end."""
    _, _, views, _ = run_with_views(tmp_path, "masked", "compact")
    for view in views.values():
        types = [record.type for record in read(view)]
        assert types[-1] == END and EVENT not in types


def test_a_view_file_is_never_written_over(tmp_path):
    path = str(tmp_path / "one.view")
    journal = Journal(path)
    journal.append([b"first", b"second"])
    journal.close()
    with pytest.raises(FileExistsError):
        Journal(path)
    assert Path(path).read_bytes() == b"firstsecond"


def test_only_the_parties_that_were_asked_for_keep_a_view(tmp_path):
    card, seats = small_run()
    InProcess(card, seats, run_folder=str(tmp_path), with_view=frozenset({"user:1"})).run()
    assert [path.name for path in tmp_path.rglob("*.view")] == ["user-1.view"]


# --- no view holds the secrets of another party ------------------------------------------------------------------


def holders(views: dict[str, bytes], secret: bytes) -> set[str]:
    return {party for party, view in views.items() if secret in view}


@pytest.fixture(scope="module")
def compact(tmp_path_factory):
    return run_with_views(tmp_path_factory.mktemp("run"), "masked", "compact")


@pytest.mark.parametrize("scheme", ["masked", "plain"])
def test_a_rating_is_in_the_view_of_its_user_alone(scheme, tmp_path):
    _, seats, views, _ = run_with_views(tmp_path, scheme, "compact")
    ratings = [(seat.party, rating) for seat in seats if seat.inputs for rating in seat.inputs.ratings.tolist()]
    assert len(ratings) == len({rating for _, rating in ratings}) == 17
    for party, rating in ratings:
        assert holders(views, struct.pack("<d", rating)) == {party}
        assert holders(views, struct.pack(">d", rating)) == set()
        assert holders(views, struct.pack("<f", rating)) == set()


def test_a_tape_seed_is_in_the_view_of_its_party_alone(compact):
    _, seats, views, _ = compact
    for seat in seats:
        assert holders(views, seat.tape_seed) == {seat.party}


def welcomes(card: Card, views: dict[str, bytes]) -> dict[str, Welcome]:
    found = {}
    for party, view in views.items():
        received = [record.fields[1] for record in read(view) if record.type == RECEIVED]
        for message in (card.codec.decode(frame)[1] for frame in received):
            if isinstance(message, Welcome):
                found[party] = message
    return found


def test_a_mask_key_is_in_the_view_of_its_user_alone(compact):
    card, _, views, _ = compact
    dealt = welcomes(card, views)
    assert set(dealt) == {"user:0", "user:1", "user:2", "user:3"}
    assert len({welcome.mask_key for welcome in dealt.values()}) == 4
    for party, welcome in dealt.items():
        assert holders(views, welcome.mask_key) == {party}


def test_an_item_key_is_in_the_views_of_those_who_rated_the_item(compact):
    card, seats, views, _ = compact
    raters: dict[int, set[str]] = {}
    for seat in seats:
        for item in seat.inputs.items.tolist() if seat.inputs else []:
            raters.setdefault(item, set()).add(seat.party)
    keys = {}
    for seat in seats:
        if seat.inputs:
            keys.update(zip(seat.inputs.items.tolist(), welcomes(card, views)[seat.party].item_keys, strict=True))
    assert len(set(keys.values())) == len(raters) == 5
    for item, key in keys.items():
        assert holders(views, key) == raters[item]
    assert any(len(those) < 4 for those in raters.values())


def test_a_view_has_one_writer_and_who_comes_second_changes_nothing(tmp_path):
    path = str(tmp_path / "a.view")
    first = Journal(path)
    first.append([b"begun"])
    with pytest.raises(BadInput, match="Another process is still writing"):
        Journal(path, again=True)
    first.close()
    second = Journal(path, again=True)
    second.append([b", gone on"])
    second.close()
    assert Path(path).read_bytes() == b"begun, gone on"
