"""The state of a party as bytes, for a user who is away: with its seat, they make the same party again.

Only plain values and arrays are put down. What a seat and the parameters of the run make anyway is left out; a role
that holds something else is not put down at all, and stays where it is.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.tape import Tape
from protocol.params import Params
from protocol.party.party import Party
from protocol.party.role import UserInput
from protocol.schemes.base import Setting

_SEATED = (Setting, Params, Tape, UserInput, FixedPoint)  # made again with the seat
_ARRAY = 1


class Unknown(TypeError):
    """A value of a kind that is not put down."""


def put_down(party: Party) -> bytes | None:
    """None if it is done, or its role holds what cannot be put down."""
    if party.done:
        return None
    view = party.view and [party.view.head, party.view.records]
    role = {name: value for name, value in vars(party.role).items() if not isinstance(value, _SEATED)}
    try:
        return msgpack.packb([role, party.exchanged(), view], default=_array, strict_types=True)  # type: ignore[no-any-return]
    except Unknown:
        return None


def take_up(party: Party, data: bytes) -> None:
    """`party` was made from the same seat and has done nothing yet; the view goes on where it stood."""
    role, exchanged, view = msgpack.unpackb(data, ext_hook=_made, strict_map_key=False)
    if party.view and view:
        party.view.head, party.view.records = view
    for name, value in role.items():
        setattr(party.role, name, value)
    party.go_on_from(exchanged)


def _array(value: Any) -> msgpack.ExtType:
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise Unknown(type(value).__name__)
    return msgpack.ExtType(_ARRAY, msgpack.packb([value.dtype.str, value.shape, value.tobytes()]))


def _made(code: int, data: bytes) -> np.ndarray:
    kind, shape, content = msgpack.unpackb(data)
    return np.frombuffer(content, kind).reshape(shape).copy()
