"""What changed ratings of one user are worth to the recommender of `hardened`: how far they move the noisy sum.

Pairs change values and keep the items; the scheme promises about presence. So a pair may move the sum farther than the
noise is made for: with the unit `user` the half of the ratings turns by 2A at most, √2 of the bound; with the unit
`rating` a changed value is one rating removed and another added, twice the bound.
"""

from __future__ import annotations

import math

import numpy as np

from protocol.arrays import Floats
from protocol.party.role import RECOMMENDER, UserInput
from protocol.schemes.base import DELTA
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened.budget import USER, mu_left
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
        mu = math.sqrt(math.fsum((ratio * part) ** 2 for ratio, part in zip(moved, self.parts, strict=True)))
        return Loss(
            members,
            self.params.rounds,
            mu=mu,
            shift=max(ratio / most for ratio, most in zip(moved, self.most, strict=True)),
        )

    def scores(self, members: Coalition, user: int, own: UserInput, moves: Floats) -> Floats:
        """Estimate the loss by how much of the user's rating vector changes."""
        return moves**2 / len(own.items)

    def limit(self, members: Coalition) -> tuple[float, str] | None:
        mu = math.sqrt(math.fsum((ratio * part) ** 2 for ratio, part in zip(self.most, self.parts, strict=True)))
        return gaussian_epsilon(mu, DELTA), "sensitivity"


def farther(params: HardenedParams) -> float:
    """Return how many times the bound changed values may move the sum of round 1; in round 2 it is 2."""
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
