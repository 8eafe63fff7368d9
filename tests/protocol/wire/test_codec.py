"""One frame per message: its bytes, the frames that are refused, and the order of the checks."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.basics import codec_with, shape_of
from support.wire import (
    FIELDS,
    KINDS,
    NO_HEAD,
    WIRE_VERSION,
    Form,
    assert_holds,
    code_of,
    form_of,
    frame_of,
    framed,
    message_of,
    pack,
    pack_bin,
    pack_uint,
)

from protocol.errors import Reason, Rejected
from protocol.params import MOST_ITERATIONS
from protocol.schemes import SCHEMES, find_scheme
from protocol.wire import codec as codec_module
from protocol.wire.codec import Codec, head_in
from protocol.wire.messages import Again

DIM = 2
MAX_FRAME = 4096
EVERY_MESSAGE = [(scheme, kind) for scheme, kinds in KINDS.items() for kind in (*kinds, "Again")]
FACTORIZING = [(scheme, kind) for scheme, kind in EVERY_MESSAGE if SCHEMES[scheme].factorizes]
DIGITS = ("randomized-response", "RandomizedLevels")  # one digit for every item, in its own base; see below


PACKED = Form(packed=(3, 300))  # users and items: 8 bits for a count, 9 for an item, one byte for all users
HALVES = Form(factor_bits=16, packed=(3, 300))


def codec_of(
    scheme: str = "masked", ring_bits: int = 8, dim: int = DIM, max_frame: int = MAX_FRAME, form: Form | None = None
) -> Codec:
    """Make the codec of `scheme`, with 32-bit words unless `form` says otherwise."""
    return codec_with(SCHEMES[scheme].messages, form or Form(ring_bits), dim, max_frame)


def class_of(scheme: str, kind: str) -> type:
    return (*SCHEMES[scheme].messages, Again)[code_of(scheme, kind)]


def refusal(codec: Codec, frame: bytes) -> Reason:
    with pytest.raises(Rejected) as caught:
        codec.decode(frame)
    return caught.value.reason


# --- what is written -------------------------------------------------------------------------------------------


def test_every_scheme_has_its_wire_format_written_down_twice():
    assert set(KINDS) == set(SCHEMES)


@pytest.mark.parametrize("scheme", KINDS)
def test_the_numbers_of_the_kinds_are_these(scheme):
    messages = SCHEMES[scheme].messages
    assert [cls.__name__ for cls in messages] == KINDS[scheme]
    codec = codec_of(scheme)
    assert [codec.kind(code) for code in range(len(messages) + 1)] == [*KINDS[scheme], "Again"]


def test_the_wire_version_is_this():
    assert codec_module.WIRE_VERSION == WIRE_VERSION


COUNTS = st.one_of(st.integers(0, 300), st.sampled_from([2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**64 - 1]))
KEYS = st.binary(min_size=32, max_size=32)


def up_to(largest: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(0, largest), st.integers(0, min(5, largest)))


def rows(numbers: st.SearchStrategy[Any], dim: int) -> st.SearchStrategy[Any]:
    return st.lists(st.lists(numbers, min_size=dim, max_size=dim), max_size=5)


def forms() -> st.SearchStrategy[Form]:
    sizes = st.one_of(st.integers(1, 400), st.sampled_from([2**16, 2**16 + 1, 10**7, 2**32 - 1]))
    rings = st.sampled_from([8, 16, 24, 32, 40, 48, 56, 64])
    return st.builds(Form, rings, st.sampled_from([32, 16]), st.one_of(st.none(), st.tuples(sizes, sizes)))


def content(how: str, form: Form, dim: int) -> st.SearchStrategy[Any]:
    ring_bits = form.ring_bits
    n_users, n_items = form.packed or (2**32 - 1, 2**32)
    single = st.floats(width=32, allow_nan=False, allow_infinity=False)
    factor = st.floats(width=form.factor_bits, allow_nan=False, allow_infinity=False)
    return {
        "count": COUNTS,
        "bytes32": KEYS,
        "keys": st.lists(KEYS, max_size=12),
        "counts": st.lists(up_to(n_users), max_size=min(70, n_items)),
        "users": st.lists(up_to(n_users - 1), unique=True, max_size=70).map(sorted),
        "items": st.lists(up_to(n_items - 1), unique=True, max_size=70).map(sorted),
        "floats": rows(single, dim),
        "factors": rows(factor, dim),
        "elements": st.lists(st.integers(0, 2**64 - 1), max_size=70),
        "reals": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=70),
        "grades": st.lists(st.integers(0, 255), max_size=70),
        "places": st.lists(up_to(min(n_items, 2**32 - 1)), max_size=70),
        "ring": rows(st.one_of(st.integers(0, 2**ring_bits - 1), st.sampled_from([0, 2**ring_bits - 1])), dim),
    }[how]


@pytest.mark.parametrize(("scheme", "kind"), [one for one in EVERY_MESSAGE if one != DIGITS])
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_every_message_has_one_frame_and_comes_back(scheme, kind, data):
    form, dim = data.draw(forms()), data.draw(st.integers(1, 4))
    contents = [data.draw(content(how, form, dim)) for how in FIELDS[kind].values()]
    sequence, head, ring_bits = data.draw(COUNTS), data.draw(KEYS), form.ring_bits
    codec = codec_of(scheme, dim=dim, form=form)
    message = message_of(class_of(scheme, kind), contents, ring_bits, dim)
    assert codec.encode(message, sequence) == frame_of(scheme, kind, sequence, contents, form, bytes(32))
    frame = codec.encode(message, sequence, head)
    assert frame == frame_of(scheme, kind, sequence, contents, form, head)
    assert head_in(frame) == head
    number, back = codec.decode(frame)
    assert number == sequence and type(back) is class_of(scheme, kind)
    assert_holds(back, contents, ring_bits, dim)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_digits_are_one_number_in_their_base(data):
    base = data.draw(st.integers(2, 12))
    digits = data.draw(st.lists(st.integers(0, base - 1), min_size=1, max_size=90))
    form = Form(64, 32, (4, len(digits)), base)
    codec = codec_with(SCHEMES[DIGITS[0]].messages, form, dim=1)
    contents = [[[float(digit)] for digit in digits]]
    message = message_of(class_of(*DIGITS), contents, 64, 1)
    frame = frame_of(*DIGITS, 1, contents, form)
    assert codec.encode(message, 1) == frame
    assert_holds(codec.decode(frame)[1], contents, 64, 1)


@pytest.mark.parametrize("wire", ["compact", "paper"])
@pytest.mark.parametrize(("scheme", "kind"), FACTORIZING)
def test_the_size_limit_leaves_room_for_the_largest_message(scheme, kind, wire):
    """The largest message belongs to a user that rated everything, at the end of the longest run that is allowed."""
    users, items, dim, ring_bits = 40, 30, 3, 64
    flags = {"wire": wire, "epsilon": 8.0, "ring_bits": ring_bits} if scheme in ("masked", "dynamic") else {}
    made = find_scheme(scheme)
    shape = shape_of([dict.fromkeys(range(items), 3.0)] * users, items)
    params, _ = made.make_params(shape, dim=dim, iterations=MOST_ITERATIONS, **flags)
    largest = {
        "count": MOST_ITERATIONS,
        "bytes32": bytes(32),
        "keys": [bytes(32)] * items,
        "counts": [1] * items,
        "users": list(range(users)),
        "items": list(range(items)),
        "floats": [[1.0] * dim] * items,
        "factors": [[1.0] * dim] * items,
        "ring": [[1] * dim] * items,
        "elements": [2**64 - 1] * items,
        "reals": [1.0] * items,
    }
    contents = [
        [] if (scheme, name) == ("plain", "floors") else largest[how] for name, how in FIELDS[kind].items()
    ]
    frame = frame_of(scheme, kind, 2 * MOST_ITERATIONS + 2, contents, form_of(params))
    codec = made.make_codec(params)
    assert len(frame) <= codec.max_frame == made.max_frame(params) + 32
    assert_holds(codec.decode(frame)[1], contents, ring_bits, dim)


# --- size before parsing -----------------------------------------------------------------------------------------


def test_a_frame_above_the_limit_is_not_even_parsed(monkeypatch):
    def parsed(*_: Any, **__: Any) -> None:
        raise AssertionError("an oversized frame reached the parser")

    monkeypatch.setattr("protocol.wire.codec.msgpack.unpackb", parsed)
    codec = codec_of(max_frame=64)
    for frame in (b"\xc1" * 97, framed(1, 1, bytes(64)), b"\x93" + bytes(10**6)):
        assert refusal(codec, frame) is Reason.OVERSIZED


def test_the_limit_itself_is_allowed():
    """[1, 1, bin of 60]: array, kind, number, bin header of two bytes and 60 bytes are 65; the head comes on top."""
    frame = framed(1, 1, struct.pack("<15I", *range(15)))
    assert len(frame) == 65 + 32
    assert codec_of(max_frame=65).decode(frame)[0] == 1
    assert refusal(codec_of(max_frame=64), frame) is Reason.OVERSIZED
    assert refusal(codec_of(max_frame=64), b"\xc1" * 96) is Reason.MALFORMED


# --- not a message -----------------------------------------------------------------------------------------------

FINISH = pack(11, 1, 3)  # 93 0b 01 03; here and below without the head
ROW_OF_8 = b"\x01\x02"  # two elements of an 8-bit ring

MALFORMED = {
    "nothing": b"",
    "a byte that msgpack never uses": b"\xc1",
    "an extra byte": FINISH + b"\x00",
    "a second frame": FINISH + FINISH,
    "a bare int": b"\x0b",
    "bare bytes": pack_bin(FINISH),
    "an empty array": b"\x90",
    "an array of one": b"\x91\x0b",
    "an empty map": b"\x80",
    "a map": b"\x81\x0b\x01",
    "a map of 2^32 - 1 pairs": b"\xdf\xff\xff\xff\xff",
    "an array of 2^32 - 1 entries": b"\xdd\xff\xff\xff\xff",
    "an array of seventeen ints": b"\xdc\x00\x11" + b"\x0b" * 17,
    "bytes that claim 2^32 - 1": b"\x93\x0b\x01\xc6\xff\xff\xff\xff",
    "a map as a field": b"\x93\x0b\x01\x80",
    "a string as a field": b"\x93\x0b\x01\xa1\x33",
    "an empty string as a field": b"\x93\x01\x01\xa0",
    "a string that is not UTF-8": b"\x93\x01\x01\xa4\xff\xff\xff\xff",
    "a float32 as a field": b"\x93\x0b\x01\xca\x40\x40\x00\x00",
    "a float64 as a field": b"\x93\x0b\x01\xcb\x40\x08" + bytes(6),
    "nil as a field": b"\x93\x0b\x01\xc0",
    "false as a field": b"\x93\x0b\x01\xc2",
    "true as a field": b"\x93\x0b\x01\xc3",
    "an extension as a field": b"\x93\x0b\x01\xd4\x05\x00",
    "an empty extension as a field": b"\x93\x0b\x01\xc7\x00\x05",
    "a timestamp as a field": b"\x93\x0b\x01\xd6\xff" + bytes(4),
    "an empty timestamp as a field": b"\x93\x0b\x01\xc7\x00\xff",
    "an array as a field": b"\x93\x0b\x01\x91\x03",
    "an empty array as a field": b"\x93\x0b\x01\x90",
    "arrays in arrays": b"\x91" * 2000,
    "a negative int as a field": b"\x93\x0b\x01\xff",
    "the most negative int as a field": b"\x93\x0b\x01\xd3\x80" + bytes(7),
    "bytes where a number belongs": pack(11, 1, b"\x03"),
    "a number where bytes belong": pack(1, 1, 3),
    "a number where a digest belongs": pack(9, 1, 0, 3),
    "a number where keys belong": pack(2, 1, b"", bytes(32), 3),
    "a number where ring elements belong": pack(7, 1, 0, b"", 3),
    "a number where floats belong": pack(5, 1, 0, b"", 3),
    "the first kind that does not exist": pack(14, 1, 3),
    "Again with a field too few": pack(13, 0, 3),
    "Again with a field too many": pack(13, 0, 3, 1, 1),
    "Again with bytes": pack(13, 0, 3, b"\x01"),
    "Again with a negative number": b"\x94\x0d\x00\xff\x00",
    "kind 255": pack(255, 1, 3),
    "kind 2^64 - 1": pack(2**64 - 1, 1, 3),
    "kind -1": b"\x93\xff\x01\x03",
    "kind as bytes": pack(b"\x0b", 1, 3),
    "kind as true": b"\x95\xc3\x01\x03\x03\x03",
    "number -1": b"\x93\x0b\xff\x03",
    "number as bytes": pack(11, b"\x01", 3),
    "a field too few": pack(11, 1),
    "a field too many": pack(11, 1, 3, 3),
    "sixteen entries": b"\xdc\x00\x10" + b"\x0b" * 16,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name):
    for head in (NO_HEAD, b"\xff" * 32):
        assert refusal(codec_of(), MALFORMED[name] + head) is Reason.MALFORMED


def test_the_frame_that_the_malformed_ones_were_made_from_is_sound():
    sequence, message = codec_of().decode(FINISH + NO_HEAD)
    assert (sequence, type(message).__name__, message.iteration) == (1, "Finish", 3)


@pytest.mark.parametrize("length", [0, 1, 28, 31, 33])
def test_another_length_of_the_head_is_malformed(length):
    assert refusal(codec_of(), FINISH + bytes(length)) is Reason.MALFORMED
    assert refusal(codec_of(), bytes(length)) is Reason.MALFORMED, "nor is it a frame without a message"


def test_any_head_will_do_and_changes_nothing_in_the_message():
    for head in (NO_HEAD, bytes(range(32)), b"\xff" * 32, FINISH * 8):
        sequence, message = codec_of().decode(FINISH + head)
        assert (sequence, type(message).__name__, message.iteration) == (1, "Finish", 3)


@pytest.mark.parametrize("kind", [*KINDS["masked"], "Again"])
def test_no_beginning_of_a_frame_is_a_frame(kind):
    small = {
        "count": 300, "bytes32": bytes(32), "keys": [bytes(32)], "counts": [1], "users": [1], "items": [1],
        "floats": [[1.0, 2.0]], "factors": [[1.0, 2.0]], "ring": [[1, 2]],
    }  # fmt: skip
    for form in (Form(), PACKED):
        frame = frame_of("masked", kind, 1, [small[how] for how in FIELDS[kind].values()], form)
        codec = codec_of(form=form)
        assert codec.decode(frame)[0] == 1
        assert {refusal(codec, frame[:length]) for length in range(len(frame))} == {Reason.MALFORMED}


# --- another frame for the same message ----------------------------------------------------------------------------

NOT_CANONICAL = {
    "an array header of three bytes": b"\xdc\x00\x03\x0b\x01\x03",
    "an array header of five bytes": b"\xdd\x00\x00\x00\x03\x0b\x01\x03",
    "the kind in two bytes": b"\x93\xcc\x0b\x01\x03",
    "the number in two bytes": b"\x93\x0b\xcc\x01\x03",
    "3 as uint8": b"\x93\x0b\x01\xcc\x03",
    "3 as uint16": b"\x93\x0b\x01\xcd\x00\x03",
    "3 as uint32": b"\x93\x0b\x01\xce\x00\x00\x00\x03",
    "3 as uint64": b"\x93\x0b\x01\xcf" + bytes(7) + b"\x03",
    "3 as int8": b"\x93\x0b\x01\xd0\x03",
    "3 as int16": b"\x93\x0b\x01\xd1\x00\x03",
    "3 as int64": b"\x93\x0b\x01\xd3" + bytes(7) + b"\x03",
    "300 as uint32": b"\x93\x0b\x01\xce\x00\x00\x01\x2c",
    "four bytes as bin16": b"\x93\x01\x01\xc5\x00\x04" + bytes(4),
    "four bytes as bin32": b"\x93\x01\x01\xc6\x00\x00\x00\x04" + bytes(4),
    "no bytes as bin32": b"\x93\x01\x01\xc6\x00\x00\x00\x00",
    "256 bytes as bin32": b"\x93\x01\x01\xc6\x00\x00\x01\x00" + struct.pack("<64I", *range(64)),
}


@pytest.mark.parametrize("name", NOT_CANONICAL)
def test_not_canonical(name):
    assert refusal(codec_of(), NOT_CANONICAL[name] + NO_HEAD) is Reason.NOT_CANONICAL


# --- what a field may hold ------------------------------------------------------------------------------------------

FIELD_FAULTS = {
    "a digest of 31 bytes": (pack(9, 1, 0, bytes(31)), Reason.WRONG_LENGTH),
    "a digest of 33 bytes": (pack(9, 1, 0, bytes(33)), Reason.WRONG_LENGTH),
    "a digest of 64 bytes": (pack(9, 1, 0, bytes(64)), Reason.WRONG_LENGTH),
    "an empty digest": (pack(9, 1, 0, b""), Reason.WRONG_LENGTH),
    "a key and a half": (pack(2, 1, bytes(4), bytes(32), bytes(48)), Reason.WRONG_LENGTH),
    "half a count": (pack(2, 1, bytes(2), bytes(32), b""), Reason.WRONG_LENGTH),
    "an item and a half": (pack(1, 1, bytes(6)), Reason.WRONG_LENGTH),
    "one float of a row of two": (pack(5, 1, 0, b"", bytes(4)), Reason.WRONG_LENGTH),
    "half a float": (pack(5, 1, 0, b"", bytes(10)), Reason.WRONG_LENGTH),
    "one ring element of a row of two": (pack(7, 1, 0, bytes(4), b"\x01"), Reason.WRONG_LENGTH),
    "a row and a half of ring elements": (pack(10, 1, 0, bytes(4), b"\x01\x02\x03"), Reason.WRONG_LENGTH),
    "an item twice": (pack(1, 1, struct.pack("<2I", 4, 4)), Reason.DUPLICATE_ITEM),
    "an item twice, not at the start": (pack(1, 1, struct.pack("<4I", 0, 1, 7, 7)), Reason.DUPLICATE_ITEM),
    "items that fall": (pack(1, 1, struct.pack("<2I", 4, 3)), Reason.UNSORTED_ITEMS),
    "items that fall by 2^32 - 1": (pack(1, 1, struct.pack("<2I", 2**32 - 1, 0)), Reason.UNSORTED_ITEMS),
    "an item that comes again later": (pack(1, 1, struct.pack("<3I", 1, 2, 1)), Reason.UNSORTED_ITEMS),
    "users that fall": (pack(4, 1, 0, struct.pack("<2I", 1, 0), b"", b""), Reason.UNSORTED_ITEMS),
    "a user twice": (pack(8, 1, 0, struct.pack("<2I", 1, 1), b"", bytes(32)), Reason.DUPLICATE_ITEM),
    "not a number": (pack(5, 1, 0, b"", struct.pack("<2f", 1.0, float("nan"))), Reason.OUT_OF_RANGE),
    "a signalling NaN": (pack(5, 1, 0, b"", b"\x01\x00\x80\x7f" + bytes(4)), Reason.OUT_OF_RANGE),
    "infinity": (pack(5, 1, 0, b"", struct.pack("<2f", float("inf"), 1.0)), Reason.OUT_OF_RANGE),
    "minus infinity": (pack(3, 1, b"", struct.pack("<2f", 1.0, float("-inf"))), Reason.OUT_OF_RANGE),
}


@pytest.mark.parametrize("name", FIELD_FAULTS)
def test_a_field_that_cannot_be(name):
    packed, reason = FIELD_FAULTS[name]
    assert refusal(codec_of(), packed + NO_HEAD) is reason


@pytest.mark.parametrize(("ring_bits", "too_short"), [(16, 2), (24, 3), (40, 5), (64, 8)])
def test_a_row_of_ring_elements_is_as_long_as_the_ring_is_wide(ring_bits, too_short):
    """One element of two is missing; with it the frame is sound."""
    codec = codec_of(ring_bits=ring_bits)
    assert refusal(codec, framed(7, 1, 0, bytes(4), bytes(too_short))) is Reason.WRONG_LENGTH
    assert codec.decode(framed(7, 1, 0, bytes(4), bytes(2 * too_short)))[1].values.tolist() == [[0, 0]]


# --- fuzz: any bytes are refused with a reason, or are the one frame of their message --------------------------------

INTERESTING = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x93, 0x9F, 0xA0, *range(0xC0, 0xE0), 0xE0, 0xFF]


def seeds(chance: random.Random, form: Form) -> list[bytes]:
    """Make a few sound frames of every kind without their head, so short that a mutation often hits a field."""
    frames = []
    for kind in [*KINDS["masked"], "Again"] * 4:
        n = chance.choice([0, 1, 2, 3, 20, 40])
        some = {
            "count": chance.choice([0, 1, 127, 128, 256, 2**16, 2**32]),
            "bytes32": chance.randbytes(32),
            "keys": [chance.randbytes(32) for _ in range(n % 4)],
            "counts": [chance.choice([0, 1, 3 if form.packed else 2**31]) for _ in range(n)],
            "users": sorted(chance.sample(range(3 if form.packed else 50), n % 4 if form.packed else n)),
            # close to each other and to the last one, so that a changed bit makes one of them occur twice or not exist
            "items": sorted(chance.sample(range(256, 300) if form.packed else range(50), n)),
            "floats": [[chance.uniform(-2, 2) for _ in range(DIM)] for _ in range(n)],
            "factors": [[chance.choice([-2.0, 0.5, 1.75]) for _ in range(DIM)] for _ in range(n)],
            "ring": [[chance.randrange(256) for _ in range(DIM)] for _ in range(n)],
        }
        contents = [some[how] for how in FIELDS[kind].values()]
        frames.append(frame_of("masked", kind, chance.choice([0, 1, 200]), contents, form, head=b""))
    return frames


def mutated(chance: random.Random, frames: list[bytes]) -> bytes:
    frame = bytearray(chance.choice(frames))
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        at = chance.randrange(len(frame)) if frame and chance.random() < 0.7 else min(chance.randrange(8), len(frame))
        match chance.randrange(8):
            case 0 if at < len(frame):
                frame[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(frame):
                frame[at] = chance.choice(INTERESTING)
            case 2:
                del frame[at : at + chance.choice([1, 1, 2, 4, 8])]
            case 3:
                frame[at:at] = chance.randbytes(chance.choice([1, 2, 4, 8]))
            case 4:
                frame[at:at] = bytes([chance.choice(INTERESTING)])
            case 5 if at < len(frame):
                frame[at : at + 1] = bytes([0xCC, frame[at]])  # where it was an int, the same int in two bytes
            case 6:
                other = chance.choice(frames)
                frame[at:] = other[chance.randrange(len(other)) :]
            case _:
                frame[at : at + 1] = pack_uint(chance.choice([0, 11, 255, 2**16, 2**64 - 1]))
    return bytes(frame)


@pytest.mark.parametrize("form", [Form(), PACKED, HALVES], ids=["words", "packed", "16-bit factors"])
def test_fuzz_decoding_refuses_with_a_reason_or_gives_the_frame_back(form):
    chance = random.Random(20150725)
    codec = codec_of(form=form)
    frames = seeds(chance, form)
    met: dict[str, int] = {}
    for _ in range(20_000):
        head = chance.randbytes(32)
        frame = mutated(chance, frames) + head
        try:
            sequence, message = codec.decode(frame)
        except Rejected as refused:
            met[refused.reason.name] = met.get(refused.reason.name, 0) + 1
        else:
            met["accepted"] = met.get("accepted", 0) + 1
            assert codec.encode(message, sequence, head) == frame, frame.hex()
    # each kind of fault occurred, and so did sound frames
    assert set(met) == {
        "accepted", "MALFORMED", "NOT_CANONICAL", "WRONG_LENGTH", "DUPLICATE_ITEM", "UNSORTED_ITEMS", "OUT_OF_RANGE",
        *(["UNKNOWN_ITEM"] if form.packed else []),
    }  # fmt: skip
    assert met["accepted"] > 1000 and met["NOT_CANONICAL"] > 100


def test_noise_is_refused():
    chance = random.Random(7)
    codec = codec_of(max_frame=200)
    reasons = {refusal(codec, chance.randbytes(chance.randrange(292))) for _ in range(3000)}
    assert reasons == {Reason.OVERSIZED, Reason.MALFORMED}


def test_a_role_may_keep_what_was_decoded():
    """The buffer that a frame arrived in may be used again: the decoded message does not change with it."""
    codec = codec_of(ring_bits=32)
    contents = [7, [1, 2], [[1.0, 2.0]] * 2, [[6, 2**32 - 1]] * 2, [[0.5, 0.25]] * 2]
    buffer = bytearray(frame_of("masked", "ItemFactorsInFull", 1, contents, Form(32)))
    message = codec.decode(buffer)[1]
    buffer[:] = b"\xff" * len(buffer)
    assert_holds(message, contents, 32, DIM)
    opened = [0, [0, 2], [4, 255], [1, 3]]
    buffer = bytearray(frame_of("masked", "OpenSum", 1, opened, PACKED))
    message = codec_of(form=PACKED).decode(buffer)[1]
    buffer[:] = b"\xff" * len(buffer)
    assert_holds(message, opened, 8, DIM)
