"""The common part of `laplace-ratings` and `randomized-response` (Zheng 2022): users randomize ratings before sending.

    user -> recommender    its whole vector, missing entries included, through the mechanism: once
    recommender            recovers the ratings of all users from what arrived, by (4) or by debiased item means
    recommender -> user    Recommendations    one number for each item: its own row of M, or the item means

The recommender never sees a rating; everything that it does is post-processing of what arrived.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from protocol.arithmetic.ring import everywhere
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Ids
from protocol.errors import Reason
from protocol.params import Params, among, declared
from protocol.party.role import (
    RECOMMENDER,
    Done,
    Effects,
    Facts,
    LeadingRecommender,
    PredictingUser,
    Send,
    UserInput,
    expect,
    require,
    user_index,
    user_name,
    users_without,
)
from protocol.schemes.base import Scheme, Setting, Shape, Weakness
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.means import own_mean
from protocol.schemes.collection.radius import GAMMA, RHO0, THETA_SQUARE
from protocol.wire.messages import SETUP, Message, Recommendations

RECOVERIES = ("completion", "means")
_SCALED = (
    lambda value: 0 <= value <= 1,
    "{name} is on the scale from −1 to 1: set it from 0 to 1, not {value:g}.",
)
_SLACK = 1e-5  # fraction of the span by which 32-bit numbers may exceed the range


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectingParams(Params):
    step: float = declared(otherwise=0.0)  # step of the ratings' grid; 0: no grid is needed
    recovery: str = declared(*among(RECOVERIES), otherwise="completion")
    add_user_mean: bool = declared(otherwise=False)
    rho0: float = declared(*_SCALED, otherwise=RHO0)
    theta_square: float = declared(*_SCALED, otherwise=THETA_SQUARE)
    gamma: float = declared(
        lambda value: 0 < value < 1, "gamma must be above 0 and below 1, not {value:g}.", GAMMA
    )
    rho: float = declared(  # 0: it follows from the others
        lambda value: math.isfinite(value) and value >= 0,
        "rho must be above 0, or 0 so that it follows from rho0 and theta_square, not {value:g}.",
        lambda _: 0.0,
    )

    @property
    def grid(self) -> Grid:
        return Grid(self.rating_min, self.rating_max, self.step or self.rating_max - self.rating_min)

    @property
    def digit_base(self) -> int:
        return self.grid.levels + 1

    @property
    def cells(self) -> int:
        return self.n_users * self.n_items


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """The data of all users as the recommender has them, and estimates by the law of the mechanism."""

    known: csr_matrix  # Z on Ω, around the middle of the scale
    unit: float  # the size of one unit of Z on the rating scale
    ratings: float  # estimate of s
    radius: float  # ρ, from the assumptions
    bound: float  # Theorem 3's, for the same ρ0 and s


class Collecting(Scheme):
    """The options, the parameters and the accounting of both schemes."""

    source = "Zheng 2022, Two Differentially Private Rating Collection Mechanisms"
    unit = "entry of the rating vector"
    known_weaknesses = (Weakness("composition", "recommender"), Weakness("rating-inference", "recommender"))
    permits: ClassVar[dict[str, str]] = {"recommender": "noisy-individual", "user": "aggregate"}
    servers = (RECOMMENDER,)
    flags = frozenset({"epsilon"})
    params_class = CollectingParams
    options: ClassVar[dict[str, Any]] = CollectingParams.defaults(
        "recovery", "add_user_mean", "rho0", "theta_square", "gamma", "rho"
    )

    def make_params(self, shape: Shape, **settings: Any) -> tuple[Params, list[str]]:
        made, notes = super().make_params(shape, **{"step": self.step_of(shape), **settings})
        return made, [*notes, *self.warnings(CollectingParams.of(made))]

    def step_of(self, shape: Shape) -> float:
        return 0.0  # no grid is needed

    def warnings(self, params: CollectingParams) -> list[str]:
        return []

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        """Return the ε of one entry, exact at δ = 0: a user uploads once, with each entry randomized independently."""
        one, sizes = params.epsilon, sorted(shape.support_sizes)[-2:]
        return {
            "epsilon": one,
            "delta": 0.0,
            "method": "one entry of the vector, rated or missing, whatever it is exchanged for: exact, and attained. "
            f"The whole vector of {params.n_items} entries has {params.n_items} times that; two given users differ at "
            "most where either of them rated, so that telling them apart has the sum of their ratings times that",
            "claimed": one,
            "vector": params.n_items * one,
            "two_users_most": sum(sizes) * one if len(sizes) == 2 else None,
            "two_users_mean": 2 * float(np.mean(shape.support_sizes)) * one if shape.support_sizes else None,
        }


class CollectedUser(PredictingUser):
    """A user that sends its randomized vector, and predicts with the answer."""

    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        self.setting, self.params, self.tape, self.inputs = setting, CollectingParams.of(setting.params), tape, inputs
        self.recommended: npt.NDArray[np.float32] | None = None

    @abstractmethod
    def upload(self) -> Message: ...

    def start(self) -> Effects:
        return [Send(RECOMMENDER, self.upload())]

    def receive(self, sender: str, message: Message) -> Effects:
        answer, params = expect(message, Recommendations), self.params
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        require(self.recommended is None, Reason.WRONG_KIND)
        require(len(answer.values) == params.n_items, Reason.WRONG_LENGTH)
        slack = _SLACK * params.rating_span
        inside = (answer.values >= params.rating_min - slack) & (answer.values <= params.rating_max + slack)
        require(everywhere(inside), Reason.OUT_OF_RANGE)
        self.recommended = answer.values[:, 0]
        self.iteration = params.iterations
        return [Done()]

    def predict(self, items: npt.NDArray[np.uint32]) -> Floats:
        assert self.recommended is not None
        numbers = self.recommended.astype(np.float64)
        own = own_mean(self.inputs.ratings, numbers[self.inputs.items]) if self.params.add_user_mean else 0.0
        return numbers[items] + own


class CollectingRecommender(LeadingRecommender):
    """A recommender that waits for the vectors of all users, then does everything at once."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.params = setting, CollectingParams.of(setting.params)
        self.arrived: dict[int, tuple[Ids, Floats]] = {}  # for each user: the items that it sent, and their values
        self._figures: Facts = {}

    @abstractmethod
    def opened(self, message: Message) -> tuple[Ids, Floats]:
        """Check a vector and split it into items and values."""

    @abstractmethod
    def collected(self) -> Collected: ...

    @abstractmethod
    def item_means(self) -> Floats: ...

    def awaited(self) -> Sequence[str]:
        return users_without(self.params.n_users, self.arrived)

    def receive(self, sender: str, message: Message) -> Effects:
        user = user_index(sender)
        require(0 <= user < self.params.n_users, Reason.UNKNOWN_SENDER)
        vector = self.opened(message)
        require(self.iteration == SETUP, Reason.WRONG_KIND)
        require(user not in self.arrived, Reason.DUPLICATE)
        self.arrived[user] = vector
        return self._answer() if len(self.arrived) == self.params.n_users else []

    def known(self, values: Mapping[int, Floats]) -> csr_matrix:
        """Make Z from `values`, one row for each user."""
        starts = np.concatenate([[0], np.cumsum([len(numbers) for numbers in values.values()])])
        items = np.concatenate([self.arrived[user][0] for user in values]).astype(np.int32)
        shape = (self.params.n_users, self.params.n_items)
        return csr_matrix((np.concatenate(list(values.values())), items, starts), shape=shape)

    def _answer(self) -> Effects:
        self.arrived = dict(sorted(self.arrived.items()))  # float sums must not depend on the order of arrival
        params, collected = self.params, self.collected()
        self._figures = _seen(params, collected)
        means = params.recovery == "means"
        rows = np.broadcast_to(self.item_means(), (params.n_users, params.n_items)) if means else None
        self.iteration = params.iterations
        self.last_invited = self.last_contributors = tuple(self.arrived)
        if rows is not None:
            self._figures["notes"].insert(0, "Recovered: item means with the mechanism's noise taken out, no matrix.")
            sends = [Send(user_name(user), Recommendations(_sent(rows[user], params))) for user in self.arrived]
            return [*sends, Done(np.array(rows[0])[:, None])]
        return self._complete(collected)

    def _complete(self, collected: Collected) -> Effects:
        from protocol.schemes.collection.completion import complete  # no user needs it

        params = self.params
        found = complete(collected.known, (params.rho or collected.radius))
        self._figures |= {
            "rho": found.radius,
            "residual": found.residual,
            "known_norm": found.known_norm,
            "multiplier": found.multiplier,
            "rank": found.matrix.rank,
            "zero": found.is_zero,
            "met": found.meets,
            "gap": found.gap,
            "steps": found.steps,
        }
        self._figures["notes"] = [*_words(self._figures), *self._figures["notes"]]
        middle, unit, sends, total = params.grid.middle, collected.unit, [], np.zeros(params.n_items)
        for user in self.arrived:
            row = middle + unit * found.matrix.row(user)
            sends.append(Send(user_name(user), Recommendations(_sent(row, params))))
            total += row
        return [*sends, Done((total / params.n_users)[:, None])]  # the model: the average row

    def facts(self) -> Facts:
        return {**super().facts(), "cells": [len(items) for items, _ in self.arrived.values()]} if self._figures else {}

    def figures(self) -> Facts:
        return self._figures


def _sent(numbers: Floats, params: Params) -> npt.NDArray[np.float32]:
    return np.clip(numbers, params.rating_min, params.rating_max).astype(np.float32)[:, None]


def _seen(params: CollectingParams, collected: Collected) -> Facts:
    bound, arrived = collected.bound, int(collected.known.nnz)
    words = (
        f"Theorem 3: with probability {1 - params.gamma:g} the collected ratings are within {bound:.4g} of the true "
        f"ones where they arrived, if ρ0 = {params.rho0:g} holds and as many were rated as is estimated; the value "
        f"expected from ρ0 and the mean Θ² = {params.theta_square:g} is {collected.radius:.4g}."
    )
    return {
        "recovery": params.recovery,
        "cells_arrived": arrived,
        "ratings_estimated": collected.ratings,
        "expected_distance": collected.radius,
        "theorem_3": {"bound": bound, "gamma": params.gamma, "rho0": params.rho0},
        "notes": [words],
    }


def _words(figures: Facts) -> list[str]:
    if figures["zero"]:
        return [
            f"M = 0: ρ = {figures['rho']:.4g} is not below ‖Z‖ = {figures['known_norm']:.4g}, so that (4) asks for "
            "nothing and every prediction is the middle of the scale. Set rho0 or rho lower, take a larger --epsilon, "
            "or --set recovery=means."
        ]
    met = "" if figures["met"] else " The constraint is NOT met: ρ is smaller than this solver reaches."
    return [
        f"Recovered by (4): ρ = {figures['rho']:.4g}, residual {figures['residual']:.4g}, λ = "
        f"{figures['multiplier']:.4g}, rank {figures['rank']}, proved within {100 * figures['gap']:.2g} % of the "
        f"smallest nuclear norm.{met}"
    ]
