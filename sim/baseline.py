"""Matrix factorization without protection, vectorised: what a protected run is compared with.

The same data, seed, first factors and rule as the roles use (`protocol/factors.py`), as whole-matrix operations.
It is also the floor of the in-process benchmark. No protocol is implemented twice: there is none here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from actors.observer import Accuracy
from protocol.factors import first_factors
from protocol.params import Params, default_clip
from protocol.roles import RECOMMENDER, user_name
from protocol.schemes.dynamic_recommender import DynamicParams, draw_invited
from protocol.schemes.factorizing import as_sent
from protocol.seating import tape_seed
from protocol.tape import Tape
from sim.churn import ChurnPlan
from sim.data import UserRatings

Matrix = npt.NDArray[np.float64]


@dataclass(eq=False)
class Baseline:
    """U and V, and the training ratings as three columns sorted by user."""

    params: Params
    user_factors: Matrix
    item_factors: Matrix
    users: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    ratings: Matrix

    def __post_init__(self) -> None:
        params = self.params
        self._clip = default_clip(0.0, params.rating_span)
        self._starts = np.searchsorted(self.users, np.arange(params.n_users + 1))
        self._n_rated = np.maximum(np.bincount(self.users, minlength=params.n_users), 1)[:, None]
        counts = np.bincount(self.items, minlength=params.n_items)
        self._rated = counts > 0
        self._n_raters = np.maximum(counts, 1)[:, None]

    def iterate(self, active: npt.NDArray[np.bool_] | None = None) -> None:
        """One step of the users that are `active` (all, if not given); v_j without an active rater stays."""
        params, rate = self.params, self.params.learning_rate
        seen = as_sent(self.item_factors, params).astype(np.float64)
        errors = self.ratings - np.einsum("nd,nd->n", self.user_factors[self.users], seen[self.items])
        errors = np.clip(errors, -self._clip, self._clip)
        rated = self._rated
        if active is not None:
            errors = errors * active[self.users]
            rated = np.bincount(self.items[active[self.users]], minlength=params.n_items) > 0
        shape = (params.n_users, params.n_items)
        table = csr_array((errors, self.items, self._starts), shape=shape)
        item_slope = -2 * (table.T @ self.user_factors) / self._n_raters
        item_slope += 2 * params.item_regularisation * self.item_factors
        user_slope = -2 * (table @ seen) / self._n_rated + 2 * params.user_regularisation * self.user_factors
        self.item_factors = np.where(rated[:, None], self.item_factors - rate * item_slope, self.item_factors)
        moved = self.user_factors - rate * user_slope
        moved = moved / np.maximum(1.0, np.linalg.norm(moved, axis=1))[:, None]
        self.user_factors = moved if active is None else np.where(active[:, None], moved, self.user_factors)

    def errors(self, users: npt.NDArray[np.int64], items: npt.NDArray[np.int64], ratings: Matrix) -> Matrix:
        """Of clipped predictions."""
        predictions = np.einsum("nd,nd->n", self.user_factors[users], self.item_factors[items])
        clipped: Matrix = ratings - np.clip(predictions, self.params.rating_min, self.params.rating_max)
        return clipped


def start_baseline(params: Params, data: list[UserRatings], run_seed: bytes) -> Baseline:
    def tape(party: str) -> Tape:
        return Tape(tape_seed(run_seed, party))

    first = [first_factors(tape(user_name(user)), 1, params.dim, "user factors")[0] for user in range(params.n_users)]
    return Baseline(
        params,
        np.array(first),
        first_factors(tape(RECOMMENDER), params.n_items, params.dim, "item factors"),
        np.repeat(np.arange(len(data)), [len(user.items) for user in data]),
        np.concatenate([user.items for user in data]).astype(np.int64),
        np.concatenate([user.values for user in data]),
    )


def plain_accuracy(
    params: Params,
    data: list[UserRatings],
    run_seed: bytes,
    churn: ChurnPlan | None = None,
    factor_bits: int = 32,
) -> Accuracy:
    """The accuracy of a whole unprotected run, among the users that would be invited if they come and go.

    Users receive 32-bit factors, whatever the parameters say: what narrower ones cost is a difference of two of these.
    """
    params = dataclasses.replace(params, factor_bits=factor_bits)
    baseline = start_baseline(params, data, run_seed)
    for iteration in range(params.iterations):
        baseline.iterate(None if churn is None else _invited(params, churn, iteration, run_seed))
    train = baseline.errors(baseline.users, baseline.items, baseline.ratings)
    users = np.repeat(np.arange(len(data)), [len(user.held_out_items) for user in data])
    items = np.concatenate([user.held_out_items for user in data]).astype(np.int64)
    test = baseline.errors(users, items, np.concatenate([user.held_out_values for user in data]))
    return Accuracy(*_summary(train), *_summary(test), clipped=0)


def _invited(params: Params, churn: ChurnPlan, iteration: int, run_seed: bytes) -> npt.NDArray[np.bool_]:
    """As the recommender draws them."""
    assert isinstance(params, DynamicParams)
    online = [int(user) for user in np.flatnonzero(churn.online(iteration))]
    invited = draw_invited(Tape(tape_seed(run_seed, RECOMMENDER)), iteration, online, params.online)
    return np.isin(np.arange(params.n_users), invited)


def _summary(errors: Matrix) -> tuple[float | None, float | None]:
    if not len(errors):
        return None, None
    return float(np.abs(errors).mean()), float(np.sqrt((errors * errors).mean()))
