"""What a driver tells about a run, while it goes on and when it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from actors.meter import Tally
from protocol.errors import Aborted
from protocol.messages import Event


@dataclass(frozen=True, slots=True)
class IterationDone:
    iteration: int
    seconds: float | None  # unknown for one that was read back from a view
    invited: int
    contributors: int
    tally: Tally  # set-up comes with iteration 0


OnIteration = Callable[[IterationDone], None]
EventsFor = Callable[[int], list[tuple[str, Event]]]  # what comes from outside before an iteration, and to whom


@dataclass(slots=True)
class Outcome:
    item_factors: npt.NDArray[np.float64] | None = None
    abort: Aborted | None = None
    views: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # party -> (records, head of the chain)
    rejected: Counter[str] = field(default_factory=Counter)
    strangers: Counter[str] = field(default_factory=Counter)  # connections that were refused, by kind
    rest: Tally = field(default_factory=Tally)  # traffic after the last iteration
    startup_seconds: float = 0.0
    restarts: int = 0
    gone: list[str] = field(default_factory=list)  # users whose processes ended and were not started again
    processes: dict[str, int] = field(default_factory=dict)
    user_process_uss: list[int] = field(default_factory=list)  # bytes that each user process owned at its end
