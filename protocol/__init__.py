"""The names that a custom scheme imports, in one place.

    from protocol import Leak, Masked, Send

Each name is imported when it is accessed, so that a user's process loads nothing that its role does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.arithmetic.fixedpoint import FixedPoint
    from protocol.arithmetic.ring import Label
    from protocol.arithmetic.tape import Tape
    from protocol.errors import BadInput, Reason
    from protocol.params import Params, declared
    from protocol.party.role import (
        RECOMMENDER,
        THIRD_PARTY,
        Done,
        Role,
        Send,
        UserInput,
        expect,
        require,
        role_of,
        user_index,
        user_name,
    )
    from protocol.schemes.base import Leak, Scheme, Setting, Shape, Weakness
    from protocol.schemes.factorization.direct import Direct
    from protocol.schemes.factorization.dynamic import Dynamic
    from protocol.schemes.factorization.masked import Masked
    from protocol.schemes.factorization.plain import Plain
    from protocol.schemes.factorization.trusted import Trusted
    from protocol.wire.fields import ItemIds, RingRows
    from protocol.wire.framing import Flow, Frames
    from protocol.wire.messages import SETUP, Hello

__all__ = [
    "RECOMMENDER",
    "SETUP",
    "THIRD_PARTY",
    "BadInput",
    "Direct",
    "Done",
    "Dynamic",
    "FixedPoint",
    "Flow",
    "Frames",
    "Hello",
    "ItemIds",
    "Label",
    "Leak",
    "Masked",
    "Params",
    "Plain",
    "Reason",
    "RingRows",
    "Role",
    "Scheme",
    "Send",
    "Setting",
    "Shape",
    "Tape",
    "Trusted",
    "UserInput",
    "Weakness",
    "declared",
    "expect",
    "require",
    "role_of",
    "user_index",
    "user_name",
]

_WHERE = {
    "arithmetic.fixedpoint": ("FixedPoint",),
    "arithmetic.ring": ("Label",),
    "arithmetic.tape": ("Tape",),
    "errors": ("BadInput", "Reason"),
    "params": ("Params", "declared"),
    "party.role": (
        "RECOMMENDER",
        "THIRD_PARTY",
        "Done",
        "Role",
        "Send",
        "UserInput",
        "expect",
        "require",
        "role_of",
        "user_index",
        "user_name",
    ),
    "schemes.base": ("Leak", "Scheme", "Setting", "Shape", "Weakness"),
    "schemes.factorization.direct": ("Direct",),
    "schemes.factorization.dynamic": ("Dynamic",),
    "schemes.factorization.masked": ("Masked",),
    "schemes.factorization.plain": ("Plain",),
    "schemes.factorization.trusted": ("Trusted",),
    "wire.fields": ("ItemIds", "RingRows"),
    "wire.framing": ("Flow", "Frames"),
    "wire.messages": ("SETUP", "Hello"),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"protocol.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
