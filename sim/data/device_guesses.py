"""Predictions for which no data leaves the device. A protocol must beat their errors to be worth its bytes.

Each of these floors is computed by the user alone, from the user's own training ratings or without any data. It is
measured on the same held-out ratings as the schemes. The mean of all users' ratings is not among the floors, because a
party would have to collect it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.party.home_ridge import centre_of, columns_of, ridge_stars, star_of
from protocol.schemes.base import ItemFeatures
from sim.data.ratings import Column, Dealt

Range = tuple[float, float]

# People rate above the middle. The value was fixed beforehand for all data sets; it is computed from none of them.
GUESS = 5 / 8  # the position on the scale: 3.5 on five stars


@dataclass(frozen=True, slots=True)
class DeviceGuess:
    name: str
    title: str
    needs: str
    predictions: Floats  # one per held-out rating


def user_means(train: Column, otherwise: float) -> Floats:
    """Compute the plain mean of each user's own training ratings; `otherwise` for a user without any."""
    counts = train.counts
    sums = np.bincount(train.owners(), weights=train.values, minlength=len(counts))
    return np.where(counts > 0, sums / np.maximum(counts, 1), otherwise)


def guess(rating_range: Range) -> float:
    low, high = rating_range
    return low + GUESS * (high - low)


def own_ridge(data: Dealt, rating_range: Range, features: ItemFeatures) -> Floats:
    """Predict by ridge regression of each user's own ratings on public columns of items, centred over all items."""
    star, centre, columns = star_of(*rating_range), centre_of(*rating_range), columns_of(*features)
    described, unknown = columns - columns.mean(axis=0), np.zeros(len(columns))
    found = np.zeros(len(data.held_out.values))
    for user, (first, end) in enumerate(itertools.pairwise(data.held_out.starts.tolist())):
        if first < end:
            items, ratings = data.train.of(user)
            above, wanted = (ratings - centre) / star, data.held_out.items[first:end]
            found[first:end] = centre + star * ridge_stars(described, unknown, items, above, wanted)
    return np.clip(found, *rating_range)


def floors(data: Dealt, rating_range: Range, features: ItemFeatures | None = None) -> list[DeviceGuess]:
    """Make all guesses, one of them with public `features` of items if there are any."""
    low, high = rating_range
    middle, guessed = (low + high) / 2, guess(rating_range)
    owners, n_test = data.held_out.owners(), len(data.held_out.values)
    own = user_means(data.train, middle)[owners]
    own_ratings = "the user's own training ratings, which stay with the user"
    ridge = []
    if features is not None:
        words = (f"{own_ratings}, and public facts of items", own_ridge(data, rating_range, features))
        ridge = [DeviceGuess("own-ridge", "The user's own ridge regression on public item features", *words)]
    return [
        *ridge,
        DeviceGuess("user-mean", "The user's own mean", own_ratings, own),
        DeviceGuess(
            "constant",
            f"Always {guessed:g}",
            "no ratings: five eighths of the way up the scale, a guess that was fixed before any data was seen",
            np.full(n_test, guessed),
        ),
        DeviceGuess("middle", f"Always {middle:g}", "nothing: the middle of the scale", np.full(n_test, middle)),
    ]


def errors(floor: DeviceGuess, data: Dealt) -> dict[str, Any]:
    """Compute the errors of `floor` on the held-out ratings; None if there are no such ratings.

    No prediction leaves the rating range, so nothing is clipped.
    """
    missed = data.held_out.values - floor.predictions
    if not len(missed):
        return {"test_rmse": None, "test_mae": None}
    return {"test_rmse": float(np.sqrt((missed * missed).mean())), "test_mae": float(np.abs(missed).mean())}
