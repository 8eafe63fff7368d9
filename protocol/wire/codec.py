"""Message <-> frame: one canonical msgpack array [kind, sequence number, field, ...], then 32 bytes.

The 32 bytes are the head of the sender's view when it sent this (zeros if it keeps none). No role sees them; they stand
in the receiver's view, so that a view cannot be rewritten later without contradicting the views of other parties.

Arrays travel as `bin`, little-endian, straight from memory; identifiers and counts as 32-bit words, or packed
(`packing.py`). Decoding checks the size before parsing, must consume everything, and requires that the message encodes
to the same bytes; so there is one frame per message.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import numpy as np

from protocol.arithmetic.ring import Ring, everywhere
from protocol.arithmetic.tape import KEY_BYTES
from protocol.errors import Bug, Reason, Rejected
from protocol.wire.framing import HEAD_BYTES
from protocol.wire.level_vectors import pack_digits, unpack_digits
from protocol.wire.messages import Again, Message
from protocol.wire.packing import (
    Packing,
    check_increasing,
    pack_counts,
    pack_ids,
    packed_counts_bytes,
    unpack_counts,
    unpack_ids,
)

WIRE_VERSION = 4
NO_HEAD = bytes(HEAD_BYTES)
_MOST_FIELDS = 16
_EACH, _MOST_REMEMBERED = 4, 1 << 14  # remembered lists: for each peer, and in all

Encoder = Callable[[Any], Any]
_Layout = list[tuple[str, Encoder, Encoder, bool]]  # field, put, get, whether equal values often recur


class Codec:
    """The frames of one scheme: its messages in a fixed order (the index is the kind on the wire), ring, dimension.

    Without a `packing`, identifiers and counts are 32-bit words. Digits, which need a packing, are in this `base`.
    """

    def __init__(
        self,
        messages: Sequence[type],
        ring: Ring,
        dim: int,
        max_frame: int,
        packing: Packing | None = None,
        factor_bits: int = 32,
        base: int = 0,
    ) -> None:
        self.max_frame = max_frame + HEAD_BYTES
        self.n_users = packing[0] if packing else 0
        self._classes = (*messages, Again)
        self._codes = {cls: code for code, cls in enumerate(self._classes)}
        fields = _Fields(ring, dim, factor_bits)
        if packing is not None:
            fields = _PackedFields(ring, dim, factor_bits, packing, base)
        self._layouts = [_layout(cls, fields) for cls in self._classes]

    def code(self, message: Message) -> int:
        return self._codes[type(message)]

    def kind(self, code: int) -> str:
        return self._classes[code].__name__

    def encode(self, message: Message, sequence: int, head: bytes = NO_HEAD, memo: Memo | None = None) -> bytes:
        code = self._codes[type(message)]
        body: list[Any] = [code, sequence]
        for name, put, _, comes_again in self._layouts[code]:
            value = getattr(message, name)
            body.append(memo.put(put, value) if comes_again and memo else put(value))
        packed: bytes = msgpack.packb(body)
        return packed + head

    def decode(self, frame: bytes, memo: Memo | None = None) -> tuple[int, Message]:
        """Decode `frame` into (sequence number, message), or raise `Rejected` with the reason."""
        body = self._unpack(frame)
        code, sequence = body[0], body[1]
        if type(code) is not int or not 0 <= code < len(self._classes) or type(sequence) is not int or sequence < 0:
            raise Rejected(Reason.MALFORMED)
        layout = self._layouts[code]
        if len(body) != 2 + len(layout):
            raise Rejected(Reason.MALFORMED)
        for place, (_, _, get, comes_again) in enumerate(layout, 2):
            value = body[place]
            body[place] = memo.get(get, value) if comes_again and memo else get(value)
        return sequence, self._classes[code](*body[2:])

    def _unpack(self, frame: bytes) -> list[Any]:
        if len(frame) > self.max_frame:
            raise Rejected(Reason.OVERSIZED)
        packed = frame[:-HEAD_BYTES]
        try:
            body = msgpack.unpackb(
                packed, max_array_len=_MOST_FIELDS, max_map_len=0, max_str_len=0, max_ext_len=0, strict_map_key=True
            )
        except (ValueError, msgpack.UnpackException):
            raise Rejected(Reason.MALFORMED) from None
        if type(body) is not list or len(body) < 2 or not {int, bytes}.issuperset(map(type, body)):
            raise Rejected(Reason.MALFORMED)
        if msgpack.packb(body) != packed:
            raise Rejected(Reason.NOT_CANONICAL)
        return body


def head_in(frame: bytes) -> bytes:
    """Return the head of the sender's view when it sent `frame`."""
    return frame[-HEAD_BYTES:]


class Memo:
    """A cache of encoded and decoded identifiers and counts: a peer names the same ones in every iteration."""

    __slots__ = ("_known", "_most")

    def __init__(self, peers: int) -> None:
        """Bound the cache by the number of `peers`, so that churn cannot fill it with lists that never recur."""
        self._known: dict[tuple[Encoder, bytes], Any] = {}
        self._most = min(_EACH * (peers + 2), _MOST_REMEMBERED)

    def put(self, put: Encoder, value: Any) -> Any:
        return self._recall(put, value, value.tobytes()) if value.dtype == np.uint32 else put(value)

    def get(self, get: Encoder, value: Any) -> Any:
        return self._recall(get, value, value) if type(value) is bytes else get(value)

    def _recall(self, make: Encoder, value: Any, key: bytes) -> Any:
        made = self._known.get((make, key))
        if made is None:
            made = make(value)
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[make, key] = made
        return made


def _layout(cls: type, fields: _Fields) -> _Layout:
    return [
        (name, getattr(fields, f"put_{how}"), getattr(fields, f"get_{how}"), how in fields.comes_again)
        for name, how in field_kinds(cls)
    ]


@functools.cache
def field_kinds(cls: type) -> tuple[tuple[str, str], ...]:
    """List (field, how it travels) in order; cached, because the annotations of `cls` are slow to resolve."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple((field.name, hints[field.name].__metadata__[0]) for field in dataclasses.fields(cls))


class _Fields:
    """Methods that turn each kind of field into an int or bytes (`put_…`), and back with checks (`get_…`)."""

    comes_again: typing.ClassVar[frozenset[str]] = frozenset()  # kinds worth remembering

    def __init__(self, ring: Ring, dim: int, factor_bits: int) -> None:
        self.ring = ring
        self.dim = dim
        self.narrow = factor_bits == 16

    def put_count(self, value: int) -> int:
        return value

    def get_count(self, value: Any) -> int:
        if type(value) is not int or value < 0:
            raise Rejected(Reason.MALFORMED)
        return value

    def put_bytes32(self, value: bytes) -> bytes:
        return value

    def get_bytes32(self, value: Any) -> bytes:
        data = _binary(value, KEY_BYTES)
        if len(data) != KEY_BYTES:
            raise Rejected(Reason.WRONG_LENGTH)
        return data

    def put_keys(self, value: tuple[bytes, ...]) -> bytes:
        return b"".join(value)

    def get_keys(self, value: Any) -> tuple[bytes, ...]:
        data = _binary(value, KEY_BYTES)
        return tuple([data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)])

    def put_counts(self, value: Any) -> bytes:
        return np.ascontiguousarray(value, "<u4").tobytes()

    def get_counts(self, value: Any) -> Any:
        return np.frombuffer(_binary(value, 4), "<u4").astype(np.uint32)

    def put_items(self, value: Any) -> bytes:
        return np.ascontiguousarray(value, "<u4").tobytes()

    def get_items(self, value: Any) -> Any:
        ids = np.frombuffer(_binary(value, 4), "<u4").astype(np.uint32)
        check_increasing(ids)
        return ids

    def put_users(self, value: Any) -> bytes:
        return self.put_items(value)

    def get_users(self, value: Any) -> Any:
        return self.get_items(value)

    def put_digits(self, value: Any) -> bytes:
        raise Bug("digits travel packed")

    def get_digits(self, value: Any) -> Any:
        raise Rejected(Reason.MALFORMED)

    def put_grades(self, value: Any) -> bytes:
        return np.ascontiguousarray(value, np.uint8).tobytes()

    def get_grades(self, value: Any) -> Any:
        return np.frombuffer(_binary(value, 1), np.uint8)

    def put_places(self, value: Any) -> bytes:
        return np.ascontiguousarray(value, "<u4").tobytes()

    def get_places(self, value: Any) -> Any:
        return np.frombuffer(_binary(value, 4), "<u4").astype(np.uint32)

    def put_reals(self, value: Any) -> bytes:
        return np.ascontiguousarray(value, "<f8").tobytes()

    def get_reals(self, value: Any) -> Any:
        numbers = np.frombuffer(_binary(value, 8), "<f8").astype(np.float64)
        if not everywhere(np.isfinite(numbers)):
            raise Rejected(Reason.OUT_OF_RANGE)
        return numbers

    def put_floats(self, value: Any) -> bytes:
        return np.ascontiguousarray(value, "<f4").tobytes()

    def get_floats(self, value: Any) -> Any:
        return self._rows(_binary(value, 4 * self.dim), "<f4")

    def put_factors(self, value: Any) -> bytes:
        if not self.narrow:
            return self.put_floats(value)
        halves = np.ascontiguousarray(value, "<f2")
        if not everywhere(halves == value):
            raise Bug("a factor to send is not the 16-bit number that the receiver would see")
        return halves.tobytes()

    def get_factors(self, value: Any) -> Any:
        return self._rows(_binary(value, 2 * self.dim), "<f2") if self.narrow else self.get_floats(value)

    def _rows(self, data: bytes, number: str) -> Any:
        rows = np.frombuffer(data, number).astype(np.float32, copy=False).reshape(-1, self.dim)
        if not everywhere(np.isfinite(rows)):
            raise Rejected(Reason.OUT_OF_RANGE)
        return rows

    def put_ring(self, value: Any) -> bytes:
        return self.ring.to_bytes(value)

    def get_ring(self, value: Any) -> Any:
        return self.ring.from_bytes(_binary(value, self.ring.width * self.dim), self.dim)


class _PackedFields(_Fields):
    """Identifiers and counts in the number of bits that the largest possible one needs (`packing.py`)."""

    comes_again = frozenset({"counts", "items", "users"})

    def __init__(self, ring: Ring, dim: int, factor_bits: int, packing: Packing, base: int) -> None:
        super().__init__(ring, dim, factor_bits)
        self.n_users, self.n_items = packing
        self.base = base
        self.most_counts = packed_counts_bytes(self.n_items, self.n_users)

    def put_counts(self, value: Any) -> bytes:
        return pack_counts(value, self.n_users)

    def get_counts(self, value: Any) -> Any:
        data = _binary(value, 1)
        if len(data) > self.most_counts:  # unpacking would take many times its memory
            raise Rejected(Reason.WRONG_LENGTH)
        return unpack_counts(data, self.n_users)

    def put_items(self, value: Any) -> bytes:
        return pack_ids(value, self.n_items)

    def get_items(self, value: Any) -> Any:
        return unpack_ids(_binary(value, 1), self.n_items, Reason.UNKNOWN_ITEM)

    def put_places(self, value: Any) -> bytes:
        return pack_counts(value, self.n_items)

    def get_places(self, value: Any) -> Any:
        return unpack_counts(_binary(value, 1), self.n_items)

    def put_digits(self, value: Any) -> bytes:
        return pack_digits(value[:, 0].astype(np.uint8), self.base)

    def get_digits(self, value: Any) -> Any:
        return unpack_digits(_binary(value, 1), self.n_items, self.base).astype(np.float32)[:, None]

    def put_users(self, value: Any) -> bytes:
        return pack_ids(value, self.n_users)

    def get_users(self, value: Any) -> Any:
        return unpack_ids(_binary(value, 1), self.n_users, Reason.OUT_OF_RANGE)


def _binary(value: Any, unit: int) -> bytes:
    """Check that `value` is bytes whose length is a multiple of `unit`."""
    if type(value) is not bytes:
        raise Rejected(Reason.MALFORMED)
    if len(value) % unit:
        raise Rejected(Reason.WRONG_LENGTH)
    return value
