"""Find the user that has not done its part, from what the recommender of a masked sum sees of all of them together.

The recommender sees no user's upload. It knows the items that each user joined with, how many contributed to each item,
and the totals. A user is named only where nobody else can have caused what was seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from protocol.arrays import Ids
from protocol.party.role import Facts, Machine, user_name
from protocol.schemes.factorization.masked_sum import contributor_digest
from protocol.wire.messages import Contributors

Supports = Mapping[int, Ids]


class Struck(Machine):
    """The users that lost their place, and why."""

    def __init__(self) -> None:
        self.why: dict[int, str] = {}
        self.sums = 0  # that no honest users can have made

    def __contains__(self, user: int) -> bool:
        return user in self.why

    def add(self, user: int, why: str) -> None:
        self.why.setdefault(user, why)

    def figures(self) -> Facts:
        if not self.why and not self.sums:
            return {}
        notes = [f"{user_name(user)} lost its place: {why}." for user, why in sorted(self.why.items())]
        if self.sums:
            notes.append(f"{self.sums} sums were beyond what honest users can make, and moved no item.")
        struck = {user_name(user): why for user, why in sorted(self.why.items())}
        return {"struck": struck, "poisoned_sums": self.sums, "notes": notes}


def crowding(supports: Supports, n_items: int, most: int) -> int | None:
    """Find the user to leave out where an item has more than `most` raters; None if no item has.

    None of its raters can be proved wrong. The one with the most items is taken, and of several the last that joined.
    """
    raters = np.bincount(np.concatenate(list(supports.values())), minlength=n_items)
    full = raters > most
    if not np.count_nonzero(full):
        return None
    crowd = [user for user, items in supports.items() if np.count_nonzero(full[items])]
    return max(reversed(crowd), key=lambda user: len(supports[user]))


def sender_of_other_items(
    announced: Contributors, opened: Ids, counts: npt.NDArray[np.int64], supports: Supports
) -> tuple[int, Ids] | None:
    """Find (user, the items that it sent), if one user that sent other items than it joined with explains `announced`.

    `counts` is how many of `supports` hold each of the `opened` items. The digest proves that it was this user.
    """
    change = announced.counts.astype(np.int64) - counts
    if np.count_nonzero(np.abs(change) > 1) or not np.count_nonzero(change):
        return None
    fewer, more = opened[change < 0], opened[change > 0]
    for user, own in supports.items():
        if np.isin(fewer, own).sum() < len(fewer) or np.isin(more, own).any():
            continue
        sent = np.sort(np.concatenate([own[~np.isin(own, fewer)], more])).astype(np.uint32)
        tried = {**supports, user: sent}
        if contributor_digest(announced.iteration, tried.items()) == announced.digest:
            return user, sent
    return None


def poisoner(items: Ids, released: Ids, supports: Supports) -> int | None:
    """Find the one user that can have spoiled the sums of `items`; None if several can, or if no single one can.

    It contributed to all of them, and they are more than half of its own sums that were `released`.
    """
    suspects: Collection[int] = [
        user
        for user, own in supports.items()
        if np.isin(items, own).all() and 2 * len(items) > np.count_nonzero(np.isin(own, released))
    ]
    return next(iter(suspects)) if len(suspects) == 1 else None
