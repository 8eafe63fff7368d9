"""`plain`: the unprotected baseline. Users send their gradients in the clear to the recommender."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from protocol.arithmetic.tape import Tape
from protocol.arrays import RealArray
from protocol.attendance import Course
from protocol.errors import Reason
from protocol.params import Params
from protocol.party.role import (
    RECOMMENDER,
    Effects,
    Role,
    Send,
    UserInput,
    expect,
    require,
    role_of,
    user_index,
    user_name,
    users_without,
)
from protocol.schemes.base import Leak, Setting, Weakness
from protocol.schemes.factorization.factorization import Factorization, GradientParams
from protocol.schemes.factorization.static_users import JoiningRecommender, JoiningUser, published_rows
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import SETUP, Finish, Gradient, Hello, ItemFactors, Join, Message, Publication


class Plain(Factorization):
    name = "plain"
    title = "Unprotected matrix factorization"
    source = "Hua, Xia, Zhong 2015, section 3.1"
    unit = "none"
    claims = "Nothing is protected: the recommender sees every gradient, and from two of them the ratings."
    known_weaknesses = (
        Weakness("support", "recommender"),
        Weakness("difference-attack", "recommender", "user"),
        Weakness("rating-inference", "recommender", "user"),
        Weakness("released-sums", "user"),
        Weakness("single-contributor", "recommender", "user"),
    )
    leakage = (
        Leak("recommender", "Join", "items", "which items each user rated"),
        Leak("recommender", "Gradient", "iteration", "the number of the iteration"),
        Leak("recommender", "Gradient", "values", "each user's exact gradient for each rated item"),
        Leak("user", "ItemFactors", "iteration", "the number of the iteration"),
        Leak("user", "ItemFactors", "floors", "always empty here"),
        Leak("user", "ItemFactors", "factors", "the item factors of the user's own items"),
        Leak("user", "Publication", "iteration", "that no iteration follows"),
        Leak("user", "Publication", "factors", "the item factors of all items"),
        Leak("user", "Finish", "iteration", "that the run ended"),
    )
    permits: ClassVar[dict[str, str]] = {"recommender": "exact-individual", "user": "exact-individual"}
    messages = (Hello, Join, ItemFactors, Gradient, Finish, Publication)
    servers = (RECOMMENDER,)
    flags = frozenset({"factor_bits", "publish"})
    params_class = GradientParams
    options: ClassVar[dict[str, Any]] = GradientParams.defaults(
        "learning_rate", "user_regularisation", "item_regularisation", "clip", "profile_ridge"
    )

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        if role_of(party) == RECOMMENDER:
            return PlainRecommender(setting, tape)
        assert inputs is not None
        return PlainUser(setting, tape, inputs)

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        return two_party_formula(params, course, Gradient)


def two_party_formula(params: Params, course: Course, answer: type, welcome: type | None = None) -> Iterator[Flow]:
    """Yield the messages of a run without a third party: `welcome` once, if given; factors down and `answer` up."""
    up, down, frames, n = ("user", "recommender"), ("recommender", "user"), Frames(params), course.supports
    yield frames.hello(up, course.users)
    yield frames.flow(SETUP, up, Join, course.users, 1, items=n)
    yield frames.hello(down, course.users)
    if welcome:
        yield frames.flow(SETUP, down, welcome, course.users, 1, floors=n, item_keys=n)
    first = 2 if welcome else 1
    for t, turn in enumerate(course.turns):
        yield frames.flow(t, down, ItemFactors, turn.invited, first + t, iteration=t, floors=0, factors=n)
        yield frames.flow(t, up, answer, turn.contributors, 2 + t, iteration=t, values=n)
    last, rows = params.iterations, published_rows(params, n)
    yield frames.flow(last, down, Publication, course.finished, first + last, iteration=last, factors=rows)
    yield frames.flow(last, down, Finish, course.finished, first + last + 1, iteration=last)


class PlainUser(JoiningUser):
    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, (Publication, Finish)):
            return self.finish(sender, message)
        offer = expect(message, ItemFactors)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        require(len(offer.floors) == 0, Reason.WRONG_LENGTH)
        factors = self.check_factors(offer.iteration, offer.factors)
        reals = self.setting.reals
        gradients = reals.mark(self.step(offer.iteration, factors), self.label("gradient", offer.iteration))
        return [Send(RECOMMENDER, Gradient(offer.iteration, reals.narrow(gradients)))]


class PlainRecommender(JoiningRecommender):
    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting, tape)
        self._gradients: dict[int, RealArray] = {}

    def open_iteration(self) -> list[Send]:
        factors = self.outgoing_factors()
        no_floors = np.zeros(0, np.uint32)
        return [
            Send(user_name(user), ItemFactors(self.iteration, no_floors, factors[items]))
            for user, items in self.supports.items()
        ]

    def awaited(self) -> Sequence[str]:
        return super().awaited() or users_without(self.params.n_users, self._gradients)

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, Join):
            return self.join(sender, message)
        gradient = expect(message, Gradient)
        user = user_index(sender)
        require(user in self.supports, Reason.UNKNOWN_SENDER)
        require(gradient.iteration == self.iteration, Reason.WRONG_ITERATION)
        require(user not in self._gradients, Reason.DUPLICATE)
        require(len(gradient.values) == len(self.supports[user]), Reason.WRONG_LENGTH)
        require(self.setting.reals.within(gradient.values, 2.001 * self.params.clip), Reason.OUT_OF_RANGE)
        self._gradients[user] = self.setting.reals.widen(gradient.values)
        if len(self._gradients) < len(self.supports):
            return []
        self._finish_iteration()
        return self.next_iteration()

    def _finish_iteration(self) -> None:
        """Sum the gradients in the order of users, not of arrival (float addition is not associative), and move V."""
        parts = [(items, self._gradients[user]) for user, items in self.supports.items()]
        rated = np.flatnonzero(self.n_raters).astype(np.uint32)
        sums = self.setting.reals.sum_by_item(parts, rated, self.params.n_items)
        self.last_invited = self.last_contributors = tuple(self.supports)
        self._gradients = {}
        self.move(rated, self.setting.reals.open(sums))
