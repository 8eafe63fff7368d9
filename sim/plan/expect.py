"""The course of a run, predicted without the run: exact if users stay, an expectation if users come and go.

The presence of each user is a chain of two states, stationary from the start with p = join / (join + leave). X ~
Bin(N, p) users are online; M = min(X, K) of them are invited, all with the same probability. An item with k raters has

    Bin(k, p) of them invited if K ≥ N, else Hypergeometric(N, k, M), mixed over M.

Users are not listed one by one. A group is all users that rated the same number of items; it is split by the number of
items that they commit to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ints
from protocol.attendance import Attempt, Course, Turn
from protocol.everyone_online import takes_presence
from protocol.params import Params
from protocol.schemes import Scheme, Shape

_MOST_TURNOUTS = 200  # values of M in a mixture; with more values, neighbours are merged
_FAR = 8.0  # standard deviations from the mean, beyond which probabilities count as 0
MANY = 60  # for an item with more raters, it matters little which of them are held out
CERTAIN = 1e-9  # doubts and probabilities below this count as 0


@dataclass(frozen=True, eq=False)
class Turnout:
    """The law of M, the number of users that are invited to an iteration, and its parameters."""

    n_users: int
    presence: float  # p
    limit: int  # K

    @property
    def everyone(self) -> bool:
        return self.presence == 1 and self.limit >= self.n_users

    @property
    def mean(self) -> float:
        """Compute E min(X, K) = N p P(X' ≤ K − 2) + K P(X ≥ K), with X' ~ Bin(N − 1, p)."""
        n, p, most = self.n_users, self.presence, self.limit
        if p == 1 or most >= n:
            return min(n * p, float(most))
        return float(n * p * (1 - at_least(most - 1, n - 1, p)) + most * at_least(most, n, p))

    def law(self) -> tuple[Floats, Floats]:
        """Compute (values of M, their probabilities)."""
        n, p, most = self.n_users, self.presence, self.limit
        if p == 1:
            return np.array([float(min(n, most))]), np.ones(1)
        spread = _FAR * np.sqrt(n * p * (1 - p)) + 1
        low, high = max(0, int(n * p - spread)), min(most, n, int(n * p + spread) + 1)
        if low >= high:
            return np.array([float(high)]), np.ones(1)
        edges = np.unique(np.linspace(low - 1, high - 1, min(_MOST_TURNOUTS, high - low) + 1).astype(np.int64))
        weights = -np.diff(at_least(edges + 1, n, p))
        values = (edges[:-1] + 1 + edges[1:]) / 2
        return np.append(values, float(high)), np.append(weights, 1 - weights.sum())


class Items(Protocol):
    """The items of a run, by how often they are rated."""

    def reaching(self, least: int, turnout: Turnout | None) -> tuple[float, float]:
        """Compute (the expected number of items with at least `least` raters among the invited users, the doubt in it).

        With None for `turnout`, raters among all users count. The doubt is the variance that the number would have if
        items were independent.
        """


@dataclass(frozen=True, eq=False)
class CountedItems:
    """Items by their raters: `census[k]` items have k, which is an expectation if it is not known what is held out."""

    census: Floats
    doubts: Floats | None = None  # in the number of items with at least 0, 1, 2, … raters; None: no doubt

    def reaching(self, least: int, turnout: Turnout | None) -> tuple[float, float]:
        raters = np.flatnonzero(self.census)
        if turnout is None or turnout.everyone:
            return float(self.census[least:].sum()), self._doubt(least)
        if turnout.limit >= turnout.n_users:
            chance = at_least(least, raters, turnout.presence)
        else:
            chance = _among_the_drawn(raters, least, turnout)
        return _added(self.census[raters], chance)

    def _doubt(self, least: int) -> float:
        if self.doubts is None:
            return 0.0
        return float(self.doubts[least]) if 2 * least <= MANY else 1.0


@dataclass(frozen=True, eq=False)
class LikelyItems:
    """Items by the probability that a user rated them: `items[g]` items have the probability `chances[g]`."""

    n_users: int
    chances: Floats
    items: Floats

    def reaching(self, least: int, turnout: Turnout | None) -> tuple[float, float]:
        if turnout is None or turnout.limit >= turnout.n_users:
            present = 1.0 if turnout is None else turnout.presence
            return _added(self.items, at_least(least, self.n_users, self.chances * present))
        values, weights = turnout.law()
        return _added(self.items, at_least(least, values, self.chances[:, None]) @ weights)


def _settled(mean: float, doubt: float) -> tuple[float, float]:
    """Round `mean` if it is not in doubt, because it is then a whole number.

    Without that, a field of 255.999 bytes would be given another header than one of 256.
    """
    return (float(round(mean)), 0.0) if doubt <= CERTAIN else (mean, doubt)


def at_least(least: Any, trials: Any, chance: Any) -> Floats:
    """Compute P(Bin(n, p) ≥ m), the incomplete beta function I_p(m, n − m + 1)."""
    least, trials, chance = np.broadcast_arrays(least, trials, chance)
    possible = (least > 0) & (least <= trials)
    from scipy.special import betainc  # slow to import

    inside = betainc(np.where(possible, least, 1), np.where(possible, trials - least + 1, 1), chance)
    reached: Floats = np.where(possible, inside, least <= 0).astype(np.float64)
    return reached


def _added(items: Floats, chance: Floats) -> tuple[float, float]:
    return float(items @ chance), float(items @ (chance * (1 - chance)))


def _among_the_drawn(raters: Ints, least: int, turnout: Turnout) -> Floats:
    """Compute for each k of `raters` P(at least `least` of them are among M users drawn from N), mixed over M."""
    values, weights = turnout.law()
    n, k, m = float(turnout.n_users), raters[:, None].astype(np.float64), values[None, :]
    fewer = np.zeros((len(raters), len(values)))
    for h in range(least):
        possible = (h <= k) & (h <= m) & (m - h <= n - k)
        log = _choose(k, h) + _choose(n - k, m - h) - _choose(n, m)
        fewer += np.where(possible, np.exp(np.where(possible, log, 0.0)), 0.0)
    chance: Floats = np.clip(1 - fewer, 0, 1) @ weights
    return chance


def _choose(n: npt.ArrayLike, k: npt.ArrayLike) -> Floats:
    """Compute log C(n, k). Impossible arguments are clipped to possible ones; such results must not be used."""
    whole = np.maximum(np.asarray(n, np.float64), 0)
    part = np.clip(np.asarray(k, np.float64), 0, whole)
    from scipy.special import gammaln  # slow to import

    log: Floats = gammaln(whole + 1) - gammaln(part + 1) - gammaln(whole - part + 1)
    return log


@dataclass(frozen=True, eq=False)
class ExpectedUsers:
    """The users of a run and what they rated, in the respects that bytes depend on."""

    supports: Ints  # the numbers of ratings n_i that occur
    users: Floats  # how many users have each of them
    items: Items

    @property
    def n_users(self) -> int:
        return round(float(self.users.sum()))


def crowd_of(shape: Shape) -> ExpectedUsers:
    sizes, users = np.unique(np.array(shape.support_sizes, np.int64), return_counts=True)
    return ExpectedUsers(sizes, users.astype(np.float64), CountedItems(np.bincount(shape.raters).astype(np.float64)))


@dataclass(frozen=True, eq=False)
class Expected:
    course: Course
    stays: bool  # every user is invited to every iteration
    doubt: float  # in the numbers of items; it matters only where bytes depend on them
    online: float  # users that are online on average
    invited: float


def presence_of(join: float | None, leave: float | None) -> float:
    """Compute the stationary probability that a user is online."""
    join, leave = join or 0.0, leave or 0.0
    return join / (join + leave) if join + leave > 0 else 1.0


def expect(
    scheme: Scheme, params: Params, crowd: ExpectedUsers, join: float | None = None, leave: float | None = None
) -> Expected:
    """Compute the course that a run of `scheme` with the users of `crowd` is expected to take."""
    comes = takes_presence(scheme)
    p = presence_of(join, leave) if comes else 1.0
    turnout = Turnout(crowd.n_users, p, min(params.online, crowd.n_users))
    opened, released, doubt = _items(scheme, params, crowd.items, turnout)
    rated, unsure = _settled(*crowd.items.reaching(1, None))
    commitment = _Commitment(rated * params.committers, crowd.n_users * p)
    supports, users, shares = commitment.split(crowd)
    asked = np.where(shares > 0, users * p, 0.0)
    part = turnout.mean / crowd.n_users
    first = Turn(users * part, users * part, users * (p if comes else 0.0), 0.0 * users, opened, released)
    rates = ((1 - p) * (join or 0.0), p * (leave or 0.0)) if comes else (0.0, 0.0)
    later = Turn(first.invited, first.contributors, users * rates[0], users * rates[1], opened, released)
    greeted = users * _ever_invited(params.iterations, p, join or 0.0, leave or 0.0, part / p if p else 0.0, shares > 0)
    attempts = (Attempt(asked, shares, asked, rated, rated),) if commitment.turns else ()
    turns = (first, *[later] * (params.iterations - 1))
    course = Course(supports, users, users, users, greeted, users, turns, attempts)
    return Expected(course, turnout.everyone, doubt + unsure, crowd.n_users * p, turnout.mean)


def _items(scheme: Scheme, params: Params, items: Items, turnout: Turnout) -> tuple[float, float, float]:
    """Compute (opened, released, doubt); the scheme tells how many raters an item needs to be opened or released."""
    probes = np.unique(np.maximum([0, 1, 2, params.min_contributors - 1, params.min_contributors], 0)).astype(np.int64)
    raters = probes if turnout.everyone else np.full(len(probes), probes[-1])
    means, doubts = [], []
    for mask in scheme.items_of(params, raters, probes, probes):
        if not mask.any():
            means.append(0.0)
            continue
        least = int(probes[mask.argmax()])
        # an item that needs no invited rater still needs a rater
        mean, doubt = _settled(*(items.reaching(least, turnout) if least else items.reaching(1, None)))
        means.append(mean)
        doubts.append(doubt)
    return means[0], means[1], sum(doubts)


@dataclass(frozen=True, eq=False)
class _Commitment:
    """The circle of users in `commitment.choose_committers`: each place gets ⌊turns/places⌋ items or one more."""

    turns: float
    places: float

    def split(self, crowd: ExpectedUsers) -> tuple[Ints, Floats, Floats]:
        """Split every group into users with one item more and the others; return (n_i, users, items to commit to)."""
        share, more = divmod(self.turns, self.places) if self.turns else (0.0, 0.0)
        parts = [(share, 1 - more / self.places), (share + 1, more / self.places)] if self.turns else [(0.0, 1.0)]
        parts = [(items, part) for items, part in parts if part > 0]
        supports = np.concatenate([crowd.supports] * len(parts))
        users = np.concatenate([crowd.users * part for _, part in parts])
        shares = np.repeat([items for items, _ in parts], len(crowd.supports))
        return supports, users, shares


def _ever_invited(
    iterations: int, p: float, join: float, leave: float, invited: float, asked: npt.NDArray[np.bool_]
) -> Floats:
    """Compute P(a user writes to the third party at least once), for each group of users.

    A user writes as a committer at the start, or when it is first invited. `invited` is the probability that a user who
    is online is invited. `asked` marks the groups of which the users that are online at the start commit.
    """
    off, on = np.full(len(asked), 1 - p), np.where(asked, 0.0, p)  # P(offline or online, and has not written yet)
    for _ in range(iterations):
        on = on * max(0.0, 1 - invited)
        off, on = off * (1 - join) + on * leave, off * join + on * (1 - leave)
        if float((off + on).max(initial=0.0)) < CERTAIN:
            break
    ever: Floats = 1 - off - on
    return ever
