"""Packed identifiers and counts: as short as the formula says, one form for each content, no other bytes are read."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.basics import steadily
from support.wire import NO_HEAD, bits_of, pack, pack_identifiers, pack_numbers

from protocol.errors import Bug, Reason, Rejected
from protocol.wire.messages import Join, OpenSum, Welcome
from protocol.wire.packing import (
    count_bits,
    id_bits,
    pack_counts,
    pack_ids,
    packed_counts_bytes,
    packed_ids_bytes,
    unpack_counts,
    unpack_ids,
)
from tests.protocol.wire.test_codec import PACKED, codec_of, refusal

SIZES = st.one_of(st.integers(1, 40), st.integers(200, 600), st.sampled_from([2**12, 2**16, 2**16 + 1]))
LARGE = st.sampled_from([10**7, 2**24, 2**31, 2**32 - 1])


def u32(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.uint32)


def ids_back(data: bytes, n: int) -> list[int] | Reason:
    try:
        return unpack_ids(data, n, Reason.UNKNOWN_ITEM).tolist()
    except Rejected as refused:
        return refused.reason


def counts_back(data: bytes, n: int) -> list[int] | Reason:
    try:
        return unpack_counts(data, n).tolist()
    except Rejected as refused:
        return refused.reason


def some_ids(data: st.DataObject, n: int) -> list[int]:
    """Draw few, many or all of `n` identifiers."""
    most = data.draw(st.sampled_from([0, 3, 40, 600]))
    ids = st.integers(0, n - 1) | st.sampled_from([0, n - 1])
    chosen = data.draw(st.sets(ids, max_size=min(n, most)))
    return sorted(chosen) if n > 40 or data.draw(st.booleans()) else sorted(set(range(n)) - chosen)


# --- there and back ----------------------------------------------------------------------------------------------


@steadily(300)
@given(n=SIZES | LARGE, data=st.data())
def test_identifiers_are_written_like_this_and_come_back(n, data):
    ids = some_ids(data, n)
    packed = pack_ids(u32(ids), n)
    assert packed == pack_identifiers(ids, n)
    assert len(packed) == packed_ids_bytes(len(ids), n)
    assert len(packed) <= 4 * len(ids)
    back = unpack_ids(packed, n, Reason.UNKNOWN_ITEM)
    assert back.dtype == np.uint32 and back.tolist() == ids


@steadily(300)
@given(n=SIZES | LARGE, data=st.data())
def test_counts_are_written_like_this_and_come_back(n, data):
    counts = data.draw(st.lists(st.integers(0, n) | st.sampled_from([0, n]), max_size=60))
    packed = pack_counts(u32(counts), n)
    assert packed == pack_numbers(counts, n)
    assert len(packed) == packed_counts_bytes(len(counts), n) <= 4 * len(counts)
    back = unpack_counts(packed, n)
    assert back.dtype == np.uint32 and back.tolist() == counts


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 16, 17])
def test_every_set_of_a_few_has_a_form_of_its_own(n):
    few = range(min(n, 9))
    sets = [list(chosen) for size in range(len(few) + 1) for chosen in itertools.combinations(few, size)]
    forms = {pack_ids(u32(chosen), n): chosen for chosen in sets}
    assert len(forms) == len(sets) == 2 ** len(few)
    assert all(ids_back(packed, n) == chosen for packed, chosen in forms.items())


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 12, 16])
def test_of_all_short_byte_strings_exactly_the_packed_sets_are_read(n):
    """Of all strings of up to two bytes, only the packed forms of sets are read, each as its set."""
    strings = [b"", *(bytes([a]) for a in range(256)), *(bytes([a, b]) for a in range(256) for b in range(256))]
    read = {data: ids for data in strings if isinstance(ids := ids_back(data, n), list)}
    assert all(pack_identifiers(ids, n) == data for data, ids in read.items())
    assert len(read) == 2**n, "n ≤ 16: no form is longer than two bytes"


@pytest.mark.parametrize(("n", "bits"), [(1, 8), (255, 8), (256, 9), (65535, 16), (65536, 17), (2**32 - 1, 32)])
def test_the_widths_of_counts(n, bits):
    assert count_bits(n) == bits == bits_of(n)


@pytest.mark.parametrize(("n", "bits"), [(1, 8), (256, 8), (257, 9), (2**16, 16), (2**16 + 1, 17), (2**32 - 1, 32)])
def test_the_widths_of_identifiers(n, bits):
    assert id_bits(n) == bits == bits_of(n - 1)


def test_twenty_of_ten_thousand_items_are_35_bytes_and_all_of_them_1250():
    """Twenty items of 14 bits are 280 bits; a bit for each item is 10,000 bits, as long in bytes as 714 of 14 bits."""
    assert len(pack_ids(u32(list(range(20))), 10_000)) == 35
    assert [len(pack_ids(u32(list(range(count))), 10_000)) for count in (713, 714, 10_000)] == [1248, 1250, 1250]
    assert [int(packed_ids_bytes(count, 10_000)) for count in (20, 713, 714, 10_000)] == [35, 1248, 1250, 1250]
    assert packed_ids_bytes(np.array([0, 20, 10_000]), 10_000).tolist() == [0, 35, 1250]


# --- what is read is what is written -------------------------------------------------------------------------------


@steadily(400)
@given(n=SIZES, data=st.data())
def test_whatever_is_read_is_written_like_that(n, data):
    """Random bytes, and sound bytes that are cut, extended or have a flipped bit, are refused or canonical."""
    ids = some_ids(data, n)
    sound = data.draw(st.sampled_from([pack_ids(u32(ids), n), pack_counts(u32(ids), n)]))
    other = data.draw(
        st.one_of(
            st.binary(max_size=12),
            st.integers(0, len(sound)).map(lambda length: sound[:length]),
            st.binary(min_size=1, max_size=3).map(lambda more: sound + more),
            st.integers(0, 8 * len(sound)).map(lambda bit: flipped(sound, bit)),
        )
    )
    for back, write in ((ids_back(other, n), pack_ids), (counts_back(other, n), pack_counts)):
        assert isinstance(back, Reason) or write(u32(back), n) == other


def flipped(data: bytes, bit: int) -> bytes:
    number = int.from_bytes(data, "little") ^ (1 << bit)
    return number.to_bytes(len(data) + (bit == 8 * len(data)), "little")


@steadily(200)
@given(n=SIZES, data=st.data())
def test_no_bit_can_be_flipped_unseen(n, data):
    ids = some_ids(data, n)
    packed = pack_ids(u32(ids), n)
    for bit in range(min(8 * len(packed), 400)):
        assert ids_back(flipped(packed, bit), n) != ids
    counts = pack_counts(u32(ids), n)
    for bit in range(min(8 * len(counts), 400)):
        assert counts_back(flipped(counts, bit), n) != ids


# --- in a frame of a run with three users and 300 items --------------------------------------------------------------

PACKED_FAULTS = {
    "half an item": (pack(1, 1, b"\x01"), Reason.WRONG_LENGTH),
    "eight items and a byte": (pack(1, 1, bytes(10)), Reason.WRONG_LENGTH),
    "a byte more than a bit for each item": (pack(1, 1, bytes(39)), Reason.WRONG_LENGTH),
    "a count more than items": (pack(2, 1, bytes(301), bytes(32), b""), Reason.WRONG_LENGTH),
    "two bytes of users": (pack(4, 1, 0, b"\x01\x00", b"", b""), Reason.WRONG_LENGTH),
    "a bit behind the only item": (pack(1, 1, b"\x01\x02"), Reason.NOT_CANONICAL),
    "a bit behind all items": (pack(1, 1, b"\xff" * 37 + b"\x1f"), Reason.NOT_CANONICAL),
    "a bit behind all users": (pack(4, 1, 0, b"\x08", b"", b""), Reason.NOT_CANONICAL),
    "no user as a byte": (pack(4, 1, 0, b"\x00", b"", b""), Reason.NOT_CANONICAL),
    "no item as bits": (pack(1, 1, bytes(38)), Reason.NOT_CANONICAL),
    "as many items as bits as are shorter one by one": (pack(1, 1, b"\xff" * 4 + bytes(34)), Reason.NOT_CANONICAL),
    "an item twice": (pack(1, 1, (4 + (4 << 9)).to_bytes(3, "little")), Reason.DUPLICATE_ITEM),
    "items that fall": (pack(1, 1, (4 + (3 << 9)).to_bytes(3, "little")), Reason.UNSORTED_ITEMS),
    "an item twice, and then it falls": (pack(1, 1, (4 + (4 << 9) + (3 << 18)).to_bytes(4, "little")),
                                         Reason.DUPLICATE_ITEM),
    "item 300 of 300": (pack(1, 1, (300).to_bytes(2, "little")), Reason.UNKNOWN_ITEM),
    "item 511 of 300": (pack(1, 1, b"\xff\x01"), Reason.UNKNOWN_ITEM),
    "four contributors of three users": (pack(2, 1, b"\x04", bytes(32), b""), Reason.OUT_OF_RANGE),
    "255 contributors": (pack(2, 1, b"\x00\xff", bytes(32), b""), Reason.OUT_OF_RANGE),
    "a number where items belong": (pack(1, 1, 3), Reason.MALFORMED),
    "a number where users belong": (pack(4, 1, 0, 3, b"", b""), Reason.MALFORMED),
    "a number where counts belong": (pack(2, 1, 3, bytes(32), b""), Reason.MALFORMED),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED_FAULTS)
def test_a_packed_field_that_cannot_be(name):
    packed, reason = PACKED_FAULTS[name]
    assert refusal(codec_of(form=PACKED), packed + NO_HEAD) is reason


PACKED_EDGES = {
    "the last item": (pack(1, 1, (299).to_bytes(2, "little")), [299]),
    "every item": (pack(1, 1, b"\xff" * 37 + b"\x0f"), list(range(300))),
    "32 items are 288 bits": (pack(1, 1, sum(i << 9 * i for i in range(32)).to_bytes(36, "little")), list(range(32))),
    "33 items would be 297 bits": (pack(1, 1, b"\xff" * 4 + b"\x01" + bytes(33)), list(range(33))),
    "no item": (pack(1, 1, b""), []),
}


@pytest.mark.parametrize("name", PACKED_EDGES)
def test_where_one_packed_form_ends_and_the_other_begins(name):
    packed, items = PACKED_EDGES[name]
    assert codec_of(form=PACKED).decode(packed + NO_HEAD)[1].items.tolist() == items
    assert codec_of(form=PACKED).encode(Join(np.array(items, np.uint32)), 1) == packed + NO_HEAD


def test_there_may_be_a_count_for_each_item():
    assert len(codec_of(form=PACKED).decode(pack(2, 1, bytes(300), bytes(32), b"") + NO_HEAD)[1].floors) == 300


BUGS = {
    "an item that does not exist": Join(np.array([0, 300], np.uint32)),
    "an item that does not exist among many": Join(np.arange(301, dtype=np.uint32)),
    "a user that does not exist": OpenSum(0, np.array([3], np.uint32), np.zeros(0, np.uint32), np.zeros(0, np.uint32)),
    "more contributors than users": Welcome(np.array([1, 4], np.uint32), bytes(32), ()),
}


@pytest.mark.parametrize("name", BUGS)
def test_what_would_not_come_back_is_not_written(name):
    with pytest.raises(Bug):
        codec_of(form=PACKED).encode(BUGS[name], 1)
