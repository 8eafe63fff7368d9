"""What a change of ratings is worth to a coalition: its shifts over the noise that the coalition does not know.

With the shift s_t of release t, given all that was released before, and Gaussian noise of covariance Σ, μ² = sᵀ Σ⁻¹ s
and ε(δ) solves δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ). With Laplace noise of scale b, the largest loss is Σ |s|/b, at
δ = 0. Either is exact for this pair of data sets and for the course that the run took, and so is a lower bound on the
scheme's ε to that coalition. The first user factors are taken as known: they are no protection (`Tape.start`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.party.role import UserInput
from protocol.schemes.base import DELTA
from protocol.schemes.composition import gaussian_epsilon
from sim.audit.coalitions import Coalition
from sim.audit.pairs.change import RatingChange
from sim.audit.pairs.twice import Twice


@dataclass(frozen=True, slots=True)
class Loss:
    """The privacy loss of one change to one coalition."""

    members: Coalition
    releases: int  # that the change reaches
    mu: float | None = None  # Gaussian noise
    pure: float | None = None  # Laplace noise, or an exact likelihood ratio: the loss at δ = 0
    shift: float | None = None  # of what the noise protects, over the sensitivity that it is made for
    given: float | None = None  # μ if the noise that stays the same in all releases were known as well

    @property
    def epsilon(self) -> float:
        return gaussian_epsilon(self.mu, DELTA) if self.mu is not None else float(self.pure or 0.0)

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "coalition": list(self.members),
            "epsilon": self.epsilon,
            "delta": DELTA if self.mu is not None else 0.0,
            "releases": self.releases,
        }
        if self.shift is not None:
            row["shift"] = self.shift
        if self.given is not None:
            row["epsilon_given_constant_noise"] = gaussian_epsilon(self.given, DELTA)
        return row


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst of many pairs: one rating at the lowest end in one data set, and at the highest in the other."""

    change: RatingChange
    mu: float
    pairs: int  # in question
    tried: int  # the others cannot be worse, by a bound
    complete: bool

    def row(self) -> dict[str, Any]:
        of_all = {"in_question": self.pairs, "tried": self.tried, "complete": self.complete}
        return {"epsilon": gaussian_epsilon(self.mu, DELTA), **of_all}


class Exposure:
    """What the coalitions of one run see of a user's numbers; made once, and asked about many changes."""

    farthest = 1.0  # shift, over the sensitivity of the noise, that one pair may have

    def coalitions(self) -> list[Coalition]:
        """List the coalitions that something is known about, the most exposed one first."""
        raise NotImplementedError

    def loss(self, members: Coalition, twice: Twice) -> Loss | None:
        """Compute the loss of a change; None if the coalition sees nothing that it moves."""
        raise NotImplementedError

    def scores(self, members: Coalition, user: int, own: UserInput, moves: Floats) -> Floats:
        """Estimate the loss for a change of each rating of `user` by `moves`, to choose the pairs that are tried."""
        return moves**2 / len(moves)

    def own_kind(self, ratings: Mapping[str, UserInput], most: int) -> Iterable[tuple[Loss, str]]:
        """Try `most` pairs that no changed value makes, if the claim is about such; return their losses, in words."""
        return ()

    def accounted_order(self, members: Coalition) -> list[int]:
        """List the items from the one with the largest accounted ε to the one with the least, if it is by item."""
        return []

    def accounted(self, members: Coalition, change: RatingChange) -> dict[str, Any]:
        """Return what the accounting says of the changed item, as an upper bound."""
        return {}

    def worst(self, members: Coalition, ratings: Mapping[str, UserInput], item: int | None = None) -> Worst | None:
        """Find the worst of all pairs of `item`, or of the run; None where only some pairs can be tried."""
        return None

    def limit(self, members: Coalition) -> tuple[float, str] | None:
        """Return (the ε that no pair may exceed, the id of the finding if one does); None: nothing is claimed."""
        return None


def gaussian_mu_squared(shift: Floats, own: Floats, common: Floats, overlap: Floats | float) -> tuple[float, float]:
    """Compute (μ², μ² if the common noise were known) of one item over its T releases.

    `shift` and `own` have T rows and a column per coordinate: the change, and the variance of the noise that is drawn
    for one release alone. `common` is the variance of the noise that is in all of them, per coordinate, and `overlap`
    the part of it that two releases share: a T × T matrix, or one number if it is the same for all of them.

    The T sums of a coordinate are jointly Gaussian with Σ = diag(own) + common · overlap, and coordinates are
    independent, so μ² = Σ_l s_lᵀ Σ_l⁻¹ s_l. With one number, Σ = D + v 1 1ᵀ for v = common · overlap, and by Sherman
    and Morrison, with w = 1/own,

        sᵀ Σ⁻¹ s = Σ_t w_t s_t² − v (Σ_t w_t s_t)² / (1 + v Σ_t w_t).
    """
    given = float((shift**2 / own).sum())
    if not common.any():
        return given, given
    if isinstance(overlap, float):
        part = common * overlap
        less = part * (shift / own).sum(axis=0) ** 2 / (1 + part * (1 / own).sum(axis=0))
        return max(0.0, given - float(less.sum())), given
    solved = np.linalg.solve(_covariance(own, common, overlap), shift.T[..., None])[..., 0]
    return float((shift.T * solved).sum()), given


def information(own: Floats, common: Floats, overlap: Floats | float) -> Floats:
    """Compute 1ᵀ Σ⁻¹ 1 of each coordinate: μ² of a shift of 1 that stays the same in all releases.

    For a common noise of variance v in all releases it is A/(1 + v A) with A = Σ_t 1/own_t: at most 1/v, however many
    releases there are and however little noise of its own one of them has.
    """
    total = (1 / own).sum(axis=0)
    if isinstance(overlap, float):
        return np.asarray(total / (1 + common * overlap * total), np.float64)
    ones = np.ones((*own.T.shape, 1))
    return np.asarray(np.linalg.solve(_covariance(own, common, overlap), ones).sum(axis=(1, 2)), np.float64)


def _covariance(own: Floats, common: Floats, overlap: Floats) -> Floats:
    times, made = np.arange(len(own)), common[:, None, None] * overlap
    made[:, times, times] += own.T
    return np.asarray(made, np.float64)


def accounted_of(row: dict[str, Any]) -> list[list[float]]:
    """Return (even direction, worst direction) of `row` twice: constant noise is known, and it is counted on."""
    ways = "accounted", "accounted_counted"
    return [[row[name] for name in (way, f"{way}_worst_direction") if name in row] for way in ways]
