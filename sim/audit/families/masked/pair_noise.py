"""What coalitions in `masked` and `dynamic` see of one user's gradients, and the noise in it that they do not know.

The recommender holds the sum of every released item, and dealt the envelopes: to it the noise of a sum is Gaussian, ρ
of variance 2b² H(t) s and the constant η of variance 2b² H_η s', where s and s' count the shares of contributors
outside the coalition. Both servers together hold each upload alone, with its own shares. Users hold the factors of
their items, and so the sums between two sightings; raters know the envelopes of ρ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from protocol.arithmetic.factors import as_sent
from protocol.arithmetic.tape import exponential
from protocol.arrays import Floats, Matrix
from protocol.party.role import RECOMMENDER, THIRD_PARTY, FactorizingUser, UserInput, user_index, user_name
from protocol.schemes import is_ours
from protocol.schemes.base import DELTA
from protocol.schemes.composition import envelope_mu, gaussian_epsilon
from protocol.schemes.factorization.dynamic_recommender import DynamicParams
from protocol.schemes.factorization.factorization import MaskedParams
from sim.audit.coalitions import COLLUDERS, Coalition
from sim.audit.families.masked.every_pair import EveryPair, FixedCourse
from sim.audit.families.masked.releases import RecommenderReading, Release
from sim.audit.pairs.change import RatingChange, ends_of
from sim.audit.pairs.exposure import Exposure, Loss, Worst, gaussian_mu_squared, information
from sim.audit.pairs.twice import Twice
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits


class Moved(NamedTuple):
    release: Release
    row: Floats  # how far the sum of an item moves


MOST_NUMBERS = 100_000_000  # of all gradients of a run whose pairs are all searched: some seconds
MOST_WORK = 5e8  # numbers in such a search
OFFERS = ("ItemFactors", "ItemFactorsInFull", "ItemFactorsWithPieces", "Publication")
COMMITS = ("Commit", "CommitInFull")


class MaskedExposure(Exposure):
    def __init__(self, case: Case, commits: bool) -> None:
        self.case, self.commits, self.params = case, commits, MaskedParams.of(case.card.params)
        reading = RecommenderReading(case)
        self.releases: dict[int, Release] = {}
        self.sent: list[Matrix] = []  # V(t) before each release, as users receive it
        before = reading.role.item_factors
        for release in reading.releases():
            self.releases[release.iteration] = release
            self.sent.append(as_sent(before, self.params.factor_bits).astype(np.float64))
            before = reading.role.item_factors
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
        self.first_factors: dict[int, Floats] = {}  # of users, as they are asked for
        self.information = self._information()  # per item and coordinate, η counted on, over 2b²
        self.every: EveryPair | None = None

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
        overlap = self._overlap(item, [one.release for one in moved], members)
        return gaussian_mu_squared(np.array([row for _, row in moved]), np.array(own), size * self.eta[item], overlap)

    def _overlap(self, item: int, releases: Sequence[Release], members: Coalition) -> Floats | float:
        """Compute the part of η that two of `releases` share and `members` do not know."""
        if self.commits:
            return self._uncommitted(item, members)
        known = {user_index(name) for name in members}
        some = releases[:1] if self.is_static else releases
        honest = [(self.raters[item] - known).intersection(one.users) for one in some]
        shared: Floats = np.array([[len(one & other) for other in honest] for one in honest])
        shared = shared / releases[0].floor_of(item)
        return float(shared[0, 0]) if self.is_static else shared

    def _information(self) -> Matrix:
        """Compute 1ᵀ Σ⁻¹ 1 for every item and coordinate, to the recommender alone, in units of 1/2b²."""
        if self.commits or self.is_static:
            return self.inverse / (1 + self.inverse * self.eta * self._shares()[:, None])
        made = np.zeros_like(self.inverse)
        for item in np.flatnonzero(self.inverse.any(axis=1)).tolist():
            some = [one for one in self.releases.values() if one.has(item)]
            own = np.array([self.rho[one.iteration][item] * one.strength_of(item) for one in some])
            made[item] = information(own, self.eta[item], self._overlap(item, some, (RECOMMENDER,)))
        return made

    def _shares(self) -> Floats:
        """Compute the part of η that is in the sums of each item, where it is the same in all of them."""
        made = np.ones(self.params.n_items)
        for release in self.releases.values() if not self.commits else ():
            made[release.items] = release.contributors / release.floors
        return made

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
        left, first = self.information[own.items], self._first(user, own)
        estimate: Floats = (2 * moves) ** 2 * (left @ first**2) / (2 * self.params.noise_scale**2)
        return estimate

    def _first(self, user: int, own: UserInput) -> Floats:
        if user not in self.first_factors:
            card, party = self.case.card, user_name(user)
            tape = Exhibits(self.case, (party,)).brought(party).tape
            role = card.scheme.make_role(party, card.setting, tape, own)
            assert isinstance(role, FactorizingUser)
            self.first_factors[user] = role.user_factors
        return self.first_factors[user]

    def accounted_order(self, members: Coalition) -> list[int]:
        if members != (RECOMMENDER,):
            return []
        even = self.information.mean(axis=1)
        order = np.argsort(-even, kind="stable")
        return [int(item) for item in order.tolist() if even[item]]

    def accounted(self, members: Coalition, change: RatingChange) -> dict[str, Any]:
        """Return ε for a u_i that stays: with η given away, and with η in the covariance (`_counted`)."""
        if members != (RECOMMENDER,) or change.item is None:
            return {}
        params, made = self.params, {}
        for suffix, rows in (("", self.inverse), ("_counted", self.information)):
            for direction, way in (("", "even"), ("_worst_direction", "worst")):
                mu = envelope_mu(rows[change.item][None], params.noise_scale, params.rating_span, way)
                made[f"accounted{suffix}{direction}"] = gaussian_epsilon(float(mu[0]), DELTA)
        return made

    def worst(self, members: Coalition, ratings: Mapping[str, UserInput], item: int | None = None) -> Worst | None:
        """Search all pairs for the recommender, if every user was there in every iteration."""
        if members != (RECOMMENDER,) or not self._can_search(ratings):
            return None
        own = {user_index(name): brought for name, brought in ratings.items()}
        if self.every is None:
            first = {user: self._first(user, brought) for user, brought in own.items()}
            self.every = EveryPair(self._course(), own, first)
        if (found := self.every.worst(item, MOST_WORK)) is None:
            return None
        change = ends_of(self.params, found.user, own[found.user], found.item)
        return Worst(change, found.mu, found.pairs, found.tried, found.complete)

    def _can_search(self, ratings: Mapping[str, UserInput]) -> bool:
        steps, times = len(self.releases) * self.params.dim, list(self.releases)
        if self.commits or not self.is_static or times != list(range(len(times))):
            return False
        if not is_ours(self.case.card.scheme) or self.case.config.cheat:  # roles might do other sums
            return False
        everyone = set(map(user_index, ratings)) == set(next(iter(self.releases.values())).users if times else ())
        return everyone and sum(len(own.items) for own in ratings.values()) * steps <= MOST_NUMBERS

    def _course(self) -> FixedCourse:
        size = 2 * self.params.noise_scale**2
        weights = np.zeros((len(self.releases), *self.inverse.shape))
        for t, release in self.releases.items():
            weights[t, release.items] = 1 / (size * self.rho[t][release.items] * release.strength[:, None])
        return FixedCourse(self.params, np.array(self.sent), weights, size * self.eta * self._shares()[:, None])
