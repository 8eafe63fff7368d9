"""The public averages that follow from the noisy sums of round 1, and the centring of a user's ratings with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ints
from protocol.schemes.covariance.options import CovarianceParams, HybridParams
from protocol.schemes.covariance.sensitivity import item_scale

# with unit_of=user, β_m is proportional to the mean weighted count: `shrink_items` (15) if that is 48, the number of
# ratings that an item of MovieLens-100k has on average
TYPICAL_RATERS = 48.0


@dataclass(frozen=True, slots=True, eq=False)
class Averages:
    """Averages that follow from noisy sums alone, so that all of them may be published."""

    global_mean: float
    item_means: Floats  # MAvg: in the rating range, rounded to the float32 in which it travels
    item_counts: Floats  # noisy MCnt
    covered: Ints  # the items of largest noisy count, in increasing order
    user_shrink: float  # β_p, or β_u of `hybrid`, rounded to float32

    @property
    def spread(self) -> float:
        return float(self.item_means.max() - self.item_means.min())


def averages_of(params: CovarianceParams, noisy: Floats) -> Averages:
    """Compute the averages, clipped to the range, and choose the items of largest noisy count.

    G = c + GSum/max(GCnt, 1), MAvg = c + (MSum + b(G − c)) / (max(MCnt, 0) + b).
    """
    n_items, middle = params.n_items, params.middle
    total, count = float(noisy[0]), max(float(noisy[1]), 1.0)
    sums, counts = noisy[2 : 2 + n_items], noisy[2 + n_items :]
    global_mean = min(max(middle + total / count, params.rating_min), params.rating_max)
    shrink = item_shrink(params, count, counts)
    means = middle + (sums + shrink * (global_mean - middle)) / (np.maximum(counts, 0.0) + shrink)
    means = np.minimum(np.maximum(means, params.rating_min), params.rating_max)
    # a noisy number: all bits of a float64 would tell from which number of ratings noise can lead to it
    user_shrink = float(np.float32(count / params.n_users)) if isinstance(params, HybridParams) else params.shrink_user
    covered = np.sort(np.argsort(-counts, kind="stable")[: params.items])
    return Averages(global_mean, means.astype(np.float32).astype(np.float64), counts, covered, user_shrink)


def item_shrink(params: CovarianceParams, total_count: float, item_counts: Floats) -> float:
    """Compute b = β_m + 2σ_MSum, or b = β_m with `printed_shrink`.

    β_m is a constant, or follows the noisy counts, never the exact ones: these are secret.
    """
    if isinstance(params, HybridParams):
        base = total_count / params.n_items
    elif params.per_user:
        typical = max(float(item_counts.mean()), 1 / params.n_items)
        base = params.shrink_items / TYPICAL_RATERS * typical
    else:
        base = params.shrink_items
    return base + (0.0 if params.printed_shrink else 2 * relative_item_noise(params))


def relative_item_noise(params: CovarianceParams) -> float:
    """Compute σ_MSum, the noise of an item's sum, in stars; callers use it as a number of ratings."""
    return 0.0 if math.isinf(params.epsilon) else item_scale(params).total / params.unit


def centre(
    item_means: Floats, user_shrink: float, items: npt.NDArray[np.integer], ratings: Floats
) -> tuple[float, Floats]:
    """Compute a user's (r̄_u, t_u): x = r − MAvg, r̄_u = Σ x / (c_u + β_p), t_u = x − r̄_u.

    Only a clipped form of t_u is ever summed.
    """
    above = ratings - item_means[items]
    mean = float(above.sum() / (len(above) + user_shrink))
    return mean, above - mean


def clamped(params: CovarianceParams, centred: Floats) -> Floats:
    """Compute r̂: `centred` (t) clipped to ±B."""
    return np.minimum(np.maximum(centred, -params.clamp), params.clamp)
