"""`trusted`: the trusted recommender (Hua, Xia, Zhong 2015, section 4.1).

The recommender may see the ratings, but what it publishes must not reveal them.

    user -> recommender    RatingsHandover   its items and its ratings, as they are
    recommender            trains U and V by T plain steps, keeps U fixed from then on and forgets V;
                           then T item steps from a fresh random V(0), with the same η_j in each step
    recommender -> user    Publication       the noisy v_j; the user fits its own u_i to them

The noisy steps never begin with the trained V, because no noise covers that. From a fresh V(0) and with a fixed U,
v_j(T) is an invertible affine map of 2 Σ_i u_i r_ij − η_j, whatever T is, so the noise of one release covers all T
steps. Errors are not clipped here: a clipped error would make the slope of that map depend on the ratings.
U stays with the recommender: no noise covers it, and one rating moves the u_i of every user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix

from protocol.arithmetic.factors import as_sent, factor_limit, first_factors, step_items
from protocol.arithmetic.noise import laplace
from protocol.arithmetic.ring import everywhere
from protocol.arithmetic.tape import Tape
from protocol.arrays import Matrix, Vector
from protocol.attendance import Course
from protocol.errors import Aborted, Reason
from protocol.params import Params
from protocol.party.role import (
    RECOMMENDER,
    Done,
    Effects,
    FactorizingRecommender,
    FactorizingUser,
    Role,
    Send,
    UserInput,
    expect,
    require,
    role_of,
    user_index,
    users_without,
)
from protocol.schemes.base import DELTA, Leak, Setting, Shape, Weakness
from protocol.schemes.factorization.factorization import Factorization, FactorizationParams
from protocol.schemes.factorization.static_users import publication, published_rows
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import SETUP, Hello, Message, Publication, RatingsHandover


class Trusted(Factorization):
    name = "trusted"
    title = "A trusted recommender publishes noisy item factors"
    source = "Hua, Xia, Zhong 2015, section 4.1"
    unit = "rating value, once"
    claims = (
        "The recommender sees every rating. The item factors that it publishes carry objective noise of scale 2Δ√d/ε, "
        "claimed to give ε-differential privacy to a party that sees nothing else."
    )
    known_weaknesses = (Weakness("moving-user-factors", "user"), Weakness("support", "recommender"))
    leakage = (
        Leak("recommender", "RatingsHandover", "items", "which items each user rated"),
        Leak("recommender", "RatingsHandover", "values", "every rating, as it is"),
        Leak("user", "Publication", "iteration", "that the run ended"),
        Leak("user", "Publication", "factors", "the published, noisy item factors of all items"),
    )
    permits: ClassVar[dict[str, str]] = {"recommender": "exact-individual", "user": "aggregate"}
    messages = (Hello, RatingsHandover, Publication)
    servers = (RECOMMENDER,)
    flags = frozenset({"epsilon", "factor_bits", "publish"})

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        if role_of(party) == RECOMMENDER:
            return TrustedRecommender(setting, tape)
        assert inputs is not None
        return TrustingUser(setting, inputs)

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        up, down, frames, n = ("user", "recommender"), ("recommender", "user"), Frames(params), course.supports
        yield frames.hello(up, course.users)
        yield frames.flow(SETUP, up, RatingsHandover, course.users, 1, items=n, values=n)
        yield frames.hello(down, course.users)
        last, rows = params.iterations, published_rows(params, n)
        yield frames.flow(last, down, Publication, course.users, 1, iteration=last, factors=rows)

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        words = "not bounded: one release has the claimed ε for fixed user factors; these were trained on the ratings"
        return {"epsilon": None, "delta": DELTA, "method": words}


class TrustingUser(FactorizingUser):
    def __init__(self, setting: Setting, inputs: UserInput) -> None:
        self.params: FactorizationParams = FactorizationParams.of(setting.params)
        self.inputs = inputs
        self.ridge = self.params.profile_ridge
        self.user_factors = np.zeros(self.params.dim)  # never known here: the recommender keeps it

    def start(self) -> Effects:
        return [Send(RECOMMENDER, RatingsHandover(self.inputs.items, self.inputs.ratings))]

    def receive(self, sender: str, message: Message) -> Effects:
        self.take_publication(sender, message)
        self.iteration = self.params.iterations
        return [Done(self.predictions())]


class TrustedRecommender(FactorizingRecommender):
    """A recommender that waits for the ratings of all users, then does everything at once."""

    def __init__(self, setting: Setting, tape: Tape) -> None:
        self.params = FactorizationParams.of(setting.params)
        self.tape = tape
        self.item_factors = fresh_item_factors(self.params, tape)
        self.handed: dict[int, UserInput] = {}

    def awaited(self) -> Sequence[str]:
        return users_without(self.params.n_users, self.handed)

    def receive(self, sender: str, message: Message) -> Effects:
        handed = expect(message, RatingsHandover)
        user, params = user_index(sender), self.params
        require(0 <= user < params.n_users, Reason.UNKNOWN_SENDER)
        require(self.iteration == SETUP, Reason.WRONG_KIND)
        require(user not in self.handed, Reason.DUPLICATE)
        require(len(handed.items), Reason.WRONG_LENGTH)
        require(len(handed.values) == len(handed.items), Reason.WRONG_LENGTH)
        require(handed.items[-1] < params.n_items, Reason.UNKNOWN_ITEM)
        allowed = (handed.values >= params.rating_min) & (handed.values <= params.rating_max)
        require(everywhere(allowed), Reason.OUT_OF_RANGE)
        self.handed[user] = UserInput(handed.items, handed.values)
        return self._publish() if len(self.handed) == params.n_users else []

    def _publish(self) -> Effects:
        self.handed = dict(sorted(self.handed.items()))  # float sums must not depend on the order of arrival
        book = RatingBook(self.handed, self.params.n_items)
        self.profiles, _ = train(book, self.params, self.tape)
        self.item_factors = noisy_item_factors(book, self.profiles, self.params, self.tape)
        self.iteration = self.params.iterations
        self.last_invited = self.last_contributors = tuple(self.handed)
        supports = {user: own.items for user, own in self.handed.items()}
        sent = as_sent(self.item_factors, self.params.factor_bits)
        return [*publication(self.params, sent, supports), Done(self.item_factors)]


# --- what the recommender computes ---------------------------------------------------------------------------------


class RatingBook:
    """All ratings as three columns in the order of users, and the sums over them that a step needs.

    Sums over one column are sparse products: they add in the order of the book, on every machine.
    """

    def __init__(self, handed: Mapping[int, UserInput], n_items: int) -> None:
        self.n_rated = np.array([len(own.items) for own in handed.values()])
        self.users = np.repeat(np.arange(len(handed)), self.n_rated)
        self.items = np.concatenate([own.items for own in handed.values()]).astype(np.int64)
        self.ratings = np.concatenate([own.ratings for own in handed.values()])
        self.n_raters = np.bincount(self.items, minlength=n_items).astype(np.int64)
        self.rated = np.flatnonzero(self.n_raters)
        self._starts = np.concatenate([[0], np.cumsum(self.n_rated)])
        self._shape = (len(handed), n_items)

    def errors(self, user_rows: Matrix, item_factors: Matrix) -> csr_matrix:
        """Compute e_ij from unclipped predictions; `user_rows` has one row u_i per rating."""
        predictions = np.einsum("nd,nd->n", user_rows, item_factors[self.items])
        return csr_matrix((self.ratings - predictions, self.items, self._starts), shape=self._shape)

    def gradient_sums(self, errors: csr_matrix, user_factors: Matrix) -> Matrix:
        """Compute Σ_i −2 u_i e_ij, one row per item."""
        sums: Matrix = -2.0 * (errors.T @ user_factors)
        return sums

    def user_slopes(self, errors: csr_matrix, item_factors: Matrix) -> Matrix:
        """Compute −(2/n_i) Σ_j v_j e_ij, one row per user."""
        slopes: Matrix = -2.0 / self.n_rated[:, None] * (errors @ item_factors)
        return slopes


def fresh_item_factors(params: FactorizationParams, tape: Tape) -> Matrix:
    """Draw the V(0) from which V is published; training begins with another draw."""
    return first_factors(tape, params.n_items, params.dim, "published item factors")


def objective_noise(params: FactorizationParams, tape: Tape) -> Matrix:
    """Draw η_j of every item; a second call gives the same."""
    return laplace(tape, params.noise_scale, params.n_items, params.dim, "eta")


def train(book: RatingBook, params: FactorizationParams, tape: Tape) -> tuple[Matrix, Matrix]:
    """Compute (U, V) after T plain steps from random first factors; `trusted` uses U and drops V."""
    users = first_factors(tape, params.n_users, params.dim, "user factors")
    items = first_factors(tape, params.n_items, params.dim, "item factors")
    for step in range(params.iterations):
        errors = book.errors(users[book.users], items)
        slopes = book.user_slopes(errors, items) + 2 * params.user_regularisation * users
        items = _step(book, items, book.gradient_sums(errors, users), params, f"training step {step}")
        users = _into_the_ball(users - params.learning_rate * slopes)
    return users, items


def noisy_item_factors(book: RatingBook, user_factors: Matrix, params: FactorizationParams, tape: Tape) -> Matrix:
    """Compute V after T item steps, with U fixed and η_j added to each sum; an unrated item keeps its first factors."""
    noise, items, rows = objective_noise(params, tape), fresh_item_factors(params, tape), user_factors[book.users]
    for step in range(params.iterations):
        sums = book.gradient_sums(book.errors(rows, items), user_factors) + noise
        items = _step(book, items, sums, params, f"publishing step {step}")
    return items


def _step(book: RatingBook, items: Matrix, sums: Matrix, params: FactorizationParams, when: str) -> Matrix:
    rated = book.rated
    moved = step_items(
        items[rated], sums[rated], book.n_raters[rated], params.learning_rate, params.item_regularisation
    )
    if not everywhere(np.abs(moved) <= factor_limit(params.factor_bits)):
        raise Aborted(Reason.DIVERGED, when)
    stepped = items.copy()
    stepped[rated] = moved
    return stepped


def _into_the_ball(rows: Matrix) -> Matrix:
    """Project every row onto |u| ≤ 1."""
    lengths: Vector = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return rows / np.maximum(lengths, 1.0)[:, None]
