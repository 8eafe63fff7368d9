"""`laplace-ratings`: a user adds Laplace noise to its ratings, drops some and invents others, and sends that once.

    user -> recommender    PerturbedRatings    items that are said to be rated, and x + ξ or ξ in units of [−1, 1]
    recommender -> user    Recommendations     its row of the completed matrix, or the item means
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Ids
from protocol.attendance import Course
from protocol.errors import Reason
from protocol.params import Params
from protocol.party.role import RECOMMENDER, Role, UserInput, expect, require, role_of
from protocol.schemes.base import Leak, Setting
from protocol.schemes.collection.collecting import Collected, CollectedUser, Collecting, CollectingRecommender
from protocol.schemes.collection.means import laplace_means
from protocol.schemes.collection.mechanisms import ModifiedLaplace
from protocol.schemes.collection.radius import laplace_bound, laplace_radius, laplace_ratings
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import SETUP, Hello, Message, PerturbedRatings, Recommendations


class LaplaceRatings(Collecting):
    name = "laplace-ratings"
    title = "Users add Laplace noise to ratings, and drop and invent some"
    claims = (
        "The recommender sees only what the modified Laplace mechanism left of each vector: ε-differential privacy for "
        "each entry, rated or missing, nε for a whole vector of n entries."
    )
    leakage = (
        Leak("recommender", "PerturbedRatings", "items", "which items each user rated, some dropped, some invented"),
        Leak("recommender", "PerturbedRatings", "values", "each of these ratings with Laplace noise, or noise alone"),
        Leak("user", "Recommendations", "values", "what was recovered for it from all users' noisy ratings"),
    )
    messages = (Hello, PerturbedRatings, Recommendations)

    def sizes_vary(self, params: Params) -> bool:
        return True

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        if role_of(party) == RECOMMENDER:
            return LaplaceCollector(setting)
        assert inputs is not None
        return LaplaceUser(setting, tape, inputs)

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        up, down, frames, mechanism = ("user", "recommender"), ("recommender", "user"), Frames(params), law(params)
        cells = course.cells
        if cells is None:  # not drawn yet: the expected number
            cells = course.supports * mechanism.keep + (params.n_items - course.supports) * mechanism.flip
        yield frames.hello(up, course.users)
        yield frames.flow(SETUP, up, PerturbedRatings, course.users, 1, items=cells, values=cells)
        yield frames.hello(down, course.users)
        yield frames.flow(SETUP, down, Recommendations, course.users, 1, values=params.n_items)


def law(params: Params) -> ModifiedLaplace:
    return ModifiedLaplace(params.epsilon)


class LaplaceUser(CollectedUser):
    def upload(self) -> Message:
        """Make the vector; each number is marked as the sum of rating and noise, so that an audit can follow both."""
        items, n_items, reals = self.inputs.items, self.params.n_items, self.setting.reals
        scaled = self.params.grid.scaled(self.inputs.ratings)
        sent, numbers = law(self.params).answer(self.tape, items, scaled, n_items)
        centres = np.zeros(n_items)
        centres[items] = scaled
        noise = (numbers - centres[sent])[:, None]
        rating = reals.mark(centres[sent][:, None], Label("rating", 0, sent))
        perturbation = reals.mark(noise, Label("perturbation", 0, sent, np.ones(len(sent), np.uint32)))
        return PerturbedRatings(sent, reals.narrow(reals.add(rating, perturbation)))


class LaplaceCollector(CollectingRecommender):
    def opened(self, message: Message) -> tuple[Ids, Floats]:
        vector, reals = expect(message, PerturbedRatings), self.setting.reals
        require(len(vector.values) == len(vector.items), Reason.WRONG_LENGTH)
        require(not len(vector.items) or vector.items[-1] < self.params.n_items, Reason.UNKNOWN_ITEM)
        require(reals.within(vector.values, law(self.params).reach), Reason.OUT_OF_RANGE)
        return vector.items, reals.open(reals.widen(vector.values))[:, 0]

    def collected(self) -> Collected:
        params, mechanism = self.params, law(self.params)
        known = self.known({user: numbers for user, (_, numbers) in self.arrived.items()})
        ratings = laplace_ratings(mechanism, known.nnz, params.cells)
        radius = laplace_radius(mechanism, ratings, params.cells, params.rho0, params.theta_square)
        bound = laplace_bound(mechanism, ratings, params.cells, params.rho0, params.gamma)
        return Collected(known, params.grid.half, ratings, radius, bound)

    def item_means(self) -> Floats:
        params, (items, numbers) = self.params, _columns(self.arrived)
        sums = np.bincount(items, numbers, minlength=params.n_items).astype(np.float64)
        arrived = np.bincount(items, minlength=params.n_items).astype(np.float64)
        return laplace_means(law(params), params.grid, sums, arrived, params.n_users)


def _columns(arrived: dict[int, tuple[Ids, Floats]]) -> tuple[Ids, Floats]:
    items, numbers = zip(*arrived.values(), strict=True)
    return np.concatenate(items), np.concatenate(numbers)
