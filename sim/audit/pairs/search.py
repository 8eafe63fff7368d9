"""Choose the pairs that are tried: the changes that are likely to be worth most to a coalition, and typical ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from protocol.params import Params
from protocol.party.role import UserInput, user_index
from sim.audit.coalitions import Coalition
from sim.audit.pairs.change import RatingChange, change_of, other_end
from sim.audit.pairs.exposure import Exposure

Ratings = Mapping[str, UserInput]  # by user, as `truth.all_ratings`


def raters_of(
    params: Params, exposure: Exposure, members: Coalition, ratings: Ratings, item: int, most: int
) -> list[RatingChange]:
    """List the changes of `item` by the `most` raters to whom it is likely worth most."""
    found = []
    for name, own in ratings.items():
        at = int(np.searchsorted(own.items, item))
        if name not in members and at < len(own.items) and own.items[at] == item:
            moves = other_end(own.ratings, params) - own.ratings
            score = exposure.scores(members, user_index(name), own, moves)[at]
            found.append((-float(score), user_index(name), own))
    return [change_of(params, user, own, item) for _, user, own in sorted(found, key=lambda one: one[:2])[:most]]


def best_of_items(params: Params, exposure: Exposure, members: Coalition, ratings: Ratings) -> list[RatingChange]:
    """List, for every item, the change of a rating that is likely to be worth most, in the order of that estimate."""
    users, items, scores = [], [], []
    for name, own in ratings.items():
        if name not in members and len(own.items):
            moves = other_end(own.ratings, params) - own.ratings
            scores.append(exposure.scores(members, user_index(name), own, moves))
            users.append(np.full(len(own.items), user_index(name)))
            items.append(own.items.astype(np.int64))
    if not scores:
        return []
    order = np.argsort(-np.concatenate(scores), kind="stable")
    ordered = np.concatenate(items)[order]
    _, first = np.unique(ordered, return_index=True)
    chosen = order[np.sort(first)]
    return [
        change_of(params, user, ratings[f"user:{user}"], item)
        for user, item in zip(
            np.concatenate(users)[chosen].tolist(), np.concatenate(items)[chosen].tolist(), strict=True
        )
    ]


def some_of(ranked: list[RatingChange], most: int) -> list[RatingChange]:
    """Choose at most `most` of `ranked`: the first half of them from the top, the others evenly over the rest."""
    if len(ranked) <= most:
        return ranked
    top = max(1, most // 2)
    places = np.linspace(top, len(ranked) - 1, most - top).round().astype(np.int64)
    return [*ranked[:top], *(ranked[place] for place in np.unique(places).tolist())]


def small_and_large(ratings: Ratings, most: int) -> list[str]:
    """Choose users, half of them with the fewest ratings and half with the most: first those with the fewest."""
    order = sorted(ratings, key=lambda name: (len(ratings[name].items), user_index(name)))
    few = order[: (most + 1) // 2]
    return [*few, *(name for name in reversed(order[-(most // 2) :] if most > 1 else []) if name not in few)]
