"""Bounds of what a run folder may say, checked before a number in it decides how much memory is taken."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Annotated

from msgspec import Meta, Struct

from protocol.params import (
    FACTOR_BITS,
    LEAST_RIDGE,
    MOST_DIM,
    MOST_ITERATIONS,
    MOST_SCALE,
    PUBLISHED,
    RING_BITS,
    WIRES,
    Params,
)
from sim.foreign.untrusted import MOST_NUMBERS, fit

MOST_PARTIES = 10**6  # their names are listed in memory
MOST_ITEMS = 10**7
MOST_WHOLE = 2**53  # any other whole number
MOST_FRACTION_BITS = 64

Whole = Annotated[int, Meta(ge=-MOST_WHOLE, le=MOST_WHOLE)]
Count = Annotated[int, Meta(ge=0, le=MOST_WHOLE)]
Real = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # neither infinite nor NaN
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
_NotNegative = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
_Rating = Annotated[float, Meta(ge=-MOST_SCALE, le=MOST_SCALE)]


class _Bounds(Struct):
    """The range of every parameter that all schemes have."""

    n_users: Annotated[int, Meta(ge=1, le=MOST_PARTIES)]
    n_items: Annotated[int, Meta(ge=1, le=MOST_ITEMS)]
    dim: Annotated[int, Meta(ge=1, le=MOST_DIM)]
    iterations: Annotated[int, Meta(ge=1, le=MOST_ITERATIONS)]
    rating_min: _Rating
    rating_max: _Rating
    epsilon: Annotated[float, Meta(gt=0)]
    learning_rate: _Positive
    user_regularisation: _NotNegative
    item_regularisation: _NotNegative
    clip: Annotated[float, Meta(gt=0, le=MOST_SCALE)]
    max_raters: Annotated[int, Meta(ge=1)]
    wire: str
    ring_bits: int
    fraction_bits: Annotated[int, Meta(ge=-MOST_FRACTION_BITS, le=MOST_FRACTION_BITS)]
    factor_bits: int
    dropout_allowance: Annotated[float, Meta(ge=0, lt=1)]
    min_contributors: Annotated[int, Meta(ge=1)]
    publish: str
    profile_ridge: float

    def __post_init__(self) -> None:
        fits = {
            "dim": self.dim * self.n_items <= MOST_NUMBERS,
            "rating_max": self.rating_min < self.rating_max,
            "max_raters": self.max_raters <= self.n_users,
            "wire": self.wire in WIRES,
            "ring_bits": self.ring_bits in RING_BITS,
            "factor_bits": self.factor_bits in FACTOR_BITS,
            "min_contributors": self.min_contributors <= self.n_users,
            "publish": self.publish in PUBLISHED,
            "profile_ridge": self.profile_ridge == 0 or LEAST_RIDGE <= self.profile_ridge <= MOST_SCALE,
        }
        if wrong := [name for name, fit in fits.items() if not fit]:
            raise ValueError(f"`$.{wrong[0]}` is out of range")


def check_params(params: Params) -> None:
    """Check the type and the range of every parameter; `ValueError` says which one is wrong."""
    values = dataclasses.asdict(params)
    fit(values, type(params))
    fit(values, _Bounds)
    for name, value in values.items():  # integers that a scheme adds are counts, which are never below 0
        least = -MOST_WHOLE if name in _Bounds.__struct_fields__ else 0
        if (type(value) is int and not least <= value <= MOST_WHOLE) or (type(value) is float and math.isnan(value)):
            raise ValueError(f"`$.{name}` is out of range")
