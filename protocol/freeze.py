"""The state of a party as bytes, from which, together with its seat, the same party is restored.

Only plain values and arrays are stored. Values that the seat and the parameters of the run determine are left out; a
party whose role holds anything else is not stored at all: it stays in memory, or its view has no checkpoints.

`put_down` and `take_up` are for a user who waits its turn, in the process that stored it. `state_of` is what a
checkpoint of a view holds: it follows from the view alone, byte for byte, so that a replay finds any other; and
`restore` goes by what a new party of the seat has, never by what the bytes claim.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import msgpack
import numpy as np

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape
from protocol.params import Params
from protocol.party.party import Party
from protocol.party.role import Machine, UserInput
from protocol.party.view import MOST_CHECKPOINT_BYTES
from protocol.schemes.base import Setting
from protocol.schemes.factorization.honest_reach import HonestReach
from protocol.wire import messages

_SEATED = (Setting, Params, Tape, UserInput, FixedPoint, HonestReach, Ring)  # restored from the seat
_ARRAY, _TUPLE, _SET, _MESSAGE, _MACHINE = range(1, 6)


class Unknown(TypeError):
    """A value of a kind that cannot be stored."""


class Unfit(Exception):
    """The bytes are not the state of a party of this seat."""


# --- a user who waits its turn ---------------------------------------------------------------------------------------


def put_down(party: Party) -> bytes | None:
    """Store the state of `party`; return None if it is done, or if its role holds a value that cannot be stored."""
    if party.done:
        return None
    view = party.view and [party.view.head, party.view.records]
    role = {name: value for name, value in vars(party.role).items() if not isinstance(value, _SEATED)}
    try:
        return msgpack.packb([role, party.exchanged(), view], default=_array, strict_types=True)  # type: ignore[no-any-return]
    except Unknown:
        return None


def take_up(party: Party, data: bytes) -> None:
    """Restore the state `data` in `party`, a new party of the same seat; its view continues from the stored head."""
    role, exchanged, view = msgpack.unpackb(data, ext_hook=_made, strict_map_key=False)
    if party.view and view:
        party.view.head, party.view.records = view
    for name, value in role.items():
        setattr(party.role, name, value)
    party.go_on_from(exchanged)


# --- a checkpoint ----------------------------------------------------------------------------------------------------


class _State(NamedTuple):
    """The stored attributes of a machine."""

    attributes: dict[str, Any]


def state_of(party: Party) -> bytes | None:
    """Store the state of `party`; return None if it is done, or has a role that does not say that it is restorable."""
    if party.done or not vars(type(party.role)).get("restorable"):
        return None
    try:
        data: bytes = _packed([_attributes(party.role), party.settled()])
    except (Unknown, ValueError, OverflowError):
        return None
    return data if len(data) <= MOST_CHECKPOINT_BYTES else None


def restore(party: Party, data: bytes) -> None:
    """Restore the state `data` in `party`, a new party of the same seat; if it raises `Unfit`, `party` is of no use."""
    try:
        role, settled = msgpack.unpackb(data, ext_hook=_remade, strict_map_key=False)
        _put_back(party.role, role)
        party.settle(settled)
        same = state_of(party) == data
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise Unfit(f"{type(error).__name__}: {error}") from error
    if not same:
        raise Unfit("another state comes of it")


def _attributes(holder: object) -> dict[str, Any]:
    derived = holder.derived if isinstance(holder, Machine) else ()
    names = sorted(vars(holder))
    there = {name: getattr(holder, name) for name in names if name not in derived}
    return {name: value for name, value in there.items() if not isinstance(value, _SEATED)}


def _put_back(holder: object, attributes: dict[str, Any]) -> None:
    """Give `holder` its stored `attributes`; each must be one that it has, and of the kind that it has."""
    for name, value in attributes.items():
        before = getattr(holder, name)
        if isinstance(before, Machine) and type(value) is _State:
            _put_back(before, value.attributes)
        elif type(before) is set and type(value) is set:
            before.clear()  # in place, as another part of the role may hold the same set
            before.update(value)
        elif isinstance(before, (Machine, set, *_SEATED)) or callable(before) or not _alike(before, value):
            raise Unfit(f"{name} is of another kind")
        else:
            setattr(holder, name, value)


def _alike(before: Any, value: Any) -> bool:
    if before is None or value is None:
        return True
    if isinstance(before, np.ndarray) and isinstance(value, np.ndarray):
        shaped = before.shape == value.shape if before.size else before.ndim == value.ndim
        return before.dtype == value.dtype and shaped
    return type(before) is type(value)


# --- values ----------------------------------------------------------------------------------------------------------


def _packed(value: Any) -> bytes:
    return msgpack.packb(value, default=_stored, strict_types=True)  # type: ignore[no-any-return]


def _stored(value: Any) -> msgpack.ExtType:
    if type(value) is tuple:
        return msgpack.ExtType(_TUPLE, _packed(list(value)))
    if type(value) is set:
        return msgpack.ExtType(_SET, _packed(sorted(value)))
    if isinstance(value, Machine):
        return msgpack.ExtType(_MACHINE, _packed(_attributes(value)))
    if vars(messages).get(type(value).__name__) is type(value) and dataclasses.is_dataclass(value):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return msgpack.ExtType(_MESSAGE, _packed([type(value).__name__, fields]))
    if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
        raise Unknown("an array in another order, whose sums might be rounded otherwise")
    return _array(value)


def _remade(code: int, data: bytes) -> Any:
    if code == _ARRAY:
        return _made(code, data)
    value = msgpack.unpackb(data, ext_hook=_remade, strict_map_key=False)
    if code == _TUPLE:
        return tuple(value)
    if code == _SET:
        return set(value)
    if code == _MACHINE:
        return _State(dict(value))
    name, fields = value
    kind = vars(messages)[name] if code == _MESSAGE else None
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise ValueError(f"{name} is no message")
    return kind(*fields)


def _array(value: Any) -> msgpack.ExtType:
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise Unknown(type(value).__name__)
    return msgpack.ExtType(_ARRAY, msgpack.packb([value.dtype.str, value.shape, value.tobytes()]))


def _made(code: int, data: bytes) -> np.ndarray:
    kind, shape, content = msgpack.unpackb(data)
    return np.frombuffer(content, kind).reshape(shape).copy()
