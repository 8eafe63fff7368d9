"""The interface of a scheme: its roles, its messages, its claims, and what each party is allowed to learn.

Subclass `Scheme` for a protocol of your own and run it with `--scheme your.module:YourScheme`. The subclass needs its
texts, its messages in a fixed order, its leakage policy, `make_role` and `formula`.

What its roles must agree on beyond `Params` is a field of a subclass of it, which `params_class` names: `declared` says
which values a field may have, the sentence for any other, and the value where none is given. `make_params` fills the
fields from the flags and `options` of the same names; a scheme overrides it only where a field follows from the data.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.reals import Reals
from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Envelopes, Tape
from protocol.arrays import Counts, Flags
from protocol.attendance import Course
from protocol.params import Params
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Role, UserInput
from protocol.wire.codec import Codec
from protocol.wire.framing import ANSWERING_BYTES, DIALLING_BYTES, HANDSHAKE, Flow, Frames
from protocol.wire.messages import SETUP

# what a party may be able to derive about other users' numbers; a role that `permits` does not name may derive nothing
LEVELS = ("nothing", "aggregate", "noisy-individual", "exact-individual")

DELTA = 1e-5  # the δ at which an accounted ε is stated, unless it is exact at δ = 0


@dataclass(frozen=True, slots=True)
class Leak:
    """A field of a message that its receiver may learn; `words` tell the person what that means."""

    receiver: str
    kind: str
    field: str
    words: str
    uniform: bool = False  # to its receiver alone, every value is uniform on Z_P and independent of all others
    follows: bool = False  # it is chosen by released, noisy numbers, so that its content and length may follow them
    support: bool = False  # it has an entry for each item that its user rated, so that content and length follow them


class Weakness(str):
    """The id of a finding that a scheme knows of, with whom it is about, its bound, and its first iteration.

    `of` names coalitions by their roles ("recommender", "recommender+user"); a larger coalition is meant too, and
    without any all parties are. A finding beyond `most`, or before iteration `since`, is not declared. Where a
    plain text stands in place of a `Weakness`, any party may have it without a bound.
    """

    of: tuple[frozenset[str], ...]
    most: float
    since: int

    def __new__(cls, id_: str, *of: str, most: float = math.inf, since: int = 0) -> Weakness:
        made = super().__new__(cls, id_)
        made.of = tuple(frozenset(names.split("+")) for names in of)
        made.most, made.since = most, since
        return made

    def covers(self, roles: Collection[str], amount: float | None, iteration: int | None) -> bool:
        """Tell whether it declares a finding of `amount`, first seen in `iteration`, by parties with these `roles`."""
        if self.of and not any(coalition <= set(roles) for coalition in self.of):
            return False
        return (amount is None or amount <= self.most) and (iteration is None or iteration >= self.since)

    def document(self) -> dict[str, Any]:
        """Return it as JSON; `parties` is empty if it is about any, and `most` null if it has no bound."""
        parties = ["+".join(sorted(coalition)) for coalition in self.of]
        most = None if math.isinf(self.most) else self.most
        return {"id": str(self), "parties": parties, "most": most, "since": self.since}


class ItemFeatures(NamedTuple):
    """Public facts about items, a row for each: flags such as genres, and numbers such as a year."""

    flags: Flags
    numbers: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shape:
    """The public facts of the data: sizes, the rating range, the numbers of ratings of users and items."""

    n_users: int
    n_items: int
    rating_range: tuple[float, float]
    support_sizes: tuple[int, ...]  # n_i, per user
    raters: npt.NDArray[np.int64]  # k_j, per item
    step: float | None = None  # every rating is the least one plus a multiple of it; None: no such grid is known
    features: ItemFeatures | None = None  # public descriptions of the items, if the scheme takes them

    @property
    def max_raters(self) -> int:
        return int(self.raters.max())

    @property
    def rated_items(self) -> int:
        return int((self.raters > 0).sum())


@dataclass(frozen=True, slots=True)
class Setting:
    """The arguments of a role besides its input and tape."""

    params: Params
    run_id: bytes
    ring: Ring
    reals: Reals = field(default_factory=Reals, compare=False)
    envelopes: Envelopes = field(default_factory=Envelopes, compare=False)  # a shared cache of pure results


class Scheme(ABC):
    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    unit: ClassVar[str]  # what a published ε refers to
    claims: ClassVar[str]  # as published: a claim, not a measurement
    known_weaknesses: ClassVar[tuple[str, ...]] = ()  # ids of findings; `Weakness` adds a party and a bound
    leakage: ClassVar[tuple[Leak, ...]] = ()
    permits: ClassVar[dict[str, str]] = {}  # role -> the highest of `LEVELS` that it may reach alone
    messages: ClassVar[tuple[type, ...]]  # Hello first; the index is the kind on the wire
    servers: ClassVar[tuple[str, ...]] = (RECOMMENDER, THIRD_PARTY)  # an earlier one connects to the later ones
    flags: ClassVar[frozenset[str]] = frozenset()  # of `keyhole run`, beyond those that every scheme takes
    params_class: ClassVar[type[Params]] = Params  # with the fields that a family adds
    factorizes: ClassVar[bool] = False  # user and item factors by gradient steps: --dim, --iterations, baseline `plain`
    rounds: ClassVar[int] = 1  # the iterations of a scheme that does not factorize
    trust: ClassVar[dict[str, str]] = {}  # choice of `--trust` -> the scheme that it means
    goes_on_without: ClassVar[bool] = False  # the others do not wait for a user that has gone
    can_wait: ClassVar[frozenset[str]] = frozenset()  # kinds of messages that an absent user may receive on its return
    options: ClassVar[dict[str, Any]] = {}  # set by `--set`, with their defaults; None: follows from the others

    @classmethod
    def weaknesses(cls) -> list[Weakness]:
        """List the `known_weaknesses`, those that are plain texts for any party and without a bound."""
        return [one if isinstance(one, Weakness) else Weakness(one) for one in cls.known_weaknesses]

    @classmethod
    def weakness_ids(cls) -> list[str]:
        return list(dict.fromkeys(map(str, cls.known_weaknesses)))

    def make_params(self, shape: Shape, **settings: Any) -> tuple[Params, list[str]]:
        """Make the parameters of a run, and sentences for the person; raise `BadInput` for impossible `settings`."""
        names = {one.name for one in dataclasses.fields(self.params_class)}
        options = {name: default for name, default in self.options.items() if name in names}
        low, high = shape.rating_range
        facts = {"n_users": shape.n_users, "n_items": shape.n_items, "rating_min": low, "rating_max": high}
        given = {"scheme": self.name, **facts, "iterations": self.rounds, **options, **settings}
        return self.params_class.make(**given), []

    @abstractmethod
    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role: ...

    def longer_fields(self, params: Params) -> dict[str, int]:
        """Map each message field that may have more entries than there are items to the most that it has."""
        return {}

    def max_frame(self, params: Params) -> int:
        """Bound the bytes of any message of a run with `params`."""
        return Frames(params).largest(self.messages, self.longer_fields(params))

    def rehearsed(self, params: Params) -> Params:
        """Prepare for the roles of a run with `params`, and return those of an exchange of few users before it."""
        return params

    @abstractmethod
    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        """Yield every message of a run that takes this `course`, and its bytes, by closed formula."""

    def items_of(self, params: Params, raters: Counts, invited: Counts, contributing: Counts) -> tuple[Flags, Flags]:
        """Find (items that an iteration is about, items that it moves) from the number of users that rated each item:
        of all users (`raters`), of the `invited` and of the `contributing`."""
        return raters > 0, raters > 0

    def unmasked(self, params: Params) -> str:
        """Return the one of `LEVELS` that all servers together reach in a scheme that declares `unmasking`."""
        return "noisy-individual"

    def sizes_vary(self, params: Params) -> bool:
        """Return True if bytes depend on random draws, so that a prediction before a run is an expectation."""
        return False

    def predict(self, params: Params, course: Course) -> Iterator[Flow]:
        """Yield connections and messages: a user connects to every server, a server to those after it."""
        for at, server in enumerate(self.servers):
            users = course.greeted if course.in_turns and server == THIRD_PARTY else course.joined
            for client, number in (("user", users), *((other, 1) for other in self.servers[:at])):
                yield Flow(SETUP, client, server, HANDSHAKE, number, DIALLING_BYTES)
                yield Flow(SETUP, server, client, HANDSHAKE, number, ANSWERING_BYTES)
        yield from self.formula(params, course)

    def names_support(self, params: Params, leak: Leak) -> bool:
        """Tell whether a field is declared to follow which items its user rated, in a run with `params`."""
        return leak.support

    def unprotected(self, params: Params) -> tuple[Scheme, Params]:
        """Return the same pipeline without protection, as the baseline of a scheme that does not factorize.

        If `factorizes` is true, the baseline is `plain` and this is never called.
        """
        return self, dataclasses.replace(params, epsilon=math.inf)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        """Compute what composition and known randomness leave of the claim: at least `epsilon`, `delta`, `method`."""
        return {"epsilon": None, "delta": DELTA, "method": "nothing is claimed, so nothing is accounted"}

    def make_codec(self, params: Params) -> Codec:
        return Codec(self.messages, params, self.max_frame(params))

    def parties(self) -> tuple[str, ...]:
        return ("user", *self.servers)
