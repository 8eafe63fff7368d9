"""`plain`: the unprotected baseline. Users send their gradients in the clear to the recommender."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_matrix

from protocol.errors import Reason
from protocol.factors import Matrix
from protocol.framing import HELLO_FRAME, Traffic, bin_size, frame_size, traffic, uint_size
from protocol.messages import Finish, Gradient, Hello, ItemFactors, Join, Message
from protocol.params import Params
from protocol.ring import everywhere
from protocol.roles import RECOMMENDER, Effects, Role, Send, UserInput, expect, require, role_of, user_index, user_name
from protocol.schemes.base import Leak, Scheme, Setting, Shape
from protocol.schemes.factorizing import JoiningRecommender, JoiningUser
from protocol.tape import Tape


class Plain(Scheme):
    name = "plain"
    title = "Unprotected matrix factorization"
    source = "Hua, Xia, Zhong 2015, section 3.1"
    unit = "none"
    claims = "Nothing is protected: the recommender sees every gradient, and from two of them the ratings."
    known_weaknesses = ("support", "difference-attack", "rating-inference", "released-sums", "single-contributor")
    leakage = (
        Leak("recommender", "Join", "items", "which items each user rated"),
        Leak("recommender", "Gradient", "iteration", "the number of the iteration"),
        Leak("recommender", "Gradient", "values", "each user's exact gradient for each rated item"),
        Leak("user", "ItemFactors", "iteration", "the number of the iteration"),
        Leak("user", "ItemFactors", "floors", "always empty here"),
        Leak("user", "ItemFactors", "factors", "the item factors of the user's own items"),
        Leak("user", "Finish", "iteration", "that the run ended"),
    )
    messages = (Hello, Join, ItemFactors, Gradient, Finish)
    servers = (RECOMMENDER,)
    options: ClassVar[dict[str, Any]] = {
        "learning_rate": 2.0**-5,
        "user_regularisation": 0.001,
        "item_regularisation": 0.001,
        "clip": None,
    }

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        if role_of(party) == RECOMMENDER:
            return PlainRecommender(setting, tape)
        assert inputs is not None
        return PlainUser(setting, tape, inputs)

    def max_frame(self, params: Params) -> int:
        return 128 + params.n_items * (4 + 4 * params.dim)

    def predict(self, params: Params, shape: Shape) -> list[Traffic]:
        up, down, users = ("user", "recommender"), ("recommender", "user"), shape.users_by_support()
        rows = [
            traffic(-1, *up, "Hello", [(shape.n_users, HELLO_FRAME)]),
            traffic(-1, *down, "Hello", [(shape.n_users, HELLO_FRAME)]),
            traffic(-1, *up, "Join", [(c, frame_size(1, bin_size(4 * n))) for n, c in users]),
        ]
        vector = 4 * params.dim
        for t in range(params.iterations):
            factors = [(c, frame_size(1 + t, uint_size(t), bin_size(0), bin_size(n * vector))) for n, c in users]
            gradients = [(c, frame_size(2 + t, uint_size(t), bin_size(n * vector))) for n, c in users]
            rows.append(traffic(t, *down, "ItemFactors", factors))
            rows.append(traffic(t, *up, "Gradient", gradients))
        last = params.iterations
        finish = frame_size(1 + last, uint_size(last))
        return [*rows, traffic(last, *down, "Finish", [(shape.n_users, finish)])]


class PlainUser(JoiningUser):
    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, Finish):
            return self.finish(sender, message)
        offer = expect(message, ItemFactors)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        require(len(offer.floors) == 0, Reason.WRONG_LENGTH)
        factors = self.check_factors(offer.iteration, offer.factors)
        gradients = self.step(offer.iteration, factors)
        return [Send(RECOMMENDER, Gradient(offer.iteration, gradients.astype(np.float32)))]


class PlainRecommender(JoiningRecommender):
    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting, tape)
        self._gradients: dict[int, Matrix] = {}

    def open_iteration(self) -> list[Send]:
        factors = self.outgoing_factors()
        no_floors = np.zeros(0, np.uint32)
        return [
            Send(user_name(user), ItemFactors(self.iteration, no_floors, factors[items]))
            for user, items in self.supports.items()
        ]

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, Join):
            return self.join(sender, message)
        gradient = expect(message, Gradient)
        user = user_index(sender)
        require(user in self.supports, Reason.UNKNOWN_SENDER)
        require(gradient.iteration == self.iteration, Reason.WRONG_ITERATION)
        require(user not in self._gradients, Reason.DUPLICATE)
        require(len(gradient.values) == len(self.supports[user]), Reason.WRONG_LENGTH)
        require(everywhere(np.abs(gradient.values) <= 2.001 * self.params.clip), Reason.OUT_OF_RANGE)
        self._gradients[user] = gradient.values.astype(np.float64)
        if len(self._gradients) < len(self.supports):
            return []
        self._finish_iteration()
        return self.next_iteration()

    def _finish_iteration(self) -> None:
        """Σ_i in the order of users, whatever the order of arrival: float addition is not associative."""
        rows = np.concatenate([self._gradients[user] for user in self.supports])
        items = np.concatenate(list(self.supports.values()))
        which = csc_matrix(
            (np.ones(len(items)), items, np.arange(len(items) + 1)), shape=(self.params.n_items, len(items))
        )
        rated = np.flatnonzero(self.n_raters).astype(np.uint32)
        self.n_invited = self.n_contributors = len(self._gradients)
        self._gradients = {}
        self.move(rated, (which @ rows)[rated])
