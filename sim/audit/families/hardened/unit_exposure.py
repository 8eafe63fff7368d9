"""What changed ratings of one user are worth to the recommender of `hardened`: how far they move the noisy sum.

Pairs change values and keep the items. With the unit `value` that is what the scheme promises about; else it is about
presence, and a pair may move the sum farther than the noise is made for: with the unit `user` the half of the ratings
turns by 2A at most, √2 of the bound; with the unit `rating` a changed value is one rating removed and another added,
twice the bound. So pairs of the scheme's own kind are tried too: a user, or one rating, that is there or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from protocol.arrays import Floats
from protocol.party.role import RECOMMENDER, UserInput
from protocol.schemes.base import DELTA
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened.budget import PULL, USER, VALUE, mu_left
from protocol.schemes.hardened.hardened_params import HardenedParams
from sim.audit.coalitions import Coalition
from sim.audit.families.family import ReleaseBound
from sim.audit.families.hardened.hardened_account import vector_of
from sim.audit.pairs.exposure import Exposure, Loss
from sim.audit.pairs.twice import Twice
from sim.views.evidence import Case


class UnitExposure(Exposure):
    def __init__(self, case: Case) -> None:
        assert isinstance(case.card.params, HardenedParams)
        self.case, self.params = case, case.card.params
        floor = self.params.min_contributors
        pairs = zip(self.params.squares, self.params.scales, strict=True)
        most = (1.0, farther(self.params)) if self.params.selected else (farther(self.params), 2.0)
        self.most = most[: self.params.rounds]
        self.parts = [mu_left([square], [scale], floor) for square, scale in pairs]

    def coalitions(self) -> list[Coalition]:
        return [(RECOMMENDER,)]

    def loss(self, members: Coalition, twice: Twice) -> Loss | None:
        change, moved = twice.change, []
        for t, square in enumerate(self.params.squares):
            before, after = (vector_of(self.case, change.party, own, t) for own in (change.before, change.after))
            moved.append(math.sqrt(float(np.sum((after - before) ** 2)) / square))
        return self._loss(members, moved, self.most)

    def _loss(self, members: Coalition, moved: Sequence[float], most: Sequence[float]) -> Loss:
        """Compute the loss of a pair that moves the sums of the rounds by `moved`, in units of their bounds."""
        mu = math.sqrt(math.fsum((ratio * part) ** 2 for ratio, part in zip(moved, self.parts, strict=True)))
        shift = max(ratio / limit for ratio, limit in zip(moved, most, strict=True))
        return Loss(members, self.params.rounds, mu=mu, shift=shift)

    def own_kind(self, ratings: Mapping[str, UserInput], most: int) -> Iterator[tuple[Loss, str]]:
        """Try `most` pairs of a user, or one of its ratings, that is there or not: those likely to move a sum most."""
        if self.params.unit_of == VALUE:
            return
        for name, own, other, words in list(self._presences(ratings))[:most]:
            moved = []
            for t, square in enumerate(self.params.squares):
                before, after = (vector_of(self.case, name, one, t) for one in (own, other))
                moved.append(math.sqrt(float(np.sum((after - before) ** 2)) / square))
            yield self._loss((RECOMMENDER,), moved, (1.0,) * len(moved)), words

    def _presences(self, ratings: Mapping[str, UserInput]) -> Iterator[tuple[str, UserInput, UserInput, str]]:
        """Yield (user, what it brought, its neighbour, words), the likely farthest ones first."""
        if self.params.unit_of == USER:
            for name, own in ratings.items():
                if len(own.items):
                    none = UserInput(own.items[:0], own.ratings[:0])
                    yield name, own, none, f"{name} is there with its ratings or not"
            return
        found = [one for name, own in ratings.items() for one in self._ends(name, own)]
        for _, name, item, end in sorted(found, reverse=True):
            own = ratings[name]
            place = int(np.searchsorted(own.items, item))
            other = UserInput(
                np.insert(own.items, place, item).astype(own.items.dtype), np.insert(own.ratings, place, end)
            )
            yield name, own, other, f"{name} says {end:g} of item {item}, or has not rated it"

    def _ends(self, name: str, own: UserInput) -> Iterator[tuple[float, str, int, float]]:
        """Estimate Δ², in A², of a rating at either end that is added to those of a user."""
        params, n = self.params, len(own.items)
        if n == params.n_items:
            return
        item = int(np.setdiff1d(np.arange(params.n_items), own.items)[0])  # which one does not matter
        above = (own.ratings - params.centre) / params.star
        for end in params.rating_range:
            new = (end - params.centre) / params.star
            mean, after = above.sum() / (n + PULL), (above.sum() + new) / (n + 1 + PULL)
            clip = params.clip_whole / params.whole
            rows = np.clip(above - after, -clip, clip) - np.clip(above - mean, -clip, clip)
            yield float(min(abs(new - after), clip) ** 2 + np.sum(rows**2)), name, item, end

    def scores(self, members: Coalition, user: int, own: UserInput, moves: Floats) -> Floats:
        """Estimate the loss by how much of the user's rating vector changes."""
        return moves**2 / len(own.items)

    def limit(self, members: Coalition) -> tuple[float, str] | None:
        mu = math.sqrt(math.fsum((ratio * part) ** 2 for ratio, part in zip(self.most, self.parts, strict=True)))
        return gaussian_epsilon(mu, DELTA), "sensitivity"


def farther(params: HardenedParams) -> float:
    """Return how many times the bound changed values may move the sum of round 1; in round 2 it is 2."""
    if params.unit_of == VALUE:
        return 1.0
    return math.sqrt(2) if params.unit_of == USER else 2.0


def value_bound(params: HardenedParams) -> ReleaseBound:
    farthest = farther(params)
    parts = (1.0, farthest) if params.selected else (farthest, 2.0)  # in round 2 no less: 2A
    each = tuple(part * math.sqrt(square) / params.whole for part, square in zip(parts, params.squares, strict=False))
    words = "distance that changed values may move a vector"
    return ReleaseBound("part", each[params.table_round], 2, words, each=each)


def exchange_bound(params: HardenedParams) -> ReleaseBound | None:
    """Return twice the length of a user's vector: one user is removed and another added; None with unit `rating`."""
    each = tuple(2 * math.sqrt(square) / params.whole for square in params.squares)
    words = "distance of two users' vectors"
    return ReleaseBound("part", max(each), 2, words, each=each) if params.unit_of == USER else None
