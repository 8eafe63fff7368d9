"""A scheme: which roles there are, what they exchange, what is claimed, and what each party is allowed to learn.

Subclass `Scheme` for a protocol of your own and run it with `--scheme your.module:YourScheme`. It needs its
texts, its messages in a fixed order, its leakage policy, `make_role`, `max_frame` and `predict`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from protocol.codec import Codec
from protocol.framing import Traffic
from protocol.params import Params, make_params
from protocol.ring import Ring
from protocol.roles import RECOMMENDER, THIRD_PARTY, Role, UserInput
from protocol.tape import Envelopes, Tape

DELTA = 1e-5  # at which every accounted ε is stated


@dataclass(frozen=True, slots=True)
class Leak:
    """The receiver may learn this field; `words` say what that means for a person."""

    receiver: str
    kind: str
    field: str
    words: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What everybody may know of the data: sizes, the rating range, how many ratings users and items have."""

    n_users: int
    n_items: int
    rating_range: tuple[float, float]
    support_sizes: tuple[int, ...]  # n_i, per user
    raters: npt.NDArray[np.int64]  # k_j, per item

    @property
    def max_raters(self) -> int:
        return int(self.raters.max())

    @property
    def rated_items(self) -> int:
        return int((self.raters > 0).sum())

    def users_by_support(self) -> list[tuple[int, int]]:
        """(n_i, how many users have it): users with equally many items exchange equally long messages."""
        return sorted(Counter(self.support_sizes).items())


@dataclass(frozen=True, slots=True)
class Setting:
    """What a role is given besides its own input and tape."""

    params: Params
    run_id: bytes
    ring: Ring
    envelopes: Envelopes = field(default_factory=Envelopes, compare=False)  # a shared memory of pure results


class Scheme(ABC):
    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    unit: ClassVar[str]  # what a published ε refers to
    claims: ClassVar[str]  # as published: a claim, not a measurement
    known_weaknesses: ClassVar[tuple[str, ...]] = ()
    leakage: ClassVar[tuple[Leak, ...]] = ()
    messages: ClassVar[tuple[type, ...]]  # Hello first; the index is the kind on the wire
    servers: ClassVar[tuple[str, ...]] = (RECOMMENDER, THIRD_PARTY)  # an earlier one connects to the later ones
    flags: ClassVar[frozenset[str]] = frozenset()  # of `keyhole run`, beyond those that every scheme takes
    params_class: ClassVar[type[Params]] = Params  # with the fields that a scheme adds
    goes_on_without: ClassVar[bool] = False  # a user that has gone: the others do not wait for it
    options: ClassVar[dict[str, Any]] = {}  # of `--set`, with their defaults; None: follows from the others

    def make_params(self, shape: Shape, **settings: Any) -> tuple[Params, list[str]]:
        """The parameters of a run, and sentences for the person; `BadInput` where they cannot be."""
        return make_params(
            scheme=self.name,
            n_users=shape.n_users,
            n_items=shape.n_items,
            rating_range=shape.rating_range,
            max_raters=shape.max_raters,
            **settings,
        )

    @abstractmethod
    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role: ...

    @abstractmethod
    def max_frame(self, params: Params) -> int:
        """No message of a run with these parameters is longer."""

    @abstractmethod
    def predict(self, params: Params, shape: Shape) -> list[Traffic]:
        """The traffic of a whole run by closed formula, when everyone stays online."""

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        """What composition and known randomness leave of the claim; at least `epsilon`, `delta` and `method`."""
        return {"epsilon": None, "delta": DELTA, "method": "nothing is claimed, so nothing is accounted"}

    def make_codec(self, params: Params) -> Codec:
        return Codec(self.messages, Ring(params.ring_bits), params.dim, self.max_frame(params))

    def parties(self) -> tuple[str, ...]:
        return ("user", *self.servers)
