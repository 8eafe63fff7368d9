"""The typed options of `covariance`, `hybrid` and `covariance-masked`; impossible values are refused, with a reason."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from protocol.params import Params, require

NOISES = ("gaussian", "laplace")
UNITS = ("rating", "user")
PREDICTORS = ("svd", "knn")

MOST_GRADE = 255  # a byte
MOST_GAMMA = 1000.0  # rating spans

OPTIONS: dict[str, Any] = {  # set by `--set`, with their defaults
    "noise": "gaussian",
    "unit_of": "rating",
    "joint": True,
    "budget_global": 0.02,
    "budget_items": 0.19,
    "budget_covariance": 0.79,
    "clamp": None,  # one star of five
    "cleaning": True,
    "predictor": "svd",
    "rank": 20,
    "neighbours": 20,
    "items": 0,  # all
    "shrink_items": 15.0,
    "shrink_user": 20.0,
    "printed_shrink": False,
    "printed_bound": False,
}
HYBRID_OPTIONS: dict[str, Any] = {
    "gamma": 1.0,
    "own_ratings": False,
    **{
        name: OPTIONS[name]
        for name in ("joint", "budget_global", "budget_items", "budget_covariance", "clamp", "cleaning", "neighbours")
    },
    **{name: OPTIONS[name] for name in ("items", "printed_shrink", "printed_bound")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CovarianceParams(Params):
    """`epsilon` is θ, the budget of all three measurements; infinity: no noise."""

    noise: str  # gaussian or laplace
    unit_of: str  # the presence that is hidden: of one rating, or of a user with all its ratings
    joint: bool  # a sum and its count are one measurement; False: as printed, each gets the whole share of θ
    budget_global: float  # fractions of θ
    budget_items: float
    budget_covariance: float
    clamp: float  # B: centred ratings are clipped to ±B
    cleaning: bool  # shrink the covariances to their average; False: divide where the weight is known
    predictor: str  # svd or knn
    most_rank: int
    neighbours: int
    most_items: int  # the number of items that the covariance covers: those of largest noisy count
    shrink_items: float  # β_m: fictitious ratings at the global average; per user it is scaled to the weights
    shrink_user: float  # β_p: fictitious ratings of 0 in a user's average
    printed_shrink: bool  # β_m alone, without the 2 σ that keep an item of few ratings from following its noise
    rating_step: float  # step of the ratings' grid, on which a rating can travel as one byte; 0: no such grid
    printed_bound: bool  # α = Δ as printed: not a bound, because ratings are centred by item

    @property
    def items(self) -> int:
        """Return the number of items that the covariance covers."""
        return min(self.most_items, self.n_items)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridParams(CovarianceParams):
    gamma: float  # ratings are sent as r + U[−γ, γ]
    own_ratings: bool  # a user predicts from its ratings; False: from what it sent, as the recommender would

    @property
    def perturbation(self) -> float:
        return self.gamma


def covariance_params(base: Params, step: float | None = None, **options: Any) -> CovarianceParams:
    """Add the options of `covariance` to `base`; an option that is not given has its default."""
    chosen = {**OPTIONS, **options}
    short = step is not None and base.rating_span / step <= MOST_GRADE
    grid = step if step is not None and short else 0.0
    return CovarianceParams(**dataclasses.asdict(base), **_checked(base, chosen), rating_step=grid)


def hybrid_params(base: Params, **options: Any) -> HybridParams:
    """Add the options of `hybrid` to `base`: Laplace noise, one rating's presence, kNN without rank reduction."""
    chosen = {**HYBRID_OPTIONS, **options}
    gamma, own = float(chosen.pop("gamma")), bool(chosen.pop("own_ratings"))
    fixed = {**OPTIONS, **chosen, "noise": "laplace", "unit_of": "rating", "predictor": "knn"}
    words = f"gamma must be 0 or more and at most {MOST_GAMMA:g} rating spans, not {gamma:g}."
    require(0 <= gamma <= MOST_GAMMA * base.rating_span, words)
    own_fields: dict[str, Any] = {"rating_step": 0.0, "gamma": gamma, "own_ratings": own}
    return HybridParams(**dataclasses.asdict(base), **_checked(base, fixed), **own_fields)


def _checked(base: Params, chosen: dict[str, Any]) -> dict[str, Any]:
    for name, known in (("noise", NOISES), ("unit_of", UNITS), ("predictor", PREDICTORS)):
        require(chosen[name] in known, f"{name} must be one of {', '.join(known)}, not {chosen[name]!r}.")
    shares = [chosen[name] for name in ("budget_global", "budget_items", "budget_covariance")]
    require(all(math.isfinite(share) and share > 0 for share in shares), "Each of the three budgets must be above 0.")
    total = math.fsum(shares)
    require(abs(total - 1) <= 1e-9, f"budget_global, budget_items and budget_covariance must sum to 1, not {total:g}.")
    clamp, span = chosen["clamp"], base.rating_span
    clamp = span / 4 if clamp is None else float(clamp)
    require(0 < clamp <= 2 * span, f"clamp must be above 0 and at most {2 * span:g}, not {clamp:g}.")
    for name in ("shrink_items", "shrink_user"):
        value = chosen[name]
        require(math.isfinite(value) and value > 0, f"{name} must be above 0, not {value:g}.")
    for name in ("rank", "neighbours"):
        require(chosen[name] >= 1, f"{name} must be 1 or more, not {chosen[name]}.")
    items, rank = chosen.pop("items"), chosen.pop("rank")
    require(type(items) is int and items >= 0, f"items must be a whole number, 0 (all) or more, not {items}.")
    return {**chosen, "clamp": clamp, "most_items": items or base.n_items, "most_rank": rank}


DENSE, SPARSE = FORMS = ("dense", "sparse")  # of covariance-masked


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedCovarianceParams(CovarianceParams):
    """`fraction_bits` are those of iteration 1, which sums the covariance."""

    form: str  # dense or sparse
    first_fraction_bits: int  # of iteration 0, whose sums are larger

    def fraction_bits_of(self, iteration: int) -> int:
        return self.fraction_bits if iteration else self.first_fraction_bits

    @property
    def resolutions(self) -> tuple[float, float]:
        """Return the rounding steps of rounds 1 and 2; a record moves a rounded part farther: the noise covers that."""
        return 2.0**-self.first_fraction_bits, 2.0**-self.fraction_bits
