"""Vectorised matrix factorization without protection, with which a protected run is compared.

It uses the same data, seed, first factors and update rule as the roles (`protocol/arithmetic/factors.py`), as
whole-matrix operations, and is also the floor of the in-process benchmark. It contains no protocol, so that none is
implemented twice.

An iteration touches only the rows of the users that take part in it, so its cost does not grow with absent users.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from actors.metering.accuracy import Accuracy, ProfileErrors, clipped_errors
from protocol.arithmetic.factors import as_sent, first_factors
from protocol.arithmetic.noise import default_clip
from protocol.arithmetic.tape import Tape
from protocol.arrays import Ints, Matrix
from protocol.attendance import draw_invited
from protocol.card import tape_seed
from protocol.params import Params
from protocol.party.role import RECOMMENDER, user_name
from sim.data.ratings import Column, Dealt
from sim.plan.churn import ChurnPlan
from sim.run.all_profiles import choose_profiles, solve_profiles

_AT_ONCE = 1 << 14  # ratings whose factors are gathered in one batch


@dataclass(frozen=True, eq=False)
class _Part:
    """The ratings of some users, renumbered from 0 in the same order."""

    who: Ints | slice  # their rows of U
    users: Ints
    items: Ints
    ratings: Matrix
    starts: Ints

    @property
    def counts(self) -> Matrix:
        return np.maximum(np.diff(self.starts), 1)[:, None].astype(np.float64)


@dataclass(eq=False)
class Baseline:
    """U and V, and the training ratings by user."""

    params: Any  # of a factorization
    user_factors: Matrix
    item_factors: Matrix
    train: Column
    clip: float | None = None  # bound of the errors; None: that of `plain`

    def __post_init__(self) -> None:
        train = self.train
        self._clip = default_clip(0.0, self.params.rating_span) if self.clip is None else self.clip
        self._n_raters = np.maximum(np.bincount(train.items, minlength=self.params.n_items), 1)[:, None]
        items = train.items.astype(np.int64)
        self._everyone = _Part(slice(None), train.owners(), items, train.values, train.starts)

    def iterate(self, active: Ints | None = None, noise: Matrix | None = None) -> None:
        """Take one step with the `active` users, in increasing order (None: all); v_j without such a rater stays.

        `noise`, one row per item, is added to the sums of gradients before they are divided by k_j.
        """
        params, rate = self.params, self.params.learning_rate
        part = self._everyone if active is None else self._part(active)
        own = self.user_factors[part.who]
        seen = as_sent(self.item_factors, params.factor_bits).astype(np.float64)
        errors = part.ratings - _products(own, seen, part.users, part.items)
        errors = np.clip(errors, -self._clip, self._clip)
        table = csr_array((errors, part.items, part.starts), shape=(len(own), params.n_items))
        sums: Matrix = np.asarray(-2 * (table.T @ own))
        item_slope = (sums if noise is None else sums + noise) / self._n_raters
        item_slope += 2 * params.item_regularisation * self.item_factors
        user_slope = np.asarray(-2 * (table @ seen)) / part.counts + 2 * params.user_regularisation * own
        rated = np.bincount(part.items, minlength=params.n_items) > 0
        self.item_factors = np.where(rated[:, None], self.item_factors - rate * item_slope, self.item_factors)
        moved = own - rate * user_slope
        self.user_factors[part.who] = moved / np.maximum(1.0, np.linalg.norm(moved, axis=1))[:, None]

    def _part(self, active: Ints) -> _Part:
        train, everyone = self.train, self._everyone
        counts = train.counts[active]
        ends = np.cumsum(counts)
        users = np.repeat(np.arange(len(active)), counts)
        rows = np.arange(len(users)) + (train.starts[active] - ends + counts)[users]
        return _Part(active, users, everyone.items[rows], train.values[rows], np.concatenate([[0], ends]))

    def errors(self, ratings: Column) -> Matrix:
        """Compute the errors of the clipped predictions of `ratings`."""
        found = _products(self.user_factors, self.item_factors, ratings.owners(), ratings.items)
        clipped: Matrix = ratings.values - np.clip(found, self.params.rating_min, self.params.rating_max)
        return clipped


def _products(user_factors: Matrix, item_factors: Matrix, users: Ints, items: npt.NDArray[Any]) -> Matrix:
    """Compute u_i·v_j of each pair, in batches that stay in the processor's cache."""
    found = np.empty(len(users))
    for start in range(0, len(users), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        found[some] = np.einsum("nd,nd->n", user_factors[users[some]], item_factors[items[some]])
    return found


def start_baseline(params: Params, data: Dealt, run_seed: bytes) -> Baseline:
    def tape(party: str) -> Tape:
        return Tape(tape_seed(run_seed, party))

    first = np.empty((params.n_users, params.dim))
    for user in range(params.n_users):
        first[user] = first_factors(tape(user_name(user)), 1, params.dim, "user factors")[0]
    items = first_factors(tape(RECOMMENDER), params.n_items, params.dim, "item factors")
    return Baseline(params, first, items, data.train)


def plain_accuracy(
    params: Any,
    data: Dealt,
    run_seed: bytes,
    churn: ChurnPlan | None = None,
    factor_bits: int = 32,
) -> Accuracy:
    """Measure the accuracy of a whole unprotected run; with `churn`, among the users that would be invited.

    Users receive factors of `factor_bits` bits, whatever `params` say: the cost of narrower factors is the difference
    of two such figures.
    """
    params = dataclasses.replace(params, factor_bits=factor_bits)
    baseline = start_baseline(params, data, run_seed)
    for iteration in range(params.iterations):
        baseline.iterate(None if churn is None else _invited(params, churn, iteration, run_seed))
    own, printed = solved_readings(baseline, data)
    return Accuracy(
        own.train_mae, own.train_rmse, own.test_mae, own.test_rmse, 0, printed, last_reading(baseline, data)
    )


def last_reading(baseline: Baseline, data: Dealt) -> ProfileErrors:
    """Measure U and V as the last iteration left them."""
    return ProfileErrors(*mean_errors(baseline.errors(data.train)), *mean_errors(baseline.errors(data.held_out)))


def solved_readings(baseline: Baseline, data: Dealt) -> tuple[ProfileErrors, ProfileErrors]:
    """Measure V as it is sent to users, with profiles fitted to it: with the λ' of the run, and with the printed λ'."""
    params = baseline.params
    seen = as_sent(baseline.item_factors, params.factor_bits).astype(np.float64)
    printed, ridge, limits = solve_profiles(seen, data.train), params.profile_ridge, params.rating_range
    chosen = solve_profiles(seen, data.train, ridge) if ridge else choose_profiles(seen, data.train, limits)
    own, as_printed = (_reading(seen, profiles, data, params.rating_range) for profiles in (chosen, printed))
    return own, as_printed


def _reading(seen: Matrix, profiles: Matrix, data: Dealt, rating_range: tuple[float, float]) -> ProfileErrors:
    train, test = (
        clipped_errors(ratings.values, np.einsum("jd,jd->j", seen[ratings.items], profiles[owners]), rating_range)
        for ratings, owners in ((data.train, data.train.owners()), (data.held_out, data.held_out.owners()))
    )
    return ProfileErrors(*mean_errors(train), *mean_errors(test))


def _invited(params: Params, churn: ChurnPlan, iteration: int, run_seed: bytes) -> Ints:
    """Draw the invited users of `iteration` as the recommender does."""
    online, limit = np.flatnonzero(churn.online(iteration)).tolist(), params.online
    invited = draw_invited(Tape(tape_seed(run_seed, RECOMMENDER)), iteration, online, limit)
    return np.array(invited, dtype=np.int64)


def mean_errors(errors: Matrix) -> tuple[float | None, float | None]:
    """Compute the mean absolute error and the root of the mean square; None without any error."""
    if not len(errors):
        return None, None
    return float(np.abs(errors).mean()), float(np.sqrt((errors * errors).mean()))
