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

    def scores_given(self, members: Coalition, user: int, own: UserInput, moves: Floats) -> Floats:
        """Estimate the same as if the noise that stays the same in all releases were known."""
        return self.scores(members, user, own, moves)

    def own_kind(self, ratings: Mapping[str, UserInput], most: int) -> Iterable[tuple[Loss, str]]:
        """Try `most` pairs that no changed value makes, if the claim is about such; return their losses, in words."""
        return ()

    def accounted_order(self, members: Coalition) -> list[int]:
        """List the items from the one with the largest accounted ε to the one with the least, if it is by item."""
        return []

    def accounted(self, members: Coalition, change: RatingChange) -> dict[str, Any]:
        """Return what the accounting says of the changed item, as an upper bound."""
        return {}

    def limit(self, members: Coalition) -> tuple[float, str] | None:
        """Return (the ε that no pair may exceed, the id of the finding if one does); None: nothing is claimed."""
        return None


def gaussian_mu_squared(shift: Floats, own: Floats, common: Floats, overlap: Floats | float) -> tuple[float, float]:
    """Compute (μ², μ² if the common noise were known) of one item over its T releases.

    `shift` and `own` have T rows and a column per coordinate: the change, and the variance of the noise that is drawn
    for one release alone. `common` is the variance of the noise that is in all of them, per coordinate, and `overlap`
    the part of it that two releases share: a T × T matrix, or one number if it is the same for all of them.
    """
    given = float((shift**2 / own).sum())
    if not common.any():
        return given, given
    if isinstance(overlap, float):  # a matrix of rank one: by Sherman and Morrison
        part = common * overlap
        less = part * (shift / own).sum(axis=0) ** 2 / (1 + part * (1 / own).sum(axis=0))
        return max(0.0, given - float(less.sum())), given
    times = np.arange(len(shift))
    covariance = common[:, None, None] * overlap
    covariance[:, times, times] += own.T
    solved = np.linalg.solve(covariance, shift.T[..., None])[..., 0]
    return float((shift.T * solved).sum()), given
