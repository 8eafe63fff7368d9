"""The course of a run, as far as bytes depend on it: who was there, who was invited, who contributed.

A course is written down for groups of users. A group is one user where the sets are known (a run that was made), or all
users alike where they are expected (a run that is not made yet); so every number of users may be a fraction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]  # of users, one for each group


def spans(numbers: Iterable[int]) -> str:
    """A set of user numbers as a text: "0-39,41"."""
    ordered = np.array(sorted(numbers), np.int64)
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    if not len(ordered):
        return ""
    firsts, lasts = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, -1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True))


def read_spans(text: str) -> npt.NDArray[np.int64]:
    """The numbers again; ValueError if that is no such text."""
    parts = [np.zeros(0, np.int64)]
    for span in text.split(",") if text else ():
        first, dash, last = span.partition("-")
        parts.append(np.arange(int(first), int(last if dash else first) + 1))
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One iteration."""

    invited: Numbers
    contributors: Numbers
    present: Numbers  # who say before it that they have come
    absent: Numbers  # or gone
    opened: float  # items that are asked for
    released: float  # items that reach their floor


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """One attempt at the commitment to the objective noise."""

    asked: Numbers
    shares: Numbers  # items that each of these is asked for
    answered: Numbers  # whose answers came in time
    opened: float  # items without noise
    sealed: float  # items that have one now


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    supports: npt.NDArray[np.int64]  # n_i of the users of each group
    users: Numbers  # how many users each group has
    joined: Numbers  # who came at all
    welcomed: Numbers  # still there when everyone had joined
    greeted: Numbers  # who ever wrote to the third party
    finished: Numbers  # still there at the end
    turns: Iterable[Turn]
    attempts: tuple[Attempt, ...] = field(default=())
    cells: Numbers | None = None  # of each group: how many entries each of its users uploaded, where that is random
    in_turns: bool = False  # users connect to the third party when they write to it, not before
