"""Canaries among a run's own users: a coin for each decides whether it is there, or for one rating of each item.

The roles play the real data once, with the parameters of the run and fresh tapes. With the unit `user` each user is
there with all its ratings or with none, with `rating` one rating of each item is there or not, with `value` it is the
lowest or the highest. An adversary that knows all but the coins has, over all rounds and in units of the noise,

    s = Σ_k (c_k − ½) z_k + N(0, I),     z_k: how far coin k moves what its user adds,

and by a linear estimate of the other coins, R = I + ¼ Σ z_k z_kᵀ, the log likelihood ratio of coin k is

    z_kᵀ R⁻¹ s / (1 − z_kᵀ R⁻¹ z_k / 4).

Canaries hide each other, so only the one-run theorem for Gaussian noise is asked: it holds however coins are guessed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import Flags, Floats, Matrix
from protocol.card import all_parties
from protocol.errors import Aborted, Rejected
from protocol.party.role import RECOMMENDER, UserInput, user_name
from protocol.schemes.base import DELTA
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened.budget import USER, VALUE
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.share_law import SCALE_BITS
from sim.audit.canary.bound_rows import BoundRow, Statistic, joint_rows
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.chunks import coins
from sim.audit.canary.own_run import OWN, OWN_CONFIDENCE
from sim.audit.families.hardened.heard_sums import HeardSums, hear
from sim.audit.truth import all_ratings
from sim.views.evidence import Case

MOST_NUMBERS = 20_000_000  # canaries times places: 160 MB
MOST_UPLOADED = 50_000_000  # users times places: a minute or two
LEAST_FREE, LEAST_DEVIATION = 20, 1e-3
KNOWS = "every rating, but not which coins fell how"

Inputs = Mapping[str, UserInput]


@dataclass(frozen=True)
class Coin:
    """A canary: a user, or its rating at one place."""

    user: str
    place: int | None


@dataclass(frozen=True)
class CoinsHeard:
    params: HardenedParams
    greatest: Flags
    seconds: float

    def __len__(self) -> int:
        return len(self.greatest)


def measure_own(case: Case, canaries: int, seed: bytes) -> tuple[list[BoundRow], dict[str, Any]]:
    """Play the run once with at most `canaries` coins; return (rows, the figures)."""
    params, scheme, inputs = HardenedParams.of(case.card.params), case.card.scheme, all_ratings(case)
    length = sum(params.lengths)
    if len(inputs) < params.n_users:
        raise CannotBeMeasured("The views of some users are missing, so the ratings of the run are not all known.")
    if (number := params.n_users * length) > MOST_UPLOADED:
        raise CannotBeMeasured(f"Users upload {number} numbers, and {MOST_UPLOADED} at most are played again.")
    began, draw = time.process_time(), np.random.default_rng(list(derive(seed, "canaries")))
    colluding = [user_name(user) for user in draw.permutation(params.n_users)[: params.spare].tolist()]
    chosen = choose(params, inputs, frozenset(colluding), min(canaries, MOST_NUMBERS // length), draw)
    if not chosen:
        raise CannotBeMeasured("No user but those that collude has a rating.")
    greatest = coins(seed, 0, len(chosen))
    brought = {**inputs, **_with_coins(params, inputs, chosen, greatest)}
    tapes = {party: Tape(derive(seed, party)) for party in all_parties(scheme, params.n_users)}
    try:
        heard = hear(scheme, params, derive(seed, "run"), tapes, brought)
    except (Rejected, Aborted) as error:
        raise CannotBeMeasured(f"{scheme.name} cannot be measured: its canaries ended with {error}.") from error
    shifts, rest = _moves(heard, inputs, chosen)
    played = CoinsHeard(params, greatest, time.process_time() - began)
    return _measured(case, played, heard, shifts, rest, inputs, colluding, chosen)


def choose(
    params: HardenedParams, inputs: Inputs, colluding: frozenset[str], most: int, draw: np.random.Generator
) -> list[Coin]:
    """Choose users, or a rating of each item by the user with the fewest coins so far."""
    free = [user for user, own in inputs.items() if user not in colluding and len(own.items)]
    if params.unit_of == USER:
        return [Coin(free[at], None) for at in np.sort(draw.permutation(len(free))[:most]).tolist()]
    raters: dict[int, list[tuple[str, int]]] = {}
    for user in free:
        for place, item in enumerate(inputs[user].items.tolist()):
            raters.setdefault(item, []).append((user, place))
    found, taken = [], dict.fromkeys(free, 0)
    for at in draw.permutation(len(raters))[:most].tolist():
        user, place = min(list(raters.values())[at], key=lambda one: taken[one[0]])
        taken[user] += 1
        found.append(Coin(user, place))
    return found


def _input(params: HardenedParams, own: UserInput, coins_: Sequence[tuple[int | None, bool]]) -> UserInput:
    """Make what a user brings whose `coins_`, by place, fell so."""
    if params.unit_of == VALUE:
        ratings = own.ratings.copy()
        for place, up in coins_:
            ratings[place] = params.rating_max if up else params.rating_min
        return UserInput(own.items, ratings)
    kept = np.ones(len(own.items), np.bool_)
    for place, there in coins_:
        kept[slice(None) if place is None else place] &= there
    return UserInput(own.items[kept], own.ratings[kept])


def _by_user(chosen: Sequence[Coin]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at, one in enumerate(chosen):
        found.setdefault(one.user, []).append(at)
    return found


def _with_coins(
    params: HardenedParams, inputs: Inputs, chosen: Sequence[Coin], greatest: Flags
) -> dict[str, UserInput]:
    return {
        user: _input(params, inputs[user], [(chosen[at].place, bool(greatest[at])) for at in places])
        for user, places in _by_user(chosen).items()
    }


def _moves(heard: HeardSums, inputs: Inputs, chosen: Sequence[Coin]) -> tuple[list[Matrix], list[Floats]]:
    """Compute for each round how far every coin moves its user's vector, and the sum if each were half fallen."""
    params, mine = heard.params, _by_user(chosen)
    shifts, rest = [], []
    for t, length in enumerate(params.lengths):
        moved, total = np.zeros((len(chosen), length)), np.zeros(length)
        for user in heard.parts:
            own = inputs[user]
            base = heard.vector(own, t).astype(np.float64)
            total += base
            for at in mine.get(user, ()):
                low, high = (
                    heard.vector(_input(params, own, [(chosen[at].place, up)]), t) for up in (False, True)
                )
                moved[at] = high - low
                total += (low + high) / 2 - base
        shifts.append(moved)
        rest.append(total)
    return shifts, rest


def _measured(
    case: Case,
    played: CoinsHeard,
    heard: HeardSums,
    shifts: Sequence[Matrix],
    rest: Sequence[Floats],
    inputs: Inputs,
    colluding: Sequence[str],
    chosen: Sequence[Coin],
) -> tuple[list[BoundRow], dict[str, Any]]:
    params, there = played.params, len(heard.parts)
    mu = params.mu(params.min_contributors)
    known = {user: inputs[user] for user in colluding if user in heard.parts}
    shares = [
        sum((heard.bare(user, t) - heard.vector(own, t) for user, own in known.items()), np.zeros(length, np.int64))
        for t, length in enumerate(params.lengths)
    ]
    found = []
    for who, more, unknown in (((RECOMMENDER,), "", there), ((RECOMMENDER, "user"), "less", there - len(known))):
        scales = [math.sqrt(unknown * ((scale / (1 << SCALE_BITS)) ** 2 + 1 / 12)) for scale in params.scales]
        sums = [
            (total - own * bool(more) - known_) / scale
            for total, own, known_, scale in zip(heard.totals, shares, rest, scales, strict=True)
        ]
        moved = np.concatenate([rows / scale for rows, scale in zip(shifts, scales, strict=True)], axis=1)
        knows = f"{KNOWS}, and the shares of {len(known)} colluding users" if more else KNOWS
        name = "the released sums less the shares of colluding users" if more else "the released sums"
        ratio = coin_ratios(moved, np.concatenate(sums))
        subject = f"one run of these ratings with {len(ratio)} canaries"
        claim = gaussian_epsilon(mu, DELTA)
        found.append(Statistic(who, knows, name, "noise", ratio, params.rounds, claim, mu, ratio, subject, True))
    losses = np.sqrt((moved**2).sum(axis=1))
    most, median = (gaussian_epsilon(float(each), DELTA) for each in (losses.max(), np.median(losses)))
    rows = joint_rows([(OWN, played, played, one) for one in found], OWN_CONFIDENCE)
    document: dict[str, Any] = {
        "canaries": len(chosen),
        "users": len({one.user for one in chosen}),
        "items": params.n_items,
        "dim": 1,
        "releases": params.rounds,
        "neighbours": COINS[params.unit_of],
        "confidence": OWN_CONFIDENCE,
        "largest_loss": {"median": median, "most": most},
        "known_law": None,
        "seconds": played.seconds,
    }
    return rows, document


COINS = {
    "user": "each user is there with its ratings or with none, by a coin",
    "rating": "one rating of each item is there or not, by a coin",
    "value": "one rating of each item is the lowest or the highest, by a coin",
}


def coin_ratios(shifts: Matrix, sums: Floats) -> Floats:
    """Compute the log likelihood ratio of every coin from a sum in units of its noise, centred between the coins."""
    size = seen_deviation(shifts, sums)
    shifts, sums = shifts / size, sums / size
    products = shifts @ shifts.T
    solved = 4 * np.linalg.inv(products + 4 * np.eye(len(products)))
    filtered, own = solved @ (shifts @ sums), np.einsum("ij,ji->i", solved, products)
    ratios: Floats = filtered / np.maximum(1 - own / 4, 1e-12)
    return ratios


def seen_deviation(shifts: Matrix, sums: Floats) -> float:
    """Estimate the noise where no coin reaches, in units of what is stated: the adversary need not believe that."""
    coins_, places = shifts.shape
    if places - coins_ < LEAST_FREE:
        return 1.0
    fitted = shifts.T @ np.linalg.lstsq(shifts.T, sums, rcond=None)[0]
    return max(LEAST_DEVIATION, math.sqrt(float(np.sum((sums - fitted) ** 2)) / (places - coins_)))
