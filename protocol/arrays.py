"""The types of arrays, each under one name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]  # in one dimension
Matrix = npt.NDArray[np.float64]  # in two
Floats32 = npt.NDArray[np.float32]  # numbers as they travel
RealArray = npt.NDArray[Any]  # float64 in a role, float32 on the wire
RingArray = npt.NDArray[Any]  # uint32 or uint64, every entry below P
FieldArray = npt.NDArray[np.uint64]  # every entry below the prime
Integers = npt.NDArray[np.int64] | npt.NDArray[np.float64]  # floats are integral
Ids = npt.NDArray[np.uint32]  # users or items, and what travels in their type
Counts = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]  # other whole numbers
Places = npt.NDArray[np.integer]  # in an array
Flags = npt.NDArray[np.bool_]
Levels = npt.NDArray[np.uint8]  # of a rating scale: 0 is a missing rating
