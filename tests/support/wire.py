"""The wire format written down a second time: what each message carries, and canonical msgpack for ints and bytes.

A frame is the msgpack array and then 32 bytes, the head of its sender's view; zeros mean that it keeps none.

Nothing here uses the codec, so a frame made here is an independent expectation.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

WIRE_VERSION = 5
NO_HEAD = bytes(32)

# The index in these lists is the kind on the wire; after the last of a scheme comes Again.
KINDS = {
    "masked": [
        "Hello", "Join", "Welcome", "WelcomeInFull", "OpenSum", "ItemFactors", "ItemFactorsInFull",
        "MaskedGradient", "Contributors", "Agreed", "MaskedTotal", "Finish", "Publication",
    ],
    "plain": ["Hello", "Join", "ItemFactors", "Gradient", "Finish", "Publication"],
    "trusted": ["Hello", "RatingsHandover", "Publication"],
    "direct": ["Hello", "Join", "NoiseKeys", "ItemFactors", "NoisyGradient", "Finish", "Publication"],
    "dynamic": [
        "Hello", "Join", "Welcome", "OpenSum", "ItemFactors", "MaskedGradient", "Contributors", "Agreed",
        "MaskedTotal", "Finish", "Publication", "OpenCommitment", "Commit", "CommitInFull", "BlindedShare",
        "SealedTotal", "Present", "Absent", "ItemFactorsWithPieces",
    ],
    "covariance": ["Hello", "GradedRatings", "RatingsHandover", "FactorModel", "NeighbourModel"],
    "covariance-masked": [
        "Hello", "Join", "MaskWelcome", "MaskedPart", "PartTotal", "OpenPairs", "PublishedAverages",
        "CovarianceFactors", "CovariancePairs",
    ],
    "hardened": [
        "Hello", "Join", "MaskWelcome", "MaskedPart", "Contributors", "Agreed", "PartTotal", "PublishedTable",
        "OpenTaste", "PublishedTaste", "OpenTable", "ProvenPart", "NormTests", "NormAnswer", "NormWeights",
        "NormProof", "NormQuery", "NormVerdict",
    ],
    "hybrid": ["Hello", "PerturbedRatings", "NeighbourModel"],
    "laplace-ratings": ["Hello", "PerturbedRatings", "Recommendations"],
    "randomized-response": ["Hello", "RandomizedLevels", "Recommendations"],
}  # fmt: skip

FIELDS = {
    "Hello": {"wire_version": "count", "run_id": "bytes32", "params_digest": "bytes32"},
    "Again": {"received": "count", "answer": "count"},
    "Join": {"items": "items"},
    "Welcome": {"floors": "counts", "mask_key": "bytes32", "item_keys": "keys"},
    "WelcomeInFull": {"floors": "counts", "envelopes": "floats"},
    "OpenSum": {"iteration": "count", "users": "users", "items": "items", "floors": "counts"},
    "ItemFactors": {"iteration": "count", "floors": "counts", "factors": "factors"},
    "ItemFactorsInFull": {
        "iteration": "count", "floors": "counts", "factors": "factors", "masks": "ring", "envelopes": "floats",
    },
    "Gradient": {"iteration": "count", "values": "floats"},
    "MaskedGradient": {"iteration": "count", "items": "items", "values": "ring"},
    "Contributors": {"iteration": "count", "users": "users", "counts": "counts", "digest": "bytes32"},
    "Agreed": {"iteration": "count", "digest": "bytes32"},
    "MaskedTotal": {"iteration": "count", "items": "items", "values": "ring"},
    "Finish": {"iteration": "count"},
    "RatingsHandover": {"items": "items", "values": "reals"},
    "Publication": {"iteration": "count", "factors": "factors"},
    "NoiseKeys": {"floors": "counts", "item_keys": "keys"},
    "NoisyGradient": {"iteration": "count", "values": "floats"},
    "OpenCommitment": {"attempt": "count", "users": "users", "items": "items", "counts": "counts"},
    "Commit": {"attempt": "count", "items": "items", "counts": "counts", "item_keys": "keys"},
    "CommitInFull": {
        "attempt": "count", "items": "items", "counts": "counts", "blinds": "ring", "envelopes": "floats",
    },
    "BlindedShare": {"attempt": "count", "items": "items", "values": "ring"},
    "SealedTotal": {"attempt": "count", "items": "items", "values": "ring"},
    "Present": {"iteration": "count"},
    "Absent": {"iteration": "count"},
    "ItemFactorsWithPieces": {
        "iteration": "count", "floors": "counts", "factors": "factors", "masks": "ring", "envelopes": "floats",
        "pieces": "ring",
    },
    "GradedRatings": {"items": "items", "grades": "grades"},
    "PerturbedRatings": {"items": "items", "values": "floats"},
    "RandomizedLevels": {"levels": "digits"},
    "FactorModel": {"averages": "floats", "covered": "items", "factors": "floats"},
    "NeighbourModel": {
        "averages": "floats", "covered": "items", "shrink": "reals", "among": "floats", "neighbours": "places",
        "covariances": "floats",
    },
    "Recommendations": {"values": "floats"},
    "MaskWelcome": {"mask_key": "bytes32", "counts": "counts"},
    "MaskedPart": {"iteration": "count", "items": "items", "values": "ring"},
    "PartTotal": {"iteration": "count", "values": "ring"},
    "OpenPairs": {"iteration": "count", "covered": "items"},
    "PublishedAverages": {"iteration": "count", "averages": "floats", "covered": "items", "counts": "floats"},
    "OpenTaste": {
        "iteration": "count", "qualities": "floats", "popularities": "floats", "frame": "floats", "covered": "items",
        "directions": "floats",
    },
    "PublishedTaste": {"iteration": "count", "directions": "floats"},
    "OpenTable": {"iteration": "count", "covered": "items"},
    "ProvenPart": {"iteration": "count", "values": "ring", "shares": "ring", "digits": "ring"},
    "NormTests": {"iteration": "count", "key": "bytes32"},
    "NormAnswer": {"iteration": "count", "values": "ring"},
    "NormWeights": {"iteration": "count", "key": "bytes32"},
    "NormProof": {"iteration": "count", "values": "ring"},
    "NormQuery": {"iteration": "count", "users": "users", "key": "bytes32", "opened": "elements"},
    "NormVerdict": {"iteration": "count", "users": "users"},
    "PublishedTable": {"iteration": "count", "qualities": "floats", "popularities": "floats", "frame": "floats"},
    "CovarianceFactors": {"factors": "floats"},
    "CovariancePairs": {"covariances": "floats", "weights": "floats"},
}  # fmt: skip


# --- canonical msgpack: the shortest form of each value ---------------------------------------------------------


def pack_uint(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    for marker, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        if value < 1 << 8 * size:
            return bytes([marker]) + value.to_bytes(size, "big")
    raise ValueError(value)


def pack_bin(data: bytes) -> bytes:
    for marker, size in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
        if len(data) < 1 << 8 * size:
            return bytes([marker]) + len(data).to_bytes(size, "big") + data
    raise ValueError(len(data))


def pack(*parts: int | bytes) -> bytes:
    """Pack an array of fewer than sixteen ints and byte strings."""
    packed = [pack_uint(part) if isinstance(part, int) else pack_bin(part) for part in parts]
    return bytes([0x90 + len(parts)]) + b"".join(packed)


def framed(*parts: int | bytes, head: bytes = NO_HEAD) -> bytes:
    """Make the frame of such an array."""
    return pack(*parts) + head


# --- identifiers and counts of the compact wire, as one large integer in little-endian order -------------------------


def bits_of(largest: int) -> int:
    """Return the bits of each number up to `largest`; never fewer than eight."""
    return max(8, len(f"{largest:b}"))


def pack_numbers(numbers: Sequence[int], largest: int) -> bytes:
    bits = bits_of(largest)
    if max(numbers, default=0) >> bits:
        raise ValueError(f"{max(numbers)} does not fit into {bits} bits")
    total = sum(number << place * bits for place, number in enumerate(numbers))
    return total.to_bytes((len(numbers) * bits + 7) // 8, "little")


def pack_identifiers(ids: Sequence[int], n: int) -> bytes:
    """Pack identifiers one by one, or as the sum of 2^id if that is not longer."""
    listed, longest = (len(ids) * bits_of(n - 1) + 7) // 8, (n + 7) // 8
    if listed < longest:
        return pack_numbers(ids, n - 1)
    if len(set(ids)) < len(ids) or list(ids) != sorted(ids) or max(ids) >= 8 * longest:
        raise ValueError("a sum of powers cannot say that")
    return sum(1 << one for one in ids).to_bytes(longest, "little")


# --- plain Python content (ints, bytes, lists) <-> what travels, and what the message object holds ----------------


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What the bytes of a field depend on, besides its content."""

    ring_bits: int = 8
    factor_bits: int = 32
    packed: tuple[int, int] | None = None  # the numbers of users and items; None: 32-bit words
    base: int = 0  # the base of digits


def on_the_wire(how: str, content: Any, form: Form) -> int | bytes:
    if how in ("count", "bytes32"):
        return content  # type: ignore[no-any-return]
    if how == "keys":
        return b"".join(content)
    if how == "grades":
        return bytes(content)
    if how == "digits":
        total = sum(int(digit) * form.base**place for place, (digit,) in enumerate(content))
        return total.to_bytes(-(-(form.base ** len(content) - 1).bit_length() // 8), "little")
    if how in ("counts", "users", "items", "places"):
        return identifiers(how, content, form.packed)
    if how == "reals":
        return struct.pack(f"<{len(content)}d", *content)
    if how == "elements":
        return struct.pack(f"<{len(content)}Q", *content)
    numbers = [number for row in content for number in row]
    if how in ("floats", "factors"):
        letter = "e" if how == "factors" and form.factor_bits == 16 else "f"
        return struct.pack(f"<{len(numbers)}{letter}", *numbers)
    return b"".join(number.to_bytes(form.ring_bits // 8, "little") for number in numbers)


def identifiers(how: str, content: Sequence[int], packed: tuple[int, int] | None) -> bytes:
    if packed is None:
        return struct.pack(f"<{len(content)}I", *content)
    n_users, n_items = packed
    if how in ("counts", "places"):
        return pack_numbers(content, n_users if how == "counts" else n_items)
    return pack_identifiers(content, n_users if how == "users" else n_items)


def frame_of(
    scheme: str, kind: str, sequence: int, contents: Sequence[Any], form: Form, head: bytes = NO_HEAD
) -> bytes:
    fields = FIELDS[kind].values()
    body = [on_the_wire(how, content, form) for how, content in zip(fields, contents, strict=True)]
    return framed(code_of(scheme, kind), sequence, *body, head=head)


def form_of(params: Any) -> Form:
    packed = (params.n_users, params.n_items) if params.wire == "compact" else None
    return Form(params.ring_bits, params.factor_bits, packed)


def written(scheme: str, message: Any, sequence: int, form: Form) -> bytes:
    """Write the frame of a message, even if the codec would not; raise ValueError if there is no such frame."""
    kind = type(message).__name__
    values = [getattr(message, name) for name in FIELDS[kind]]
    contents = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    return frame_of(scheme, kind, sequence, contents, form)


def code_of(scheme: str, kind: str) -> int:
    return [*KINDS[scheme], "Again"].index(kind)


def dtype_of(how: str, ring_bits: int) -> Any:
    if how in ("floats", "factors", "digits"):
        return np.float32
    if how == "grades":
        return np.uint8
    if how == "reals":
        return np.float64
    return np.uint64 if how == "elements" or (how == "ring" and ring_bits > 32) else np.uint32


def in_memory(how: str, content: Any, ring_bits: int, dim: int) -> Any:
    if how in ("count", "bytes32"):
        return content
    if how == "keys":
        return tuple(content)
    array = np.array(content, dtype_of(how, ring_bits))
    return array.reshape(-1, dim) if how in ("floats", "factors", "ring", "digits") else array


def message_of(cls: type, contents: Sequence[Any], ring_bits: int, dim: int) -> Any:
    fields = FIELDS[cls.__name__].values()
    return cls(*(in_memory(how, content, ring_bits, dim) for how, content in zip(fields, contents, strict=True)))


def assert_holds(message: Any, contents: Sequence[Any], ring_bits: int, dim: int) -> None:
    """Check that the message has exactly these contents, in the types that a role computes with."""
    kinds = FIELDS[type(message).__name__]
    assert [field.name for field in dataclasses.fields(message)] == list(kinds)
    for (name, how), content in zip(kinds.items(), contents, strict=True):
        value = getattr(message, name)
        if how in ("count", "bytes32"):
            assert type(value) is type(content) and value == content, name
        elif how == "keys":
            assert value == tuple(content), name
        else:
            expected = in_memory(how, content, ring_bits, dim)
            assert value.dtype == expected.dtype and value.shape == expected.shape, name
            assert value.tobytes() == expected.tobytes(), name
