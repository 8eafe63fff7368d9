"""Lower bounds on μ from means, where the noise is Gaussian: no threshold, so every value counts in full.

`measured_mu`: σ is measured too, so noise that is missing shows. The statistic (x̄₁ − x̄₀)/s is noncentral t.

`shown_share`: the party knows the noise, as the recommender does that dealt the envelopes. Each value has its own known
μ_i, and the bound is on the share c of the shifts c μ_i that is really there: the weighted mean Σ ±μ_i z_i / Σ μ_i²/2
has the variance 4/Σ μ_i². That the noise is there, it takes for granted.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from protocol.arrays import Flags, Floats


def measured_mu(values: Floats, greatest: Flags, confidence: float) -> float | None:
    """Compute the lower limit of (mean₁ − mean₀)/σ for normal values with one unknown σ; None if they do not vary."""
    one, other = values[greatest], values[~greatest]
    free = len(one) + len(other) - 2
    if min(len(one), len(other)) < 2:
        return 0.0
    spread = math.sqrt((float(((one - one.mean()) ** 2).sum()) + float(((other - other.mean()) ** 2).sum())) / free)
    if spread == 0:
        return None
    size = math.sqrt(1 / (1 / len(one) + 1 / len(other)))
    t = (float(one.mean()) - float(other.mean())) / spread * size
    from scipy.special import nctdtrinc  # the noncentrality at which t or less has the given probability

    limit = float(nctdtrinc(free, confidence, t)) if t > 0 else 0.0
    return max(0.0, limit / size) if math.isfinite(limit) else 0.0


def shown_share(ratios: Floats, mus: Floats, greatest: Flags, confidence: float) -> float:
    """Compute the lower limit of the share of the shifts that is there; `ratios` are log likelihood ratios μ_i z_i."""
    power = float((mus**2).sum())
    if power == 0:
        return 0.0
    mean = float(np.where(greatest, ratios, -ratios).sum()) / (power / 2)
    return max(0.0, mean - 2 * float(ndtri(confidence)) / math.sqrt(power))
