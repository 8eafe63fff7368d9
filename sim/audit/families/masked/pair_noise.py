"""What coalitions in `masked` and `dynamic` see of one user's gradients, and the noise in it that they do not know.

The recommender holds the sum of every released item, and dealt the envelopes: to it the noise of a sum is Gaussian, ρ
of variance 2b² H(t) s and the constant η of variance 2b² H_η s', where s and s' count the shares of contributors
outside the coalition. Both servers together hold each upload alone, with its own shares. Users hold the factors of
their items, and so the sums between two sightings; raters know the envelopes of ρ.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from protocol.arithmetic.tape import exponential
from protocol.arrays import Floats
from protocol.party.role import RECOMMENDER, THIRD_PARTY, FactorizingUser, UserInput, user_index, user_name
from protocol.schemes.base import DELTA
from protocol.schemes.composition import envelope_mu, gaussian_epsilon
from protocol.schemes.factorization.dynamic_recommender import DynamicParams
from protocol.schemes.factorization.factorization import MaskedParams
from sim.audit.coalitions import COLLUDERS, Coalition
from sim.audit.families.masked.releases import RecommenderReading, Release
from sim.audit.pairs.change import RatingChange
from sim.audit.pairs.exposure import Exposure, Loss, gaussian_mu_squared
from sim.audit.pairs.twice import Twice
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits


class Moved(NamedTuple):
    release: Release
    row: Floats  # how far the sum of an item moves


OFFERS = ("ItemFactors", "ItemFactorsInFull", "ItemFactorsWithPieces", "Publication")
COMMITS = ("Commit", "CommitInFull")


class MaskedExposure(Exposure):
    def __init__(self, case: Case, commits: bool) -> None:
        self.case, self.commits, self.params = case, commits, MaskedParams.of(case.card.params)
        reading = RecommenderReading(case)
        self.releases = {release.iteration: release for release in reading.releases()}
        self.supports, self.keys, self.attempts = reading.role.supports, reading.role.item_keys, reading.attempts
        self.raters: dict[int, set[int]] = {}
        for user, items in self.supports.items():
            for item in items.tolist():
                self.raters.setdefault(item, set()).add(user)
        dim, every = self.params.dim, np.arange(self.params.n_items, dtype=np.uint32)
        self.eta = reading.eta_envelopes(every).astype(np.float64)
        self.rho = {t: exponential(self.keys, dim, "rho", t).astype(np.float64) for t in self.releases}
        self.inverse = np.zeros((self.params.n_items, dim))  # Σ_t 1/(H s), over all releases of an item
        for t, release in self.releases.items():
            self.inverse[release.items] += 1 / (self.rho[t][release.items] * release.strength[:, None])
        self.is_static = len({release.users for release in self.releases.values()}) < 2

    def coalitions(self) -> list[Coalition]:
        """List the recommender, both servers, and all raters but one of an item, with the recommender and without."""
        found: list[Coalition] = [(RECOMMENDER,), (RECOMMENDER, THIRD_PARTY)]
        shared = [sorted(users) for users in self.raters.values() if len(users) > 1]
        if shared:
            fewest = min(shared, key=lambda users: (len(users), users))
            users = tuple(map(user_name, fewest[: min(COLLUDERS, len(fewest) - 1)]))
            found += [(RECOMMENDER, *users), users]
        return found

    def loss(self, members: Coalition, twice: Twice) -> Loss | None:
        if twice.change.party in members or not self.releases:
            return None
        if RECOMMENDER in members and THIRD_PARTY in members:
            return self._of_uploads(members, twice)
        rows: dict[int, list[Moved]] = {}
        seen = None if RECOMMENDER in members else self._sightings(members)
        for shift in twice.shifts:
            release = self.releases.get(shift.iteration)
            if shift.what != "gradient" or release is None or twice.change.user not in release.users:
                continue
            there = np.isin(shift.items, release.items)
            for item, row in zip(shift.items[there].tolist(), shift.rows[there], strict=True):
                if seen is None or (shift.iteration, item) in seen:
                    rows.setdefault(item, []).append(Moved(release, row))
        found = [self._of_item(item, moved, members) for item, moved in rows.items()]
        reached = {one.release.iteration for some in rows.values() for one in some if one.row.any()}
        if not reached:
            return None
        mu, given = (math.sqrt(sum(part)) for part in zip(*found, strict=True))
        return Loss(members, len(reached), mu=mu, given=given)

    def _of_item(self, item: int, moved: list[Moved], members: Coalition) -> tuple[float, float]:
        """Compute (μ², μ² if η were known) of the sums of one item."""
        size = 2 * self.params.noise_scale**2
        known = {user_index(name) for name in members} & self.raters[item]
        own = []
        for release, _ in moved:
            shares = sum(user in release.users for user in known)
            left = release.strength_of(item) - shares / release.floor_of(item)
            own.append(size * self.rho[release.iteration][item] * left)
        overlap: Floats | float
        if self.commits:
            overlap = self._uncommitted(item, members)
        else:
            some = moved[:1] if self.is_static else moved
            honest = [(self.raters[item] - known).intersection(one.release.users) for one in some]
            shared = np.array([[len(one & other) for other in honest] for one in honest])
            overlap = shared / moved[0].release.floor_of(item)
            overlap = float(overlap[0, 0]) if self.is_static else overlap
        return gaussian_mu_squared(np.array([row for _, row in moved]), np.array(own), size * self.eta[item], overlap)

    def _sightings(self, members: Coalition) -> set[tuple[int, int]]:
        """Find the sums, by iteration and item, that lie between two times at which a member was sent the factors."""
        found: set[tuple[int, int]] = set()
        for name in members:
            if (user := user_index(name)) < 0:
                continue
            exhibits = Exhibits(self.case, (name,))
            times = {seen.iteration for seen in exhibits.received(name, *OFFERS)}
            items = set(self.supports[user].tolist())
            if self.commits:  # the envelope of η is known to its committers alone
                items &= {item for seen in exhibits.received(name, *COMMITS) for item in seen.message.items.tolist()}
            found |= {(t, item) for t in times if t + 1 in times for item in items}
        return found

    def _uncommitted(self, item: int, members: Coalition) -> float:
        """Compute the part of η, sealed for `item`, that was committed to outside the coalition."""
        assert isinstance(self.params, DynamicParams)
        known = sum(
            seen.message.attempt == self.attempts[item] and item in seen.message.items
            for name in members
            if user_index(name) >= 0
            for seen in Exhibits(self.case, (name,)).received(name, *COMMITS)
        )
        return float(1 - known / self.params.committers)

    def _of_uploads(self, members: Coalition, twice: Twice) -> Loss | None:
        """Compute the loss to both servers, who hold each upload: its own shares are the noise."""
        size, user = 2 * self.params.noise_scale**2, twice.change.user
        floors = {(label.what, label.iteration): label.shares for label in twice.noises if label.shares is not None}
        shift, own, items = [], [], self.supports[user].astype(np.int64)
        for one in twice.shifts:
            shares = floors.get(("rho", one.iteration))
            if one.what != "gradient" or shares is None:
                continue
            envelopes = exponential([self.keys[item] for item in items], self.params.dim, "rho", one.iteration)
            shift.append(one.rows)
            own.append(size * envelopes.astype(np.float64) / shares[:, None])
        if not shift or not np.any(shift):
            return None
        total = given = 0.0
        first = floors.get(("eta", 0))
        for at, item in enumerate(items.tolist()):
            common = size * self.eta[item] / first[at] if first is not None and not self.commits else self.eta[item] * 0
            moved, noise = np.array([rows[at] for rows in shift]), np.array([rows[at] for rows in own])
            one_item, other = gaussian_mu_squared(moved, noise, common, 1.0)
            total, given = total + one_item, given + other
        return Loss(members, sum(bool(rows.any()) for rows in shift), mu=math.sqrt(total), given=math.sqrt(given))

    # --- which pairs, and what is accounted --------------------------------------------------------------------------

    def scores(self, members: Coalition, user: int, own: UserInput, moves: Floats) -> Floats:
        """Estimate μ² for the user's first factors, as if they stayed."""
        inverse = self.inverse[own.items]
        return self._estimate(user, own, moves, inverse / (1 + inverse * self.eta[own.items]))  # 1/(H_η + 1/Σ 1/H)

    def scores_given(self, members: Coalition, user: int, own: UserInput, moves: Floats) -> Floats:
        return self._estimate(user, own, moves, self.inverse[own.items])

    def _estimate(self, user: int, own: UserInput, moves: Floats, left: Floats) -> Floats:
        card, party = self.case.card, user_name(user)
        tape = Exhibits(self.case, (party,)).brought(party).tape
        role = card.scheme.make_role(party, card.setting, tape, own)
        assert isinstance(role, FactorizingUser)
        estimate: Floats = (2 * moves) ** 2 * (left @ role.user_factors**2) / (2 * self.params.noise_scale**2)
        return estimate

    def accounted_order(self, members: Coalition) -> list[int]:
        if members != (RECOMMENDER,):
            return []
        even = self.inverse.mean(axis=1)
        order = np.argsort(-even, kind="stable")
        return [int(item) for item in order.tolist() if even[item]]

    def accounted(self, members: Coalition, change: RatingChange) -> dict[str, Any]:
        if members != (RECOMMENDER,) or change.item is None:
            return {}
        row = self.inverse[change.item][None]
        even, worst = (
            gaussian_epsilon(float(envelope_mu(row, self.params.noise_scale, self.params.rating_span, way)[0]), DELTA)
            for way in ("even", "worst")
        )
        return {"accounted": even, "accounted_worst_direction": worst}
