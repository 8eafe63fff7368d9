"""Neighbouring data: the ratings of one user, one or all moved to the other end of the scale, or on other items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.errors import BadInput
from protocol.params import Params
from protocol.party.role import UserInput, user_name


@dataclass(frozen=True, slots=True, eq=False)
class RatingChange:
    """What one user brought, and what it brings instead."""

    user: int
    item: int | None  # None: all ratings of the user are changed
    before: UserInput
    after: UserInput
    exchanged: bool = False  # for ratings of other items

    @property
    def party(self) -> str:
        return user_name(self.user)

    def words(self) -> str:
        """Write the pair as a person would name it."""
        if self.exchanged:
            return f"the {len(self.before.items)} ratings of {self.party} exchanged for {len(self.after.items)} others"
        if self.item is None:
            return f"all ratings of {self.party} at the other end of the scale"
        before, after = self.ratings()
        return f"{self.party} says {after:g} of item {self.item} instead of {before:g}"

    def ratings(self) -> tuple[float, float]:
        """Return the changed rating as it was, and as it is; only of a change of one item."""
        at = int(np.searchsorted(self.before.items, self.item or 0))
        return float(self.before.ratings[at]), float(self.after.ratings[at])

    def row(self) -> dict[str, Any]:
        before, after = self.ratings() if self.item is not None else (None, None)
        return {"user": self.user, "item": self.item, "rating": before, "other": after}


def other_end(ratings: Floats, params: Params) -> Floats:
    """Return, for each of `ratings`, the end of the scale that is farther away; the upper one from the middle."""
    middle = (params.rating_min + params.rating_max) / 2
    return np.where(ratings > middle, params.rating_min, params.rating_max)


def ends_of(params: Params, user: int, own: UserInput, item: int) -> RatingChange:
    """Give `item` the lowest rating in one data set and the highest in the other, whatever it was."""
    there = own.items == item
    least, most = (UserInput(own.items, np.where(there, end, own.ratings)) for end in params.rating_range)
    return RatingChange(user, item, least, most)


def change_of(params: Params, user: int, own: UserInput, item: int | None) -> RatingChange:
    """RatingChange the rating of `item`, or all ratings, of `user`; `BadInput` if the user did not rate that item."""
    ratings = other_end(own.ratings, params)
    if item is not None:
        if item not in own.items:
            some = ", ".join(map(str, own.items[:5].tolist()))
            raise BadInput(f"{user_name(user)} did not rate item {item} in this run: take one of its items, as {some}.")
        ratings = np.where(own.items == item, ratings, own.ratings)
    return RatingChange(user, item, own, UserInput(own.items, ratings))


def exchange_of(params: Params, user: int, own: UserInput, draw: np.random.Generator) -> RatingChange:
    """Exchange the whole input of `user`: another number of items, none of its own if there are others, at the ends."""
    free = np.setdiff1d(np.arange(params.n_items, dtype=own.items.dtype), own.items)
    many = min(len(free), 2 * len(own.items))
    many -= many == len(own.items) > 1
    items = np.sort(draw.choice(free, many, replace=False)) if many else own.items[:1]
    ratings = draw.choice([params.rating_min, params.rating_max], len(items))
    return RatingChange(user, None, own, UserInput(items, ratings.astype(own.ratings.dtype)), exchanged=True)
