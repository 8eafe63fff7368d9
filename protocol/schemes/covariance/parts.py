"""One user's part of the sums, as a whole vector or as (places, values) without the zeros.

The places tell which items the user rated, so a part that is sent without its zeros shows the support.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ints, Places
from protocol.schemes.covariance import triangle
from protocol.schemes.covariance.averages import Averages, centre, clamped
from protocol.schemes.covariance.options import CovarianceParams
from protocol.schemes.covariance.round_noise import round_length
from protocol.schemes.covariance.sensitivity import weights

Sparse = tuple[Ints, Floats]  # increasing places, and the values at these places


def first_sparse(params: CovarianceParams, items: Places, ratings: Floats) -> Sparse:
    """Make the part of round 1: 2c + 2 places for c ratings, even if one is the middle of the range and adds 0."""
    own = items.astype(np.int64)
    for_all, per_item, _ = (float(weight[0]) for weight in weights(params, np.array([len(own)])))
    above = ratings - params.middle
    places = np.concatenate([[0, 1], 2 + own, 2 + params.n_items + own])
    totals = [for_all * float(above.sum()), for_all * len(own)]
    return places, np.concatenate([totals, per_item * above, np.full(len(own), per_item)])


def second_sparse(params: CovarianceParams, averages: Averages, items: Places, ratings: Floats) -> Sparse:
    """Make the part of round 2: the pairs of the user's covered items, once for Cov and once for Wgt.

    The weight depends on the number of all its ratings.
    """
    _, centred = centre(averages.item_means, averages.user_shrink, items, ratings)
    weight = float(weights(params, np.array([len(ratings)]))[2][0])
    at, inside = covered_places(averages.covered, items)
    clipped = clamped(params, centred[inside])
    first, second = np.triu_indices(len(at))
    places = triangle.positions(at[first], at[second], params.items)
    values = (weight * clipped)[first] * clipped[second]
    half = triangle.packed_length(params.items)
    return np.concatenate([places, half + places]), np.concatenate([values, np.full(len(first), weight)])


def covered_places(covered: Ints, items: Places) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Find (the places in `covered` of the covered `items`, a mask of these items); `covered` is increasing."""
    at = np.searchsorted(covered, items)
    if not len(covered):
        return at[:0].astype(np.int64), np.zeros(len(items), np.bool_)
    inside = covered[np.minimum(at, len(covered) - 1)] == items
    return at[inside].astype(np.int64), inside


def whole(params: CovarianceParams, round_: int, part: Sparse) -> Floats:
    """Expand `part` to the whole vector of the round."""
    vector = np.zeros(round_length(params, round_))
    places, values = part
    vector[places] = values
    return vector


def first_part(params: CovarianceParams, items: Places, ratings: Floats) -> Floats:
    return whole(params, 1, first_sparse(params, items, ratings))


def second_part(params: CovarianceParams, averages: Averages, items: Places, ratings: Floats) -> Floats:
    return whole(params, 2, second_sparse(params, averages, items, ratings))


def largest_entries(params: CovarianceParams) -> tuple[Floats, float]:
    """Bound one user's part, which a ring must hold: |value| at each place of round 1, and at any place of round 2.

    With unit_of=rating a user may have rated all items; with unit_of=user the weights keep every number within its
    sensitivity.
    """
    reach = params.rating_span / 2 + params.perturbation
    many = 1.0 if params.per_user else float(params.n_items)
    single = np.repeat([reach, 1.0], params.n_items)
    return np.concatenate([[many * reach, many], single]), max(params.clamp**2, 1.0)
