"""`keyhole pair`: one changed rating, record by record, and what it is worth to whom."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.party.role import user_index
from sim.audit import truth
from sim.audit.families.registry import family_of
from sim.audit.pairs.change import RatingChange, change_of
from sim.audit.pairs.exposure import Exposure
from sim.audit.pairs.pairs import grouped, ratios
from sim.audit.pairs.search import Ratings, best_of_items
from sim.audit.pairs.second_run import deviations
from sim.audit.pairs.twice import run_twice
from sim.folder.naming import read_names
from sim.folder.unloaded import is_loaded
from sim.views.evidence import Case, at_rest, open_case


def pair_of(folder: Path, user: str | None = None, item: int | None = None) -> dict[str, Any]:
    """Make the document of `keyhole pair --json` for the rating of `item` by `user`, or for the worst one found."""
    case = open_case(folder, unloaded=True)
    if not is_loaded(case.card):
        raise BadInput(f"The scheme {case.config.scheme!r} is not loaded: add --trust-scheme if you trust its code.")
    with at_rest(folder):
        missing = [party for party in case.parties if party not in case.kept]
        if missing:
            raise BadInput(f"{folder} has no view of {missing[0]}, and a pair needs all: run with --views full.")
        exposure = None if math.isinf(case.card.params.epsilon) else family_of(case.card.scheme).exposure(case)
        ratings = truth.all_ratings(case)
        if user is not None:
            party = read_names(folder).find_user(user, case.card.params.n_users, folder)
            if party not in ratings:
                raise BadInput(f"{folder} has no view of {party} yet: take another user.")
            ratings = {party: ratings[party]}
        return _document(case, _chosen(case, exposure, ratings, item), exposure)


def _chosen(case: Case, exposure: Exposure | None, ratings: Ratings, item: int | None) -> RatingChange:
    """Choose the rating of `item`, or any, that is likely to be worth most among `ratings`."""
    params = case.card.params
    members = exposure.coalitions()[0] if exposure and exposure.coalitions() else ()
    ranked = best_of_items(params, exposure or Exposure(), members, ratings)
    chosen = [change for change in ranked if item is None or change.item == item]
    if not chosen and len(ratings) == 1:  # the one user did not rate it, or is in the coalition itself
        ((name, own),) = ratings.items()
        return change_of(params, user_index(name), own, int(own.items[0]) if item is None else item)
    if not chosen:
        raise BadInput(f"No user of this run rated item {item}: take another one.")
    return chosen[0]


def _document(case: Case, change: RatingChange, exposure: Exposure | None) -> dict[str, Any]:
    params, family = case.card.params, family_of(case.card.scheme)
    twice, found = run_twice(case, change), deviations(case, change)
    losses = [exposure.loss(members, twice) for members in exposure.coalitions()] if exposure else []
    bound = None if math.isinf(params.epsilon) else family.release_bound(params)
    return {
        "run": str(case.folder),
        "scheme": case.card.scheme.name,
        "pair": change.row() | {"party": change.party, "words": change.words()},
        "records": [one.row() for one in found],
        "leaks": grouped(one for one in [*found, *twice.deviations] if one.is_leak),
        "shift": {"unit": bound.words, "by_iteration": ratios(bound, twice)} if bound else None,
        "epsilon": [loss.row() | exposure.accounted(loss.members, change) for loss in losses if loss and exposure],
    }
