"""What every role is: a deterministic function of its input, its tape and the messages it received."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.course import spans
from protocol.errors import Reason, Rejected
from protocol.messages import SETUP, Event, Message

RECOMMENDER = "recommender"
THIRD_PARTY = "third_party"


def user_name(index: int) -> str:
    return f"user:{index}"


def user_index(party: str) -> int:
    """The number in `user:17`, or -1 for a party that is no user."""
    role, _, number = party.partition(":")
    return int(number) if role == "user" and number.isdecimal() else -1


def role_of(party: str) -> str:
    return party.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Send:
    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Timer:
    """Deliver `Deadline(iteration)` to this role when the run's patience with that iteration ends."""

    iteration: int


@dataclass(frozen=True, slots=True)
class Done:
    """This role has finished. The result, where there is one, is re-derived on replay like any message."""

    result: npt.NDArray[np.float64] | None = None


Effects = Sequence[Send | Timer | Done]
Facts = dict[str, Any]  # texts, numbers, lists and dictionaries; sets of users as `course.spans` writes them


@dataclass(frozen=True, slots=True, eq=False)
class UserInput:
    """What a user brings: the training ratings, in the order of increasing items."""

    items: npt.NDArray[np.uint32]
    ratings: npt.NDArray[np.float64]


class Role(ABC):
    """`receive` returns effects, or raises `Rejected` and leaves the role exactly as it was."""

    iteration: int = SETUP  # the one that this role works on

    def start(self) -> Effects:
        return []

    @abstractmethod
    def receive(self, sender: str, message: Message) -> Effects: ...

    def tick(self, event: Event) -> Effects:
        """Something from outside the protocol, such as a deadline; a role ignores what does not concern it."""
        return []

    def work_ahead(self) -> None:  # noqa: B027 - most roles have nothing to do ahead
        """A driver may call it when everything that a step sends has left: what is sure to be needed is made now.

        Nothing that this role says or does may depend on whether it was called.
        """

    def facts(self) -> Facts:
        """For the person: what bytes depend on (`course.py`), of the iteration, or the set-up, that has just ended."""
        return {}

    def figures(self) -> Facts:
        """For the person, from a server at its end: what it found out on the way; `notes` are sentences to be read."""
        return {}


class PredictingUser(Role):
    """What the person may measure at a user without any message: how well it predicts ratings, its own or held out."""

    inputs: UserInput

    @abstractmethod
    def predict(self, items: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
        """Once this role has finished; the person clips them to the rating range."""


class FactorizingUser(Role):
    """The same of a user with factors of its own, which stay here: its predictions are u_i · v_j."""

    inputs: UserInput
    user_factors: npt.NDArray[np.float64]
    clipped: int = 0  # errors that were clipped to ±C so far
    last_errors: npt.NDArray[np.float64] | None = None  # e_ij of the latest iteration, unclipped


class LeadingRecommender(Role):
    """What the person may measure at a recommender: who took part in the last iteration."""

    last_invited: Collection[int] = ()
    last_contributors: Collection[int] = ()

    @property
    def n_invited(self) -> int:
        return len(self.last_invited)

    @property
    def n_contributors(self) -> int:
        return len(self.last_contributors)

    def facts(self) -> Facts:
        if self.iteration <= 0:
            return {}
        return {"invited": spans(self.last_invited), "contributors": spans(self.last_contributors)}


class FactorizingRecommender(LeadingRecommender):
    """And the item factors."""

    item_factors: npt.NDArray[np.float64]
    last_moved: npt.NDArray[np.uint32] | None = None  # the items whose sums were released


def expect(message: Message, *kinds: type) -> Any:
    if not isinstance(message, kinds):
        raise Rejected(Reason.WRONG_KIND)
    return message


def require(condition: Any, reason: Reason) -> None:
    if not condition:
        raise Rejected(reason)
