"""Measures of prediction: sums of errors, which can be added up over users, and the quality of a list of ten items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ids

Predict = Callable[[Ids], Floats]

LISTED = 10  # items of a list
GOOD = 0.8  # of the scale: a list should contain the items with a held-out rating of at least this (4 of 5 stars)
ERROR_SUMS = 6  # numbers of a reading, before they are divided
LIST_SUMS = 6
_DISCOUNTS: Floats = 1 / np.log2(np.arange(LISTED) + 2.0)


@dataclass(frozen=True, slots=True)
class ProfileErrors:
    """Errors of clipped predictions; None where there are no ratings of that kind."""

    train_mae: float | None = None
    train_rmse: float | None = None
    test_mae: float | None = None
    test_rmse: float | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Means over the users with a good held-out rating; `popular` marks the list of the items rated most often."""

    ndcg_10: float
    hit_10: float
    recall_10: float
    popular_ndcg_10: float | None  # None: the scheme publishes no counts
    users: int


@dataclass(frozen=True, slots=True)
class Accuracy(ProfileErrors):
    """Errors of the published factors with each user's fitted profile or, if a scheme has neither, of its model."""

    clipped: int = 0
    as_published: ProfileErrors | None = None  # with the printed λ
    iterate: ProfileErrors | None = None  # u_i of the last iteration
    ranking: Ranking | None = None


def error_sums(ratings: Floats, predictions: Floats, rating_range: tuple[float, float]) -> tuple[float, float, int]:
    """Compute Σ|e|, Σe² and the number of errors e of `predictions` clipped to `rating_range`."""
    errors = clipped_errors(ratings, predictions, rating_range)
    return float(np.einsum("j->", errors)), float(np.einsum("j,j->", errors, errors)), len(ratings)


def clipped_errors(ratings: Floats, predictions: Floats, rating_range: tuple[float, float]) -> Floats:
    low, high = rating_range
    errors: Floats = np.abs(ratings - np.minimum(np.maximum(predictions, low), high))
    return errors


def read_errors(sums: Floats) -> ProfileErrors | None:
    """Divide the `sums` of `error_sums` over training and held-out ratings; None if there are no training ratings."""
    train_abs, train_sq, train_n, test_abs, test_sq, test_n = map(float, sums)
    if not train_n:
        return None
    test = (test_abs / test_n, (test_sq / test_n) ** 0.5) if test_n else (None, None)
    return ProfileErrors(train_abs / train_n, (train_sq / train_n) ** 0.5, *test)


def good_rating(rating_range: tuple[float, float]) -> float:
    """Compute four fifths of the scale, which begins at 0 unless `rating_range` goes below it."""
    low, high = min(rating_range[0], 0.0), rating_range[1]
    return low + GOOD * (high - low)


def list_sums(scores: Floats, rated: Ids, good: Ids, popularity: Floats | None = None) -> tuple[float, ...]:
    """Measure one user's list: (1, NDCG, hit, recall, 1, NDCG of the most popular items); zeros if `good` is empty.

    `scores` has one number for every item, `good` are the items to be found. Without `popularity` the last two numbers
    are 0. A list has only items that are not `rated`; among equal scores the item with the smaller number comes first.
    """
    if not len(good):
        return (0.0,) * LIST_SUMS
    ndcg, found = _list_of(scores, rated, good)
    popular = (0.0, 0.0) if popularity is None else (1.0, _list_of(popularity, rated, good)[0])
    return 1.0, ndcg, float(found > 0), found / len(good), *popular


def _list_of(scores: Floats, rated: Ids, good: Ids) -> tuple[float, int]:
    """Compute (NDCG with gains of 0 and 1, how many `good` items are listed)."""
    listed = best_items(scores, rated, LISTED)
    hits = np.isin(listed, good)
    ideal = float(np.sum(_DISCOUNTS[: len(good)]))
    return float(np.sum(_DISCOUNTS[: len(listed)][hits])) / ideal, int(np.count_nonzero(hits))


def best_items(scores: Floats, rated: Ids, count: int) -> npt.NDArray[np.int64]:
    """List the `count` items with the highest `scores` that are not `rated`, the highest first."""
    free = np.ones(len(scores), bool)
    free[rated] = False
    items = np.flatnonzero(free)
    return items[np.argsort(-scores[items], kind="stable")[:count]]


def read_lists(sums: Floats) -> Ranking | None:
    """Divide the `sums` of `list_sums`; None if no user holds out a good item."""
    users, ndcg, hits, recall, with_counts, popular = map(float, sums)
    if not users:
        return None
    known = popular / users if with_counts == users else None
    return Ranking(ndcg / users, hits / users, recall / users, known, int(users))
