"""Canaries of `hardened`, played through its roles: one user, or one rating, is there or not.

Users receive what follows from the noisy sums alone, so these are taken where they pass through the recommender's reals
(`heard_sums.py`), and what follows the last is not played. The adversary knows everything else, and so the sum of each
round with and without the record, given what was published before; with Gaussian noise its best statistic is

    Σ ((x − m')² − (x − m)²)/2σ²,   ln P(x | with)/P(x | without),   added up over the rounds of the run.

| statistic | coalition | what is left of the noise |
|---|---|---|
| the released sums | recommender | all shares: more than the claim counts on |
| the same, less one share | recommender and one user | the provisioned number: exactly the claim |
| the last sum alone, less one share | the same | the same, of one round |
| the masked upload, as signed numbers | third party | nothing should be seen at all |
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import Flags, Floats, Ints
from protocol.card import all_parties
from protocol.errors import Aborted, BadInput, Rejected
from protocol.party.role import RECOMMENDER, THIRD_PARTY, UserInput, user_name
from protocol.schemes.base import DELTA, Scheme, Shape
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened.budget import RATING, USER, VALUE
from protocol.schemes.hardened.hardened_params import NORM_PROOF, HardenedParams
from sim.audit.canary.bound_rows import Asked, Found, Statistic
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.chunks import cut, spread
from sim.audit.families.hardened.heard_sums import hear

WITH_PROOFS = 8  # a repetition with proofs of the norm takes as long as some ten without: so many fewer are played
USERS, ITEMS, SPARE = 3, 6, 1 / 3  # of three users, one may collude
LAST, OTHER = USERS - 1, USERS - 2
THERE = {
    USER: "has rated everything, or nothing at all",
    RATING: "has rated the last item or not",
    VALUE: "has given the last item the highest rating or the lowest",
}
NOBODY = UserInput(np.zeros(0, np.uint32), np.zeros(0))


@dataclass(frozen=True)
class UnitPair:
    """Two data sets: the last user is there with a profile or with none, or has one rating less."""

    scheme: Scheme
    params: HardenedParams
    inputs: tuple[UserInput, ...]  # with the record
    without: UserInput  # the last user's input without it


@dataclass(frozen=True)
class UnitRatios:
    greatest: Flags  # the record is there
    released: Floats
    colluding: Floats
    masked: Floats
    last: Floats  # `colluding`, of the last round alone
    seconds: float

    def __len__(self) -> int:
        return len(self.greatest)


def pair_of(asked: Asked) -> UnitPair:
    """Make the two data sets with the options of the run."""
    given = asked.params
    assert given is None or isinstance(given, HardenedParams)
    low, high = (1.0, 5.0) if given is None else given.rating_range
    unit, delta = (USER, DELTA) if given is None else (given.unit_of, given.delta)
    shape = Shape(USERS, ITEMS, (low, high), (ITEMS,) * USERS, np.full(ITEMS, USERS, np.int64))
    settings = {"epsilon": asked.claim, "unit": unit, "delta": delta, "spare": SPARE, **_rounds(given)}
    settings |= {} if given is None else {"proof": given.proof}
    try:
        params, _ = asked.scheme.make_params(shape, **settings)
    except BadInput as error:
        raise CannotBeMeasured(f"{asked.scheme.name} cannot be measured with {USERS} users: {error}") from error
    assert isinstance(params, HardenedParams)
    items = np.arange(ITEMS, dtype=np.uint32)
    middle = (low + high) / 2
    others = UserInput(items, np.full(ITEMS, middle))
    last = UserInput(items, np.append(np.full(ITEMS - 1, middle if unit == VALUE else low), high))
    without = UserInput(items[:-1], last.ratings[:-1])
    if unit != RATING:
        without = NOBODY if unit == USER else UserInput(items, np.append(last.ratings[:-1], low))
    return UnitPair(asked.scheme, params, (others,) * LAST + (last,), without)


def _rounds(given: HardenedParams | None) -> dict[str, int]:
    """Return the options with which the small problem has the rounds of the run."""
    if given is not None and given.selected:
        return {"selected": ITEMS // 2}
    return {"rounds": 1 if given is None else given.rounds}


def play_pair(problem: UnitPair, seed: bytes, first: int, count: int) -> UnitRatios:
    """Play repetitions first … first + count − 1; the result does not depend on the process."""
    began, rows = time.process_time(), []
    for repetition in range(first, first + count):
        try:
            rows.append(_ratios(problem, derive(seed, repetition), repetition % 2 == 1))
        except (Rejected, Aborted) as error:
            words = f"{problem.scheme.name} cannot be measured: its canary ended with {error}."
            raise CannotBeMeasured(words) from error
    truth = np.arange(first, first + count) % 2 == 1
    released, colluding, masked, last = np.array(rows).T
    return UnitRatios(truth, released, colluding, masked, last, time.process_time() - began)


def _ratios(problem: UnitPair, seed: bytes, there: bool) -> list[float]:
    params = problem.params
    inputs = dict(zip(map(user_name, range(USERS)), problem.inputs, strict=True))
    inputs |= {} if there else {user_name(LAST): problem.without}
    tapes = {party: Tape(derive(seed, party)) for party in all_parties(problem.scheme, USERS)}
    heard = hear(problem.scheme, params, derive(seed, "run"), tapes, inputs)
    found = np.zeros(4)
    for t, (total, scale) in enumerate(zip(heard.totals, params.scales, strict=True)):
        vectors = [heard.vector(own, t) for own in problem.inputs]
        without = heard.vector(problem.without, t)
        rest = total - sum(vectors[:LAST])  # x of the last user, or its neighbour, and all shares
        own = heard.bare(user_name(OTHER), t) - vectors[OTHER]
        masked = heard.setting.ring.to_signed(heard.parts[user_name(LAST)][t].values)[:, 0]
        ratios = [_ratio(x, vectors[LAST], without, scale) for x in (rest, rest - own, masked)]
        found += [*ratios, ratios[1] * (t == params.rounds - 1)]
    return found.tolist()


def _ratio(x: Ints, whole: Ints, without: Ints, scale: int) -> float:
    """Compute the log likelihood ratio of a round, up to a factor that all rounds have: bounds need its sign alone."""
    return float(np.sum((x - without) ** 2.0 - (x - whole) ** 2.0) / 2 / scale**2)


def of_unit_sums(asked: Asked) -> Iterator[Found]:
    problem = pair_of(asked)
    params, seed = problem.params, derive(asked.seed, "canary", "unit sums", repr(asked.claim))
    repetitions = asked.repetitions // (WITH_PROOFS if params.proof == NORM_PROOF else 1)
    (chunks,) = spread(play_pair, [cut(problem, seed, repetitions)], asked.workers, asked.tell, asked.played)
    columns = {name: np.concatenate([getattr(part, name) for part in chunks])
               for name in ("greatest", "released", "colluding", "masked", "last")}  # fmt: skip
    seen = UnitRatios(seconds=sum(part.seconds for part in chunks), **columns)
    mu, arm, knows = params.mu(params.min_contributors), "release", "every other rating"
    claimed = gaussian_epsilon(mu, DELTA)
    name = "the released sums"
    times = params.rounds
    yield arm, problem, seen, Statistic((RECOMMENDER,), knows, name, "noise", seen.released, times, claimed, mu)
    yield arm, problem, seen, Statistic(
        (RECOMMENDER, "user"), f"{knows}, and the share of a colluding user", "the sums less that share", "noise",
        seen.colluding, times, claimed, mu,
    )  # fmt: skip
    if times > 1:
        yield arm, problem, seen, Statistic(
            (RECOMMENDER, "user"), f"{knows}, and the share of a colluding user", "the last sum alone, less that share",
            "noise", seen.last, 1, claimed, mu,
        )  # fmt: skip
    yield (
        arm,
        problem,
        seen,
        Statistic(
            (THIRD_PARTY,),
            f"{knows}, and the upload",
            "the masked upload, read as signed numbers",
            "mask",
            seen.masked,
            0,
            0.0,
        ),
    )


def unit_sum_problem(asked: Asked) -> dict[str, Any]:
    there = THERE[getattr(asked.params, "unit_of", USER)]
    return {
        "users": USERS,
        "items": ITEMS,
        "dim": 1,
        "neighbours": f"the last user {there}",
        "other_rating": "the middle of the range",
        "unit": asked.scheme.unit,
    }
