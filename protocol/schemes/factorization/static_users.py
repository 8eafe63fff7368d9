"""The common part of the factorization schemes: joining, the user's step, the recommender's step, the publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.factors import (
    as_sent,
    factor_limit,
    first_factors,
    item_gradients,
    prediction_errors,
    step_items,
    step_user,
)
from protocol.arithmetic.ring import Label, everywhere
from protocol.arithmetic.tape import Tape
from protocol.arrays import Ids, Matrix
from protocol.errors import Aborted, Reason
from protocol.params import Params
from protocol.party.role import (
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
    users_without,
)
from protocol.schemes.base import Setting
from protocol.schemes.factorization.factorization import GradientParams
from protocol.schemes.factorization.honest_reach import HonestReach
from protocol.wire.messages import SETUP, Event, Finish, Gone, Join, Message, Publication


def publication(params: Params, factors: npt.NDArray[np.float32], supports: Mapping[int, Ids]) -> list[Send]:
    """Write the published factors to each user in `supports`; if all items are published, the messages are equal."""
    everything = Publication(params.iterations, factors)
    return [
        Send(user_name(user), everything if params.publish == "all" else Publication(params.iterations, factors[own]))
        for user, own in supports.items()
    ]


def published_rows(params: Params, supports: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count the rows of factors that are published to users who rated `supports` items each."""
    return np.full_like(supports, params.n_items) if params.publish == "all" else supports


class JoiningUser(FactorizingUser):
    """A user that joins with its support, then answers every iteration with a message made from its gradients."""

    def __init__(self, setting: Setting, tape: Tape, inputs: UserInput) -> None:
        self.setting = setting
        self.params: GradientParams = GradientParams.of(setting.params)
        self.ridge = self.params.profile_ridge
        self.tape = tape
        self.inputs = inputs
        self.user_factors = first_factors(tape, 1, self.params.dim, "user factors")[0]
        self.reach = HonestReach(self.params)

    def start(self) -> Effects:
        return [Send(RECOMMENDER, Join(self.inputs.items))]

    def check_factors(
        self, iteration: int, factors: npt.NDArray[np.float32], raters: npt.NDArray[np.uint32] | None = None
    ) -> Matrix:
        """Check the received v_j, of items with at least so many `raters`, and return them as float64, or reject."""
        require(iteration > self.iteration and iteration < self.params.iterations, Reason.WRONG_ITERATION)
        require(self.published is None, Reason.WRONG_ITERATION)
        require(len(factors) == len(self.inputs.items), Reason.WRONG_LENGTH)
        require(everywhere(np.abs(factors) <= factor_limit(self.params.factor_bits)), Reason.OUT_OF_RANGE)
        received = factors.astype(np.float64)
        require(everywhere(self.reach.within(iteration, received, raters)), Reason.OUT_OF_RANGE)
        return received

    def step(self, iteration: int, item_factors: Matrix) -> Matrix:
        """Compute one gradient per item from u_i(t), then move u_i to t+1."""
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
        return self.setting.reals.computed(gradients, self.label("gradient", iteration))

    def label(self, what: str, iteration: int, floors: npt.NDArray[np.uint32] | None = None) -> Label:
        """Label one row for each of the user's items; a row of noise is one of `floors` shares."""
        return Label(what, iteration, self.inputs.items, floors)

    def finish(self, sender: str, message: Message) -> Effects:
        """Handle the messages after the last iteration: the publication, then the end."""
        if isinstance(message, Publication):
            self.take_publication(sender, message)
            return []
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        last = expect(message, Finish)
        require(last.iteration == self.params.iterations, Reason.WRONG_ITERATION)
        require(self.published is not None, Reason.WRONG_KIND)
        self.iteration = last.iteration
        return [Done(self.predictions())]


class JoiningRecommender(FactorizingRecommender):
    """A recommender that waits until every user has joined, then leads the iterations."""

    def __init__(self, setting: Setting, tape: Tape) -> None:
        self.setting = setting
        self.params = params = GradientParams.of(setting.params)
        self.tape = tape
        self.item_factors = first_factors(tape, params.n_items, params.dim, "item factors")
        self.supports: dict[int, Ids] = {}
        self.n_raters = np.zeros(params.n_items, np.int64)
        self.reach = HonestReach(params)

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

    def awaited(self) -> Sequence[str]:
        return users_without(self.params.n_users, self.supports) if self.iteration == SETUP else ()

    def joined(self) -> Effects:
        """Count the raters and begin, once every user has joined."""
        if len(self.supports) < self.params.n_users:
            return []
        self.count_raters()
        return self.begin()

    def count_raters(self) -> None:
        self.supports = dict(sorted(self.supports.items()))
        self.n_raters = np.bincount(
            np.concatenate(list(self.supports.values())), minlength=self.params.n_items
        ).astype(np.int64)

    def begin(self) -> Effects:
        """Welcome the users, who have all joined, and open the first iteration."""
        return [*self.welcome(), *self.next_iteration()]

    def welcome(self) -> list[Send]:
        """Make the messages that are dealt once, when every user has joined."""
        return []

    def open_iteration(self) -> list[Send]:
        raise NotImplementedError

    def next_iteration(self) -> Effects:
        self.iteration += 1
        if self.iteration < self.params.iterations:
            return self.open_iteration()
        last = Finish(self.iteration)
        return [*self.publish(), *(Send(party, last) for party in self.everyone()), Done(self.item_factors)]

    def publish(self) -> list[Send]:
        """Send v_j(T) to every user: of all items, or of those that the user rated."""
        supports = {user: self.supports[user] for user in map(user_index, self.everyone()) if user >= 0}
        return publication(self.params, self.outgoing_factors(), supports)

    @property
    def dealt(self) -> Mapping[int, Ids]:
        """The users that take part in the iteration that runs, and their items."""
        return self.supports

    def everyone(self) -> list[str]:
        return [user_name(user) for user in self.supports]

    def outgoing_factors(self) -> npt.NDArray[np.float32]:
        return as_sent(self.item_factors, self.params.factor_bits)

    def move(self, items: Ids, sums: Matrix) -> None:
        """Move v_j of the released `items` to t+1; the others stay as they are, without regularisation.

        A row that no honest users can have caused stays too: users would refuse it, and one of them has sent poison.
        """
        params = self.params
        self.last_moved = items
        moved = step_items(
            self.item_factors[items],
            sums,
            self.n_raters[items],
            params.learning_rate,
            params.item_regularisation,
        )
        honest = self.reach.within(self.iteration + 1, moved, self.reach_raters()[items])
        if not everywhere(honest):
            self.poisoned(items[~honest])
            items, moved = items[honest], moved[honest]
        if not everywhere(np.abs(moved) <= factor_limit(params.factor_bits)):
            raise Aborted(Reason.DIVERGED, f"iteration {self.iteration}")
        factors = self.item_factors.copy()
        factors[items] = moved
        self.item_factors = factors

    def reach_raters(self) -> npt.NDArray[np.int64]:
        """Return the number of users, per item, by which the noise of one sum is divided."""
        return self.n_raters

    def poisoned(self, items: Ids) -> None:
        """Note that the sums of `items` are not those of honest users."""

