"""Conversion between floats and ring elements, enc(x) = round(x 2^f) mod P, and the largest f that is safe.

A released sum of k users is, in units of 2^-f,

    Σ enc(∇) + Σ enc(η share) + Σ enc(ρ share),   |Σ ∇| ≤ 2 C k,   |η + ρ| ≤ q  except with probability 2^-40,

and each of the 3k roundings adds at most half a unit. It is decoded from [-P/2, P/2), so it does not wrap if

    (2 C k + q) 2^f + 3k/2  ≤  2^(bits-1) - 1.

(Without the two small terms a sum that reaches exactly 2^(bits-1) would wrap; `test_fixedpoint.py` shows it.)
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Label, Ring
from protocol.arrays import RingArray
from protocol.errors import BadInput

MOST_FRACTION_BITS = 24
LEAST_FRACTION_BITS = 8
WRAP_PROBABILITY = 2.0**-40
_STEPS = 64


class FixedPoint:
    """Real numbers as ring elements with `fraction_bits` fractional bits."""

    def __init__(self, ring: Ring, fraction_bits: int) -> None:
        self.ring = ring
        self.fraction_bits = fraction_bits
        self._scale = 2.0**fraction_bits

    def encode(self, reals: npt.NDArray[np.float64], label: Label | None = None) -> RingArray:
        scaled = reals * self._scale
        return self.ring.from_integers(np.rint(scaled, out=scaled), label)

    def decode(self, words: RingArray) -> npt.NDArray[np.float64]:
        return self.ring.to_signed(words) / self._scale


def noise_reach(noise_scale: float, draws: int) -> float:
    """Find q with P(|η + ρ| > q) ≤ 2^-40 / `draws`, for independent η and ρ ~ Laplace(0, b) with b = `noise_scale`.

    The probability is (1 + q/2b) e^(-q/b).
    """
    if noise_scale == 0:
        return 0.0
    log_least = -math.log(WRAP_PROBABILITY / draws)
    ratio = log_least
    for _ in range(_STEPS):  # x = L + log(1 + x/2): each step brings x nearer by 1 / (2 + x)
        ratio = log_least + math.log1p(ratio / 2)
    return ratio * noise_scale


def most_fraction_bits(bits: int, clip: float, max_raters: int, reach: float) -> int:
    """Find the largest f for which no released sum wraps; a negative f means that the ring is too small."""
    room = 2.0 ** (bits - 1) - 1 - 1.5 * max_raters
    if room <= 0:
        return -1
    # a margin of 2^-40, because |u| ≤ 1 and (at 64 bits) `room` are exact only up to float rounding
    largest = (2 * clip * max_raters + reach) * (1 + 2.0**-40)
    return min(MOST_FRACTION_BITS, math.floor(math.log2(room / largest)))


def choose_ring(ring_bits: int | None, clip: float, max_raters: int, reach: float) -> tuple[int, int, str | None]:
    """Choose (ring bits, fraction bits, a sentence for the person or None); `ring_bits` None lets 32 grow to 64."""
    fraction = most_fraction_bits(ring_bits or 32, clip, max_raters, reach)
    if fraction >= LEAST_FRACTION_BITS:
        return ring_bits or 32, fraction, None
    if ring_bits is None:
        wide = most_fraction_bits(64, clip, max_raters, reach)
        if wide >= LEAST_FRACTION_BITS:
            return 64, wide, (
                f"A sum could wrap mod 2^32 with {LEAST_FRACTION_BITS} fraction bits, so this run uses 64 ring bits."
            )
        ring_bits = 64
    raise BadInput(
        f"A sum of {max_raters} users could wrap mod 2^{ring_bits} with {LEAST_FRACTION_BITS} fraction bits: "
        "raise epsilon, lower the clip, or use a wider ring (--ring-bits)."
    )
