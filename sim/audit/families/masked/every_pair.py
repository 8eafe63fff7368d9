"""Search every pair of a `masked` run in which nobody comes or goes: one rating at the lowest end, and at the highest.

The course of the run is held fixed: the factors that were sent, and the variances of the noise. A user's u_i(t) then
follows from its ratings alone, and so does the loss μ² = Σ_k s_kᵀ Σ_k⁻¹ s_k over all its items k. `losses` computes it
as the roles would, for many items of a user at once. `bounds` proves that most pairs need not be tried:

Two ratings of item j, Δ apart or less, move u_i(t) apart by at most D_t, D_0 = 0. A step is the gradient step, in which
clipping leaves a part 0 ≤ α ≤ 1 of a difference of errors, and a projection, which lengthens nothing:

    D_{t+1} = q_t D_t + (2γ/n) Δ |v_j(t)| ≤ 2,     q_t = max(|1 − 2γλ|, |1 − 2γλ − (2γ/n) L_t|)

with the largest eigenvalue L_t of Σ_k v_k v_kᵀ. With the errors e_k of the recorded ratings, the gradient −2 e u of
another item moves by at most 2 D (|e_k| + |v_k| (1 + D)); that of j by −2 (a' − a) u_i(t) of the recorded ratings, and
by at most 2 D (2Δ + |e_j| + |v_j| (1 + D)) more (and 2Δ where an error might be clipped). Rows s_t of length m_t have

    sᵀ Σ⁻¹ s ≤ Σ_t m_t² max_l Σ_r |(Σ_l⁻¹)_tr|

and square roots of such forms obey the triangle inequality. So no two ratings of j are worth more than the bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from protocol.arithmetic.factors import step_user
from protocol.arrays import Counts, Floats, Matrix
from protocol.party.role import UserInput
from protocol.schemes.factorization.factorization import GradientParams

AT_ONCE = 3_000_000  # numbers of a block of pairs
ROUNDING = 1e-9
FARTHEST = 2.0  # two points of the unit ball


@dataclass(frozen=True, eq=False)
class FixedCourse:
    """What a run sent and how its sums are covered; the first axis is time, then items and coordinates."""

    params: GradientParams
    sent: Floats  # v_j(t), as users received them
    weights: Floats  # 1/variance of the noise of one release alone; 0 where the item was not released
    common: Floats  # variance of η; no time

    @cached_property
    def covered(self) -> Floats:
        """Compute c = v/(1 + v Σ_t w_t), by which Σ⁻¹ = diag(w) − c w wᵀ is less than diag(w)."""
        made: Floats = self.common / (1 + self.common * self.weights.sum(axis=0))
        return made

    @cached_property
    def row_sums(self) -> Floats:
        """Compute max_l Σ_r |(Σ_l⁻¹)_tr|, by time and item."""
        total = self.weights.sum(axis=0)
        made: Floats = (self.weights * (1 + self.covered * (total - 2 * self.weights))).max(axis=2)
        return made


class RaterCourse:
    """The course for the items of one user, who starts at the factors `first`."""

    def __init__(self, course: FixedCourse, own: UserInput, first: Floats) -> None:
        self.course, self.params, self.own, self.first = course, course.params, own, first
        self.items = own.items.astype(np.int64)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def pull(self) -> float:
        """Return 2γ/n."""
        return 2 * self.params.learning_rate / len(self)

    def _recorded(self, sent: Floats) -> tuple[Matrix, Matrix, Floats]:
        """Compute (u_i(t), |e_ij(t)|, q_t) of the recorded ratings."""
        params, at = self.params, self.first
        path, errors, growth = [], [], []
        kept = 1 - 2 * params.learning_rate * params.user_regularisation
        for factors in sent:
            error = self.own.ratings - factors @ at
            path.append(at)
            errors.append(np.abs(error))
            growth.append(max(abs(kept), abs(kept - self.pull * float(np.linalg.eigvalsh(factors.T @ factors)[-1]))))
            used = np.clip(error, -params.clip, params.clip)
            at = step_user(at, factors, used, params.learning_rate, params.user_regularisation)
        return np.array(path), np.array(errors), np.array(growth)

    def _apart(self, growth: Floats, lengths: Matrix) -> Matrix:
        """Compute D_t, by time and changed item."""
        rows = [np.zeros(len(self))]
        for grown, length in zip(growth[:-1], lengths, strict=False):
            rows.append(np.minimum(FARTHEST, grown * rows[-1] + self.pull * self.params.rating_span * length))
        return np.array(rows)

    @cached_property
    def bounds(self) -> Floats:
        """Bound μ for each item, whatever two ratings it has in the two data sets."""
        sent, sums, span = self.course.sent[:, self.items], self.course.row_sums[:, self.items], self.params.rating_span
        path, errors, growth = self._recorded(sent)
        lengths = np.linalg.norm(sent, axis=2)
        apart = self._apart(growth, lengths)
        still = self._of_shift(2 * span * path[:, None])
        clipped = np.where(errors + span + lengths * apart >= self.params.clip, 2 * span, 0.0)
        moved = 2 * apart * (2 * span + errors + lengths * (1 + apart)) + clipped
        own = still + np.sqrt((moved**2 * sums).sum(axis=0))
        seen = errors + lengths
        of_all = sum(
            apart**power * (factor * (sums * part).sum(axis=1))[:, None]
            for power, factor, part in ((2, 1, seen**2), (3, 2, seen * lengths), (4, 1, lengths**2))
        )
        of_itself = apart**2 * (seen + lengths * apart) ** 2 * sums
        others = 4 * np.maximum(0.0, of_all - of_itself).sum(axis=0)
        made: Floats = np.sqrt(own**2 + others) * (1 + ROUNDING)
        return made

    def _of_shift(self, shift: Floats) -> Floats:
        """Compute sqrt(sᵀ Σ⁻¹ s) for each item, moved by the same `shift`, a row for each release."""
        weights, covered = self.course.weights[:, self.items], self.course.covered[self.items]
        weighted = weights * shift
        squared = (weighted * shift).sum(axis=0) - covered * weighted.sum(axis=0) ** 2
        made: Floats = np.sqrt(np.maximum(0.0, squared).sum(axis=1))
        return made

    def losses(self, places: Counts, two: tuple[float, float] | None = None) -> Floats:
        """Compute μ between `two` ratings, or the lowest and the highest, for the items at `places` among the own."""
        at_once, two = max(1, AT_ONCE // (len(self) * self.params.dim)), two or self.params.rating_range
        parts = [self._losses(places[at : at + at_once], two) for at in range(0, len(places), at_once)]
        return np.concatenate([np.zeros(0), *parts])

    def _losses(self, places: Counts, two: tuple[float, float]) -> Floats:
        params, flips = self.params, np.arange(len(places))
        squared, linear = np.zeros(len(places)), np.zeros((len(places), len(self), params.dim))
        sides = []
        for end in two:
            ratings = np.repeat(self.own.ratings[None], len(places), axis=0)
            ratings[flips, places] = end
            sides.append((ratings, np.repeat(self.first[None], len(places), axis=0)))
        course = self.course
        for factors, weights in zip(course.sent[:, self.items], course.weights[:, self.items], strict=True):
            errors = [self._errors(factors, *side) for side in sides]
            least, most = (
                -2.0 * error[:, :, None] * at[:, None, :] for error, (_, at) in zip(errors, sides, strict=True)
            )
            moved = most - least
            weighted = weights * moved
            squared += np.einsum("fkl,fkl->f", weighted, moved)
            linear += weighted
            sides = [
                (ratings, self._step(factors, error, at)) for error, (ratings, at) in zip(errors, sides, strict=True)
            ]
        made: Floats = np.sqrt(np.maximum(0.0, squared - np.einsum("kl,fkl->f", course.covered[self.items], linear**2)))
        return made

    def _errors(self, factors: Matrix, ratings: Matrix, at: Matrix) -> Matrix:
        return np.clip(ratings - at @ factors.T, -self.params.clip, self.params.clip)

    def _step(self, factors: Matrix, errors: Matrix, at: Matrix) -> Matrix:
        """Compute u_i(t+1) for many ratings at once, as `step_user` does for one."""
        params = self.params
        kept = 1 - 2 * params.learning_rate * params.user_regularisation
        moved = kept * at + self.pull * (errors @ factors)
        made: Matrix = moved / np.maximum(1.0, np.linalg.norm(moved, axis=1, keepdims=True))
        return made


@dataclass(frozen=True, slots=True)
class WorstPair:
    """The largest loss among many pairs."""

    mu: float
    user: int
    item: int
    pairs: int  # in question
    tried: int  # the others cannot be worse, by their bounds
    complete: bool


class EveryPair:
    def __init__(self, course: FixedCourse, ratings: Mapping[int, UserInput], first: Mapping[int, Floats]) -> None:
        self.courses = {user: RaterCourse(course, own, first[user]) for user, own in ratings.items()}
        self._step = course.weights.shape[0] * course.weights.shape[2]

    def worst(self, item: int | None, most_work: float) -> WorstPair | None:
        """Find the pair with the largest μ, of `item` or of all; `most_work` bounds the numbers that are computed."""
        rows = sorted(self._in_question(item), key=lambda row: (-float(row[1].bounds[row[2]].max()), row[0]))
        best, at, tried, work = 0.0, None, 0, 0.0
        for user, course, places in rows:
            left = places[course.bounds[places] > best]
            work += len(left) * len(course) * self._step
            if work > most_work:
                break
            if not len(left):
                continue
            mus = course.losses(left)
            tried += len(left)
            if mus.max() > best:
                best, at = float(mus.max()), (user, int(course.own.items[left[int(mus.argmax())]]))
        if at is None:
            return None
        return WorstPair(best, *at, sum(len(places) for _, _, places in rows), tried, work <= most_work)

    def _in_question(self, item: int | None) -> Iterator[tuple[int, RaterCourse, Counts]]:
        for user, course in self.courses.items():
            places = np.arange(len(course)) if item is None else np.flatnonzero(course.own.items == item)
            if len(places):
                yield user, course, places
