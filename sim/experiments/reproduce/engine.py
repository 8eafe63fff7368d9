"""The paper's three scenarios on whole matrices: the same rule and the same law of noise as the roles, no messages.

Masks cancel exactly, and the shares of a noise add up to one Laplace(0, b) value per coordinate. So a figure needs
neither, and takes minutes instead of the days that the roles would need. `sim/run/baseline.py` makes the steps, this
module adds the noise.

    S1  trusted   U after T plain steps, then T item steps from a fresh V(0), the same η_j in each
    S2  masked    all users in every iteration, η_j + ρ_j(t) on the sum of item j
    S3  dynamic   users drawn from those that are online; the whole η_j, and ρ_j(t), on every sum

The noise of every ε is the same draw of Laplace(0, 1) times b, so that curves differ by ε and not by chance.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from protocol.arithmetic.noise import noise_scale
from protocol.arrays import Ints, Matrix
from protocol.schemes.factorization.factorization import GradientParams
from sim.data.ratings import Column, Dealt, Ratings
from sim.run.baseline import Baseline

# increase this number if a result changes, or what is measured: every finished cell is then run again
ENGINE = 2


def stream(seed: int, what: str) -> np.random.Generator:
    """Make the random stream of one purpose, `what`."""
    key = hashlib.sha256(f"keyhole figures {seed} {what}".encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


def unit_rows(chance: np.random.Generator, rows: int, dim: int) -> Matrix:
    """Draw rows that are uniformly random on the unit sphere."""
    normal = chance.standard_normal((rows, dim))
    lengths: Matrix = np.sqrt(np.einsum("nd,nd->n", normal, normal))
    return normal / lengths[:, None]


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """The ratings to learn from, and the settings that all scenarios share."""

    ratings: Ratings
    data: Dealt
    dim: int
    seed: int

    def params(self, epsilon: float = math.inf) -> GradientParams:
        low, high = self.ratings.rating_range
        return GradientParams.make(
            scheme="masked",
            n_users=self.ratings.n_users,
            n_items=self.ratings.n_items,
            iterations=1,
            rating_min=low,
            rating_max=high,
            epsilon=epsilon,
            dim=self.dim,
        )

    def scale(self, epsilon: float) -> float:
        low, high = self.ratings.rating_range
        return noise_scale(epsilon, high - low, self.dim)

    def start(self, epsilon: float = math.inf, clip: float | None = None) -> Baseline:
        """Make the model before its first step; its factors depend on the seed alone, not on ε."""
        params = self.params(epsilon)
        users = unit_rows(stream(self.seed, "user factors"), self.ratings.n_users, self.dim)
        items = unit_rows(stream(self.seed, "item factors"), self.ratings.n_items, self.dim)
        return Baseline(params, users, items, self.data.train, params.clip if clip is None else clip)


class Noise:
    """η_j, drawn once, and ρ_j(t), drawn afresh: one row per item, every coordinate Laplace(0, b)."""

    def __init__(self, scale: float, n_items: int, dim: int, seed: int) -> None:
        self._scale, self._size = scale, (n_items, dim)
        self._eta = stream(seed, "eta").laplace(size=self._size)
        self._rho = stream(seed, "rho")

    def __call__(self) -> Matrix | None:
        if not self._scale:
            return None
        made: Matrix = self._scale * (self._eta + self._rho.laplace(size=self._size))
        return made


class OnlineUsers:
    """The users of each iteration: drawn by the law of `sim/plan/churn.py`, and at most `online` of them."""

    def __init__(self, n_users: int, online: int, join: float, leave: float, seed: int) -> None:
        self._join, self._leave, self._most = join, leave, online
        self._n_users = n_users
        self._chance = stream(seed, "churn")
        self._invite = stream(seed, "invited")
        start = join / (join + leave) if join + leave > 0 else 1.0
        self._there = self._chance.random(n_users) < start

    def draw(self) -> Ints:
        """Draw the users of this iteration, in increasing order; then let users come and go."""
        there = np.flatnonzero(self._there)
        if len(there) > self._most:
            there = np.sort(self._invite.choice(there, self._most, replace=False, shuffle=False))
        chance = self._chance.random(self._n_users)
        self._there = np.where(self._there, chance >= self._leave, chance < self._join)
        return there


def learn(
    model: Baseline, length: int, noise: Callable[[], Matrix | None], active: Callable[[], Ints | None]
) -> Iterator[int]:
    """Make the steps of S2, S3 or the unprotected baseline; yield the number of steps after each."""
    for step in range(1, length + 1):
        model.iterate(active(), noise())
        yield step


def publish(
    train: Column, user_factors: Matrix, first: Matrix, noises: Sequence[Matrix], params: GradientParams, steps: int
) -> list[Matrix]:
    """Compute V of S1 after `steps` item steps with U fixed, once for each η.

    A step is affine, so the ratings of an item are read only once:

    v <- ((1 − 2γμ) I − (2γ/k) Σ u uᵀ) v + (γ/k) (2 Σ u r − η).
    """
    rate, dim = params.learning_rate, params.dim
    order, raters = np.argsort(train.items, kind="stable"), np.bincount(train.items, minlength=len(first))
    users, values, ends = train.owners()[order], train.values[order], np.cumsum(raters)
    rated = np.flatnonzero(raters)
    slopes, pulls = np.empty((len(rated), dim, dim)), np.empty((len(rated), dim))
    for row, item in enumerate(rated):
        some = slice(ends[item] - raters[item], ends[item])
        own = user_factors[users[some]]
        slopes[row], pulls[row] = own.T @ own, own.T @ values[some]
    each = (rate / raters[rated])[:, None, None]
    maps = (1 - 2 * rate * params.item_regularisation) * np.eye(dim) - 2 * each * slopes
    pushes = each * np.stack([2 * pulls - noise[rated] for noise in noises], axis=2)
    moved = np.repeat(first[rated][:, :, None], len(noises), axis=2)
    for _ in range(steps):
        moved = maps @ moved + pushes
    published = []
    for place in range(len(noises)):
        items = first.copy()  # an item without raters keeps its first factors
        items[rated] = moved[:, :, place]
        published.append(items)
    return published
