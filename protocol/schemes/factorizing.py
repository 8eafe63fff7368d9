"""What the factorization schemes with static users share: joining, the user's step, the recommender's step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.errors import Aborted, Reason
from protocol.factors import Matrix, first_factors, item_gradients, prediction_errors, step_items, step_user
from protocol.messages import SETUP, Event, Finish, Gone, Join, Message
from protocol.params import Params
from protocol.ring import Ids, Label, everywhere
from protocol.roles import (
    RECOMMENDER,
    Done,
    Effects,
    FactorizingRecommender,
    FactorizingUser,
    Send,
    UserInput,
    expect,
    require,
    user_index,
    user_name,
)
from protocol.schemes.base import Setting
from protocol.tape import Tape

FACTOR_LIMIT = 2.0**60  # far inside float32, and a product of two factors stays far inside float64
HALF_LIMIT = 65504.0  # the largest number of float16


def factor_limit(params: Params) -> float:
    """No |v| may be larger: users could not be sent it."""
    return HALF_LIMIT if params.factor_bits == 16 else FACTOR_LIMIT


def as_sent(item_factors: Matrix, params: Params) -> npt.NDArray[np.float32]:
    """v_j as users see it: rounded to float32, or to float16."""
    narrow = np.float16 if params.factor_bits == 16 else np.float32
    return item_factors.astype(narrow).astype(np.float32, copy=False)


class JoiningUser(FactorizingUser):
    """Joins with its support, then answers every iteration with something made of its gradients."""

    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        self.setting = setting
        self.params = setting.params
        self.tape = tape
        self.inputs = inputs
        self.user_factors = first_factors(tape, 1, self.params.dim, "user factors")[0]

    def start(self) -> Effects:
        return [Send(RECOMMENDER, Join(self.inputs.items))]

    def check_factors(self, iteration: int, factors: npt.NDArray[np.float32]) -> Matrix:
        """The received v_j as the user computes with them, or `Rejected`."""
        require(iteration > self.iteration and iteration < self.params.iterations, Reason.WRONG_ITERATION)
        require(len(factors) == len(self.inputs.items), Reason.WRONG_LENGTH)
        require(everywhere(np.abs(factors) <= factor_limit(self.params)), Reason.OUT_OF_RANGE)
        return factors.astype(np.float64)

    def step(self, iteration: int, item_factors: Matrix) -> Matrix:
        """One gradient per item from u_i(t), then u_i moves to t+1."""
        params = self.params
        errors = prediction_errors(self.inputs.ratings, self.user_factors, item_factors)
        used = np.minimum(np.maximum(errors, -params.clip), params.clip)
        gradients = item_gradients(used, self.user_factors)
        self.user_factors = step_user(
            self.user_factors, item_factors, used, params.learning_rate, params.user_regularisation
        )
        self.iteration = iteration
        self.clipped += int(np.count_nonzero(used != errors))
        self.last_errors = errors
        return gradients

    def label(self, what: str, iteration: int, floors: npt.NDArray[np.uint32] | None = None) -> Label:
        """Of one row for each of the user's items; noise is one share of `floors`."""
        return Label(what, iteration, self.inputs.items, floors)

    def finish(self, sender: str, message: Message) -> Effects:
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        last = expect(message, Finish)
        require(last.iteration == self.params.iterations, Reason.WRONG_ITERATION)
        self.iteration = last.iteration
        return [Done()]


class JoiningRecommender(FactorizingRecommender):
    """Waits until every user has joined, then leads the iterations."""

    def __init__(self, setting: Setting, tape: Tape) -> None:
        params = setting.params
        self.setting = setting
        self.params = params
        self.tape = tape
        self.item_factors = first_factors(tape, params.n_items, params.dim, "item factors")
        self.supports: dict[int, Ids] = {}
        self.n_raters = np.zeros(params.n_items, np.int64)

    def join(self, sender: str, message: Message) -> Effects:
        items = expect(message, Join).items
        user = user_index(sender)
        require(0 <= user < self.params.n_users, Reason.UNKNOWN_SENDER)
        require(self.iteration == SETUP, Reason.WRONG_KIND)
        require(user not in self.supports, Reason.DUPLICATE)
        require(len(items), Reason.WRONG_LENGTH)
        require(items[-1] < self.params.n_items, Reason.UNKNOWN_ITEM)
        self.supports[user] = items
        return self.joined()

    def tick(self, event: Event) -> Effects:
        if isinstance(event, Gone) and self.iteration == SETUP and event.user not in self.supports:
            raise Aborted(Reason.PARTY_DIED, f"{user_name(event.user)}, before it had joined")
        return []

    def joined(self) -> Effects:
        """Count the raters and begin, once everyone has joined."""
        if len(self.supports) < self.params.n_users:
            return []
        self.count_raters()
        return self.begin()

    def count_raters(self) -> None:
        self.supports = dict(sorted(self.supports.items()))
        self.n_raters = np.bincount(
            np.concatenate(list(self.supports.values())), minlength=self.params.n_items
        ).astype(np.int64)
        if self.n_raters.max() > self.params.max_raters:
            raise Aborted(Reason.OUT_OF_RANGE, f"an item has more than {self.params.max_raters} raters")

    def begin(self) -> Effects:
        """Everyone has joined."""
        return [*self.welcome(), *self.next_iteration()]

    def welcome(self) -> list[Send]:
        """What is dealt once, when everyone has joined."""
        return []

    def open_iteration(self) -> list[Send]:
        raise NotImplementedError

    def next_iteration(self) -> Effects:
        self.iteration += 1
        if self.iteration < self.params.iterations:
            return self.open_iteration()
        last = Finish(self.iteration)
        return [*(Send(party, last) for party in self.everyone()), Done(self.item_factors)]

    def everyone(self) -> list[str]:
        return [user_name(user) for user in self.supports]

    def outgoing_factors(self) -> npt.NDArray[np.float32]:
        return as_sent(self.item_factors, self.params)

    def move(self, items: Ids, sums: Matrix) -> None:
        """v_j(t+1) of the released items; the others stay as they are, without regularisation."""
        params = self.params
        self.last_moved = items
        moved = step_items(
            self.item_factors[items],
            sums,
            self.n_raters[items],
            params.learning_rate,
            params.item_regularisation,
        )
        if not everywhere(np.abs(moved) <= factor_limit(params)):
            raise Aborted(Reason.DIVERGED, f"iteration {self.iteration}")
        factors = self.item_factors.copy()
        factors[items] = moved
        self.item_factors = factors
