"""Add up, release by release, what the envelopes leave of the noise: Σ_t 1/(H_l(t) · share of the variance unknown).

To a party that knows the envelope H, a released sum carries Gaussian noise of variance 2b² H_l(t) s, s = Σ 1/floor over
its k' contributors (1 where all of them were counted on). To a party that also knows the shares of c contributors, the
part 1 − c/k' of it is left. A change 2Δw of one rating's gradient is then μ-Gaussian-private,

    μ² = Σ_t Σ_l (2Δw_l)² / (2b² H_l(t) s(t) (1 − c/k'(t))).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arrays import Counts, Flags, Floats, Ids
from protocol.schemes.base import DELTA
from protocol.schemes.composition import (
    MOST_ENVELOPE_VALUES,
    composed,
    envelope_mu,
    gaussian_epsilon,
)
from protocol.schemes.factorization.factorization import FactorizationParams
from sim.audit.accounting.curve_points import curve_iterations
from sim.audit.families.masked.releases import Release

COLLUDERS = {"1": 1, "3": 3, "all but one": -1}  # c; −1: k' − 1
WORST_ITEMS = 20
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)


class EnvelopeSums:
    """The sums for the accounted items: those with raters, or a random sample if they are too many."""

    def __init__(self, params: FactorizationParams, supports: dict[int, Ids], draw: np.random.Generator) -> None:
        self.params = params
        held = np.concatenate(list(supports.values()))
        self.items = _choose(np.unique(held), params, draw)
        n, dim = len(self.items), params.dim
        self.directions = random_directions(draw, n, dim)
        self.rated = len(np.unique(held))
        self.raters = np.bincount(held, minlength=params.n_items)
        self.n_releases = np.zeros(n, np.int64)
        self.inverse = np.zeros((n, dim))  # Σ_t 1/(H s)
        self.first = np.zeros((n, dim))  # the same for the item's first release alone
        self.colluding = {name: np.zeros((n, dim)) for name in COLLUDERS}
        self.colluding_once = {name: np.zeros((n, dim)) for name in COLLUDERS}  # first one with an honest user
        self._single: list[tuple[Counts, Counts, Floats]] = []  # per iteration: places, k', means over l of 1/(H s)
        # ratings, user after user: only the sums that a user contributed to reveal its ratings
        self._users = list(supports)
        self._start = dict(zip(supports, np.cumsum([0, *map(len, supports.values())]).tolist(), strict=False))
        self._supports = supports
        self._held = held
        self.rating_releases = np.zeros(len(held), np.int64)
        self.rating_inverse = np.zeros(len(held))  # even direction
        self.sums = 0
        self.single_sums = 0
        self.iterations = 0
        self._contributors: list[Counts] = []
        self._ended = 0  # iterations
        self._points_at = curve_iterations(params.iterations)
        self._points: list[dict[str, Any]] = []

    def pick(self, release: Release) -> tuple[Flags, Counts]:
        """Return (a mask of the accounted rows of `release`, their places in `items`)."""
        places = np.searchsorted(self.items, release.items)
        places[places == len(self.items)] = 0
        mine = self.items[places] == release.items
        return mine, places[mine]

    def add(self, release: Release, mine: Flags, places: Counts, envelope: Floats) -> None:
        """Add one release; `envelope` has a row for each of its accounted items."""
        k = release.contributors[mine]
        inverse = 1 / (envelope * release.strength[mine][:, None])
        new = self.n_releases[places] == 0
        self.first[places[new]] = inverse[new]
        self.inverse[places] += inverse
        self.n_releases[places] += 1
        for name, c in COLLUDERS.items():
            known = k - 1 if c < 0 else np.full(len(k), c)
            left = known < k  # otherwise the sum has no honest contributor
            rows, more = places[left], inverse[left] * (k / np.maximum(k - known, 1))[left][:, None]
            fresh = ~self.colluding[name][rows].any(axis=1)
            self.colluding_once[name][rows[fresh]] = more[fresh]
            self.colluding[name][rows] += more
        even = inverse.mean(axis=1)
        self._single.append((places, k, even))
        self._add_ratings(release, mine, even)
        self.sums += len(release.items)
        self.single_sums += int(np.count_nonzero(release.contributors == 1))
        self._contributors.append(release.contributors)
        self.iterations += 1
        self._ended = release.iteration + 1
        if self._ended in self._points_at:
            self._points.append(self._point())

    def _add_ratings(self, release: Release, mine: Flags, even: Floats) -> None:
        by_item, counted = np.zeros(self.params.n_items), np.zeros(self.params.n_items, np.int64)
        by_item[release.items[mine]], counted[release.items] = even, 1
        runs = [np.arange(self._start[user], self._start[user] + len(self._supports[user])) for user in release.users]
        at = np.concatenate([np.zeros(0, np.int64), *runs])
        self.rating_inverse[at] += by_item[self._held[at]]
        self.rating_releases[at] += counted[self._held[at]]

    # --- figures ---------------------------------------------------------------------------------------------------

    def epsilon(self, inverse_mean: float) -> float:
        """Compute ε at δ from Σ_t mean over l of 1/(H s), in the even direction."""
        return self.epsilon_of_mu(float(self._mu(np.array([[inverse_mean]]))[0]))

    def epsilon_of_mu(self, mu: float) -> float:
        return gaussian_epsilon(mu, DELTA)

    def _mu(self, inverse: Floats, direction: str | Floats = "even") -> Floats:
        return envelope_mu(inverse, self.params.noise_scale, self.params.rating_span, direction)

    def directions_of(self, inverse: Floats) -> dict[str, Any]:
        """Compute quantiles of ε over the released items, for each direction of the change."""
        there = inverse.any(axis=1)
        if not there.any():
            return {}
        ways: dict[str, str | Floats] = {"even": "even", "random": self.directions[there], "worst": "worst"}
        return {way: self._spread(self._mu(inverse[there], w), self.items[there]) for way, w in ways.items()}

    def _spread(self, mu: Floats, items: npt.NDArray[np.integer[Any]]) -> dict[str, Any]:
        """Compute quantiles of ε from those of μ, with which ε grows."""
        median, p99 = (float(np.quantile(mu, q, method="higher")) for q in (0.5, 0.99))
        return {
            "median": self.epsilon_of_mu(median),
            "p99": self.epsilon_of_mu(p99),
            "worst": self.epsilon_of_mu(float(mu.max())),
            "item": int(items[int(mu.argmax())]),
            "items": len(mu),
        }

    def any_sum(self) -> dict[str, Any]:
        """Summarise ε of one release, over every sum of the run instead of each item's first; even direction."""
        if not self._single:
            return {}
        places, even = (np.concatenate([part[at] for part in self._single]) for at in (0, 2))
        return self._spread(self._mu(even[:, None]), self.items[places.astype(np.int64)])

    def ratings(self) -> dict[str, Any]:
        """Summarise ε over the ratings, each through the sums that its user contributed to; even direction."""
        there = np.flatnonzero(self.rating_inverse)
        if not len(there):
            return {}
        worst = int(there[self.rating_inverse[there].argmax()])
        user = self._users[int(np.searchsorted(list(self._start.values()), worst, "right")) - 1]
        figures = self._spread(self._mu(self.rating_inverse[there][:, None]), self._held[there])
        figures["ratings"] = figures.pop("items")
        return {**figures, "user": user, "releases": _range(self.rating_releases[there])}

    def composed(self) -> dict[str, Any]:
        """Compose the releases of the rating in the most sums, to a party without the envelopes."""
        return composed(self.params, int(self.rating_releases.max(initial=0)))

    def curve(self) -> list[dict[str, Any]]:
        """List what was released after some iterations, and ε to the recommender by then; even direction."""
        stopped = not self._points or self._points[-1]["iterations"] != self._ended  # between two of them
        return [*self._points, *([self._point()] if stopped else [])]

    def _point(self) -> dict[str, Any]:
        even = self.directions_of(self.inverse).get("even", {})
        known = {name: even.get(name) for name in ("median", "worst")}
        return {"iterations": self._ended, "releases": int(self.rating_releases.max(initial=0)), **known}

    def contributors(self) -> dict[str, Any]:
        counts = np.concatenate([np.zeros(0, np.int64), *self._contributors])
        share = self.single_sums / self.sums if self.sums else None
        return {**_range(counts), "single": self.single_sums, "single_share": share}

    def colluders(self) -> dict[str, Any]:
        return {
            name: {
                "one_release": self.directions_of(self.colluding_once[name]).get("even"),
                "all_releases": self.directions_of(self.colluding[name]).get("even"),
            }
            for name in COLLUDERS
        }

    def table(self) -> list[dict[str, Any]]:
        """List the items with the largest ε over all releases; even direction."""
        order = np.argsort(-self.inverse.mean(axis=1), kind="stable")[:WORST_ITEMS]
        return [self._row(int(place)) for place in order if self.n_releases[place]]

    def _row(self, place: int) -> dict[str, Any]:
        k = np.concatenate([counts[places == place] for places, counts, _ in self._single])
        with_colluders = {
            name: self.epsilon(float(sums[place].mean())) if sums[place].any() else None
            for name, sums in self.colluding.items()
        }
        return {
            "item": int(self.items[place]),
            "raters": int(self.raters[self.items[place]]),
            "releases": int(self.n_releases[place]),
            "contributors": {"min": int(k.min()), "median": float(np.median(k))},
            "one_release": self.epsilon(float(self.first[place].mean())),
            "all_releases": self.epsilon(float(self.inverse[place].mean())),
            "colluders": with_colluders,
        }

    def quantiles(self) -> dict[str, Any]:
        """Compute quantiles of the table's columns over all accounted items that were released."""
        there = self.n_releases > 0
        if not there.any():
            return {}
        columns = {"one_release": self.first[there], "all_releases": self.inverse[there]}
        columns |= {f"colluders {name}": sums[sums.any(axis=1)] for name, sums in self.colluding.items()}
        made: dict[str, Any] = {"at": list(QUANTILES)}
        made["releases"] = np.quantile(self.n_releases[there], QUANTILES, method="higher").tolist()
        for name, sums in columns.items():
            means = sums.mean(axis=1)
            picked = np.quantile(means, QUANTILES, method="higher").tolist() if len(means) else []
            made[name] = [self.epsilon(value) for value in picked]
        return made


def random_directions(draw: np.random.Generator, rows: int, dim: int) -> Floats:
    """Draw directions uniformly on the unit sphere, as a prior for unknown user factors."""
    normal = draw.normal(size=(rows, dim))
    directions: Floats = normal / np.sqrt(np.einsum("jl,jl->j", normal, normal))[:, None]
    return directions


def _range(counts: Counts) -> dict[str, Any]:
    if not len(counts):
        return {"min": None, "median": None, "max": None}
    return {"min": int(counts.min()), "median": float(np.median(counts)), "max": int(counts.max())}


def _choose(rated: Ids, params: FactorizationParams, draw: np.random.Generator) -> Ids:
    most = max(1, MOST_ENVELOPE_VALUES // (params.dim * params.iterations))
    return rated if len(rated) <= most else np.sort(draw.choice(rated, most, replace=False))
