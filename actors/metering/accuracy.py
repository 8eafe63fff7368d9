"""How well users predict: sums of errors that can be added up over users, and how good a list of ten items is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Ids = npt.NDArray[np.uint32]
Predict = Callable[[Ids], Numbers]

LISTED = 10  # items of a list
GOOD = 0.8  # of the scale: a held-out rating from there on (4 of 5 stars) is what a list should have found
ERROR_SUMS = 6  # numbers of a reading, before they are divided
LIST_SUMS = 6
_DISCOUNTS: Numbers = 1 / np.log2(np.arange(LISTED) + 2.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """Errors of clipped predictions; None where there are no ratings of that kind."""

    train_mae: float | None = None
    train_rmse: float | None = None
    test_mae: float | None = None
    test_rmse: float | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Means over the users with a good held-out rating; `popular` is the list of the items most often rated."""

    ndcg_10: float
    hit_10: float
    recall_10: float
    popular_ndcg_10: float | None  # None: the scheme publishes no counts
    users: int


@dataclass(frozen=True, slots=True)
class Accuracy(Reading):
    """Of the published factors with the profile that each user fitted; of a scheme without either, of its model."""

    clipped: int = 0
    as_published: Reading | None = None  # with the printed λ
    iterate: Reading | None = None  # u_i of the last iteration
    ranking: Ranking | None = None


def error_sums(ratings: Numbers, predictions: Numbers, rating_range: tuple[float, float]) -> tuple[float, float, int]:
    """Σ|e|, Σe² and how many, of predictions clipped to the rating range."""
    errors = clipped_errors(ratings, predictions, rating_range)
    return float(np.einsum("j->", errors)), float(np.einsum("j,j->", errors, errors)), len(ratings)


def clipped_errors(ratings: Numbers, predictions: Numbers, rating_range: tuple[float, float]) -> Numbers:
    low, high = rating_range
    errors: Numbers = np.abs(ratings - np.minimum(np.maximum(predictions, low), high))
    return errors


def read_errors(sums: Numbers) -> Reading | None:
    """Divide the sums of `error_sums` over training and held-out ratings; None where there are none at all."""
    train_abs, train_sq, train_n, test_abs, test_sq, test_n = map(float, sums)
    if not train_n:
        return None
    test = (test_abs / test_n, (test_sq / test_n) ** 0.5) if test_n else (None, None)
    return Reading(train_abs / train_n, (train_sq / train_n) ** 0.5, *test)


def good_rating(rating_range: tuple[float, float]) -> float:
    """Four fifths of the scale, which begins at 0 unless ratings go below it."""
    low, high = min(rating_range[0], 0.0), rating_range[1]
    return low + GOOD * (high - low)


def list_sums(scores: Numbers, rated: Ids, good: Ids, popularity: Numbers | None = None) -> tuple[float, ...]:
    """(1, NDCG, hit, recall, 1 and NDCG of the most popular) of one user's list; zeros if it holds out no good item.

    `scores` has one number for every item. A list is of items that the user has not rated; of equal scores the item
    with the smaller number comes first.
    """
    if not len(good):
        return (0.0,) * LIST_SUMS
    ndcg, found = _list_of(scores, rated, good)
    popular = (0.0, 0.0) if popularity is None else (1.0, _list_of(popularity, rated, good)[0])
    return 1.0, ndcg, float(found > 0), found / len(good), *popular


def _list_of(scores: Numbers, rated: Ids, good: Ids) -> tuple[float, int]:
    """(NDCG with gains of 0 and 1, how many good items are listed)."""
    listed = best_items(scores, rated, LISTED)
    hits = np.isin(listed, good)
    ideal = float(np.sum(_DISCOUNTS[: len(good)]))
    return float(np.sum(_DISCOUNTS[: len(listed)][hits])) / ideal, int(np.count_nonzero(hits))


def best_items(scores: Numbers, rated: Ids, count: int) -> npt.NDArray[np.int64]:
    """List the unrated items of the highest scores, the highest first."""
    free = np.ones(len(scores), bool)
    free[rated] = False
    items = np.flatnonzero(free)
    return items[np.argsort(-scores[items], kind="stable")[:count]]


def read_lists(sums: Numbers) -> Ranking | None:
    """Divide the sums of `list_sums`; None where no user holds out a good item."""
    users, ndcg, hits, recall, with_counts, popular = map(float, sums)
    if not users:
        return None
    known = popular / users if with_counts == users else None
    return Ranking(ndcg / users, hits / users, recall / users, known, int(users))
