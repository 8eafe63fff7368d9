"""The paper's noise and its shares (Lemma 1, Theorem 2, equation 12).

If H ~ Exp(1) and N ~ N(0, 1) then b sqrt(2H) N is Laplace(0, b). Given H, a normal variable splits into k
independent normal shares of variance 1/k; so the recommender deals H, each user draws its own share, and
only the sum over k users has the Laplace law.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import Name, Tape


def noise_scale(epsilon: float, rating_span: float, dim: int) -> float:
    """Compute b = 2 Δ sqrt(d) / ε from Δ = `rating_span` and d = `dim`; ε = ∞ means no noise."""
    return 0.0 if math.isinf(epsilon) else 2 * rating_span * math.sqrt(dim) / epsilon


def default_clip(scale: float, rating_span: float) -> float:
    """Compute C = 32 b + 3 Δ (b: `scale`, Δ: `rating_span`), which exceeds every error of the reference runs."""
    return 32 * scale + 3 * rating_span


def noise_share(
    scale: float,
    envelope: npt.NDArray[np.float32],
    floors: npt.NDArray[np.uint32],
    normal: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Compute b sqrt(2 H_j[l]) C[l], C ~ N(0, 1/floor): H is `envelope`, rows are items, `floors` one count per row."""
    share = envelope.astype(np.float64)
    share *= 2
    np.sqrt(share, out=share)
    share /= np.sqrt(floors.astype(np.float64))[:, None]
    share *= scale
    share *= normal
    return share


def floor_of(invited: npt.NDArray[np.int64], dropout_allowance: float, min_contributors: int) -> npt.NDArray[np.uint32]:
    """Compute the fewest contributors of a released item: `invited` (1 - allowance) rounded up, or the minimum."""
    # the small term keeps 10 * (1 - .7) = 3.0000000000000004 from becoming 4
    enough = np.ceil(invited * (1 - dropout_allowance) - 1e-9)
    floors: npt.NDArray[np.uint32] = np.maximum(enough, min_contributors).astype(np.uint32)
    return floors


def laplace(tape: Tape, scale: float, rows: int, dim: int, *name: Name) -> npt.NDArray[np.float64]:
    """Draw independent Laplace(0, b), b = `scale`: a normal n with P(N > |n|) = p becomes ±b ln(1/2p)."""
    normal = tape.normal(rows, dim, *name)
    from scipy.special import log_ndtr  # slow to import

    sizes: npt.NDArray[np.float64] = -scale * (log_ndtr(-np.abs(normal)) + np.log(2.0))
    return np.copysign(sizes, normal)
