"""The properties of a data set that determine bytes, for a prediction: items per user, and raters per item.

A data set that can be loaded or made is counted. A larger synthetic one is described by its shape alone: every user has
equally many ratings, and the item of popularity rank k is among them with probability min(1, τ / rarity(k)), where τ
makes these sum to the ratings of a user (`generate.py` keeps the items with the smallest keys U · rarity).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma

from protocol.arithmetic.tape import derive
from protocol.arrays import Floats
from protocol.errors import BadInput
from protocol.params import Params, require
from protocol.schemes import Scheme, Shape
from sim.data import generate
from sim.data import ratings as data
from sim.plan.churn import ChurnPlan
from sim.plan.config import RunConfig, resolve
from sim.plan.expect import MANY, CountedItems, ExpectedUsers, LikelyItems, at_least, crowd_of, presence_of
from sim.plan.plan import run_seed_of, settings_of, shape_of

_GROUPS = 2000  # of items of about equal popularity
SEEDLESS = (
    "Which ratings are held out depends on the seed, and with them how many items have a rater: "
    "give --seed for the bytes of one run."
)


@dataclass(frozen=True, eq=False)
class Outline:
    """The run to be predicted, which may be too large to be started."""

    config: RunConfig  # resolved
    scheme: Scheme
    params: Params
    crowd: ExpectedUsers
    ratings: float  # to train on
    made: bool  # the data was loaded or generated, not only described
    notes: list[str]


def outline(config: RunConfig) -> Outline:
    """Work out what `config` asks for; `BadInput` if such a run is impossible."""
    config, scheme, seeded = resolve(config)
    if _too_large(config.data):
        crowd, shape, notes = _described(config)
        made = False
    else:
        crowd, shape, notes = _counted(config, seeded)
        made = True
    params, sentences = scheme.make_params(shape, **settings_of(config, scheme))
    _check_committers(config, params, seeded and made)
    ratings = float(crowd.supports @ crowd.users)
    return Outline(config, scheme, params, crowd, ratings, made, [*sentences, *notes])


def _too_large(source: str) -> bool:
    """Tell whether `source` is a synthetic set that can be described but is too large to be made."""
    if not source.startswith("synthetic:"):
        return False
    generate.parse(source, to_be_made=False)  # refuses a description that is invalid at any size
    try:
        generate.parse(source)
    except BadInput:
        return True
    return False


def _check_committers(config: RunConfig, params: Params, seeded: bool) -> None:
    wanted = params.committers
    if not wanted:
        return
    there = params.n_users * presence_of(config.join, config.leave)
    if seeded and config.join is not None and config.leave is not None:
        assert config.seed is not None
        there = int(ChurnPlan(params.n_users, config.join, config.leave, run_seed_of(config.seed)).online(0).sum())
    require(
        there >= wanted,
        f"The pre-commitment needs {wanted} users and {there:.3g} are online at the start: "
        "raise --join, lower --leave, take more users, or set committers lower (--set committers=2 is the least).",
    )


# --- data that is there ----------------------------------------------------------------------------------------------


def _counted(config: RunConfig, seeded: bool) -> tuple[ExpectedUsers, Shape, list[str]]:
    ratings = data.load(config.data, config.rating_range, config.reading())
    if config.users is not None:
        ratings = ratings.first_users(config.users)
    seed = config.seed if seeded else 0  # no size depends on the seed, and the ring only in rare cases
    assert seed is not None
    dealt = data.split(ratings, config.test_fraction, derive(run_seed_of(seed), "split"))
    shape = shape_of(ratings, dealt, config.item_features)
    crowd = crowd_of(shape)
    if seeded or not config.test_fraction:
        return crowd, shape, []
    kept = np.array(shape.support_sizes) / np.maximum(np.bincount(ratings.users, minlength=ratings.n_users), 1)
    raters = np.bincount(ratings.items, minlength=ratings.n_items)
    stay = np.bincount(ratings.items, kept[ratings.users], ratings.n_items) / np.maximum(raters, 1)
    return ExpectedUsers(crowd.supports, crowd.users, _likely_census(raters, stay)), shape, [SEEDLESS]


def _likely_census(raters: Any, stay: Floats) -> CountedItems:
    """Count items by the `raters` expected to remain when ratings are held out: Bin(k, share) with `stay` as share."""
    census = np.zeros(int(raters.max(initial=0)) + 1)
    few = raters <= MANY
    np.add.at(census, np.rint(raters[~few] * stay[~few]).astype(np.int64), 1.0)
    (k, share), items = np.unique([raters[few], stay[few].round(6)], axis=1, return_counts=True)
    reached = at_least(np.arange(MANY + 2), k[:, None], share[:, None])
    census[: MANY + 1] += (items @ -np.diff(reached, axis=1))[: len(census)]
    return CountedItems(census, items @ (reached * (1 - reached)))


# --- data that is only described -------------------------------------------------------------------------------------


def _described(config: RunConfig) -> tuple[ExpectedUsers, Shape, list[str]]:
    n_users, n_items, density, _ = generate.parse(config.data, to_be_made=False)
    if config.users is not None:
        require(1 <= config.users <= n_users, f"{config.data} has {n_users} users, not {config.users}.")
        n_users = config.users
    low, high = config.rating_range or generate.STARS
    if low > generate.STARS[0] or high < generate.STARS[1]:
        raise BadInput(f"{config.data} has ratings from 1 to 5, not {low:g} to {high:g}; leave out --rating-range")
    rated = generate.per_user(n_items, density)
    trained = rated - int(data.held_out_counts(np.array([rated]), config.test_fraction)[0])
    chances, items = inclusion(n_items, rated)
    chances *= trained / rated
    crowd = ExpectedUsers(np.array([trained]), np.array([float(n_users)]), LikelyItems(n_users, chances, items))
    raters = np.array([_most_raters(n_users, chances, items)])  # parameters depend on the largest number alone
    shape = Shape(n_users, n_items, (low, high), (), raters, step=1.0)
    return crowd, shape, ["The data is too large to be made, so it is described by its shape."]


def inclusion(n_items: int, rated: int) -> tuple[Floats, Floats]:
    """Compute (probability that a user rates an item, number of items) for groups of items by popularity.

    Each user rates `rated` of `n_items`.
    """
    edges = np.unique(np.linspace(0, n_items, min(n_items, _GROUPS) + 1).astype(np.int64))
    items = np.diff(edges).astype(np.float64)
    if rated >= n_items:
        return np.ones(len(items)), items
    # the mean of 1 / (1 + k + share · items) over the ranks k of a group
    offset = 1 + generate.HEAD_SHARE * n_items
    weights = np.diff(digamma(edges + offset)) / items
    most = 1 / weights[-1]  # at this τ every item is certain
    from scipy.optimize import brentq  # slow to import
    tau = brentq(lambda tau: float(items @ np.minimum(1, tau * weights)) - rated, 0.0, most, xtol=1e-12, rtol=1e-14)
    return np.minimum(1, tau * weights), items


def _most_raters(n_users: int, chances: Floats, items: Floats) -> int:
    """Estimate the median of the largest number of raters: at most half an item is expected to have more."""
    low, high = 1, n_users
    while low < high:
        middle = (low + high) // 2
        more = float(items @ at_least(middle + 1, n_users, chances))
        low, high = (middle + 1, high) if more > 0.5 else (low, middle)
    return low

