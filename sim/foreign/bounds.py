"""Bounds of what a run folder may say, checked before a number in it decides how much memory is taken."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

from msgspec import Meta

from protocol.params import Params
from sim.foreign.untrusted import MOST_NUMBERS, fit

MOST_PARTIES = 10**6  # their names are listed in memory
MOST_ITEMS = 10**7
MOST_WHOLE = 2**53  # any other whole number
MOST_REAL = 1e30  # any other number of the parameters

Whole = Annotated[int, Meta(ge=-MOST_WHOLE, le=MOST_WHOLE)]
Count = Annotated[int, Meta(ge=0, le=MOST_WHOLE)]
Real = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # neither infinite nor NaN
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


def check_params(params: Params) -> None:
    """Check the type and the range of every parameter; `ValueError` says which one is wrong."""
    values = dataclasses.asdict(params)
    fit(values, type(params))
    wrong = [name for name, _ in params.faults()]
    sizes = {
        "n_users": params.n_users <= MOST_PARTIES,
        "n_items": params.n_items <= MOST_ITEMS,
        "dim": params.dim * params.n_items <= MOST_NUMBERS,
    }
    wrong += [name for name, fits in sizes.items() if not fits]
    wrong += [name for name, value in values.items() if not _is_sound(value, name == "epsilon")]
    if wrong:
        raise ValueError(f"`$.{wrong[0]}` is out of range")


def _is_sound(value: object, infinite: bool) -> bool:
    """Tell whether a number is one that arithmetic can go on with; `infinite` if it may be that."""
    if isinstance(value, int):
        return 0 <= value <= MOST_WHOLE
    return not isinstance(value, float) or infinite or abs(value) <= MOST_REAL
