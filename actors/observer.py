"""The observer plane: figures for the person, outside every message, view and byte count.

One flat array that the launcher and the actors on this machine share. The recommender's host puts the item
factors there, each user's host its sums of errors; ratings and user factors stay where they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.roles import FactorizingRecommender, FactorizingUser, PredictingUser, Role, UserInput, user_index

Numbers = npt.NDArray[np.float64]
Predict = Callable[[npt.NDArray[np.uint32]], Numbers]

_DEPTH = 8  # iterations that a slow reader may lag behind
_LIVE, _FINAL = 3, 8  # numbers per user: (iteration + 1, Σ|e|, n) and (done, six sums, clipped)


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """The ratings of one user that are kept for measuring; they never leave the user."""

    items: npt.NDArray[np.uint32]
    ratings: Numbers


@dataclass(frozen=True, slots=True)
class Accuracy:
    train_mae: float | None
    train_rmse: float | None
    test_mae: float | None
    test_rmse: float | None
    clipped: int


class Observer:
    def __init__(self, n_users: int, n_items: int, dim: int, rating_range: tuple[float, float], buffer: memoryview):
        self.rating_range = rating_range
        numbers = np.frombuffer(buffer, np.float64)
        factors, live = n_items * dim, n_users * _DEPTH * _LIVE
        self._factors = numbers[:factors].reshape(n_items, dim)
        self._live = numbers[factors : factors + live].reshape(_DEPTH, n_users, _LIVE)
        self._final = numbers[factors + live :].reshape(n_users, _FINAL)

    @staticmethod
    def size(n_users: int, n_items: int, dim: int) -> int:
        return 8 * (n_items * dim + n_users * (_DEPTH * _LIVE + _FINAL))

    @classmethod
    def in_memory(cls, n_users: int, n_items: int, dim: int, rating_range: tuple[float, float]) -> Observer:
        return cls(n_users, n_items, dim, rating_range, memoryview(bytearray(cls.size(n_users, n_items, dim))))

    def watch(self, party: str, role: Role, done: bool, held_out: HeldOut | None) -> None:
        """Called by a host when a role has entered another iteration, before anything that it sends leaves."""
        if isinstance(role, PredictingUser):
            if done:
                self._measure(user_index(party), role.inputs, role.predict, 0, held_out)
        elif isinstance(role, FactorizingUser):
            if done:
                own = functools.partial(self._predict, role.user_factors)
                self._measure(user_index(party), role.inputs, own, role.clipped, held_out)
            elif role.last_errors is not None:
                self._note(user_index(party), role.iteration, role.inputs.ratings, role.last_errors)
        elif isinstance(role, FactorizingRecommender):
            self._factors[:] = role.item_factors

    def _note(self, user: int, iteration: int, ratings: Numbers, errors: Numbers) -> None:
        absolute = self._errors(ratings, ratings - errors)
        self._live[iteration % _DEPTH, user] = (iteration + 1, np.einsum("j->", absolute), len(ratings))

    def _measure(
        self, user: int, inputs: UserInput, predict: Predict, clipped: int, held_out: HeldOut | None
    ) -> None:
        train = self._sums(inputs.ratings, predict(inputs.items))
        test, n_test = (0.0, 0.0), 0
        if held_out is not None and len(held_out.items):
            test, n_test = self._sums(held_out.ratings, predict(held_out.items)), len(held_out.items)
        self._final[user] = (1, *train, len(inputs.ratings), *test, n_test, clipped)

    def _predict(self, own: Numbers, items: npt.NDArray[np.uint32]) -> Numbers:
        predictions: Numbers = np.einsum("jd,d->j", self._factors[items], own)
        return predictions

    def _errors(self, ratings: Numbers, predictions: Numbers) -> Numbers:
        """|e| of predictions clipped to the rating range."""
        low, high = self.rating_range
        errors: Numbers = np.abs(ratings - np.minimum(np.maximum(predictions, low), high))
        return errors

    def _sums(self, ratings: Numbers, predictions: Numbers) -> tuple[float, float]:
        errors = self._errors(ratings, predictions)
        return float(np.einsum("j->", errors)), float(np.einsum("j,j->", errors, errors))

    def train_mae(self, iteration: int, contributors: int) -> float | None:
        """Of V(t), U(t), over the users who took part in iteration t; None if the slots have moved on."""
        slots = self._live[iteration % _DEPTH]
        present = slots[slots[:, 0] == iteration + 1]
        if not len(present) or len(present) < contributors:
            return None
        return float(present[:, 1].sum() / present[:, 2].sum())

    def accuracy(self) -> Accuracy:
        """Of the final factors, over the users who have finished."""
        sums = self._final[self._final[:, 0] == 1].sum(axis=0)
        if not sums[0]:
            return Accuracy(None, None, None, None, 0)
        _, train_abs, train_sq, train_n, test_abs, test_sq, test_n, clipped = sums
        test_mae, test_rmse = (test_abs / test_n, (test_sq / test_n) ** 0.5) if test_n else (None, None)
        return Accuracy(train_abs / train_n, (train_sq / train_n) ** 0.5, test_mae, test_rmse, int(clipped))
