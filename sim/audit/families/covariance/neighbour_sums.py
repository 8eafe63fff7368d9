"""Measure how far one record moves the sums of `covariance`, `covariance-masked` and `hybrid`, on the run's own data.

A rating is removed, or a rating at an end of the range is added where there was none (or a whole user is removed, if
the unit of privacy is the user). The published averages stay fixed: they were released before the covariance is summed.
The change of each sum, in the norm that its noise is made for (a symmetric matrix has its off-diagonal entries twice),
is divided by the sensitivity that the noise was scaled with: at most 1, if that is a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from protocol.arrays import Floats, Ints
from protocol.party.role import RECOMMENDER
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import Averages
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.covariance.parts import Sparse, first_sparse, second_sparse
from protocol.schemes.covariance.sensitivity import Pair, covariance_sensitivity, sum_sensitivity
from sim.audit.families.covariance.exact_totals import Totals, read_totals
from sim.audit.findings import Finding
from sim.views.evidence import Case

ROUNDING = 1e-6  # tolerance for floats, relative to a sensitivity

Owned = tuple[Ints, Floats]  # items and ratings of one user; may be empty
_NOTHING: Sparse = (np.zeros(0, np.int64), np.zeros(0))


def sums_moved(case: Case, sample: int, draw: np.random.Generator) -> tuple[dict[str, Any], list[Finding]]:
    if not case.path(RECOMMENDER).is_file() or isinstance(totals := read_totals(case), str):
        return {}, []
    changes: dict[str, list[float]] = {}
    for before, after in neighbours(totals, sample, draw):
        for name, ratio in moved(totals.params, totals.averages, before, after).items():
            changes.setdefault(name, []).append(ratio)
    largest = {name: max(ratios) for name, ratios in changes.items()}
    if not largest:
        return {}, []
    document = {"unit": "sensitivity that the noise is made for", "records": sample, "largest": largest}
    return document, [_finding(totals.params, largest, len(next(iter(changes.values()))))]


def neighbours(totals: Totals, sample: int, draw: np.random.Generator) -> Iterator[tuple[Owned, Owned]]:
    """Yield (a user's data, the same data with one record less or more)."""
    params, book = totals.params, totals.book
    users = draw.integers(len(book.starts) - 1, size=sample)
    for turn, user in enumerate(users.tolist()):
        own = book.of_user(user)
        items, ratings = book.items[own], book.ratings[own]
        if params.per_user:
            yield (items, ratings), (items[:0], ratings[:0])
        elif turn % 2 == 0 and len(items):
            place = int(draw.integers(len(items)))
            yield (items, ratings), (np.delete(items, place), np.delete(ratings, place))
        elif len(free := np.setdiff1d(np.arange(params.n_items), items)):
            item, most = int(draw.choice(free)), params.rating_span / 2 + params.perturbation
            place = int(np.searchsorted(items, item))
            added = np.insert(ratings, place, params.middle + most * draw.choice([-1.0, 1.0]))
            yield (items, ratings), (np.insert(items, place, item), added)


def moved(params: CovarianceParams, averages: Averages, before: Owned, after: Owned) -> dict[str, float]:
    """Compute, for each sum, the change divided by its sensitivity."""
    each, pair = sum_sensitivity(params), covariance_sensitivity(params, averages.spread)
    places, change = first_change(params, before, after)
    of_all, counts = places < 2, places >= 2 + params.n_items
    found = {
        **_over("all", change[places == 0], change[places == 1], each, params),
        **_over("items", change[~of_all & ~counts], change[counts], each, params),
    }
    places, change = second_change(params, averages, before, after)
    half = triangle.packed_length(params.items)
    on_diagonal = np.isin(places % half, triangle.starts(params.items))
    change = change * np.where(on_diagonal, 1.0, np.sqrt(2.0) if params.gaussian else 2.0)  # entries that occur twice
    return found | _over("covariance", change[places < half], change[places >= half], pair, params)


def first_change(params: CovarianceParams, before: Owned, after: Owned) -> Sparse:
    """Return (places, the change at each) of the sums of the first round."""
    return _change(*(_first(params, own) for own in (before, after)))


def second_change(params: CovarianceParams, averages: Averages, before: Owned, after: Owned) -> Sparse:
    """Return (places, the change at each) of the sums of the second round, with the published `averages`."""
    return _change(*(_second(params, averages, own) for own in (before, after)))


def _first(params: CovarianceParams, own: Owned) -> Sparse:
    return first_sparse(params, *own) if len(own[0]) else _NOTHING


def _second(params: CovarianceParams, averages: Averages, own: Owned) -> Sparse:
    return second_sparse(params, averages, *own) if len(own[0]) else _NOTHING


def _change(before: Sparse, after: Sparse) -> Sparse:
    """Return the places of either, and the change from `before` to `after` at each."""
    places = np.union1d(before[0], after[0])
    change = np.zeros(len(places))
    change[np.searchsorted(places, after[0])] += after[1]
    change[np.searchsorted(places, before[0])] -= before[1]
    return places, change


def _over(name: str, sums: Floats, counts: Floats, bound: Pair, params: CovarianceParams) -> dict[str, float]:
    order = 2 if params.gaussian else 1
    return {
        f"{name}, sum": float(np.linalg.norm(sums, order)) / bound.total,
        f"{name}, count": float(np.linalg.norm(counts, order)) / bound.count,
    }


def _finding(params: CovarianceParams, largest: dict[str, float], records: int) -> Finding:
    name, most = max(largest.items(), key=lambda pair: pair[1])
    over = most > 1 + ROUNDING
    what = "one user" if params.per_user else "one rating"
    title = f"Adding or removing {what} moves the {name} by {most:.3g} of the sensitivity that its noise is made for."
    if not over:
        covariance = largest.get("covariance, sum", 0.0)
        title = (
            f"Adding or removing {what} moves no sum further than its noise is made for ({records} records tried; the "
            f"covariance by {covariance:.2g} of its sensitivity, the {name} by {most:.2g})."
        )
    return Finding(
        "sensitivity",
        title,
        ("user",),
        "break" if over else "info",
        claimed=1.0,
        measured=largest,
        confidence=f"{records} neighbours drawn by the run id, each exact; a larger change may exist elsewhere",
        evidence=f"{'L2' if params.gaussian else 'L1'} norm of the change of each sum over its sensitivity, with the "
        "published averages held fixed; ratings removed, and added at the ends of the range",
    )
