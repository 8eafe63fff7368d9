"""The state of an absent user's party as bytes, from which, together with its seat, the same party is restored.

Only plain values and arrays are stored. Values that the seat and the parameters of the run determine are left out; a
party whose role holds anything else is not stored at all, and stays in memory.
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
from protocol.schemes.factorization.honest_reach import HonestReach

_SEATED = (Setting, Params, Tape, UserInput, FixedPoint, HonestReach)  # restored from the seat
_ARRAY = 1


class Unknown(TypeError):
    """A value of a kind that cannot be stored."""


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


def _array(value: Any) -> msgpack.ExtType:
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise Unknown(type(value).__name__)
    return msgpack.ExtType(_ARRAY, msgpack.packb([value.dtype.str, value.shape, value.tobytes()]))


def _made(code: int, data: bytes) -> np.ndarray:
    kind, shape, content = msgpack.unpackb(data)
    return np.frombuffer(content, kind).reshape(shape).copy()
