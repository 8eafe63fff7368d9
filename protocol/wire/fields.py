"""The kinds of fields: for each its bytes and the way back, the number of bytes, its unit, and what its entries are.

The annotation of a field in a message class names its kind: `items: ItemIds` travels as `ItemsField` says. Codec, byte
formulas, `keyhole view` and the audit ask these classes and nothing else, so a new kind is one class and one annotation
here.

Arrays travel as `bin`, little-endian, straight from memory; identifiers and counts as 32-bit words, or packed in the
compact wire (`packing.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Collection
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Ring, everywhere
from protocol.arithmetic.tape import KEY_BYTES
from protocol.arrays import FieldArray, Ids, RingArray
from protocol.errors import Bug, Reason, Rejected
from protocol.params import Params
from protocol.wire import packing
from protocol.wire.level_vectors import digits_bytes, pack_digits, unpack_digits

Amount = Any  # a number, or an array with one for each group of users

MOST_COUNT = 2**64 - 1


def uint_size(value: Amount) -> Amount:
    """Count the bytes of an unsigned integer `value` in canonical msgpack: 1, 2, 3, 5 or 9."""
    return 1 + (value >= 1 << 7) + (value >= 1 << 8) + 2 * (value >= 1 << 16) + 4 * (value >= 1 << 32)


def bin_size(length: Amount) -> Amount:
    return length + 2 + (length >= 1 << 8) + 2 * (length >= 1 << 16)


@functools.cache
def field_kinds(cls: type) -> tuple[tuple[str, type[FieldKind]], ...]:
    """List (field, kind) of a message in order; cached, because the annotations of `cls` are slow to resolve."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple((field.name, hints[field.name].__metadata__[0]) for field in dataclasses.fields(cls))


def bind(classes: Collection[type], params: Params) -> dict[type, dict[str, FieldKind]]:
    """Make the fields of each message class, by name, in the form that `params` select; one object for each kind."""
    kinds = {kind: kind(params) for cls in classes for _, kind in field_kinds(cls)}
    return {cls: {name: kinds[kind] for name, kind in field_kinds(cls)} for cls in classes}


class FieldKind:
    """A kind of field in the form that the parameters of a run select: an array, unless it says otherwise."""

    unit: ClassVar[str]  # of an entry; it may name {ring_bits}, {factor_bits} and {fraction}
    is_number: ClassVar[bool] = False  # entries are ratings, or were computed from them
    recurs = False  # equal values often come again, so that remembering their bytes saves time
    sent: Any = np.dtype("<u4")  # type of an entry on the wire
    held: Any = np.uint32  # and in memory
    width = 4  # bytes of an entry on the wire, where all have the same

    def __init__(self, params: Params) -> None:
        self.most = params.n_items  # entries, unless the scheme says otherwise (`Scheme.longer_fields`)

    def put(self, value: Any) -> Any:
        """Turn `value` into what msgpack packs: an int or bytes."""
        return np.ascontiguousarray(value, self.sent).tobytes()

    def get(self, value: Any) -> Any:
        """Turn back what msgpack unpacked; raise `Rejected` for anything that `put` would not make."""
        return np.frombuffer(_binary(value, self.width), self.sent).astype(self.held, copy=False)

    def size(self, n: Amount) -> Amount:
        """Count the bytes of a field with `n` entries."""
        return bin_size(self.width * n)


class CountField(FieldKind):
    """One number, which is its own number of entries."""

    unit = "number"

    def __init__(self, params: Params) -> None:
        self.most = MOST_COUNT

    def put(self, value: int) -> int:
        return value

    def get(self, value: Any) -> int:
        if type(value) is not int or value < 0:
            raise Rejected(Reason.MALFORMED)
        return value

    def size(self, n: Amount) -> Amount:
        return uint_size(n)


class DigestField(FieldKind):
    """One digest, or one key."""

    unit = "32 bytes"
    width = KEY_BYTES

    def __init__(self, params: Params) -> None:
        self.most = 1

    def put(self, value: bytes) -> bytes:
        return value

    def get(self, value: Any) -> bytes:
        data = _binary(value, KEY_BYTES)
        if len(data) != KEY_BYTES:
            raise Rejected(Reason.WRONG_LENGTH)
        return data


class KeysField(FieldKind):
    unit = "32-byte keys"
    width = KEY_BYTES

    def put(self, value: tuple[bytes, ...]) -> bytes:
        return b"".join(value)

    def get(self, value: Any) -> tuple[bytes, ...]:
        data = _binary(value, KEY_BYTES)
        return tuple([data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)])


class ItemsField(FieldKind):
    """Increasing numbers below `end`."""

    unit = "item ids"
    beyond = Reason.UNKNOWN_ITEM  # to refuse a number that is not below `end`

    def __init__(self, params: Params) -> None:
        self.most = self.end = params.n_items
        self.packed = self.recurs = params.wire == "compact"

    def put(self, value: Any) -> Any:
        return packing.pack_ids(value, self.end) if self.packed else super().put(value)

    def get(self, value: Any) -> Any:
        if self.packed:
            return packing.unpack_ids(_binary(value, 1), self.end, self.beyond)
        ids = super().get(value)
        packing.check_increasing(ids)
        return ids

    def size(self, n: Amount) -> Amount:
        return bin_size(packing.packed_ids_bytes(n, self.end)) if self.packed else super().size(n)


class UsersField(ItemsField):
    unit = "user ids"
    beyond = Reason.OUT_OF_RANGE

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.most = self.end = params.n_users


class PlacesField(FieldKind):
    """Numbers from 0 to `largest`."""

    unit = "places in a list of items"

    def __init__(self, params: Params) -> None:
        self.most = self.largest = params.n_items
        self.packed = params.wire == "compact"

    def put(self, value: Any) -> Any:
        return packing.pack_counts(value, self.largest) if self.packed else super().put(value)

    def get(self, value: Any) -> Any:
        return packing.unpack_counts(_binary(value, 1), self.largest) if self.packed else super().get(value)

    def size(self, n: Amount) -> Amount:
        return bin_size(packing.packed_counts_bytes(n, self.largest)) if self.packed else super().size(n)


class CountsField(PlacesField):
    """Numbers of users, for at most all items."""

    unit = "users, one count per item"

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.largest = params.n_users
        self.recurs = self.packed
        self._most_bytes = packing.packed_counts_bytes(params.n_items, params.n_users)

    def get(self, value: Any) -> Any:
        if self.packed and len(_binary(value, 1)) > self._most_bytes:  # unpacking would take many times its memory
            raise Rejected(Reason.WRONG_LENGTH)
        return super().get(value)


class GradesField(FieldKind):
    unit = "grades: steps above the least rating"
    is_number = True
    sent, held, width = np.dtype("u1"), np.uint8, 1


class DigitsField(FieldKind):
    """A digit in base `Params.digit_base` for every item, packed in either wire (`level_vectors.py`)."""

    unit = "levels, one per item; 0: not rated"
    is_number = True

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.base = params.digit_base

    def put(self, value: Any) -> Any:
        return pack_digits(value[:, 0].astype(np.uint8), self.base)

    def get(self, value: Any) -> Any:
        return unpack_digits(_binary(value, 1), self.most, self.base).astype(np.float32)[:, None]

    def size(self, n: int) -> int:
        return int(bin_size(digits_bytes(n, self.base)))


class RealsField(FieldKind):
    unit = "float64"
    is_number = True
    sent, held, width = np.dtype("<f8"), np.float64, 8

    def get(self, value: Any) -> Any:
        return _finite(super().get(value))


class FloatsField(FieldKind):
    """Rows of `dim` numbers."""

    unit = "float32"
    is_number = True

    def __init__(self, params: Params, bits: int = 32) -> None:
        super().__init__(params)
        self.dim = params.dim
        self.sent = np.dtype(f"<f{bits // 8}")
        self.width = params.dim * bits // 8

    def get(self, value: Any) -> Any:
        rows = np.frombuffer(_binary(value, self.width), self.sent).reshape(-1, self.dim)
        return _finite(rows.astype(np.float32, copy=False))


class FactorsField(FloatsField):
    """Rows of item factors, in the precision in which they are sent."""

    unit = "float{factor_bits} factors, one row per item"

    def __init__(self, params: Params) -> None:
        super().__init__(params, params.factor_bits)
        self._narrow = params.factor_bits == 16

    def put(self, value: Any) -> Any:
        if self._narrow and not everywhere(np.asarray(value, self.sent) == value):
            raise Bug("a factor to send is not the 16-bit number that the receiver would see")
        return super().put(value)


class RingField(FieldKind):
    """Rows of `dim` elements of Z_P."""

    unit = "ring elements mod 2^{ring_bits}, unit 2^-{fraction}"
    is_number = True

    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self.ring = Ring(params.ring_bits, params.ring_is_prime)
        self.dim = params.dim
        self.width = params.dim * self.ring.width

    def put(self, value: Any) -> Any:
        return self.ring.to_bytes(value)

    def get(self, value: Any) -> Any:
        return self.ring.from_bytes(_binary(value, self.width), self.dim)


def _binary(value: Any, unit: int) -> bytes:
    """Check that `value` is bytes whose length is a multiple of `unit`."""
    if type(value) is not bytes:
        raise Rejected(Reason.MALFORMED)
    if len(value) % unit:
        raise Rejected(Reason.WRONG_LENGTH)
    return value


def _finite(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not everywhere(np.isfinite(numbers)):
        raise Rejected(Reason.OUT_OF_RANGE)
    return numbers


class ElementsField(FieldKind):
    """Elements of the prime field of proofs."""

    unit = "elements of the field with 2^64 − 2^32 + 1 elements"
    is_number = True
    sent, held, width = np.dtype("<u8"), np.uint64, 8


# --- annotations of message fields -----------------------------------------------------------------------------------

Count = Annotated[int, CountField]
Digest = Annotated[bytes, DigestField]
KeyRow = Annotated[tuple[bytes, ...], KeysField]  # 32 bytes each
ItemIds = Annotated[Ids, ItemsField]  # increasing
UserIds = Annotated[Ids, UsersField]  # increasing
Counts = Annotated[npt.NDArray[np.uint32], CountsField]  # numbers of users, for at most all items
Grades = Annotated[npt.NDArray[np.uint8], GradesField]  # a byte each: how many steps a rating is above the least one
Places = Annotated[npt.NDArray[np.uint32], PlacesField]  # indices into a list of items: all below the number of items
Digits = Annotated[npt.NDArray[np.float32], DigitsField]  # one row for every item: 0 or a level
Reals = Annotated[npt.NDArray[np.float64], RealsField]  # any number of them
FloatRows = Annotated[npt.NDArray[np.float32], FloatsField]  # rows of `dim` numbers
FactorRows = Annotated[npt.NDArray[np.float32], FactorsField]  # the same, in the precision in which v_j is sent
Elements = Annotated[FieldArray, ElementsField]
RingRows = Annotated[RingArray, RingField]  # rows of `dim` elements of Z_P
