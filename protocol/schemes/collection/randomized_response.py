"""`randomized-response`: a user sends its level for every item, or that it did not rate it, after randomization.

    user -> recommender    RandomizedLevels    one digit from 0 to d for each item
    recommender -> user    Recommendations     its row of the completed matrix, or the item means
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocol.arithmetic.ring import Label, everywhere
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Ids
from protocol.attendance import Course
from protocol.errors import Reason
from protocol.params import Params
from protocol.params import require as demand
from protocol.party.role import RECOMMENDER, Role, UserInput, expect, require, role_of
from protocol.schemes.base import Leak, Setting, Shape
from protocol.schemes.collection.collecting import (
    Collected,
    CollectedUser,
    Collecting,
    CollectingParams,
    CollectingRecommender,
)
from protocol.schemes.collection.means import response_means
from protocol.schemes.collection.mechanisms import RandomizedResponse
from protocol.schemes.collection.radius import response_bound, response_radius, response_ratings
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import SETUP, Hello, Message, RandomizedLevels, Recommendations


class RandomizedResponseRatings(Collecting):
    name = "randomized-response"
    title = "Users answer each entry of their rating vector by randomized response"
    claims = (
        "The recommender sees only what randomized response left of each vector: ε-differential privacy for each "
        "entry, rated or missing, nε for a whole vector of n entries."
    )
    leakage = (
        Leak("recommender", "RandomizedLevels", "levels", "each entry of each user's vector, by randomized response"),
        Leak("user", "Recommendations", "values", "what was recovered for it from all users' randomized entries"),
    )
    messages = (Hello, RandomizedLevels, Recommendations)

    def step_of(self, shape: Shape) -> float:
        words = "randomized-response needs ratings on a grid: stars, or halves or quarters of them, up to the largest."
        demand(shape.step is not None, words)
        assert shape.step is not None
        return shape.step

    def warnings(self, params: CollectingParams) -> list[str]:
        params.grid  # noqa: B018 - it refuses too many levels
        return []

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        if role_of(party) == RECOMMENDER:
            return ResponseCollector(setting)
        assert inputs is not None
        return RespondingUser(setting, tape, inputs)

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        up, down, frames = ("user", "recommender"), ("recommender", "user"), Frames(params)
        yield frames.hello(up, course.users)
        yield frames.flow(SETUP, up, RandomizedLevels, course.users, 1, levels=params.n_items)
        yield frames.hello(down, course.users)
        yield frames.flow(SETUP, down, Recommendations, course.users, 1, values=params.n_items)


def law(params: Params) -> RandomizedResponse:
    return RandomizedResponse(params.epsilon, CollectingParams.of(params).grid.levels)


class RespondingUser(CollectedUser):
    def upload(self) -> Message:
        """Make the vector; each number is marked as its mean given the entry, plus noise, for an audit to follow both.

        E(answer | entry) = (p − q) entry + q Σ_l l. The noise has mean 0, and is never 0 unless ε is infinite.
        """
        params, reals, items = self.params, self.setting.reals, np.arange(self.params.n_items, dtype=np.uint32)
        entries = params.grid.vector(self.inputs.items, self.inputs.ratings, params.n_items)
        mechanism = law(params)
        answers, d = mechanism.answer(self.tape, entries)[:, None], mechanism.levels
        means = (mechanism.keep - mechanism.other) * entries[:, None] + mechanism.other * d * (d + 1) / 2
        noise = Label("perturbation", 0, items, np.ones(len(items), np.uint32))
        parts = reals.mark(means, Label("rating", 0, items)), reals.mark(answers - means, noise)
        return RandomizedLevels(reals.narrow(reals.add(*parts)))


class ResponseCollector(CollectingRecommender):
    def opened(self, message: Message) -> tuple[Ids, Floats]:
        vector, levels, reals = expect(message, RandomizedLevels).levels, law(self.params).levels, self.setting.reals
        require(len(vector) == self.params.n_items, Reason.WRONG_LENGTH)
        require(reals.within(vector, levels), Reason.OUT_OF_RANGE)
        digits = reals.open(reals.widen(vector))[:, 0]
        require(everywhere((digits >= 0) & (digits == np.rint(digits))), Reason.OUT_OF_RANGE)
        items = np.flatnonzero(digits).astype(np.uint32)
        return items, digits[items]

    def collected(self) -> Collected:
        params, mechanism, grid = self.params, law(self.params), self.params.grid
        offsets = np.concatenate([[0.0], grid.offsets()])
        known = self.known({user: offsets[said.astype(np.int64)] for user, (_, said) in self.arrived.items()})
        ratings = response_ratings(mechanism, known.nnz, params.cells)
        radius = response_radius(mechanism, grid, ratings, params.cells, params.rho0, params.theta_square)
        bound = response_bound(mechanism, grid, ratings, params.cells, params.rho0, params.gamma)
        return Collected(known, 1.0, ratings, radius, bound)

    def item_means(self) -> Floats:
        params = self.params
        answers = np.zeros((params.n_users, params.n_items), np.uint8)
        for user, (items, said) in self.arrived.items():
            answers[user, items] = said
        return response_means(law(params), params.grid, answers)
