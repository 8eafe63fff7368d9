"""The parameters of `hardened`, among them the scale of the noise.

No server can shrink it: before a user adds anything, it computes itself whether these scales keep (ε, δ)
(`keeps_claim`), and refuses otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from protocol.arrays import Floats, Ints
from protocol.errors import BadInput
from protocol.params import (
    MOST_ITEMS,
    MOST_USERS,
    RING_BITS,
    RING_WIDTH,
    JointRule,
    Params,
    among,
    between,
    declared,
    require,
)
from protocol.party.home_ridge import centre_of, columns_of, star_of
from protocol.schemes.base import DELTA, ItemFeatures
from protocol.schemes.hardened.budget import (
    CLIP,
    LEAST_SHARE,
    RATING,
    UNITS,
    USER,
    VALUE,
    VALUE_CLIP,
    changed_bound,
    mu_left,
    mu_of,
    rating_bound,
    share_scale,
    slack_of,
)
from protocol.schemes.hardened.item_counts import pack_counts, unpack_counts
from protocol.schemes.hardened.item_features import pack_features, unpack_features
from protocol.schemes.hardened.share_law import MOST_SHARE_SCALE, SCALE_BITS

USUAL_FRACTION = 10  # A = 2^10, doubled while a share is too small, halved while one is too large
LEAST_FRACTION, MOST_FRACTION = 5, 20
REACH = 9  # standard deviations of the noise for which the ring has room
NO_PROOF, NORM_PROOF = PROOFS = ("none", "norm")
DIRECTIONS, TASTE_ITEMS = 8, 1000
TASTE_FROM, TASTE_SHARE = 2000, 0.25  # n·μ from which round 2 pays, and its part of μ²
SELECT_ABOVE, SELECT_BYTES = 8192, 48_000  # items from which some are selected; bytes of all of a user's places
SKETCH_ROWS, SKETCH_SHARE = 4, 0.2  # of the sketch that selects them, and its part of μ²
NOTICED = 1e-3  # part of δ that the slack may be
PUBLIC_COUNTS = "With --unit value it is public how many users rated each item: every party is told, exactly."


@dataclass(frozen=True, slots=True, kw_only=True)
class HardenedParams(Params):
    """`epsilon` is of the whole run, at `delta`. `min_contributors` is f: fewer contributors, and nothing leaves."""

    delta: float = declared(
        lambda value: 0 < value < 0.5, "--delta must be above 0 and below 0.5, not {value:g}.", DELTA
    )
    # what is hidden: that a user with all its ratings is there, that one rating is, or the value of one
    unit_of: str = declared(*among(UNITS, "--unit"), otherwise=USER)
    min_contributors: int = declared(between(1, MOST_USERS), "min_contributors must be 1 or more, not {value}.")
    ring_bits: int = declared(*RING_WIDTH, otherwise=64)
    fraction_bits: int = declared(
        between(LEAST_FRACTION, MOST_FRACTION), "fraction_bits cannot be {value}.", USUAL_FRACTION
    )
    rounds: int = declared(  # 2: directions of taste are learned, or the items of the table are selected
        between(1, 2), "rounds must be 1 or 2, not {value}.", 1
    )
    selected: int = declared(  # items of the table's sum; 0: all
        between(0, MOST_ITEMS), "selected cannot be {value}.", 0
    )
    sketch_width: int = declared(between(0, MOST_ITEMS), "sketch_width cannot be {value}.", 0)
    first_scale: int = declared(  # of a share in round 1, in 2^-16; 0: no noise
        between(0, MOST_SHARE_SCALE), "first_scale cannot be {value}.", 0
    )
    second_scale: int = declared(between(0, MOST_SHARE_SCALE), "second_scale cannot be {value}.", 0)
    proof: str = declared(*among(PROOFS, "proof"), otherwise=NO_PROOF)  # that a user's vector keeps its bound
    features: str = declared(otherwise="")  # public descriptions of items (`item_features.py`); empty: none
    item_counts: str = declared(otherwise="")  # unit `value`: how many users rated each item (`item_counts.py`)
    flag_columns: int = declared(otherwise=0)
    number_columns: int = declared(otherwise=0)

    together: ClassVar[tuple[JointRule, ...]] = (
        *Params.together,
        JointRule(
            "min_contributors",
            lambda one: one.min_contributors <= one.n_users,
            lambda one: f"min_contributors must be at most {one.n_users}, not {one.min_contributors}.",
        ),
        JointRule(
            "proof",
            lambda one: one.proof == NO_PROOF or one.unit_of == USER,
            lambda one: "Only the unit user has vectors of a bounded norm: leave proof=norm out.",
        ),
        JointRule(
            "selected",
            lambda one: not one.selected or (one.selected <= one.n_items and one.sketch_width > 0 < one.rounds - 1),
            lambda one: f"selected={one.selected} needs as many items, a sketch and two rounds.",
        ),
    )

    @property
    def ring_is_prime(self) -> bool:
        return self.proof == NORM_PROOF

    @property
    def upload_kind(self) -> str:
        return "ProvenPart" if self.proof == NORM_PROOF else "MaskedPart"

    @property
    def whole(self) -> int:
        """Return A, the integer that a real 1 becomes."""
        return 1 << self.fraction_bits

    @property
    def star(self) -> float:
        """Return the size of one star of five: 1 on a scale that ends at 5, else a quarter of the span."""
        return star_of(self.rating_min, self.rating_max)

    @property
    def centre(self) -> float:
        """Return the rating from which ratings are counted: 3.5 of 5 stars."""
        return centre_of(self.rating_min, self.rating_max)

    @property
    def span_whole(self) -> int:
        return math.ceil(self.rating_span / self.star * self.whole) + 1  # both ends are rounded

    @property
    def clip_whole(self) -> int:
        return int((VALUE_CLIP if self.unit_of == VALUE else CLIP) * self.whole)

    @property
    def peak(self) -> int:
        """Return the largest entry of one user's vector."""
        return self.whole if self.unit_of == USER else self.clip_whole

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the number of places of each round's sum."""
        if self.selected:
            return (SKETCH_ROWS * self.sketch_width, 2 * self.selected)
        halves = 1 if self.unit_of == VALUE else 2  # counts are public then
        return (halves * self.n_items, self.covered * self.directions)[: self.rounds]

    @property
    def table_round(self) -> int:
        """Return the round whose sum the table is made of."""
        return 1 if self.selected else 0

    @property
    def tastes(self) -> bool:
        """Tell whether directions of taste are learned."""
        return self.rounds == 2 and not self.selected

    @property
    def scales(self) -> tuple[int, ...]:
        return (self.first_scale, self.second_scale)[: self.rounds]

    @property
    def covered(self) -> int:
        """Return the number of items that round 2 is about."""
        return min(TASTE_ITEMS, self.n_items)

    @property
    def directions(self) -> int:
        return min(DIRECTIONS, self.n_items)

    @property
    def squares(self) -> tuple[int, ...]:
        """Return Δ² of each round, in integers."""
        if self.unit_of == RATING:
            return (rating_bound(self.n_items, self.span_whole, self.clip_whole, self.whole),)
        if self.unit_of == VALUE:
            return (changed_bound(self.n_items, self.span_whole, self.clip_whole),)
        if self.selected:
            return (self.whole**2, 2 * self.whole**2)
        return (2 * self.whole**2, self.whole**2)[: self.rounds]

    @property
    def spare(self) -> int:
        """Return c: the users that may drop out, collude or leave their noise out, together."""
        return self.n_users - self.min_contributors

    @property
    def neighbour(self) -> str:
        """Say for which change of the data the promise is made."""
        if self.unit_of == VALUE:
            return "the value of one rating changed"
        return f"one {'user with all ratings' if self.unit_of == USER else 'rating'} added or removed"

    def raters(self) -> Ints:
        """Return the public number of raters of every item; the unit `value` alone has it."""
        return unpack_counts(self.item_counts, self.n_items)

    def noise_deviation(self, round_: int, contributors: int) -> float:
        """Compute the standard deviation of a released sum's noise, as a real."""
        scale = self.scales[round_] / (1 << SCALE_BITS)
        return math.sqrt(contributors * (scale**2 + 1 / 12)) / self.whole if scale else 0.0

    def mu(self, unknown: int) -> float:
        """Compute μ of the whole run to a coalition that does not know `unknown` of the shares."""
        return mu_left(self.squares, self.scales, unknown)

    def described(self) -> Floats:
        """Return the public columns of every item."""
        return _described(self.features, self.n_items, self.flag_columns, self.number_columns)


@functools.lru_cache(maxsize=4)
def _described(text: str, n_items: int, flags: int, numbers: int) -> Floats:
    return columns_of(*unpack_features(text, n_items, flags, numbers))


def described(features: ItemFeatures | None) -> dict[str, Any]:
    """Return the fields of `HardenedParams` that describe items; none without descriptions."""
    if features is None or not features.flags.shape[1] + features.numbers.shape[1]:
        return {}
    columns = {"flag_columns": features.flags.shape[1], "number_columns": features.numbers.shape[1]}
    return {"features": pack_features(features), **columns}


@functools.lru_cache(maxsize=4)
def keeps_claim(params: HardenedParams) -> bool:
    """Compute whether shares of these scales, of as many users as must contribute, keep (ε, δ) for the whole run."""
    from protocol.schemes.composition import gaussian_delta  # slow to import

    if math.isinf(params.epsilon):
        return True  # nothing is promised
    floor, delta = params.min_contributors, params.delta
    if min(params.scales) < LEAST_SHARE or gaussian_delta(params.mu(floor), params.epsilon) > delta:
        return False
    return slack_of(params.epsilon, params.scales, params.lengths, params.n_users, floor) <= NOTICED * delta


def counted(unit: str | None, raters: Ints) -> dict[str, str]:
    """Return the field of `HardenedParams` that has public counts, if the promise of `unit` takes them for known."""
    return {"item_counts": pack_counts(raters)} if unit == VALUE else {}


def provisioned(params: HardenedParams, rounds: int = 0, selected: int = 0) -> tuple[HardenedParams, list[str]]:
    """Choose A, the noise and the ring of `params`, whose `min_contributors` are given.

    With `rounds` of 0 there are two if n·μ says that the second pays, or if there are so many items that the table can
    be about some only: `selected`, or as many as `SELECT_BYTES` have room for.
    """
    n, floor, epsilon, delta = params.n_users, params.min_contributors, params.epsilon, params.delta
    require(rounds in (0, 1, 2), f"rounds must be 1, 2, or 0 (as many as pay), not {rounds}.")
    require(rounds < 2 or params.unit_of == USER, "Only the unit user has a second round: leave rounds=2 out.")
    words = f"selected must be 0 (as many as an upload has room for) to {params.n_items}, not {selected}."
    require(0 <= selected <= params.n_items, words)
    words = "Only the unit user has a round that selects items, in the place of the second: leave rounds=N out."
    require(not selected or (params.unit_of == USER and not rounds), words)
    selects = selected or (params.unit_of == USER and not rounds and params.n_items > SELECT_ABOVE)
    mu = mu_of(epsilon, delta)
    rounds = rounds or 1 + (params.unit_of == USER and (bool(selects) or n * mu >= TASTE_FROM))
    params = dataclasses.replace(params, rounds=rounds, iterations=rounds, fraction_bits=USUAL_FRACTION)
    if selects:
        params = dataclasses.replace(params, selected=1, sketch_width=1)  # until it is known how wide the ring is
    if not math.isinf(mu):
        params = _scaled(params, mu)
    params = dataclasses.replace(params, ring_bits=_ring_bits(params))
    if selects:
        places = SELECT_BYTES // (params.ring_bits // 8)  # half of them for the sketch
        most = selected or places // 4
        width = max(1, -(-2 * most // SKETCH_ROWS))
        params = dataclasses.replace(params, selected=most, sketch_width=width)
    if not math.isinf(mu):
        slack = slack_of(epsilon, params.scales, params.lengths, n, floor)
        words = f"{floor} users are too few for --delta {delta:g}: take more users, or raise it."
        require(slack <= NOTICED * delta, words)
    return params, _notes(params)


def _scaled(params: HardenedParams, mu: float) -> HardenedParams:
    """Set the scales of shares for μ of the whole run; double A while one is too small, or halve it if too large."""
    parts = (1 - TASTE_SHARE, TASTE_SHARE) if params.rounds == 2 else (1.0,)
    if params.selected:
        parts = (SKETCH_SHARE, 1 - SKETCH_SHARE)
    bits = params.fraction_bits
    while True:
        params = dataclasses.replace(params, fraction_bits=bits)
        steps = zip(params.squares, parts, strict=True)
        scales = [share_scale(square, mu * math.sqrt(part), params.min_contributors) for square, part in steps]
        if min(scales) < LEAST_SHARE and bits < MOST_FRACTION:
            bits += 1
        elif max(scales) > MOST_SHARE_SCALE and bits > LEAST_FRACTION:
            bits -= 1
        else:
            break
    epsilon, n = params.epsilon, params.n_users
    words = f"--epsilon {epsilon:g} needs shares too small to be whole numbers: choose a smaller one."
    require(min(scales) >= LEAST_SHARE, words)
    words = f"--epsilon {epsilon:g} is too small for {n} users: raise it, or have more users."
    require(max(scales) <= MOST_SHARE_SCALE, words)
    first, second = (*scales, 0)[:2]
    return dataclasses.replace(params, first_scale=first, second_scale=second)


def _ring_bits(params: HardenedParams) -> int:
    """Find the narrowest ring in which no sum wraps, except with the probability of `REACH` deviations."""
    if params.ring_is_prime:
        return 64
    share = max(params.scales) / (1 << SCALE_BITS)
    most = params.n_users * params.peak + REACH * share * math.sqrt(params.n_users)
    for bits in RING_BITS:
        if most < 1 << (bits - 1):
            return bits
    raise BadInput(f"A sum of {params.n_users} users fits into no ring: raise --epsilon, or have fewer users.")


def _notes(params: HardenedParams) -> list[str]:
    """Say before the run what it will spend, and on whom that relies."""
    from protocol.schemes.composition import gaussian_epsilon

    if not params.first_scale:
        return ["No noise (--epsilon inf): nothing bounds what the published table says of a user."]
    spent = gaussian_epsilon(params.mu(params.min_contributors), params.delta)
    return [
        f"This run spends ε {spent:.4g} at δ {params.delta:g}, for {params.neighbour}, in "
        f"{params.rounds} round{'s' * (params.rounds > 1)}. It holds while at most {params.spare} of "
        f"{params.n_users} users drop out, collude or leave out their noise, and the two servers do not collude."
    ] + [PUBLIC_COUNTS] * (params.unit_of == VALUE)
