"""A canary: the smallest run of a scheme, two users and one item in one dimension, played through its roles many times.

Messages are handed over as objects, every repetition has fresh tapes, and in every second repetition user 0 gave the
greatest rating instead of the least: the two neighbouring data sets of the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Name, Tape, derive
from protocol.arrays import Floats, Ids, RingArray
from protocol.card import all_parties
from protocol.errors import BadInput
from protocol.everyone_online import everyone_stays, takes_presence
from protocol.params import Params
from protocol.party.role import RECOMMENDER, Done, Role, UserInput, user_name
from protocol.play import play
from protocol.schemes.base import Scheme, Setting, Shape
from protocol.wire.messages import Message

CANARY, WITNESS = user_name(0), user_name(1)  # the user whose rating changes; another rater of the item
CROWDS = (2, 3, 5, 10)  # numbers of users to try; the first that the scheme accepts



@dataclass(frozen=True)
class CanaryProblem:
    """One item; user 0 is the canary, the others give the middle rating."""

    scheme: Scheme
    params: Any  # of a factorization
    silent: frozenset[str] = frozenset()  # names of noise set to zero: a party that knows it would subtract it
    quiet: Params | None = None  # the same parameters without noise, if the scheme allows that

    @property
    def ratings(self) -> tuple[float, float]:
        """Return the least and the greatest rating that user 0 can give."""
        return self.params.rating_min, self.params.rating_max

    @property
    def other_rating(self) -> float:
        return sum(self.ratings) / 2


class CannotBeMeasured(BadInput):
    """A scheme whose roles do not run as a canary, or reveal nothing that can be measured."""


def make_problem(
    scheme: Scheme, rating_range: tuple[float, float], silent: Sequence[str] = (), **settings: Any
) -> CanaryProblem:
    """Make the problem with the fewest users that the scheme accepts, in one dimension unless `settings` say so."""
    settings = {"dim": 1, **settings}
    for n_users in CROWDS:
        shape = Shape(n_users, 1, rating_range, (1,) * n_users, np.array([n_users], np.int64))
        own = {**settings, "committers": n_users} if "committers" in scheme.options else settings
        try:
            params, _ = scheme.make_params(shape, **own)
        except BadInput as error:
            refusal = error
            continue
        return CanaryProblem(scheme, params, frozenset(silent), _without_noise(scheme, shape, own))
    raise CannotBeMeasured(f"{scheme.name} cannot be measured with {CROWDS[-1]} users and one item: {refusal}")


def _without_noise(scheme: Scheme, shape: Shape, settings: dict[str, Any]) -> Params | None:
    try:
        return scheme.make_params(shape, **{**settings, "epsilon": math.inf})[0]
    except BadInput:
        return None


# --- the stage ----------------------------------------------------------------------------------------------------


class SilentTape(Tape):
    """A tape some of whose noise is zero."""

    __slots__ = ("_silent",)

    def __init__(self, seed: bytes, silent: frozenset[str]) -> None:
        super().__init__(seed)
        self._silent = silent

    def normal(self, rows: int, dim: int, *name: Name) -> Floats:
        return np.zeros((rows, dim)) if name[0] in self._silent else super().normal(rows, dim, *name)


class OneItemRing(Ring):
    """A ring that sums over a single item without a sparse matrix."""

    def sum_by_item(self, parts: Sequence[tuple[Ids, RingArray]], items: Ids, dim: int) -> RingArray:
        rows = [rows for _, rows in parts if len(rows)]
        if len(items) != 1 or not rows:
            return super().sum_by_item(parts, items, dim)
        return self.add(rows[0], *rows[1:])


class Stage:
    """Everything that the repetitions of a problem share: parameters, ring, run id, inputs."""

    def __init__(self, problem: CanaryProblem, run_id: bytes) -> None:
        self.scheme, self.params, self.silent = problem.scheme, problem.params, problem.silent
        self.setting = Setting(self.params, run_id, OneItemRing(self.params.ring_bits))
        self.parties = all_parties(self.scheme, self.params.n_users)
        self.events = everyone_stays(self.params.n_users) if takes_presence(self.scheme) else lambda _: []
        self._canary = [_rated(rating) for rating in problem.ratings]
        self._other = _rated(problem.other_rating)
        self._scale: float = 2.0**-self.params.fraction_bits
        self.receiver, self.masked = "", False  # receiver of the canary's uploads; are they masked?

    def roles(self, tapes: Mapping[str, Tape], greatest: bool) -> dict[str, Role]:
        return {
            party: self.scheme.make_role(party, self.setting, tape, self.inputs(party, greatest))
            for party, tape in tapes.items()
        }

    def inputs(self, party: str, greatest: bool) -> UserInput | None:
        if party == CANARY:
            return self._canary[greatest]
        return None if party in self.scheme.servers else self._other

    def tapes(self, seed: bytes, repetition: int) -> dict[str, Tape]:
        seeds = ((party, derive(seed, repetition, party)) for party in self.parties)
        return {party: SilentTape(own, self.silent) if self.silent else Tape(own) for party, own in seeds}

    def number(self, values: npt.NDArray[Any]) -> float:
        """Read an upload of one row and coordinate as a number; a ring element by its signed residue, scaled."""
        self.masked = values.dtype == self.setting.ring.dtype
        if self.masked:
            return float(self.setting.ring.to_signed(values)[0, 0]) * self._scale
        return float(values[0, 0])


def _rated(rating: float) -> UserInput:
    return UserInput(np.zeros(1, np.uint32), np.array([rating]))


@dataclass(frozen=True)
class PlayedCanary:
    """What one repetition showed."""

    factors: list[npt.NDArray[np.float64]]  # v(0), v(1), …
    uploads: list[npt.NDArray[Any]]  # of the canary
    dealt: list[Message]  # everything that the witness received


def play_canary(stage: Stage, roles: Mapping[str, Role]) -> PlayedCanary:
    """Play one repetition, from the first message until the recommender is done."""
    name, recommender = stage.scheme.name, roles[RECOMMENDER]
    if not hasattr(recommender, "item_factors"):
        raise CannotBeMeasured(f"{name} cannot be measured: its recommender shows no item factors.")
    played = PlayedCanary([recommender.item_factors], [], [])
    for party, sender, given, effects in play(roles, stage.events):
        if sender == CANARY and getattr(given, "iteration", -1) >= 0 and hasattr(given, "values"):
            played.uploads.append(given.values)
            stage.receiver = party
        elif sender is not None and party == WITNESS:
            played.dealt.append(given)
        if party == RECOMMENDER:
            if recommender.item_factors is not played.factors[-1]:
                played.factors.append(recommender.item_factors)
            if any(isinstance(effect, Done) for effect in effects):
                return played
    raise CannotBeMeasured(f"{name} cannot be measured: the recommender of its canary did not finish.")
