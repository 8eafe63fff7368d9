"""The gradients and updates of matrix factorization, in the simultaneous form.

    e_ij = r_ij − u_i·v_j, clipped to ±C
    u_i <- project onto |u| ≤ 1 of  u_i − γ ( −(2/n_i) Σ_j v_j e_ij + 2 λ u_i )
    v_j <- v_j − γ ( (Σ_i −2 u_i e_ij + noise) / k_j + 2 μ v_j )

Only `einsum` is used, with one call shape per formula: a BLAS would give other last bits on another machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import Name, Tape
from protocol.arrays import Matrix, Vector

try:  # the core of np.einsum, without the step that chooses an order of several operands
    from numpy._core.multiarray import c_einsum
except ImportError:
    from numpy import einsum as c_einsum
einsum = c_einsum


FACTOR_LIMIT = 2.0**60  # far inside float32, and a product of two factors stays far inside float64
HALF_LIMIT = 65504.0  # the largest number of float16


def factor_limit(bits: int) -> float:
    """Return the largest |v| that users can be sent in numbers of `bits` bits."""
    return HALF_LIMIT if bits == 16 else FACTOR_LIMIT


def as_sent(item_factors: Matrix, bits: int) -> npt.NDArray[np.float32]:
    """Round v_j to what users see of it: to float32, or to float16."""
    narrow = np.float16 if bits == 16 else np.float32
    return item_factors.astype(narrow).astype(np.float32, copy=False)


def first_factors(tape: Tape, rows: int, dim: int, *name: Name) -> Matrix:
    """Draw `rows` rows uniformly from the unit sphere."""
    normal = tape.start(rows, dim, *name)
    lengths: Vector = np.sqrt(einsum("ij,ij->i", normal, normal))
    return normal / lengths[:, None]


def prediction_errors(ratings: Vector, user_factors: Vector, item_factors: Matrix) -> Vector:
    """Compute e_ij from unclipped predictions, for the items of one user."""
    predictions: Vector = einsum("jd,d->j", item_factors, user_factors)
    return ratings - predictions


def item_gradients(errors: Vector, user_factors: Vector) -> Matrix:
    """Compute −2 u_i e_ij, one row per item."""
    gradients: Matrix = einsum("j,d->jd", -2.0 * errors, user_factors)
    return gradients


def step_user(
    user_factors: Vector, item_factors: Matrix, errors: Vector, learning_rate: float, regularisation: float
) -> Vector:
    pull: Vector = einsum("jd,j->d", item_factors, errors)
    slope = -2.0 / len(errors) * pull + 2 * regularisation * user_factors
    moved = user_factors - learning_rate * slope
    norm = float(np.sqrt(einsum("d,d->", moved, moved)))
    return moved / norm if norm > 1 else moved


def step_items(
    item_factors: Matrix,
    sums: Matrix,
    n_raters: npt.NDArray[np.int64],
    learning_rate: float,
    regularisation: float,
) -> Matrix:
    """Step the items whose (noisy) gradient `sums` are given; `n_raters` (k_j) counts all raters, online or not."""
    slope = sums / n_raters[:, None] + 2 * regularisation * item_factors
    return item_factors - learning_rate * slope
