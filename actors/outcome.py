"""What a driver tells about a run, while it goes on and when it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from actors.meter import Tally
from protocol.errors import Aborted


@dataclass(frozen=True, slots=True)
class IterationDone:
    iteration: int
    seconds: float
    contributors: int
    tally: Tally  # set-up comes with iteration 0


OnIteration = Callable[[IterationDone], None]


@dataclass(slots=True)
class Outcome:
    item_factors: npt.NDArray[np.float64] | None = None
    abort: Aborted | None = None
    views: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # party -> (records, head of the chain)
    rejected: Counter[str] = field(default_factory=Counter)
    rest: Tally = field(default_factory=Tally)  # traffic after the last iteration
    startup_seconds: float = 0.0
    processes: dict[str, int] = field(default_factory=dict)
    user_process_uss: list[int] = field(default_factory=list)  # bytes that each user process owned at its end
