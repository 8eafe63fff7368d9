"""The types of arrays, each under one name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]  # other whole numbers, such as places
Flags = npt.NDArray[np.bool_]
Levels = npt.NDArray[np.uint8]  # of a rating scale: 0 is a missing rating
