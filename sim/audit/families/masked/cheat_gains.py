"""What a party that cheated in `masked` or `dynamic` has learned, scored against the truth and against chance.

The gradients of user i in one iteration are −2 e_ij u_i, a matrix of rank one. A party that has them with little noise,
and knows the factors v_j that the user was sent, reads u_i as their first direction, e_ij along it, and so
r_ij = e_ij + u_i·v_j, if |u_i| is near 1; the sign is the one that makes ratings fit their range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.tape import exponential
from protocol.arrays import Ids, Ints, Matrix, Vector
from protocol.cheats.adding import Splitting
from protocol.cheats.cheat import Cheating, parse_cheat
from protocol.cheats.leading import Crafting, Equivocating, objective_envelopes
from protocol.party.role import RECOMMENDER, THIRD_PARTY, FactorizingUser, Send, user_index, user_name
from protocol.schemes.factorization.factorization import MaskedParams
from protocol.schemes.factorization.masked_roles import MaskedRecommender
from protocol.schemes.factorization.masked_sum import mask_rows
from protocol.wire.messages import MaskedTotal
from sim.audit.families.masked.envelope_check import envelopes_dealt
from sim.audit.role_rerun import rerun
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

MOST_READINGS = 200  # of users in iterations
NEAR = 0.5  # stars


class Reading(NamedTuple):
    """The gradients of one user in one iteration, as the cheat has them: sums or differences with their noise."""

    user: int
    iteration: int
    items: Ids
    gradients: Matrix
    factors: Matrix  # that the user was sent for these items


class Opened(NamedTuple):
    """An iteration of the recommender: what it opened, and what it had sent."""

    role: MaskedRecommender
    iteration: int
    items: Ids
    sums: Matrix
    contributors: tuple[int, ...]
    sent: dict[int, tuple[Ids, Matrix]]  # by user: its items, the factors that it was sent
    victim: int  # of the cheat in this iteration; −1: none is singled out


def learned(case: Case) -> dict[str, Any]:
    """Measure what the cheat of this run has learned."""
    cheating = parse_cheat(case.card.cheat)
    measure = _MEASURES.get(cheating.cheat.name)
    return _nothing(cheating) if measure is None else measure(case, cheating)


def _nothing(cheating: Cheating) -> dict[str, Any]:
    return {"what": "nothing: it receives no more than an honest party"}


# --- the rating of a user from its gradients ------------------------------------------------------------------------


def read_ratings(gradients: Matrix, factors: Matrix, rating_range: tuple[float, float]) -> tuple[Vector, Vector]:
    """Return (direction of u_i, estimated ratings) from noisy rows −2 e_ij u_i and the v_j that were sent."""
    direction: Vector = np.linalg.svd(gradients, full_matrices=False)[2][0]
    ratings = gradients @ direction / -2 + factors @ direction
    if abs(float(ratings.mean()) - np.mean(rating_range)) > abs(-float(ratings.mean()) - np.mean(rating_range)):
        ratings, direction = -ratings, -direction
    return direction, np.clip(ratings, *rating_range)


def score(case: Case, readings: list[Reading], what: str, ratings: bool = True) -> dict[str, Any]:
    """Score the directions that are read, and the `ratings`, against the users' own factors and input."""
    if not readings:
        return {"what": what, "readings": 0}
    exhibits = Exhibits(case, tuple({user_name(one.user) for one in readings}))
    states = {user: _states(exhibits, user) for user in {one.user for one in readings}}
    low, high = case.card.params.rating_range
    right, truths, cosines = 0, [], []
    for one in readings:
        inputs = exhibits.brought(user_name(one.user)).inputs
        assert inputs is not None
        truth = inputs.ratings[np.searchsorted(inputs.items, one.items)]
        direction, guessed = read_ratings(one.gradients, one.factors, (low, high))
        right += int(np.count_nonzero(np.abs(guessed - truth) <= NEAR))
        truths.append(truth)
        own = states[one.user][one.iteration]
        cosines.append(abs(float(direction @ own)) / (float(np.linalg.norm(own)) or 1.0))
    every = np.concatenate(truths)
    shares = {"within_half_a_star": right / len(every), "chance": best_constant(every)}
    return {
        "what": what,
        "readings": len(readings),
        "ratings": len(every) if ratings else 0,
        **(shares if ratings else {}),
        "cosine": float(np.mean(cosines)),
        "chance_cosine": chance_cosine(case.card.params.dim),
    }


def best_constant(ratings: Vector) -> float:
    """Return the share that is within half a star of the best single guess."""
    guesses = np.unique(ratings)
    return max(float(np.mean(np.abs(ratings - guess) <= NEAR)) for guess in guesses)


def chance_cosine(dim: int) -> float:
    """Return the mean |cosine| of a fixed and a random direction."""
    return math.exp(math.lgamma(dim / 2) - math.lgamma((dim + 1) / 2)) / math.sqrt(math.pi)


def _states(exhibits: Exhibits, user: int) -> dict[int, Vector]:
    """Return u_i as it was when it answered, by iteration."""
    found: dict[int, Vector] = {}
    before: Vector | None = None
    for turn in rerun(exhibits, user_name(user)):
        role = turn.role
        if not isinstance(role, FactorizingUser):
            continue
        if turn.passed.labelled("gradient") is not None and before is not None:
            found[role.iteration] = before
        before = role.user_factors.copy()
    return found


# --- the recommender's own run, again -------------------------------------------------------------------------------


def opened(case: Case) -> Iterator[Opened]:
    """Run the recommender again from its view, and yield every iteration with what it opened."""
    fixed = FixedPoint(case.card.setting.ring, case.card.params.fraction_bits)
    sent: dict[int, tuple[Ids, Matrix]] = {}
    victim, iteration = -1, -1
    for turn in rerun(Exhibits(case, (RECOMMENDER,)), RECOMMENDER):
        role = turn.role
        assert isinstance(role, MaskedRecommender)
        if isinstance(turn.given, MaskedTotal) and turn.passed.opened is not None:
            sums, there = fixed.decode(turn.passed.opened), tuple(role.last_contributors)
            yield Opened(role, turn.given.iteration, turn.given.items, sums, there, sent, victim)
        offers = {
            user_index(one.to): one.message
            for one in turn.effects
            if isinstance(one, Send) and hasattr(one.message, "factors") and hasattr(one.message, "floors")
        }
        if offers:
            sent = {
                user: (role.supports[user], np.asarray(offer.factors, np.float64)) for user, offer in offers.items()
            }
            iteration = role.iteration
            victim = role.victim() if isinstance(role, Equivocating) and iteration >= 0 else -1


def _reading(one: Opened, user: int) -> Reading | None:
    """Take the sums of the items of `user` for its own gradients."""
    items, factors = one.sent[user]
    held = np.isin(one.items, items)
    if np.count_nonzero(held) < 2:
        return None
    places = np.searchsorted(items, one.items[held])
    return Reading(user, one.iteration, one.items[held], one.sums[held], factors[places])


def _spread(found: list[Any]) -> list[Any]:
    """Keep at most `MOST_READINGS`, at even distances."""
    step = max(1, -(-len(found) // MOST_READINGS))
    return found[::step]


# --- by cheat -------------------------------------------------------------------------------------------------------


def _isolated(case: Case, cheating: Cheating) -> dict[str, Any]:
    readings = [_reading(one, one.contributors[0]) for one in opened(case) if len(one.contributors) == 1]
    return score(case, _spread([one for one in readings if one]), "the ratings of the user that was alone in a sum")


def _equivocated(case: Case, cheating: Cheating) -> dict[str, Any]:
    readings = [_reading(one, one.victim) for one in opened(case) if one.victim in one.contributors]
    what = "u_i of the user that was sent long factors"
    return score(case, _spread([one for one in readings if one]), what, ratings=False)


def _crafted(case: Case, cheating: Cheating) -> dict[str, Any]:
    """Read coordinate l of the sums of victim l: −2 (r_ij − 1) and noise, averaged over the second half of the run.

    The recommender knows the envelopes, so it trusts each reading as much as its noise allows, and the mean otherwise.
    """
    params, found = MaskedParams.of(case.card.params), dict[tuple[int, int], _Crafted]()
    for one in opened(case):
        assert isinstance(one.role, Crafting)
        for user, axis in one.role.axes().items():
            if one.iteration >= params.iterations // 2 and user in one.contributors:
                _take_crafted(one, user, axis, found)
    what = "the ratings of the users that were turned to an axis of their own"
    if not found:
        return {"what": what, "readings": 0}
    low, high = params.rating_range
    users = sorted({user for user, _ in found})
    inputs = {user: Exhibits(case, (user_name(user),)).brought(user_name(user)).inputs for user in users}
    truth = []
    for user, item in found:
        own = inputs[user]
        assert own is not None
        truth.append(float(own.ratings[np.searchsorted(own.items, item)]))
    read = np.array([1 - np.mean(one.sums) / 2 for one in found.values()])
    noise = np.array([one.objective + np.sum(one.envelopes) / len(one.envelopes) ** 2 for one in found.values()])
    spread, middle = (high - low) ** 2 / 12, np.median(read)
    trust = spread / (spread + 2 * params.noise_scale**2 * noise / 4)
    guessed = np.clip(middle + trust * (read - middle), low, high)
    varied = np.std(guessed) > 0 and np.std(truth) > 0
    return {
        "what": what,
        "readings": len(users),
        "ratings": len(truth),
        "within_half_a_star": float(np.mean(np.abs(guessed - truth) <= NEAR)),
        "chance": best_constant(np.array(truth)),
        "correlation": float(np.corrcoef(guessed, truth)[0, 1]) if varied else 0.0,
    }


@dataclass(slots=True)
class _Crafted:
    """The readings of one rating: the coordinate of each sum, and the envelopes of its noise."""

    objective: float
    sums: list[float] = field(default_factory=list)
    envelopes: list[float] = field(default_factory=list)


def _take_crafted(one: Opened, user: int, axis: int, found: dict[tuple[int, int], _Crafted]) -> None:
    held, dim = np.isin(one.items, one.sent[user][0]), one.sums.shape[1]
    items = one.items[held].tolist()
    keys = [one.role.item_keys[item] for item in items]
    envelopes = exponential(keys, dim, "rho", one.iteration)[:, axis].tolist()
    for item, key, value, envelope in zip(items, keys, one.sums[held, axis].tolist(), envelopes, strict=True):
        if (user, item) not in found:
            found[user, item] = _Crafted(float(objective_envelopes(one.role, [key])[0, axis]))
        found[user, item].sums.append(value)
        found[user, item].envelopes.append(envelope)


def _fainted(case: Case, cheating: Cheating) -> dict[str, Any]:
    dealt = envelopes_dealt(case)
    mean = float(np.mean([rows.mean() for rows in dealt.values()])) if dealt else None
    return {
        "what": "less objective noise in every sum",
        "mean_envelope": mean,
        "chance": 1.0,
        "noise_left": None if mean is None else math.sqrt(mean),
    }


def _separated(case: Case, cheating: Cheating) -> dict[str, Any]:
    """Measure how much the noise of sums varies in size: an envelope that all raters share varies by its mean."""
    held: dict[int, list[Vector]] = {}
    for user, rows in envelopes_dealt(case).items():
        inputs = Exhibits(case, (user,)).brought(user).inputs
        assert inputs is not None
        for item, row in zip(inputs.items.tolist(), rows.astype(np.float64), strict=True):
            held.setdefault(item, []).append(row)
    of_sums = np.array([np.mean(rows, axis=0) for rows in held.values() if len(rows) > 1])
    return {
        "what": "the noise of a sum, given the envelopes, has nearly one size for all sums: it is Gaussian",
        "noise_left": math.sqrt(float(of_sums.mean())) if len(of_sums) else None,
        "envelope_spread": float(of_sums.std() / of_sums.mean()) if len(of_sums) else None,
        "spread_chance": 1.0,
    }


def _split(case: Case, cheating: Cheating) -> dict[str, Any]:
    """Subtract the two sums of each iteration; the recommender knows the masks of the user that is left."""
    ring, params, run_id = case.card.setting.ring, case.card.params, case.card.run_id
    fixed, tape = FixedPoint(ring, params.fraction_bits), Exhibits(case, (RECOMMENDER,)).brought(RECOMMENDER).tape
    led = {one.iteration: one for one in opened(case)}
    readings = []
    for turn in rerun(Exhibits(case, (THIRD_PARTY,)), THIRD_PARTY):
        assert isinstance(turn.role, Splitting)
        totals = [one.message for one in turn.effects if isinstance(one, Send) and isinstance(one.message, MaskedTotal)]
        if len(totals) != 2 or totals[0].iteration not in led:
            continue
        one = led[totals[0].iteration]
        there = sorted(one.contributors)
        user = there[one.iteration % len(there)]
        items, factors = one.sent[user]
        words = ring.subtract(totals[0].values, totals[1].values)
        held = np.isin(totals[0].items, items)
        masks = mask_rows(ring, tape.key("mask", user), run_id, one.iteration, len(items), params.dim)
        places = np.searchsorted(items, totals[0].items[held])
        gradients = fixed.decode(ring.subtract(words[held], masks[places]))
        if len(places) >= 2:
            readings.append(Reading(user, one.iteration, items[places], gradients, factors[places]))
    return score(case, _spread(readings), "the ratings of the user that one of two sums lacked")


def _sybils(case: Case, cheating: Cheating) -> dict[str, Any]:
    """Read users from the sums in which all others are sybils, which add nothing."""
    readings, alone, released, left = list[Reading](), 0, 0, list[float]()
    for one in opened(case):
        honest = [user for user in one.contributors if user >= cheating.number]
        counts, every = _raters(one, honest), _raters(one, one.contributors)
        sole = one.items[(counts == 1) & (every > 1)]
        alone, released = alone + len(sole), released + len(one.items)
        left += (counts / np.maximum(every, 1)).tolist()
        for user in honest:
            whole = _reading(one, user)
            held = np.zeros(0, np.bool_) if whole is None else np.isin(whole.items, sole)
            if whole is not None and np.count_nonzero(held) >= 2:
                rows = whole.items[held], whole.gradients[held], whole.factors[held]
                readings.append(Reading(user, one.iteration, *rows))
    found = score(case, _spread(readings), "the ratings of users with whom only sybils share a sum")
    return found | {
        "sums_of_one_honest_user": alone / max(released, 1),
        "noise_left": math.sqrt(float(np.median(left))) if left else None,
    }


def _raters(one: Opened, users: Collection[int]) -> Ints:
    """Count `users` that contributed to each of the opened items."""
    held = np.concatenate([np.zeros(0, np.int64), *(one.sent[user][0].astype(np.int64) for user in users)])
    counts: Ints = np.bincount(held, minlength=int(one.items.max(initial=0)) + 1)[one.items]
    return counts


_MEASURES: dict[str, Callable[[Case, Cheating], dict[str, Any]]] = {
    "recommender:isolate": _isolated,
    "recommender:narrow": _isolated,
    "recommender:equivocate": _equivocated,
    "recommender:craft": _crafted,
    "recommender:envelope": _fainted,
    "recommender:far-envelope": _fainted,
    "recommender:own-envelope": _separated,
    "third_party:split": _split,
    "user:sybil": _sybils,
}
