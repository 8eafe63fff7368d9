"""The observer plane: figures for the person, outside every message, view and byte count.

The launcher and the actors on this machine share one flat array. The recommender's host writes the item factors to it
(and the user factors, if the recommender trained them itself), and each user's host writes its sums of errors. Ratings
and the users' own factors are not shared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from actors.metering.accuracy import (
    ERROR_SUMS,
    LIST_SUMS,
    Accuracy,
    Predict,
    clipped_errors,
    error_sums,
    good_rating,
    list_sums,
    read_errors,
    read_lists,
)
from protocol.arrays import Floats, Ids
from protocol.params import Params
from protocol.party.profile import score
from protocol.party.role import FactorizingRecommender, FactorizingUser, PredictingUser, Role, user_index

_DEPTH = 8  # iterations that a slow reader may lag behind
_LIVE = 3  # numbers per user and iteration: (iteration + 1, Σ|e|, n)
_READINGS = 3  # with the profile that the user fitted, with the printed λ, and with u_i of the last iteration
_FINAL = 2 + _READINGS * ERROR_SUMS + LIST_SUMS  # numbers per finished user: (done, clipped, …)


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """The ratings of one user that are kept for measuring; they never leave the user."""

    items: Ids
    ratings: Floats


class Observer:
    def __init__(self, params: Params, buffer: memoryview | None = None) -> None:
        """Lay the figures out in `buffer`, of `size` bytes, or in memory of this process."""
        n_users, n_items, dim = params.n_users, params.n_items, params.dim
        self.rating_range = params.rating_range
        numbers = np.frombuffer(bytearray(self.size(params)) if buffer is None else buffer, np.float64)
        parts = np.split(numbers, np.cumsum([n_items * dim, n_users * dim, n_users * _DEPTH * _LIVE]))
        self._factors = parts[0].reshape(n_items, dim)
        self._profiles = parts[1].reshape(n_users, dim)  # zeros unless the recommender trained them itself
        self._live = parts[2].reshape(_DEPTH, n_users, _LIVE)
        self._final = parts[3].reshape(n_users, _FINAL)

    @staticmethod
    def size(params: Params) -> int:
        return 8 * (params.n_items * params.dim + params.n_users * (params.dim + _DEPTH * _LIVE + _FINAL))

    def watch(self, party: str, role: Role, done: bool, held_out: HeldOut | None) -> None:
        """Record the figures of `role` after it has entered another iteration, before any frame of that step leaves.

        `done` says that the party has finished; only then are its `held_out` ratings used.
        """
        if isinstance(role, PredictingUser):
            if done:
                self._end(user_index(party), _Ended(role, held_out), [role.predict], role.predict, 0)
        elif isinstance(role, FactorizingUser):
            if done:
                self._end_with_profile(user_index(party), role, held_out)
            elif role.last_errors is not None:
                self._note(user_index(party), role.iteration, role.inputs.ratings, role.last_errors)
        elif isinstance(role, FactorizingRecommender):
            self._factors[:] = role.item_factors
            if role.profiles is not None:
                self._profiles[:] = role.profiles

    def _note(self, user: int, iteration: int, ratings: Floats, errors: Floats) -> None:
        absolute = clipped_errors(ratings, ratings - errors, self.rating_range)
        self._live[iteration % _DEPTH, user] = (iteration + 1, np.einsum("j->", absolute), len(ratings))

    def _end_with_profile(self, user: int, role: FactorizingUser, held_out: HeldOut | None) -> None:
        """Measure the three profiles of `user`.

        A user that received only its own rows of the factors is measured with the factors of all items, which only this
        plane holds.
        """
        kept = self._profiles[user] if np.any(self._profiles[user]) else role.user_factors
        readings, order = [self._predictor(self._factors, kept)], None
        if role.profile is not None and role.published is not None:
            complete = len(role.published) == len(self._factors)
            seen = role.published if complete else self._factors
            own, printed = role.profile.factors, role.profile.as_printed
            readings = [self._predictor(seen, own), self._predictor(seen, printed), *readings]
            order = readings[0] if complete else None
        self._end(user, _Ended(role, held_out), readings, order, role.clipped)

    def _predictor(self, item_factors: Floats, profile: Floats) -> Predict:
        return lambda items: score(item_factors[items], profile)

    def _end(self, user: int, ended: _Ended, readings: list[Predict], order: Predict | None, clipped: int) -> None:
        sums = np.zeros((_READINGS, ERROR_SUMS))
        for row, predict in enumerate(readings):
            sums[row] = ended.errors(predict, self.rating_range)
        lists = ended.lists(order, len(self._factors), good_rating(self.rating_range)) if order else [0.0] * LIST_SUMS
        self._final[user] = (1, clipped, *sums.ravel(), *lists)

    def train_mae(self, iteration: int, contributors: int) -> float | None:
        """Compute the mean error of V(t), U(t) for t = `iteration`, over the users that took part in it.

        None if fewer than `contributors` users are found, because later iterations have reused their slots.
        """
        slots = self._live[iteration % _DEPTH]
        present = slots[slots[:, 0] == iteration + 1]
        if not len(present) or len(present) < contributors:
            return None
        return float(present[:, 1].sum() / present[:, 2].sum())

    def train_fall(self, iteration: int, contributors: int) -> tuple[float, float] | None:
        """Compute the errors of iterations t - 1 and t = `iteration` over the users that took part in both.

        None if later iterations have reused the slots, or if these users are not the majority of those that took part
        in either iteration: the two figures would then show which users came and left, not what was learned.
        """
        before, after = self._live[(iteration - 1) % _DEPTH], self._live[iteration % _DEPTH]
        was, is_there = before[:, 0] == iteration, after[:, 0] == iteration + 1
        both = was & is_there
        most = max(was.sum(), is_there.sum(), contributors)
        if iteration < 1 or not both.any() or 2 * both.sum() <= most:
            return None
        return tuple(float(slots[both, 1].sum() / slots[both, 2].sum()) for slots in (before, after))  # type: ignore

    def accuracy(self) -> Accuracy:
        """Add up the users who have finished."""
        _, clipped, *sums = self._final[self._final[:, 0] == 1].sum(axis=0)
        own, printed, last, lists = np.split(np.array(sums), np.cumsum([ERROR_SUMS] * _READINGS))
        reading = read_errors(own)
        if reading is None:
            return Accuracy()
        return Accuracy(
            reading.train_mae, reading.train_rmse, reading.test_mae, reading.test_rmse,
            int(clipped), read_errors(printed), read_errors(last), read_lists(lists),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Ended:
    """A user that has finished, with the ratings that measure it."""

    role: PredictingUser | FactorizingUser
    held_out: HeldOut | None

    def errors(self, predict: Predict, rating_range: tuple[float, float]) -> tuple[float, ...]:
        own, held_out = self.role.inputs, self.held_out
        test = (0.0, 0.0, 0)
        if held_out is not None and len(held_out.items):
            test = error_sums(held_out.ratings, predict(held_out.items), rating_range)
        return *error_sums(own.ratings, predict(own.items), rating_range), *test

    def lists(self, predict: Predict, n_items: int, good_from: float) -> tuple[float, ...]:
        held_out = self.held_out
        if held_out is None or not (held_out.ratings >= good_from).any():
            return (0.0,) * LIST_SUMS
        good = held_out.items[held_out.ratings >= good_from]
        scores = predict(np.arange(n_items, dtype=np.uint32))
        return list_sums(scores, self.role.inputs.items, good, self.role.popularity)
