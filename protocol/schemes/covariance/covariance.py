"""`covariance`: a trusted recommender publishes noisy averages and covariances (McSherry and Mironov 2009).

    user -> recommender    GradedRatings         its items and its ratings, as they are (RatingsHandover off the grid)
    recommender            sums and adds noise: global and item averages first, then the covariance of ratings that
                           are centred with them (`protocol/schemes/covariance`)
    recommender -> user    FactorModel           the noisy average of every item and its factors (SVD)
                           NeighbourModel        or the covariances of every item with the user's nearest (kNN)

The user predicts by itself. Its average r̄_u is computed from ratings that only the user and the recommender know, and
it is never published.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, overload

import numpy as np

from protocol.arithmetic.ring import everywhere
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Floats32, Ids
from protocol.attendance import Course
from protocol.errors import Reason
from protocol.params import Params
from protocol.party.role import (
    RECOMMENDER,
    Done,
    Effects,
    Facts,
    LeadingRecommender,
    PredictingUser,
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
from protocol.schemes.base import DELTA, Leak, Scheme, Setting, Shape, Weakness
from protocol.schemes.covariance.averages import Averages, clamped
from protocol.schemes.covariance.model import Model, first_round, second_round
from protocol.schemes.covariance.options import OPTIONS, CovarianceParams, grade_step
from protocol.schemes.covariance.predicting import Neighbourhood, by_factors, by_neighbours, known_of, neighbourhood
from protocol.schemes.covariance.sensitivity import (
    alpha,
    covariance_sensitivity,
    gaussian_mu,
    published_epsilon,
    whole_epsilon,
)
from protocol.schemes.covariance.totals import Book, centre_all
from protocol.schemes.covariance.triangle import packed_length
from protocol.wire.fields import Amount
from protocol.wire.framing import Flow, Frames
from protocol.wire.messages import (
    SETUP,
    FactorModel,
    GradedRatings,
    Hello,
    Message,
    NeighbourModel,
    RatingsHandover,
)

MOST_FACTOR = 1e6  # stars: an honest factor is below √(rank) B, a covariance below B²

TOLD = (
    Leak("user", "NeighbourModel", "averages", "the published, noisy average of every item"),
    Leak("user", "NeighbourModel", "covered", "which items have the largest noisy counts", follows=True),
    Leak("user", "NeighbourModel", "shrink", "a constant, or the noisy number of ratings that a user has"),
    Leak("user", "NeighbourModel", "among", "the published, noisy covariances of its own items"),
    Leak("user", "NeighbourModel", "neighbours", "its items nearest to each item, by noisy weights", follows=True),
    Leak("user", "NeighbourModel", "covariances", "the published, noisy covariances of its items with others"),
)


class Covariance(Scheme):
    name = "covariance"
    title = "A trusted recommender publishes noisy averages and covariances"
    source = "McSherry and Mironov 2009"
    unit = "rating added or removed (unit_of=user: user added or removed), all releases together, θ"
    claims = (
        "The recommender sees every rating. The averages and covariances that it publishes carry noise for a budget θ: "
        "θ-differential privacy with Laplace noise, (ε, δ) with ε = Σ θ_i √(2 ln(2/δ_i)) with Gaussian noise, for one "
        "rating or (unit_of=user) all of a user's. A user's own average is never published."
    )
    known_weaknesses: ClassVar[tuple[str, ...]] = (
        Weakness("support", "recommender", "user"),
        Weakness("composition", "user"),
    )
    leakage: ClassVar[tuple[Leak, ...]] = (
        Leak("recommender", "GradedRatings", "items", "which items each user rated", support=True),
        Leak("recommender", "GradedRatings", "grades", "every rating, as it is", support=True),
        Leak("recommender", "RatingsHandover", "items", "which items each user rated", support=True),
        Leak("recommender", "RatingsHandover", "values", "every rating, as it is", support=True),
        Leak("user", "FactorModel", "averages", "the published, noisy average of every item"),
        Leak("user", "FactorModel", "covered", "which items have the largest noisy counts", follows=True),
        Leak("user", "FactorModel", "factors", "the published factors of the noisy covariance"),
        *TOLD,
    )
    permits: ClassVar[dict[str, str]] = {"recommender": "exact-individual", "user": "aggregate"}
    messages: ClassVar[tuple[type, ...]] = (
        Hello,
        GradedRatings,
        RatingsHandover,
        FactorModel,
        NeighbourModel,
    )
    servers = (RECOMMENDER,)
    flags = frozenset({"epsilon"})
    params_class = CovarianceParams
    trust: ClassVar[dict[str, str]] = {"recommender": "covariance", "masked": "covariance-masked"}
    options = OPTIONS

    def make_params(
        self, shape: Shape, *, rank: int = OPTIONS["rank"], items: int = OPTIONS["items"], **settings: Any
    ) -> tuple[Params, list[str]]:
        given = {"most_rank": rank, "most_items": items, "rating_step": grade_step(shape), **settings}
        made, notes = super().make_params(shape, **given)
        return made, [*notes, *warnings(CovarianceParams.of(made))]

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        if role_of(party) == RECOMMENDER:
            return CovarianceRecommender(setting, tape)
        assert inputs is not None
        return HandingUser(setting, inputs)

    def longer_fields(self, params: Params) -> dict[str, int]:
        params = CovarianceParams.of(params)
        if params.predictor == "svd":
            return {"factors": params.items * params.rank}
        near = params.items * min(params.neighbours, params.n_items)
        return {"among": packed_length(params.n_items), "neighbours": near, "covariances": near}

    def formula(self, params: Params, course: Course) -> Iterator[Flow]:
        params = CovarianceParams.of(params)
        up, down, frames, n = ("user", "recommender"), ("recommender", "user"), Frames(params), course.supports
        upload, ratings = self.upload(params)
        yield frames.hello(up, course.users)
        yield frames.flow(SETUP, up, upload, course.users, 1, items=n, **{ratings: n})
        yield frames.hello(down, course.users)
        model: dict[str, Amount] = {"averages": params.n_items, "covered": params.items}
        if params.predictor == "svd":
            rows = params.items * params.rank
            yield frames.flow(SETUP, down, FactorModel, course.users, 1, **model, factors=rows)
            return
        near = params.items * np.minimum(params.neighbours, n)
        model |= {"shrink": 1, "among": packed_length(n), "neighbours": near, "covariances": near}
        yield frames.flow(SETUP, down, NeighbourModel, course.users, 1, **model)

    def upload(self, params: CovarianceParams) -> tuple[type, str]:
        """Return (the message with a user's ratings, its field with these)."""
        return (GradedRatings, "grades") if params.rating_step else (RatingsHandover, "values")

    def account(self, params: Params, recommender_tape: Tape, shape: Shape) -> dict[str, Any]:
        return account(CovarianceParams.of(params))


def account(params: CovarianceParams) -> dict[str, Any]:
    """Account for everything that is published, towards a party that sees nothing else."""
    if math.isinf(params.epsilon):
        return {"epsilon": math.inf, "delta": DELTA, "method": "no noise (θ = ∞), so nothing bounds what is released"}
    whole, delta = whole_epsilon(params, DELTA), DELTA if params.gaussian else 0.0
    noise = f"Gaussian noise, μ = {gaussian_mu(params):.4g}, exact" if params.gaussian else "Laplace noise, pure"
    neighbour = "one user with all ratings" if params.per_user else "one rating"
    return {
        "epsilon": whole,
        "delta": delta,
        "method": f"to a party that sees what is published and nothing else, for {neighbour} added or removed: the "
        f"three measurements together, {noise}; the recommender sees every rating itself",
        "claimed": params.epsilon,
        "published_formula": published_epsilon(params, DELTA),
        "unit": f"{params.unit_of} added or removed",
        "mu": gaussian_mu(params) if params.gaussian else None,
        "budgets": list(params.budgets),
    }


def warnings(params: CovarianceParams) -> list[str]:
    """Write warnings for a person who chose a printed form (`joint` or `printed_bound`)."""
    notes = []
    if not params.joint:
        notes.append("joint=false: a sum and its count each spend the whole budget of their measurement, as printed.")
    honest = dataclasses.replace(params, printed_bound=False)
    used, needed = (covariance_sensitivity(one, params.rating_span).total for one in (params, honest))
    if used < needed:
        notes.append("printed_bound=true: the noise of the covariance follows the printed bound, which is too small.")
    return notes


# --- the user --------------------------------------------------------------------------------------------------------


def column(numbers: Floats) -> Floats32:
    return numbers.astype(np.float32).reshape(-1, 1)


def flat(rows: Floats32) -> Floats:
    return rows.astype(np.float64).reshape(-1)


class HandingUser(PredictingUser):
    """A user that hands its ratings over, and predicts from what is published."""

    def __init__(self, setting: Setting, inputs: UserInput) -> None:
        self.setting = setting
        self.params = CovarianceParams.of(setting.params)
        self.inputs = inputs
        self.used = inputs.ratings  # the ratings that predictions are made from
        self._published: FactorModel | NeighbourModel | None = None

    def start(self) -> Effects:
        items, ratings, step = self.inputs.items, self.inputs.ratings, self.params.rating_step
        if not step:
            return [Send(RECOMMENDER, RatingsHandover(items, ratings))]
        grades = np.rint((ratings - self.params.rating_min) / step).astype(np.uint8)
        return [Send(RECOMMENDER, GradedRatings(items, grades))]

    def receive(self, sender: str, message: Message) -> Effects:
        wanted = FactorModel if self.params.predictor == "svd" else NeighbourModel
        published = expect(message, wanted)
        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)
        require(self._published is None, Reason.DUPLICATE)
        self._check_averages(published)
        if wanted is FactorModel:
            require(len(published.factors) == self.params.items * self.params.rank, Reason.WRONG_LENGTH)
            require(self._bounded(published.factors, 1), Reason.OUT_OF_RANGE)
        else:
            self._check_neighbours(published)
        self._published = published
        self.iteration = self.params.iterations
        return [Done()]

    def _check_averages(self, published: Any) -> None:
        params = self.params
        require(len(published.averages) == params.n_items, Reason.WRONG_LENGTH)
        require(len(published.covered) == params.items, Reason.WRONG_LENGTH)
        require(published.covered[-1] < params.n_items, Reason.UNKNOWN_ITEM)
        slack = 1e-6 * max(abs(params.rating_min), abs(params.rating_max))  # float32
        least, most = params.rating_min - slack, params.rating_max + slack
        require(everywhere((published.averages >= least) & (published.averages <= most)), Reason.OUT_OF_RANGE)

    def _check_neighbours(self, published: NeighbourModel) -> None:
        n, near = len(self.inputs.items), min(self.params.neighbours, len(self.inputs.items))
        require(len(published.shrink) == 1, Reason.WRONG_LENGTH)
        require(everywhere(published.shrink > 0), Reason.OUT_OF_RANGE)
        require(len(published.among) == packed_length(n), Reason.WRONG_LENGTH)
        require(len(published.neighbours) == self.params.items * near, Reason.WRONG_LENGTH)
        require(len(published.covariances) == self.params.items * near, Reason.WRONG_LENGTH)
        require(everywhere(published.neighbours < n), Reason.OUT_OF_RANGE)
        bounded = self._bounded(published.among, 2) and self._bounded(published.covariances, 2)
        require(bounded, Reason.OUT_OF_RANGE)

    def _bounded(self, rows: Floats32, power: int) -> bool:
        return everywhere(np.abs(rows) <= MOST_FACTOR * self.params.unit**power)

    def predict(self, items: Ids) -> Floats:
        published, params = self._published, self.params
        assert published is not None
        means, covered = flat(published.averages), published.covered.astype(np.int64)
        shrink = params.shrink_user if isinstance(published, FactorModel) else float(published.shrink[0])
        told = Averages(params.middle, means, np.zeros(0), covered, shrink)  # G and counts are not needed
        known = known_of(params, told)
        own, targets = self.inputs.items.astype(np.int64), items.astype(np.int64)
        if isinstance(published, FactorModel):
            factors = flat(published.factors).reshape(params.items, params.rank)
            return by_factors(known, factors, own, self.used, targets)
        nearest = published.neighbours.astype(np.int64).reshape(params.items, -1)
        around = Neighbourhood(flat(published.among), nearest, flat(published.covariances).reshape(nearest.shape))
        return by_neighbours(known, around, own, self.used, targets)


# --- the recommender -------------------------------------------------------------------------------------------------


class CovarianceRecommender(LeadingRecommender):
    """A recommender that waits for the ratings of all users, then does everything at once."""

    def __init__(self, setting: Setting, tape: Tape) -> None:
        self.setting = setting
        self.params = CovarianceParams.of(setting.params)
        self.tape = tape
        self.handed: dict[int, UserInput] = {}
        self.averages: Averages | None = None
        self.model: Model | None = None
        self._figures: Facts = {}

    def awaited(self) -> Sequence[str]:
        return users_without(self.params.n_users, self.handed)

    def receive(self, sender: str, message: Message) -> Effects:
        items, opened = self.opened(message)
        user, params = user_index(sender), self.params
        require(0 <= user < params.n_users, Reason.UNKNOWN_SENDER)
        require(self.iteration == SETUP, Reason.WRONG_KIND)
        require(user not in self.handed, Reason.DUPLICATE)
        require(len(items), Reason.WRONG_LENGTH)
        require(items[-1] < params.n_items, Reason.UNKNOWN_ITEM)
        self.handed[user] = UserInput(items, opened)
        return self._publish() if len(self.handed) == params.n_users else []

    def opened(self, message: Message) -> tuple[Ids, Floats]:
        """Read (items, ratings) from a user's message, or raise `Rejected`."""
        params, step = self.params, self.params.rating_step
        handed = expect(message, GradedRatings if step else RatingsHandover)
        ratings = params.rating_min + step * handed.grades.astype(np.float64) if step else handed.values
        require(len(ratings) == len(handed.items), Reason.WRONG_LENGTH)
        require(everywhere((ratings >= params.rating_min) & (ratings <= params.rating_max)), Reason.OUT_OF_RANGE)
        return handed.items, ratings

    def _publish(self) -> Effects:
        self.handed = dict(sorted(self.handed.items()))  # float sums must not depend on the order of arrival
        book = Book.of((own.items, own.ratings) for own in self.handed.values())
        self.averages = first_round(self.params, book, self.tape, self.setting.reals)
        self.model = model = second_round(self.params, self.averages, book, self.tape, self.setting.reals)
        self.iteration = self.params.iterations
        self.last_invited = self.last_contributors = tuple(self.handed)
        self._figures = figures_of(self.params, model, book)
        done = Done(model.matrix())
        if model.factors is not None:
            published = self._factors(model)
            return [*(Send(user_name(user), published) for user in self.handed), done]
        users = [(user_name(user), own.items) for user, own in self.handed.items()]
        return LazyPublication(users, functools.partial(self._neighbours, model), done)

    def _factors(self, model: Model) -> FactorModel:
        assert model.factors is not None
        covered = model.averages.covered.astype(np.uint32)
        return FactorModel(column(model.averages.item_means), covered, column(model.factors))

    def _neighbours(self, model: Model, items: Ids) -> NeighbourModel:
        averages = model.averages
        around = neighbourhood(model.similarity, averages.covered, items, self.params.neighbours)
        return NeighbourModel(
            column(averages.item_means),
            averages.covered.astype(np.uint32),
            np.array([averages.user_shrink]),
            column(around.among),
            around.nearest.astype(np.uint32).reshape(-1),
            column(around.towards),
        )

    def figures(self) -> Facts:
        return self._figures


class LazyPublication(Sequence[Send | Done]):
    """A separate message for each user, made when it is sent: all at once they could take gigabytes."""

    def __init__(
        self, users: Sequence[tuple[str, Ids]], make: Callable[[Ids], Message], done: Done, places: range | None = None
    ) -> None:
        self._users, self._make, self._done = users, make, done
        self._places = range(len(users) + 1) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Send | Done: ...
    @overload
    def __getitem__(self, place: slice) -> LazyPublication: ...
    def __getitem__(self, place: int | slice) -> Send | Done | LazyPublication:
        if isinstance(place, slice):
            return LazyPublication(self._users, self._make, self._done, self._places[place])
        at = self._places[place]
        if at == len(self._users):
            return self._done
        user, items = self._users[at]
        return Send(user, self._make(items))


def figures_of(params: CovarianceParams, model: Model, book: Book) -> Facts:
    """Report figures to the person, who may know what the recommender knows."""
    averages = model.averages
    _, centred = centre_all(averages, book)
    sensitivity = covariance_sensitivity(params, averages.spread)
    return {
        "global_mean": averages.global_mean,
        "item_mean_spread": averages.spread,
        "clamped_fraction": float(np.mean(clamped(params, centred) != centred)),
        "covered_items": params.items,
        "largest_centred_rating": alpha(params, averages.spread),
        "sensitivity": {"covariance": sensitivity.total, "weight": sensitivity.count},
    }
