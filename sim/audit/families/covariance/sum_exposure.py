"""What a changed rating is worth to a party that is sent the published model: the shifts of the noisy sums under it.

The published averages stay as they were when the covariance is summed. A changed value is one rating removed and
another added, so it may move the sums by twice what the noise is made for.
"""

from __future__ import annotations

import numpy as np

from protocol.arrays import Floats
from protocol.party.role import UserInput, user_name
from protocol.schemes.base import DELTA
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.covariance.round_noise import scales_for
from protocol.schemes.covariance.sensitivity import gaussian_mu, whole_epsilon
from sim.audit.coalitions import Coalition
from sim.audit.families.covariance.exact_totals import Totals
from sim.audit.families.covariance.neighbour_sums import first_change, second_change
from sim.audit.pairs.exposure import Exposure, Loss
from sim.audit.pairs.twice import Twice


class SumExposure(Exposure):
    def __init__(self, totals: Totals) -> None:
        self.totals = totals

    def coalitions(self) -> list[Coalition]:
        return [(user_name(0),)] if self.totals.params.n_users > 1 else []

    def loss(self, members: Coalition, twice: Twice) -> Loss | None:
        change, params, averages = twice.change, self.totals.params, self.totals.averages
        if change.party in members:
            return None
        own = self.totals.book.of_user(change.user)
        items, ratings = self.totals.book.items[own], self.totals.book.ratings[own]
        before, after = (items, ratings), (items, ratings + change.after.ratings - change.before.ratings)
        places, first = first_change(params, before, after)
        moved = [first / scales_for(params, 1)[places]]
        places, second = second_change(params, averages, before, after)
        moved.append(second / scales_for(params, 2, averages.spread)[places])
        steps = np.concatenate(moved)
        if params.gaussian:
            return Loss(members, 2, mu=float(np.linalg.norm(steps)))
        return Loss(members, 2, pure=float(np.abs(steps).sum()))

    def scores(self, members: Coalition, user: int, own: UserInput, moves: Floats) -> Floats:
        return np.abs(moves) * len(own.items)

    def limit(self, members: Coalition) -> tuple[float, str] | None:
        params = self.totals.params
        if params.gaussian:
            return gaussian_epsilon(2 * gaussian_mu(params), DELTA), "sensitivity"
        return 2 * whole_epsilon(params, DELTA), "sensitivity"
