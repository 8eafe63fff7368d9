"""`hybrid`: ratings perturbed by their users, then noisy covariances of these (randomized perturbation and DP, 2017).

    user -> recommender    PerturbedRatings      its items in the clear; r' = r + v, v ~ U[−γ, γ], drawn once
    recommender            the course of `covariance` on r', with Laplace noise for the wider range of r'
    recommender -> user    NeighbourModel        the noisy average of every item; covariances with the user's nearest

Uniform noise of bounded width has no ε: two ratings that differ by more than 2γ have disjoint supports, and any r' near
an end of its range rules ratings out. What is published has an ε, as in `covariance`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Tape, _unit_interval, keystream
from protocol.arrays import Floats
from protocol.errors import Reason
from protocol.params import Params
from protocol.party.role import RECOMMENDER, Effects, Role, Send, UserInput, expect, require, role_of
from protocol.schemes.base import Leak, Scheme, Setting, Shape, Weakness
from protocol.schemes.covariance.covariance import TOLD, Covariance, CovarianceRecommender, HandingUser
from protocol.schemes.covariance.options import HYBRID_OPTIONS, CovarianceParams, HybridParams
from protocol.wire.messages import Hello, Message, NeighbourModel, PerturbedRatings

ROUNDING = 1 + 1e-6  # factor by which float32 may exceed the range of r'


class Hybrid(Covariance):
    name = "hybrid"
    title = "Perturbed ratings, then noisy covariances of them"
    source = "randomized perturbation and differential privacy, 2017"
    unit = "perturbed rating added or removed, all releases together"
    claims = (
        "Every rating leaves its user with uniform noise on [−γ, γ], claimed to hide it from the recommender. The "
        "averages and covariances that are published carry Laplace noise, claimed to give ε-differential privacy."
    )
    known_weaknesses: ClassVar[tuple[str, ...]] = (
        Weakness("support", "recommender", "user"),
        Weakness("uniform-noise", "recommender"),
    )
    leakage: ClassVar[tuple[Leak, ...]] = (
        Leak("recommender", "PerturbedRatings", "items", "which items each user rated", support=True),
        Leak("recommender", "PerturbedRatings", "values", "every rating within ±γ", support=True),
        *TOLD,
    )
    permits: ClassVar[dict[str, str]] = {"recommender": "noisy-individual", "user": "aggregate"}
    messages: ClassVar[tuple[type, ...]] = (Hello, PerturbedRatings, NeighbourModel)
    params_class = HybridParams
    trust: ClassVar[dict[str, str]] = {}
    options = HYBRID_OPTIONS

    def make_params(self, shape: Shape, **settings: Any) -> tuple[Params, list[str]]:
        """Make them with Laplace noise, for one rating's presence, and for kNN without rank reduction."""
        fixed: dict[str, Any] = {"noise": "laplace", "unit_of": "rating", "predictor": "knn", "rating_step": 0.0}
        return super().make_params(shape, **settings, **fixed)

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        if role_of(party) == RECOMMENDER:
            return HybridRecommender(setting, tape)
        assert inputs is not None
        return PerturbingUser(setting, tape, inputs)

    def upload(self, params: CovarianceParams) -> tuple[type, str]:
        return PerturbedRatings, "values"

    def unprotected(self, params: Params) -> tuple[Scheme, Params]:
        return self, dataclasses.replace(HybridParams.of(params), epsilon=math.inf, gamma=0.0)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        found, params = super().account(params, recommender_tape, shape), HybridParams.of(params)
        words = (
            "to the recommender nothing finite: uniform noise has disjoint supports"
            if params.gamma
            else "to the recommender nothing: γ = 0, so it sees every rating"
        )
        method = found["method"].replace("the recommender sees every rating itself", words)
        return found | {"method": method, "to_recommender": math.inf, "gamma": params.gamma}


class PerturbingUser(HandingUser):
    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        super().__init__(setting, inputs)
        params = HybridParams.of(setting.params)
        self._noise = perturbation(params, tape, len(inputs.items))
        if not params.own_ratings:
            self.used = perturbed(params, tape, inputs.ratings)

    def start(self) -> Effects:
        items, reals = self.inputs.items, self.setting.reals
        rating = reals.mark(self.inputs.ratings[:, None], Label("rating", 0, items))
        noise = reals.mark(self._noise[:, None], Label("perturbation", 0, items, np.ones(len(items), np.uint32)))
        return [Send(RECOMMENDER, PerturbedRatings(items, reals.narrow(reals.add(rating, noise))))]


class HybridRecommender(CovarianceRecommender):
    def opened(self, message: Message) -> tuple[npt.NDArray[np.uint32], Floats]:
        params, reals = HybridParams.of(self.params), self.setting.reals
        sent = expect(message, PerturbedRatings)
        require(len(sent.values) == len(sent.items), Reason.WRONG_LENGTH)
        most = max(abs(params.rating_min - params.gamma), abs(params.rating_max + params.gamma))
        require(reals.within(sent.values, ROUNDING * most), Reason.OUT_OF_RANGE)
        return sent.items, within_reach(params, reals.open(reals.widen(sent.values)).reshape(-1))


def perturbation(params: HybridParams, tape: Tape, count: int) -> Floats:
    """Draw v ~ U[−γ, γ] for each of `count` ratings; a second call gives the same."""
    words = np.frombuffer(keystream(tape.key("perturbation"), 8 * count, "uniform"), "<u8")
    return params.gamma * (2 * _unit_interval(words) - 1)


def perturbed(params: HybridParams, tape: Tape, ratings: Floats) -> Floats:
    """Compute r' = r + v, rounded to the float32 in which it travels."""
    return within_reach(params, (ratings + perturbation(params, tape, len(ratings))).astype(np.float32))


def within_reach(params: HybridParams, received: npt.NDArray[np.floating]) -> Floats:
    """Clip r' to the range for which the noise is made, because rounding to float32 may exceed it."""
    low, high = params.rating_min - params.gamma, params.rating_max + params.gamma
    return np.minimum(np.maximum(received.astype(np.float64), low), high)
