"""A deep copy that can be compared: arrays as bytes, so that damage done in place shows."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any

import numpy as np


def snapshot(thing: Any) -> Any:
    """Convert `thing` to nested tuples and lists; dictionaries keep their order, because roles depend on it."""
    if thing is None or isinstance(thing, (bool, int, float, str, bytes, type, Enum, np.dtype)):
        return (type(thing).__name__, thing)
    if isinstance(thing, (np.ndarray, np.generic)):
        return ("array", thing.dtype.str, thing.shape, thing.tobytes())
    if isinstance(thing, dict):
        return (type(thing).__name__, [(snapshot(key), snapshot(value)) for key, value in thing.items()])
    if isinstance(thing, (set, frozenset)):
        return (type(thing).__name__, sorted(snapshot(entry) for entry in thing))
    if isinstance(thing, (list, tuple, deque)):
        return (type(thing).__name__, [snapshot(entry) for entry in thing])
    return (type(thing).__name__, [(name, snapshot(getattr(thing, name))) for name in _attributes(thing)])


def _attributes(thing: Any) -> list[str]:
    slots = [name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())]
    names = [name for name in slots if hasattr(thing, name)] + list(getattr(thing, "__dict__", ()))
    if not names and type(thing).__dict__.get("__slots__") != ():  # empty slots say that it has no state
        raise TypeError(f"a {type(thing).__name__} cannot be looked into")
    return names
