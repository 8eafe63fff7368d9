"""The sums over all users at once, for a recommender that holds the ratings.

Sums are sparse products: they add in the order of users, as adding the users' parts one by one would.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ints
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import Averages, clamped
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.covariance.parts import covered_places
from protocol.schemes.covariance.sensitivity import weights

ROWS_AT_ONCE = 256  # rows of the covariance in a block, which takes far less memory than the whole


@dataclass(frozen=True, slots=True, eq=False)
class Book:
    """Ratings of all users, one after the other: those of user u are `starts[u]` to `starts[u + 1]`."""

    starts: Ints
    items: Ints
    ratings: Floats

    @classmethod
    def of(cls, users: Iterable[tuple[npt.NDArray[np.integer], Floats]]) -> Book:
        owned = list(users)
        starts = np.concatenate([[0], np.cumsum([len(items) for items, _ in owned])]).astype(np.int64)
        items = np.concatenate([items for items, _ in owned]).astype(np.int64)
        return cls(starts, items, np.concatenate([ratings for _, ratings in owned]))

    @property
    def counts(self) -> Ints:
        return np.diff(self.starts)

    @property
    def owners(self) -> Ints:
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    def of_user(self, user: int) -> slice:
        return slice(int(self.starts[user]), int(self.starts[user + 1]))


def first_total(params: CovarianceParams, book: Book) -> Floats:
    """Compute the sum of `parts.first_part` over all users."""
    for_all, per_item, _ = weights(params, book.counts)
    owners, above = book.owners, book.ratings - params.middle
    by_user = np.bincount(owners, above, len(for_all))
    sums = np.bincount(book.items, per_item[owners] * above, params.n_items)
    counts = np.bincount(book.items, per_item[owners], params.n_items)
    totals = [float(np.sum(for_all * by_user)), float(np.sum(for_all * book.counts))]
    return np.concatenate([totals, sums, counts])


def centre_all(averages: Averages, book: Book) -> tuple[Floats, Floats]:
    """Compute (r̄ of each user, t of each rating) for all users, as `averages.centre` does for one."""
    owners, above = book.owners, book.ratings - averages.item_means[book.items]
    means = np.bincount(owners, above, len(book.starts) - 1) / (book.counts + averages.user_shrink)
    return means, above - means[owners]


def second_total(params: CovarianceParams, averages: Averages, book: Book) -> Floats:
    """Compute the sum of `parts.second_part` over all users."""
    _, centred = centre_all(averages, book)
    weight = weights(params, book.counts)[2][book.owners]
    at, inside = covered_places(averages.covered, book.items)
    users, weight, clipped = book.owners[inside], weight[inside], clamped(params, centred[inside])
    size = (len(book.starts) - 1, params.items)
    return np.concatenate(
        [
            _packed_product(users, at, weight * clipped, clipped, size),
            _packed_product(users, at, weight, np.ones(len(at)), size),
        ]
    )


def _packed_product(users: Ints, items: Ints, left: Floats, right: Floats, size: tuple[int, int]) -> Floats:
    """Compute the upper triangle of LᵀR; L (`left`) and R (`right`) have their entries at the same (user, item)."""
    from scipy.sparse import csr_matrix  # only a recommender needs it

    first = csr_matrix((left, (items, users)), shape=size[::-1])
    second = csr_matrix((right, (users, items)), shape=size)
    packed, begins = np.empty(triangle.packed_length(size[1])), triangle.starts(size[1])
    for top in range(0, size[1], ROWS_AT_ONCE):
        block = (first[top : top + ROWS_AT_ONCE] @ second).toarray()
        for row, entries in enumerate(block, top):
            packed[begins[row] : begins[row] + size[1] - row] = entries[row:]
    return packed
