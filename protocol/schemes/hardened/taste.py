"""The second round: directions of taste, learned from one more sum where there are users enough to pay for it.

X: the leading functions of the kernel under the weights N on the most popular items, extended to all (Nyström), so that
K − XXᵀ stays positive. Each user adds, at item j and over directions, its rating's residual ê_j and its taste u_j,
both left out of each other,

    α = (K_RR + σ_e² I)^-1 (y − b),  D = diag of that inverse A,  ê = α/D,  u_j = X_Rᵀ α − X_Rᵀ A_·j ê_j,

as one unit matrix over its items among the most popular. Without leaving out, a rating would pull the taste towards
itself. What the sum is expected to be follows from public eigenvalues, so no second moment is released. The learned
directions X' replace X on these items: K − XXᵀ + X'X'ᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.arrays import Floats, Ints, Places
from protocol.party.home_ridge import RESIDUAL, similarity
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.item_table import ItemTable
from protocol.schemes.hardened.unit_vectors import unit_vector

STEPS = 30
FIRST_SPREAD, SPREADS = 0.01, (1e-5, 0.3)  # τ² of a direction
LEAST_EIGENVALUE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Taste:
    """The directions as they travel; `learned` is None before the second sum."""

    covered: Places  # the most popular items, increasing
    basis: Floats  # X: a row for every item
    learned: Floats | None = None  # X': a row for each covered item

    def more(self, left: Places, right: Places) -> Floats:
        """Compute what the learned directions add to the similarity of items."""
        if self.learned is None:
            return np.zeros((len(left), len(right)))
        whole = self.basis.copy()
        whole[self.covered] = self.learned
        added = np.einsum("iq,jq->ij", whole[left], whole[right])
        return np.asarray(added - np.einsum("iq,jq->ij", self.basis[left], self.basis[right]))


def directions(params: HardenedParams, table: ItemTable, counts: Floats) -> tuple[Taste, Floats]:
    """Find the most popular items and the leading directions among them; return their eigenvalues too."""
    from numpy.linalg import eigh

    f, size, q = table.descriptions(params.described()), params.covered, params.directions
    covered = np.sort(np.argsort(-counts, kind="stable")[:size])
    root = np.sqrt(counts[covered] / counts.sum())
    values, vectors = eigh(root[:, None] * similarity(f[covered], f[covered]) * root)
    values, vectors = np.maximum(values[::-1][:q], LEAST_EIGENVALUE), vectors[:, ::-1][:, :q]
    peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(q)]
    vectors = vectors * np.where(peaks < 0, -1.0, 1.0)  # the sign of an eigenvector is arbitrary
    basis = np.einsum("jk,kq->jq", similarity(f, f[covered]), root[:, None] * vectors / np.sqrt(values))
    return Taste(covered, basis.astype(np.float32).astype(np.float64)), values


def second_vector(params: HardenedParams, table: ItemTable, taste: Taste, items: Places, ratings: Floats) -> Ints:
    """Make the vector of round 2, item after item; whatever table arrived, its norm is at most A."""
    from numpy.linalg import LinAlgError, inv

    vector = np.zeros((params.covered, params.directions), np.int64)
    at = np.minimum(np.searchsorted(taste.covered, items), params.covered - 1)
    inside = taste.covered[at] == items
    if len(items) < 2 or not inside.any():
        return vector.reshape(-1)
    own, above = table.descriptions(params.described())[items], (ratings - params.centre) / params.star
    square = similarity(own, own)
    square[np.diag_indices(len(square))] += RESIDUAL
    try:
        inverse = inv(square)
    except LinAlgError:  # a table that no honest recommender sends
        return vector.reshape(-1)
    with np.errstate(all="ignore"):  # the same
        alpha = np.einsum("ij,j->i", inverse, above - table.quality[items])
        residual, basis = alpha / np.diagonal(inverse), taste.basis[items]
        taken = np.einsum("ij,iq->jq", inverse, basis) * residual[:, None]
        both = residual[:, None] * (np.einsum("iq,i->q", basis, alpha) - taken)
    vector[at[inside]] = unit_vector(both[inside], params.whole)
    return vector.reshape(-1)


def learn(
    params: HardenedParams, taste: Taste, values: Floats, noisy: Floats, counts: Floats, contributors: int
) -> Taste:
    """Work out X' from the noisy sums of round 2: each entry is shrunk by how much the noise lets it say."""
    sums, own = noisy.reshape(params.covered, params.directions), counts[taste.covered][:, None]
    often = (counts.sum() / contributors) ** 2
    known = values * often / (values * often + RESIDUAL)
    expected = own * known / np.sqrt(RESIDUAL * known.sum())
    share = contributors / max(float(counts.sum()), 1.0) * own * known / known.sum()
    noise = params.noise_deviation(1, contributors) ** 2 + share
    spread = np.full(params.directions, FIRST_SPREAD)
    for _ in range(STEPS):
        gain = expected * spread / (expected**2 * spread + noise)
        moment = (gain * sums) ** 2 + spread * (1 - gain * expected)
        spread = np.clip((expected * moment).sum(axis=0) / expected.sum(axis=0), *SPREADS)
    gain = expected * spread / (expected**2 * spread + noise)
    learned = taste.basis[taste.covered] + gain * sums
    return Taste(taste.covered, taste.basis, learned.astype(np.float32).astype(np.float64))
