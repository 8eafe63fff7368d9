"""The frozen parameters of a run.

`make_params` refuses a value that is out of range, or with which a sum could wrap mod P, and says why.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass

import msgpack

from protocol.arithmetic.fixedpoint import choose_ring, noise_reach
from protocol.arithmetic.noise import noise_scale
from protocol.errors import BadInput

MOST_USERS = MOST_ITEMS = 2**32 - 1  # identifiers and counts travel in 32 bits at most
MOST_DIM = 4096
MOST_ITERATIONS = 10**7
LEAST_RIDGE = 1e-9  # with a smaller one, rounding errors would dominate a profile
MOST_SCALE = 1e18  # largest noise scale and clip: beyond it no ring could hold a sum
WIRES = ("compact", "paper")
RING_BITS = range(16, 65, 8)
FACTOR_BITS = (32, 16)
PUBLISHED = ("all", "rated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Everything that all parties of a factorization scheme must agree on. Its digest opens every connection."""

    scheme: str
    n_users: int
    n_items: int
    dim: int
    iterations: int
    rating_min: float
    rating_max: float
    epsilon: float  # per release; infinity: no noise
    learning_rate: float
    user_regularisation: float
    item_regularisation: float
    clip: float  # C: errors are clipped to ±C
    max_raters: int  # no item has more raters than this: the sum is bounded by it
    wire: str
    ring_bits: int
    fraction_bits: int
    factor_bits: int  # bits of each number of v_j that is sent to a user: 32 or 16
    dropout_allowance: float
    min_contributors: int
    publish: str = "all"  # the items whose factors every user is sent at the end: all, or those that it rated
    profile_ridge: float = 0.0  # λ' of the user's own profile; 0: the user chooses it

    @property
    def rating_range(self) -> tuple[float, float]:
        return self.rating_min, self.rating_max

    @property
    def rating_span(self) -> float:
        return self.rating_max - self.rating_min

    @property
    def noise_scale(self) -> float:
        return noise_scale(self.epsilon, self.rating_span, self.dim)

    @property
    def digit_base(self) -> int:
        """Return the base of message fields of digits; a scheme that has none needs none."""
        return 0

    def digest(self) -> bytes:
        return hashlib.sha256(msgpack.packb(dataclasses.asdict(self))).digest()


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BadInput(sentence)


def check_sizes(n_users: int, n_items: int, dim: int, iterations: int) -> None:
    require(1 <= n_users <= MOST_USERS, f"A run needs between 1 and {MOST_USERS} users, not {n_users}.")
    require(1 <= n_items <= MOST_ITEMS, f"A run needs between 1 and {MOST_ITEMS} items, not {n_items}.")
    require(1 <= dim <= MOST_DIM, f"--dim must be between 1 and {MOST_DIM}, not {dim}.")
    require(
        1 <= iterations <= MOST_ITERATIONS, f"--iterations must be between 1 and {MOST_ITERATIONS}, not {iterations}."
    )


def default_clip(scale: float, rating_span: float) -> float:
    """Compute C = 32 b + 3 Δ (b: `scale`, Δ: `rating_span`), which exceeds every error of the reference runs."""
    return 32 * scale + 3 * rating_span


def make_params(
    *,
    scheme: str,
    n_users: int,
    n_items: int,
    dim: int,
    iterations: int,
    rating_range: tuple[float, float],
    max_raters: int,
    epsilon: float = math.inf,
    wire: str = "compact",
    ring_bits: int | None = None,
    factor_bits: int = 32,
    learning_rate: float = 2.0**-5,
    user_regularisation: float = 0.001,
    item_regularisation: float = 0.001,
    clip: float | None = None,
    dropout_allowance: float = 0.0,
    min_contributors: int = 1,
    publish: str = "all",
    profile_ridge: float | None = None,
) -> tuple[Params, list[str]]:
    """Make the parameters, and sentences for the person to read (such as one that says why the ring has 64 bits)."""
    check_sizes(n_users, n_items, dim, iterations)
    low, high = rating_range
    require(math.isfinite(low) and math.isfinite(high) and low < high, f"The rating range {low}:{high} is empty.")
    require(epsilon > 0, f"--epsilon must be above 0 (or inf for no noise), not {epsilon:g}.")
    require(wire in WIRES, f"--wire must be one of {', '.join(WIRES)}, not {wire!r}.")
    for name, value in (("learning_rate", learning_rate), ("clip", 1.0 if clip is None else clip)):
        require(math.isfinite(value) and value > 0, f"{name} must be above 0, not {value:g}.")
    for name, value in (("user_regularisation", user_regularisation), ("item_regularisation", item_regularisation)):
        require(math.isfinite(value) and value >= 0, f"{name} must be 0 or more, not {value:g}.")
    require(publish in PUBLISHED, f"--publish must be one of {', '.join(PUBLISHED)}, not {publish!r}.")
    ridge = LEAST_RIDGE if profile_ridge is None else profile_ridge
    require(LEAST_RIDGE <= ridge <= MOST_SCALE, f"profile_ridge must be at least {LEAST_RIDGE:g}, not {ridge:g}.")
    require(0 <= dropout_allowance < 1, f"dropout_allowance must be in [0, 1), not {dropout_allowance:g}.")
    require(min_contributors >= 1, f"min_contributors must be 1 or more, not {min_contributors}.")
    require(min_contributors <= n_users, f"min_contributors must be at most {n_users}, not {min_contributors}.")
    require(1 <= max_raters <= n_users, f"max_raters must be between 1 and {n_users}, not {max_raters}.")
    whole = ring_bits is None or (isinstance(ring_bits, int) and ring_bits in RING_BITS)
    require(whole, f"--ring-bits must be one of {', '.join(map(str, RING_BITS))}, not {ring_bits}.")
    require(factor_bits in FACTOR_BITS, f"--factor-bits must be 32 or 16, not {factor_bits}.")
    words = "The paper's form sends 32-bit numbers: leave --factor-bits 16 out, or take --wire compact."
    require(factor_bits == 32 or wire == "compact", words)

    scale = noise_scale(epsilon, high - low, dim)
    require(scale <= MOST_SCALE, f"--epsilon {epsilon:g} is too small: no ring could hold its noise.")
    if clip is None:
        clip = default_clip(scale, high - low)
    else:
        require(1 / MOST_SCALE <= clip <= MOST_SCALE, f"clip must be between {1 / MOST_SCALE:g} and {MOST_SCALE:g}.")
    # a sum of k' ≥ floor contributors has noise of scale b sqrt(k'/floor), at most b / sqrt(1 - allowance)
    reach = noise_reach(scale / math.sqrt(1 - dropout_allowance), iterations * n_items * dim)
    bits, fraction_bits, note = choose_ring(ring_bits, clip, max_raters, reach)
    params = Params(
        scheme=scheme,
        n_users=n_users,
        n_items=n_items,
        dim=dim,
        iterations=iterations,
        rating_min=float(low),
        rating_max=float(high),
        epsilon=float(epsilon),
        learning_rate=learning_rate,
        user_regularisation=user_regularisation,
        item_regularisation=item_regularisation,
        clip=float(clip),
        max_raters=max_raters,
        wire=wire,
        ring_bits=bits,
        fraction_bits=fraction_bits,
        factor_bits=factor_bits,
        dropout_allowance=dropout_allowance,
        min_contributors=min_contributors,
        publish=publish,
        profile_ridge=float(profile_ridge or 0.0),
    )
    return params, [note] if note else []
