"""The types of arrays, each under one name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Levels = npt.NDArray[np.uint8]  # of a rating scale: 0 is a missing rating
