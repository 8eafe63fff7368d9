"""`hardened`: whether the recommender and a few users can tell what one user rated from what it did not.

The totals less what the members themselves added, and less what all other users added: the strongest adversary knows
every other rating. What is left is one user's vector under the noise of all honest users. It tells that vector from one
that the user might have sent instead: that of another user (unit `user`), with one rating at another item (`rating`),
or with one value at the other end of the scale (`value`). Guesses are scored against the truth, a coin, and what the
stated noise permits: with a small ε that is next to a coin, and no attack on the totals does better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from protocol.arrays import Floats, Ints, Matrix
from protocol.party.role import RECOMMENDER, UserInput, user_name
from protocol.schemes.hardened.budget import USER, VALUE
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.share_law import SCALE_BITS
from sim.audit.attacks.coalition_views import Scene
from sim.audit.families.hardened.hardened_account import vector_of
from sim.audit.findings import Finding
from sim.audit.pairs.change import other_end
from sim.audit.role_rerun import rerun
from sim.audit.scoring import generator
from sim.console.console import counted
from sim.views.exhibits import Exhibits

MOST_NUMBERS = 20_000_000  # users that are asked about, times places
DRAWS = 1000  # of the guesses under the stated noise
SIGMAS = 1.96


def attack_totals(scene: Scene) -> list[Finding]:
    """Guess of every user outside the coalition which of two vectors it added."""
    params, case = HardenedParams.of(scene.params), scene.case
    t, draw = params.table_round, generator(case, "told apart", *scene.members)
    total, contributors = _opened(scene, t)
    if total is None or not scene.truth.is_whole or not params.scales[t]:
        return []
    for user in scene.users:
        total = total - _share_of(scene, user, t)
    ratings = {user: scene.truth.ratings[user_name(user)] for user in contributors}  # from here on the truth is open
    rest = total - np.sum([vector_of(case, user_name(user), own, t) for user, own in ratings.items()], axis=0)
    targets = [user for user in contributors if user not in scene.users and len(ratings[user].items)]
    asked = draw.permutation(targets)[: MOST_NUMBERS // params.lengths[t]].tolist()
    others = _other_profiles(params, [ratings[user] for user in asked], draw)
    pairs = [(user, other) for user, other in zip(asked, others, strict=True) if other is not None]
    vectors = [[vector_of(case, user_name(user), own, t) for own in (ratings[user], other)] for user, other in pairs]
    apart = np.array([own - other for own, other in vectors if (own != other).any()], np.float64)
    if not len(apart):
        return []
    deviation = params.scales[t] / (1 << SCALE_BITS) * math.sqrt(params.min_contributors)
    return [_finding(scene, told_apart(apart, rest.astype(np.float64), deviation, draw))]


class ToldApart(NamedTuple):
    accuracy: float
    permitted: float  # by noise of exactly the stated deviation
    spread: float  # of the accuracy; all guesses are about one sum, so they are not independent
    users: int


def told_apart(apart: Matrix, noise: Floats, deviation: float, draw: np.random.Generator) -> ToldApart:
    """Tell in each row the vector that was added from one that lies `apart`, by the sum less all vectors."""
    lengths = np.sqrt((apart**2).sum(axis=1))
    ways = apart / lengths[:, None]
    ahead = ways @ noise + lengths / 2  # beyond the middle of the two
    values, vectors = np.linalg.eigh(ways @ ways.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = draw.standard_normal((DRAWS, len(apart))) @ root.T + lengths / (2 * deviation) > 0
    accuracy = float(np.mean((ahead > 0) + 0.5 * (ahead == 0)))
    permitted = float(ndtr(lengths / (2 * deviation)).mean())
    return ToldApart(accuracy, permitted, float(drawn.mean(axis=1).std()), len(apart))


def _opened(scene: Scene, t: int) -> tuple[Ints | None, tuple[int, ...]]:
    """Return the total that the recommender opened in round `t`, in integers, and whose vectors it is made of."""
    for turn in rerun(scene.exhibits, RECOMMENDER):
        for mark in turn.passed.computed:
            if mark.label.what == "total" and mark.label.iteration == t:
                whole = np.rint(mark.values.reshape(-1) * scene.params.whole).astype(np.int64)
                return whole, tuple(getattr(turn.role, "last_contributors", ()))
    return None, ()


def _share_of(scene: Scene, user: int, t: int) -> Ints:
    """Work out the share that a member added in round `t`, from its own view."""
    name, found = user_name(user), np.zeros(scene.params.lengths[t], np.int64)
    for turn in rerun(Exhibits(scene.case, (name,)), name):
        for mark in turn.passed.entered:
            if mark.label.what == "share" and mark.label.iteration == t:
                found = np.rint(mark.values.reshape(-1) * scene.params.whole).astype(np.int64)
    return found


def _other_profiles(
    params: HardenedParams, owned: Sequence[UserInput], draw: np.random.Generator
) -> list[UserInput | None]:
    """Draw what each user might have brought instead; None if there is nothing else.

    It is what another user brought, or has the place of another user's item: so popular items stand on both sides.
    """
    if params.unit_of == USER:
        return [*owned[1:], *owned[:1]] if len(owned) > 1 else [None] * len(owned)
    places = [int(draw.integers(len(own.items))) for own in owned]
    if params.unit_of == VALUE:
        return [_at_the_other_end(params, own, place) for own, place in zip(owned, places, strict=True)]
    taken = np.array([own.items[place] for own, place in zip(owned, places, strict=True)], np.int64)
    return [_moved(own, place, np.setdiff1d(taken, own.items), draw) for own, place in zip(owned, places, strict=True)]


def _at_the_other_end(params: HardenedParams, own: UserInput, place: int) -> UserInput:
    changed = np.arange(len(own.items)) == place
    return UserInput(own.items, np.where(changed, other_end(own.ratings, params), own.ratings))


def _moved(own: UserInput, place: int, free: Ints, draw: np.random.Generator) -> UserInput | None:
    """Move the rating at `place` to an item of `free`."""
    if not len(free):
        return None
    items = own.items.copy()
    items[place] = draw.choice(free)
    order = np.argsort(items)
    return UserInput(items[order], own.ratings[order])


def _finding(scene: Scene, found: ToldApart) -> Finding:
    least, most = found.accuracy - SIGMAS * found.spread, found.accuracy + SIGMAS * found.spread
    over = found.accuracy - found.permitted > found.spread * float(ndtri(1 - scene.truth.level))
    title = (
        f"{scene.together} told from the noisy totals, for {found.accuracy:.1%} of {counted(found.users, 'user')}, "
        f"{APART[scene.params.unit_of]}; a coin tells 50 %, and the stated noise permits {found.permitted:.1%}."
    )
    measured = {"accuracy": found.accuracy, "interval": [max(0.0, least), min(1.0, most)], "users": found.users,
                "permitted": found.permitted, "at_chance": least <= 0.5, "from": "noisy totals"}  # fmt: skip
    evidence = (
        "The totals less the shares of members and less the vectors of all other users, whose ratings the adversary is "
        "taken to know: nearer to the user's vector, or to one that it might have sent."
    )
    confidence = (
        f"95 % accuracy {least:.3f} to {most:.3f}, with the guesses as dependent as one sum makes them; alarm above "
        f"what is permitted at a level of {scene.truth.level:.1g}"
    )
    return Finding("membership", title, scene.members, "break" if over else "info", found.permitted, measured,
                   {"accuracy": 0.5}, confidence, evidence)  # fmt: skip


APART = {
    "user": "its ratings from another user's",
    "rating": "the item of a rating from another item",
    "value": "a rating from the other end of the scale",
}
