"""The base of every role: a deterministic function of its input, its tape and the messages that it received."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.factors import factor_limit
from protocol.arithmetic.ring import everywhere
from protocol.attendance import spans
from protocol.errors import Reason, Rejected, did_you_mean
from protocol.params import Params
from protocol.party.profile import Profile, fit_profile, predict
from protocol.wire.messages import SETUP, Event, Message, Publication

RECOMMENDER = "recommender"
THIRD_PARTY = "third_party"


def user_name(index: int) -> str:
    return f"user:{index}"


def user_index(party: str) -> int:
    """Return the number in `user:17`, or -1 for a party that is not a user."""
    role, _, number = party.partition(":")
    return int(number) if role == "user" and number.isdecimal() else -1


def nearest_party(name: str, parties: Collection[str]) -> str:
    """Suggest the one of `parties` that an unknown `name` may mean, to end a sentence with."""
    number = "".join(filter(str.isdigit, name))
    servers = [party for party in (RECOMMENDER, THIRD_PARTY) if party in parties]
    users = [user_name(int(number))] if number.isdecimal() and user_name(int(number)) in parties else []
    return did_you_mean(name, users or servers)


def users_without(n_users: int, heard: Container[int]) -> list[str]:
    """Name the users that are not in `heard`."""
    return [user_name(user) for user in range(n_users) if user not in heard]


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
Facts = dict[str, Any]  # texts, numbers, lists and dictionaries; sets of users as `attendance.spans` writes them


@dataclass(frozen=True, slots=True, eq=False)
class UserInput:
    """The input of a user: its training ratings, in the order of increasing items."""

    items: npt.NDArray[np.uint32]
    ratings: npt.NDArray[np.float64]


class Machine:
    """A part of a role whose attributes belong to the state of the role, all but the `derived` ones."""

    derived: ClassVar[frozenset[str]] = frozenset()  # caches, and what follows from the other attributes


class Role(ABC):
    """`receive` returns effects, or raises `Rejected` and leaves the role exactly as it was."""

    restorable: ClassVar[bool] = False  # its attributes are its whole state (`freeze.py`); a subclass says so itself
    iteration: int = SETUP  # that this role works on

    def start(self) -> Effects:
        return []

    @abstractmethod
    def receive(self, sender: str, message: Message) -> Effects: ...

    def tick(self, event: Event) -> Effects:
        """Handle an `event` from outside the protocol, such as a deadline; a role ignores events of other kinds."""
        return []

    def work_ahead(self) -> None:  # noqa: B027 - most roles have nothing to do ahead
        """Compute values that are sure to be needed; a driver may call it when all frames of a step have left.

        Nothing that this role sends or decides may depend on whether it was called.
        """

    def awaited(self) -> Sequence[str]:
        """Name the parties that this role is waiting for, to tell the person why nothing moves."""
        return ()

    def facts(self) -> Facts:
        """Report the facts that bytes depend on (`attendance.py`), for the iteration or set-up that has just ended."""
        return {}

    def figures(self) -> Facts:
        """Report, at the end of a server, figures that it found on the way; `notes` are sentences for the person."""
        return {}


class PredictingUser(Role):
    """A user whose predictions of ratings, its own or held out, the person may measure without any message."""

    inputs: UserInput
    popularity: npt.NDArray[np.float64] | None = None  # noisy counts of every item's raters, if they are published

    def awaited(self) -> Sequence[str]:
        return (RECOMMENDER,)

    @abstractmethod
    def predict(self, items: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
        """Predict the ratings of `items` once this role has finished; the caller clips them to the rating range."""


class FactorizingUser(Role):
    """A user with factors of its own, which it does not send; its predictions u_i · v_j may be measured likewise.

    It receives the item factors at the end, fits its profile to them and predicts.
    """

    params: Params
    inputs: UserInput
    ridge: float  # λ' of its profile; 0: it chooses λ' itself
    user_factors: npt.NDArray[np.float64]  # u_i of the latest iteration
    popularity: npt.NDArray[np.float64] | None = None
    profile: Profile | None = None  # fitted locally to the published factors
    published: npt.NDArray[np.float64] | None = None  # v_j of all items, or of its own
    clipped: int = 0  # errors that were clipped to ±C so far
    last_errors: npt.NDArray[np.float64] | None = None  # e_ij of the latest iteration, unclipped

    def awaited(self) -> Sequence[str]:
        return (RECOMMENDER,)

    def take_publication(self, sender: str, message: Message) -> None:
        """Fit the profile to the published factors, once."""
        publication, params, items = expect(message, Publication), self.params, self.inputs.items
        limit = factor_limit(params.factor_bits)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        require(publication.iteration == params.iterations, Reason.WRONG_ITERATION)
        require(self.published is None, Reason.DUPLICATE)
        complete = params.publish == "all"
        require(len(publication.factors) == (params.n_items if complete else len(items)), Reason.WRONG_LENGTH)
        require(everywhere(np.abs(publication.factors) <= limit), Reason.OUT_OF_RANGE)
        published = publication.factors.astype(np.float64)
        own = published[items] if complete else published
        self.profile = fit_profile(own, self.inputs.ratings, params.rating_range, self.ridge)
        self.published = published

    def predictions(self) -> npt.NDArray[np.float64]:
        """Predict the rating of every item that was published; this ends the user's view."""
        assert self.published is not None and self.profile is not None
        return predict(self.published, self.profile.factors, self.params.rating_range)


class LeadingRecommender(Role):
    """A recommender at which the person may measure which users took part in the last iteration."""

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
    """A recommender at which the person may also measure the item factors."""

    item_factors: npt.NDArray[np.float64]
    profiles: npt.NDArray[np.float64] | None = None  # u_i of every user, where the recommender has trained them itself
    last_moved: npt.NDArray[np.uint32] | None = None  # the items whose sums were released


def expect(message: Message, *kinds: type) -> Any:
    if not isinstance(message, kinds):
        raise Rejected(Reason.WRONG_KIND)
    return message


def require(condition: Any, reason: Reason) -> None:
    if not condition:
        raise Rejected(reason)
