"""The parameters that factorizations share, and the base class of their schemes.

`FactorizationParams` are those of every factorization, `GradientParams` of those whose users send gradients, and
`MaskedParams` of those whose gradients are summed mod P.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from protocol.arithmetic.fixedpoint import MOST_FRACTION_BITS, choose_ring, noise_reach
from protocol.arithmetic.noise import default_clip, noise_scale
from protocol.errors import BadInput
from protocol.params import MOST_SCALE, NOT_NEGATIVE, POSITIVE, RING_WIDTH, JointRule, Params, among, between, declared
from protocol.schemes.base import Scheme

MOST_DIM = 4096
LEAST_RIDGE = 1e-9  # with a smaller one, rounding errors would dominate a profile
FACTOR_BITS = (32, 16)
PUBLISHED = ("all", "rated")


def _noise_fits(epsilon: float, span: float, dim: int) -> bool:
    return math.isinf(epsilon) or 32 * noise_scale(epsilon, span, dim) <= MOST_SCALE


def _too_small(epsilon: float) -> str:
    return f"--epsilon {epsilon:g} is too small: no ring could hold its noise."


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorizationParams(Params):
    epsilon: float = declared(  # per release; infinity: no noise
        lambda value: value > 0, "--epsilon must be above 0 (or inf for no noise), not {value:g}.", math.inf
    )
    dim: int = declared(between(1, MOST_DIM), f"--dim must be between 1 and {MOST_DIM}, not {{value}}.")
    learning_rate: float = declared(*POSITIVE, otherwise=2.0**-5)
    user_regularisation: float = declared(*NOT_NEGATIVE, otherwise=0.001)
    item_regularisation: float = declared(*NOT_NEGATIVE, otherwise=0.001)
    factor_bits: int = declared(  # of each number of v_j that is sent to a user
        lambda value: value in FACTOR_BITS, "--factor-bits must be 32 or 16, not {value}.", 32
    )
    publish: str = declared(*among(PUBLISHED, "--publish"), otherwise="all")
    profile_ridge: float = declared(  # λ' of the user's own profile; 0: the user chooses it
        lambda value: value == 0 or LEAST_RIDGE <= value <= MOST_SCALE,
        f"profile_ridge must be at least {LEAST_RIDGE:g}, not {{value:g}}.",
        lambda _: 0.0,
    )

    together: ClassVar[tuple[JointRule, ...]] = (
        *Params.together,
        JointRule(
            "factor_bits",
            lambda one: one.factor_bits == 32 or one.wire == "compact",
            lambda one: "The paper's form sends 32-bit numbers: leave --factor-bits 16 out, or take --wire compact.",
        ),
        JointRule(
            "epsilon",
            lambda one: _noise_fits(one.epsilon, one.rating_span, one.dim),
            lambda one: _too_small(one.epsilon),
        ),
    )

    @property
    def noise_scale(self) -> float:
        return noise_scale(self.epsilon, self.rating_span, self.dim)


def _usual_clip(values: dict[str, Any]) -> float:
    epsilon, span, dim = values["epsilon"], values["rating_max"] - values["rating_min"], values["dim"]
    if not 0 < span < math.inf:
        return 1.0  # an empty range is refused below
    if not _noise_fits(epsilon, span, dim):
        raise BadInput(_too_small(epsilon))
    return default_clip(noise_scale(epsilon, span, dim), span)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientParams(FactorizationParams):
    clip: float = declared(*POSITIVE, otherwise=_usual_clip)  # C: errors are clipped to ±C

    together: ClassVar[tuple[JointRule, ...]] = (
        *FactorizationParams.together,
        JointRule(
            "clip",
            lambda one: 1 / MOST_SCALE <= one.clip <= MOST_SCALE,
            lambda one: f"clip must be between {1 / MOST_SCALE:g} and {MOST_SCALE:g}.",
        ),
    )

    @property
    def largest_upload(self) -> float:
        """Bound a number that a user sends: 52 random bits reach 71 b for a share of η, and 37 b for ρ."""
        return 2 * self.clip + 108 * self.noise_scale

    @property
    def widest_noise(self) -> float:
        """Return the largest scale of the noise in a released sum."""
        return self.noise_scale

    @property
    def rounding(self) -> float:
        """Bound the rounding of uploads in a coordinate of a released sum, over its raters; here they are float32."""
        return self.largest_upload * 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedParams(GradientParams):
    max_raters: int = declared()  # no item has more raters than this: the sum is bounded by it
    ring_bits: int = declared(*RING_WIDTH, otherwise=32)
    fraction_bits: int = declared(between(0, MOST_FRACTION_BITS), "fraction_bits cannot be {value}.", 0)
    dropout_allowance: float = declared(
        lambda value: 0 <= value < 1, "dropout_allowance must be in [0, 1), not {value:g}.", 0.0
    )
    min_contributors: int = declared(lambda value: value >= 1, "min_contributors must be 1 or more, not {value}.", 1)

    together: ClassVar[tuple[JointRule, ...]] = (
        *GradientParams.together,
        JointRule(
            "max_raters",
            lambda one: 1 <= one.max_raters <= one.n_users,
            lambda one: f"max_raters must be between 1 and {one.n_users}, not {one.max_raters}.",
        ),
        JointRule(
            "min_contributors",
            lambda one: one.min_contributors <= one.n_users,
            lambda one: f"min_contributors must be at most {one.n_users}, not {one.min_contributors}.",
        ),
    )

    @property
    def widest_noise(self) -> float:
        """Return the scale for the k' ≥ floor contributors: b sqrt(k'/floor), at most b / sqrt(1 − allowance)."""
        return self.noise_scale / math.sqrt(1 - self.dropout_allowance)

    @property
    def rounding(self) -> float:
        """Bound the roundings of k raters and of the committers, who are at most `max_raters`."""
        return (1 + self.max_raters / 2) * 2.0**-self.fraction_bits


def fit_ring(params: MaskedParams, asked: int | None) -> tuple[MaskedParams, list[str]]:
    """Give `params` the ring of `asked` bits (None: 32, or 64 if need be) and the most fraction bits that fit into it.

    The list has a sentence for the person if 64 bits are needed; `BadInput` if a sum could wrap.
    """
    reach = noise_reach(params.widest_noise, params.iterations * params.n_items * params.dim)
    bits, fraction_bits, note = choose_ring(asked, params.clip, params.max_raters, reach)
    return dataclasses.replace(params, ring_bits=bits, fraction_bits=fraction_bits), [note] if note else []


class Factorization(Scheme):
    """A scheme of user and item factors, trained by gradient steps; `plain` is its baseline."""

    factorizes = True
    params_class = FactorizationParams
    options: ClassVar[dict[str, Any]] = FactorizationParams.defaults(
        "learning_rate", "user_regularisation", "item_regularisation", "profile_ridge"
    )
