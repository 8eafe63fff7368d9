"""The typed options of `covariance`, `hybrid` and `covariance-masked`; impossible values are refused, with a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from protocol.arithmetic.fixedpoint import MOST_FRACTION_BITS
from protocol.params import POSITIVE, RING_WIDTH, JointRule, Params, among, between, declared
from protocol.schemes.base import Shape

NOISES = ("gaussian", "laplace")
UNITS = ("rating", "user")
PREDICTORS = ("svd", "knn")

MOST_GRADE = 255  # a byte
MOST_GAMMA = 1000.0  # rating spans

DENSE, SPARSE = FORMS = ("dense", "sparse")  # of covariance-masked

_SHARE = (lambda value: math.isfinite(value) and value > 0, "Each of the three budgets must be above 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CovarianceParams(Params):
    """`epsilon` is θ, the budget of all three measurements; infinity: no noise."""

    noise: str = declared(*among(NOISES), otherwise="gaussian")
    unit_of: str = declared(*among(UNITS), otherwise="rating")  # whose presence is hidden; a user has all its ratings
    joint: bool = declared(otherwise=True)  # a sum and its count are one measurement; False: each gets the share of θ
    budget_global: float = declared(*_SHARE, otherwise=0.02)  # fractions of θ
    budget_items: float = declared(*_SHARE, otherwise=0.19)
    budget_covariance: float = declared(*_SHARE, otherwise=0.79)
    clamp: float = declared(  # B: centred ratings are clipped to ±B; one star of five
        otherwise=lambda values: (values["rating_max"] - values["rating_min"]) / 4
    )
    cleaning: bool = declared(otherwise=True)  # shrink the covariances to their average; False: divide by known weights
    predictor: str = declared(*among(PREDICTORS), otherwise="svd")
    most_rank: int = declared(lambda value: value >= 1, "rank must be 1 or more, not {value}.", 20)
    neighbours: int = declared(lambda value: value >= 1, "neighbours must be 1 or more, not {value}.", 20)
    most_items: int = declared(  # that the covariance covers, those of largest noisy count; 0: all
        lambda value: type(value) is int and value >= 0,
        "items must be a whole number, 0 (all) or more, not {value}.",
        0,
    )
    # β_m: fictitious ratings at the global average; per user it is scaled to the weights
    shrink_items: float = declared(*POSITIVE, otherwise=15.0)
    shrink_user: float = declared(*POSITIVE, otherwise=20.0)  # β_p: fictitious ratings of 0 in a user's average
    printed_shrink: bool = declared(otherwise=False)  # β_m alone, and nothing against following an item's noise (2 σ)
    printed_bound: bool = declared(otherwise=False)  # α = Δ as printed: no bound, because ratings are centred by item
    rating_step: float = declared(otherwise=0.0)  # of the grid on which a rating travels as one byte; 0: no such grid

    together: ClassVar[tuple[JointRule, ...]] = (
        *Params.together,
        JointRule(
            "budget_global",
            lambda one: abs(one.whole_budget - 1) <= 1e-9,
            lambda one: "budget_global, budget_items and budget_covariance must sum to 1, not "
            f"{one.whole_budget:g}.",
        ),
        JointRule(
            "clamp",
            lambda one: 0 < one.clamp <= 2 * one.rating_span,
            lambda one: f"clamp must be above 0 and at most {2 * one.rating_span:g}, not {one.clamp:g}.",
        ),
    )

    @property
    def items(self) -> int:
        """Return the number of items that the covariance covers."""
        return min(self.most_items or self.n_items, self.n_items)

    @property
    def rank(self) -> int:
        return min(self.most_rank, self.items)

    @property
    def middle(self) -> float:
        return (self.rating_min + self.rating_max) / 2

    @property
    def unit(self) -> float:
        """Return the size of one star of five: a quarter of the span."""
        return self.rating_span / 4

    @property
    def whole_budget(self) -> float:
        return math.fsum((self.budget_global, self.budget_items, self.budget_covariance))

    @property
    def budgets(self) -> tuple[float, float, float]:
        """Return (θ_1, θ_2, θ_3): the budgets of the global mean, the item means and the covariance."""
        shares = (self.budget_global, self.budget_items, self.budget_covariance)
        return tuple(self.epsilon * share for share in shares)  # type: ignore[return-value]

    @property
    def perturbation(self) -> float:
        """Return how far a rating may lie outside the rating range when it is summed."""
        return 0.0

    @property
    def resolutions(self) -> tuple[float, float]:
        """Return the step to which a part is rounded before it is summed, in rounds 1 and 2; 0: it is not rounded."""
        return 0.0, 0.0

    @property
    def gaussian(self) -> bool:
        return self.noise == "gaussian"

    @property
    def per_user(self) -> bool:
        return self.unit_of == "user"


def grade_step(shape: Shape) -> float:
    """Return the step of the ratings' grid if its grades fit into a byte, else 0."""
    low, high = shape.rating_range
    return shape.step if shape.step is not None and (high - low) / shape.step <= MOST_GRADE else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridParams(CovarianceParams):
    gamma: float = declared(otherwise=1.0)  # ratings are sent as r + U[−γ, γ]
    own_ratings: bool = declared(otherwise=False)  # a user predicts from its ratings; False: from what it sent

    together: ClassVar[tuple[JointRule, ...]] = (
        *CovarianceParams.together,
        JointRule(
            "gamma",
            lambda one: 0 <= one.gamma <= MOST_GAMMA * one.rating_span,
            lambda one: f"gamma must be 0 or more and at most {MOST_GAMMA:g} rating spans, not {one.gamma:g}.",
        ),
    )

    @property
    def perturbation(self) -> float:
        return self.gamma



@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedCovarianceParams(CovarianceParams):
    """`fraction_bits` are those of iteration 1, which sums the covariance."""

    form: str = declared(*among(FORMS), otherwise=DENSE)
    ring_bits: int = declared(*RING_WIDTH, otherwise=64)
    fraction_bits: int = declared(between(0, MOST_FRACTION_BITS), "fraction_bits cannot be {value}.", 0)
    first_fraction_bits: int = declared(  # of iteration 0, whose sums are larger
        between(0, MOST_FRACTION_BITS), "first_fraction_bits cannot be {value}.", 0
    )

    def fraction_bits_of(self, iteration: int) -> int:
        return self.fraction_bits if iteration else self.first_fraction_bits

    @property
    def resolutions(self) -> tuple[float, float]:
        """Return the rounding steps of rounds 1 and 2; a record moves a rounded part farther: the noise covers that."""
        return 2.0**-self.first_fraction_bits, 2.0**-self.fraction_bits


_USED = ("joint", "budget_global", "budget_items", "budget_covariance", "clamp", "cleaning", "neighbours")
OPTIONS: dict[str, Any] = {  # set by `--set`, with their defaults
    **CovarianceParams.defaults("noise", "unit_of", *_USED[:-1], "predictor"),
    "rank": 20,
    "neighbours": 20,
    "items": 0,  # all
    **CovarianceParams.defaults("shrink_items", "shrink_user", "printed_shrink", "printed_bound"),
}
HYBRID_OPTIONS: dict[str, Any] = {
    **HybridParams.defaults("gamma", "own_ratings", *_USED),
    "items": 0,
    **HybridParams.defaults("printed_shrink", "printed_bound"),
}
