"""The noise that leads to given item factors in `trusted`: the published V is an affine map of 2Σ u_i r_ij − η_j.

With A_j = Σ u_i u_iᵀ, M_j = I − γ(2A_j/k_j + 2μI) and G_j = (γ/k_j) Σ_{s<T} M_j^s, the T noisy steps give

    v_j(T) = M_j^T v_j(0) + G_j (2Σ u_i r_ij − η_j).

Their limit, the exact minimiser of equation (6), has

    (2A_j + 2μk_j I) v_j = 2Σ u_i r_ij − η_j.

Both are inverted here, so that log p(V | ratings) can be computed, up to a constant:

    Σ_j −|η_j|₁/b + log |det dη_j/dv_j|.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Matrix
from protocol.party.role import RECOMMENDER, UserInput, user_index
from protocol.schemes.factorization.factorization import FactorizationParams
from protocol.schemes.factorization.trusted import RatingBook, TrustedRecommender, fresh_item_factors
from protocol.wire.messages import RatingsHandover
from sim.audit.role_rerun import rerun
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """The inputs of a run's recommender, and what it published."""

    params: FactorizationParams
    tape: Tape
    handed: dict[int, UserInput]  # ordered by user
    item_factors: Matrix
    user_factors: Matrix  # kept by the recommender, not published


def read_publication(case: Case) -> Published | None:
    """Run the role again from the recommender's view; None if it never published."""
    exhibits = Exhibits(case, (RECOMMENDER,))
    handed, role = {}, None
    for turn in rerun(exhibits, RECOMMENDER):
        role = turn.role
        if turn.sender is not None and isinstance(turn.given, RatingsHandover):
            handed[user_index(turn.sender)] = UserInput(turn.given.items, turn.given.values)
    assert isinstance(role, TrustedRecommender)
    if role.profiles is None:
        return None
    params, tape = FactorizationParams.of(case.card.params), exhibits.brought(RECOMMENDER).tape
    return Published(params, tape, dict(sorted(handed.items())), role.item_factors, role.profiles)


class NoiseMap:
    """The map from item factors to noise, for one U and one set of ratings; rows are the items with raters."""

    def __init__(self, book: RatingBook, user_factors: Matrix, params: FactorizationParams, tape: Tape) -> None:
        rows, rated = user_factors[book.users], book.rated
        by_item = csr_matrix(
            (np.ones(len(rows)), (book.items, np.arange(len(rows)))), shape=(params.n_items, len(rows))
        )[rated]
        self._rated = rated
        self._params = params
        # A_j is built row by row: all products u_a u_b of all ratings would fill the memory
        slices = [np.asarray(by_item @ (rows * rows[:, a : a + 1])) for a in range(params.dim)]
        self._squares: Floats = np.stack(slices, axis=1)
        self._pull: Matrix = 2 * (by_item @ (rows * book.ratings[:, None]))  # 2Σ u r
        self._raters = book.n_raters[rated].astype(np.float64)[:, None]
        self._first = fresh_item_factors(params, tape)[rated]

    def shifted(self, item: int, pull: Floats) -> NoiseMap:
        """Return the map for the same U with `pull` added to 2Σ u r of `item`."""
        other = copy.copy(self)
        other._pull = self._pull.copy()
        other._pull[np.searchsorted(self._rated, item)] += pull
        return other

    def after_steps(self, item_factors: Matrix) -> tuple[Matrix, Floats]:
        """Compute (η_j, log |det dη_j/dv_j|), given that the T steps led to `item_factors`."""
        params, values, vectors = self._params, *np.linalg.eigh(self._squares)
        step = 1 - params.learning_rate * (2 * values / self._raters + 2 * params.item_regularisation)
        last, loss = step**params.iterations, 1 - step
        flat = np.abs(loss) < 1e-12  # no contraction in this direction: T equal steps
        series = np.where(flat, params.iterations, (1 - last) / np.where(flat, 1.0, loss))
        gain = series * params.learning_rate / self._raters  # eigenvalues of G_j
        turned = np.einsum("jab,ja->jb", vectors, item_factors[self._rated])
        begun = last * np.einsum("jab,ja->jb", vectors, self._first)
        target = np.einsum("jab,jb->ja", vectors, (turned - begun) / gain)
        return self._pull - target, -np.log(gain).sum(axis=1)

    def at_minimum(self, item_factors: Matrix) -> tuple[Matrix, Floats]:
        """Compute the same, given that `item_factors` are the exact minimiser of (6)."""
        curvature = self._curvature()
        target = np.einsum("jab,jb->ja", curvature, item_factors[self._rated])
        return self._pull - target, np.linalg.slogdet(curvature)[1]

    def minimiser(self, noise: Matrix) -> Matrix:
        """Compute the exact minimiser of (6) with η = `noise`, which has a row for every item."""
        found = np.zeros_like(noise)
        right = (self._pull - noise[self._rated])[..., None]
        found[self._rated] = np.linalg.solve(self._curvature(), right)[..., 0]
        return found

    def _curvature(self) -> Floats:
        ridge = 2 * self._params.item_regularisation * self._raters[..., None] * np.eye(self._params.dim)
        curvature: Floats = 2 * self._squares + ridge
        return curvature
