"""The course of a run: the facts that its bytes depend on, such as which users were online, invited and contributed.

A course is recorded for groups of users. After a run the sets of users are known, and a group is a single user. Before
a run they are expected, and a group is all users with the same number of ratings; so a number of users may be a
fraction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats


def spans(numbers: Iterable[int]) -> str:
    """Write a set of user `numbers` as text: "0-39,41"."""
    ordered = np.array(sorted(numbers), np.int64)
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    if not len(ordered):
        return ""
    firsts, lasts = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, -1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True))


def read_spans(text: str) -> npt.NDArray[np.int64]:
    """Read back the numbers that `spans` wrote; raise ValueError if `text` cannot be parsed."""
    parts = [np.zeros(0, np.int64)]
    for span in text.split(",") if text else ():
        first, dash, last = span.partition("-")
        parts.append(np.arange(int(first), int(last if dash else first) + 1))
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One iteration."""

    invited: Floats
    contributors: Floats
    present: Floats  # users that announce before the iteration that they are online
    absent: Floats  # users that announce before the iteration that they have left
    opened: float  # items that are asked for
    released: float  # items that reach their floor
    proved: Floats | None = None  # users that sent a proof, where some may be refused; None: the contributors


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """One attempt at the commitment to the objective noise."""

    asked: Floats
    shares: Floats  # items that each asked user is asked for
    answered: Floats  # users whose answers came in time
    opened: float  # items without committed noise
    sealed: float  # those of them whose noise is committed now


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    supports: npt.NDArray[np.int64]  # n_i of the users of each group
    users: Floats  # the number of users of each group
    joined: Floats  # users that joined the run
    welcomed: Floats  # users still online when all had joined
    greeted: Floats  # users that ever wrote to the third party
    finished: Floats  # users still online at the end
    turns: Iterable[Turn]
    attempts: tuple[Attempt, ...] = field(default=())
    cells: Floats | None = None  # entries that each user of a group uploaded, if that number is random
    in_turns: bool = False  # users connect to the third party when they write to it, not before


def draw_invited(tape: Tape, iteration: int, users: list[int], limit: int) -> list[int]:
    """Draw at most `limit` of these users, anew in every iteration."""
    if len(users) <= limit:
        return users
    order = np.argsort(tape.normal(1, len(users), "invited", iteration)[0], kind="stable")
    return sorted(users[place] for place in order[:limit])
