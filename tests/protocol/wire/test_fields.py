"""The table of field kinds: formula and codec agree on the bytes of each, and a formula cannot leave a field out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import pytest
from support.basics import params_of, shape_of
from support.wire import Form

from protocol.attendance import Attempt, Course, Turn
from protocol.schemes import SCHEMES, find_scheme
from protocol.wire import fields
from protocol.wire.codec import Codec
from protocol.wire.fields import FieldKind, RingRows
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import MaskedGradient, Publication

DIM, BASE, USERS, ITEMS = 3, 6, 700, 300
WIRES = ("compact", "paper")
SOME = (0, 1, 7, 8, 21, 31, 33, 63, 64, 255, 256, 300)

Make = Callable[[int], Any]


def ids(n: int) -> Any:
    return np.arange(n, dtype=np.uint32)


def threes(n: int) -> Any:
    return np.full(n, 3, np.uint32)


def rows(dtype: type) -> Make:
    return lambda n: np.ones((n, DIM), dtype)


CASES: dict[str, tuple[tuple[int, ...], Make]] = {  # numbers of entries to try, and a value with so many
    "CountField": ((*SOME, 127, 128, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**64 - 1), lambda n: n),
    "DigestField": ((1,), lambda n: bytes(32)),
    "KeysField": (SOME, lambda n: (bytes(32),) * n),
    "ItemsField": (SOME, ids),
    "UsersField": ((*SOME, 699, 700), ids),
    "PlacesField": ((*SOME, 5000), threes),
    "CountsField": (SOME, threes),
    "GradesField": (SOME, lambda n: np.ones(n, np.uint8)),
    "DigitsField": ((ITEMS,), lambda n: np.full((n, 1), BASE - 1, np.float32)),
    "ElementsField": (SOME, lambda n: np.ones(n, np.uint64)),
    "RealsField": ((*SOME, 2**13), np.ones),
    "FloatsField": (SOME, rows(np.float32)),
    "FactorsField": (SOME, rows(np.float32)),
    "RingField": (SOME, rows(np.uint32)),
}


def kinds_below(base: type) -> Iterator[type[FieldKind]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_below(kind)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("factor_bits", [32, 16])
@pytest.mark.parametrize("kind", list(kinds_below(FieldKind)), ids=lambda kind: kind.__name__)
def test_a_field_has_the_bytes_that_its_size_says_and_comes_back(kind, factor_bits, wire):
    params = dataclasses.replace(params_of(Form(24, factor_bits, (USERS, ITEMS), BASE), DIM), wire=wire)
    alone = dataclasses.make_dataclass("Alone", [("value", Annotated[Any, kind])])
    codec, frames = Codec((alone,), params, 1 << 17), Frames(params)
    entries, make = CASES[kind.__name__]
    for n in entries:
        frame = codec.encode(alone(make(n)), 1)
        assert len(frame) == frames.size(alone, 1, value=n), n
        back = codec.decode(frame)[1].value
        assert np.array_equal(back, make(n)) if isinstance(back, np.ndarray) else back == make(n)


@pytest.mark.parametrize("wire", WIRES)
def test_sizes_of_many_users_are_computed_at_once(wire):
    """`test_a_field_has…` checks single numbers; digits and digests are the same for all users."""
    params = dataclasses.replace(params_of(Form(24, 32, (USERS, ITEMS), BASE), DIM), wire=wire)
    for kind in kinds_below(FieldKind):
        entries, _ = CASES[kind.__name__]
        field, small = kind(params), [n for n in entries if n < 2**32]
        if len(small) > 1:
            assert field.size(np.array(small)).tolist() == [field.size(n) for n in small]


# --- a formula names all fields ------------------------------------------------------------------------------------


def test_a_message_class_with_one_more_field_makes_its_formula_fail():
    @dataclasses.dataclass(frozen=True, slots=True, eq=False)
    class Heavier(MaskedGradient):
        weights: RingRows

    frames = Frames(params_of(Form(32, 32, (USERS, ITEMS)), DIM))
    counted = {"iteration": 4, "items": 9, "values": 9}
    lighter = frames.size(MaskedGradient, 5, **counted)
    with pytest.raises(TypeError, match=r"Heavier .*: weights\."):
        frames.size(Heavier, 5, **counted)
    heavier = frames.size(Heavier, 5, **counted, weights=9)
    assert heavier == lighter + 2 + 9 * DIM * 4
    with pytest.raises(TypeError, match=r"MaskedGradient .*: weights\."):
        frames.size(MaskedGradient, 5, **counted, weights=9)


def flows(name: str, wire: str, **options: Any) -> list[Flow]:
    """Predict a run of the scheme in which every kind of message of this wire occurs."""
    scheme = find_scheme(name)
    flags = {key: value for key, value in (("wire", wire), ("epsilon", 8.0)) if key in scheme.flags}
    sizes = {"dim": 2, "iterations": 2} if scheme.factorizes else {}
    shape = shape_of([{0: 3.0, 1: 4.0}, {0: 1.0, 1: 2.0}, {0: 5.0, 1: 5.0}], 2)
    params, _ = scheme.make_params(shape, **sizes, **flags, **options)
    all_three = np.full(1, 3.0)
    turns = (Turn(all_three, all_three, all_three, all_three, 2, 2),) * params.iterations
    attempts = (Attempt(all_three, np.full(1, 2), all_three, 2, 2),)
    course = Course(np.full(1, 2), *(all_three,) * 5, turns, attempts)
    return list(scheme.formula(params, course))


SETTINGS = [
    (name, wire, options)
    for name, scheme in SCHEMES.items()
    for wire in (WIRES if "wire" in scheme.flags else WIRES[:1])
    for options in ({}, {"predictor": "knn"}, {"rounds": 2}, {"selected": 2}, {"proof": "norm"})
    if options.keys() <= scheme.options.keys()
]


@pytest.mark.parametrize(("name", "wire", "options"), SETTINGS, ids=str)
def test_a_field_that_is_added_to_any_message_makes_the_formula_of_the_scheme_fail(name, wire, options, monkeypatch):
    real = fields.field_kinds
    sent = {flow.kind for flow in flows(name, wire, **options)}
    assert len(sent) >= 3
    for cls in (one for one in SCHEMES[name].messages if one.__name__ in sent):
        added = {cls: (*real(cls), ("extra", fields.CountField))}
        with monkeypatch.context() as patch:
            patch.setattr(fields, "field_kinds", lambda one, added=added: added.get(one) or real(one))
            with pytest.raises(TypeError, match=rf"{cls.__name__} .*: extra\."):
                flows(name, wire, **options)


@pytest.mark.parametrize("name", SCHEMES)
def test_the_formula_knows_every_message_of_the_scheme(name):
    found = {flow.kind for one, wire, options in SETTINGS if one == name for flow in flows(name, wire, **options)}
    ungraded = {"RatingsHandover"} if name == "covariance" else set()  # ratings without a grid
    assert found == {cls.__name__ for cls in SCHEMES[name].messages} - ungraded


# --- the largest message -----------------------------------------------------------------------------------------


def test_the_limit_is_the_largest_message_with_a_value_in_every_entry():
    """[kind, number, iteration, bin of 4 bytes · 3 · 300]: 1 + 1 + 9 + 9 + (3 + 3600) bytes; a set of items is less."""
    frames = Frames(params_of(Form(32, 32, (USERS, ITEMS)), DIM))
    assert frames.largest((Publication,), {}) == 1 + 1 + 9 + 9 + 3 + 4 * DIM * ITEMS
    assert frames.largest((Publication,), {"factors": 2}) == 1 + 1 + 9 + 9 + 2 + 4 * DIM * 2
