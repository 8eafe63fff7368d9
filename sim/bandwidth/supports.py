"""The items that each user of a run rated: from the ratings if they are at hand, else from the views of the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.errors import BadInput
from protocol.party.role import RECOMMENDER, user_index, user_name
from protocol.party.view import Broken
from protocol.wire.messages import GradedRatings, Join, RatingsHandover
from sim.data.ratings import Column
from sim.plan.plan import make_plan
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

RATINGS, VIEWS = "ratings", "views"


@dataclass(frozen=True, slots=True)
class Supports:
    rated: Column | None  # its values are NaN if it comes from views; None: not known
    source: str | None  # RATINGS or VIEWS
    note: str | None  # why it does not come from the ratings, or is not known


def supports_of(case: Case) -> Supports:
    """Find the items that each user rated for training; if they are not known, the note says what to do."""
    try:
        plan = make_plan(case.config, case.nonce, case.card.simulation)
        if plan.card.run_id == case.card.run_id:
            return Supports(plan.data.train, RATINGS, None)
        why = f"{plan.config.data} is not what it was when {case.folder} was run"
    except BadInput as refusal:
        why = str(refusal).rstrip(".")
    try:
        lists = _of_users(case) or _of_recommender(case)
    except Broken as fault:
        lists, why = None, f"{why}, and a view cannot be read ({fault})"
    if lists is None:
        words = "no view of the run says what every user rated, so the formula has nothing to go by"
        return Supports(None, None, f"{why}, and {words}: put the same data there.")
    starts = np.concatenate([[0], np.cumsum([len(items) for items in lists])]).astype(np.int64)
    items = np.concatenate(lists).astype(np.uint32)
    return Supports(Column(starts, items, np.full(len(items), np.nan)), VIEWS, f"{why}.")


def _of_users(case: Case) -> list[npt.NDArray[np.uint32]] | None:
    """Take the lists from the input of each user, if every user kept a view."""
    lists = []
    for user in range(case.card.params.n_users):
        party = user_name(user)
        if not case.path(party).is_file():
            return None
        own = Exhibits(case, (party,)).brought(party).inputs
        if own is None:
            return None
        lists.append(own.items)
    return lists


def _of_recommender(case: Case) -> list[npt.NDArray[np.uint32]] | None:
    """Take the lists from what users sent the recommender at the start, unless the scheme hides them from it."""
    if not case.path(RECOMMENDER).is_file():
        return None
    joins = [Join.__name__] if case.card.scheme.factorizes else []  # in other schemes its list may be empty
    kinds = [RatingsHandover.__name__, GradedRatings.__name__, *joins]
    told: dict[int, npt.NDArray[np.uint32]] = {}
    for seen in Exhibits(case, (RECOMMENDER,)).received(RECOMMENDER, *kinds):
        assert isinstance(seen.message, (Join, RatingsHandover, GradedRatings))
        told[user_index(seen.sender)] = seen.message.items
        if len(told) == case.card.params.n_users:
            return [told[user] for user in range(len(told))] if set(told) == set(range(len(told))) else None
    return None
