"""Canaries of `hardened`, played through its roles: one user, or one rating, is there or not.

Users receive what follows from the noisy sum alone, so the sum is taken where it passes through the recommender's reals
and the rest is not played. The adversary knows everything else, and so the sum with and without the record; with
Gaussian noise its best statistic is

    Σ ((x − m)² − (x − m')²)/2σ²,   ln P(x | with)/P(x | without).

| statistic | coalition | what is left of the noise |
|---|---|---|
| the released sum | recommender | all shares: more than the claim counts on |
| the same, less one share | recommender and one user | the provisioned number: exactly the claim |
| the masked upload, as signed numbers | third party | nothing should be seen at all |
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.reals import Reals
from protocol.arithmetic.ring import Label, Ring
from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import Flags, Floats, Ints, RealArray
from protocol.card import all_parties
from protocol.errors import Aborted, BadInput, Rejected
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Send, UserInput, user_name
from protocol.play import play
from protocol.schemes.base import DELTA, Scheme, Setting, Shape
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened.budget import USER
from protocol.schemes.hardened.hardened_params import NORM_PROOF, HardenedParams
from protocol.schemes.hardened.norm_proof.norm_roles import as_added, unmasked_upload
from protocol.schemes.hardened.unit_vectors import first_vector
from protocol.wire.messages import MaskedPart, ProvenPart
from sim.audit.canary.bound_rows import Asked, Found, Statistic
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.chunks import cut, spread

WITH_PROOFS = 8  # a repetition with proofs of the norm takes as long as some ten without: so many fewer are played
USERS, ITEMS, SPARE = 3, 6, 1 / 3  # of three users, one may collude
LAST, OTHER = USERS - 1, USERS - 2
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
    settings = {"epsilon": asked.claim, "unit": unit, "delta": delta, "spare": SPARE}
    settings |= {} if given is None else {"proof": given.proof}
    try:
        params, _ = asked.scheme.make_params(shape, **settings)
    except BadInput as error:
        raise CannotBeMeasured(f"{asked.scheme.name} cannot be measured with {USERS} users: {error}") from error
    assert isinstance(params, HardenedParams)
    items = np.arange(ITEMS, dtype=np.uint32)
    others = UserInput(items, np.full(ITEMS, (low + high) / 2))
    last = UserInput(items, np.append(np.full(ITEMS - 1, low), high))
    without = NOBODY if unit == USER else UserInput(items[:-1], last.ratings[:-1])
    return UnitPair(asked.scheme, params, (others,) * LAST + (last,), without)


class _Heard(Exception):
    """Raised once the sum is known: the rest of the run reveals nothing more."""


class _HeardSums(Reals):
    __slots__ = ("total",)
    total: Floats | None

    def computed(self, values: RealArray, label: Label) -> RealArray:
        self.total = values.reshape(-1).copy()
        raise _Heard


def play_pair(problem: UnitPair, seed: bytes, first: int, count: int) -> UnitRatios:
    """Play repetitions first … first + count − 1; the result does not depend on the process."""
    began, rows = time.process_time(), []
    for repetition in range(first, first + count):
        try:
            rows.append(_ratios(problem, derive(seed, repetition), repetition % 2 == 1))
        except (Rejected, Aborted) as error:
            words = f"{problem.scheme.name} cannot be measured: its canary ended with {error}."
            raise CannotBeMeasured(words) from error
    truth, columns = np.arange(first, first + count) % 2 == 1, np.array(rows).T
    return UnitRatios(truth, columns[0], columns[1], columns[2], time.process_time() - began)


def _ratios(problem: UnitPair, seed: bytes, there: bool) -> list[float]:
    params, reals = problem.params, _HeardSums()
    reals.total = None
    setting = Setting(params, derive(seed, "run"), Ring(params.ring_bits, params.ring_is_prime), reals)
    inputs = dict(enumerate(problem.inputs)) | ({} if there else {LAST: problem.without})
    parties = all_parties(problem.scheme, USERS)
    tapes = {party: Tape(derive(seed, party)) for party in parties}
    owned = {party: inputs.get(int(party.partition(":")[2] or -1)) for party in parties}
    roles = {party: problem.scheme.make_role(party, setting, tapes[party], owned[party]) for party in parties}
    parts: dict[str, Any] = {}
    try:
        for party, _, _, effects in play(roles):
            sent = [effect.message for effect in effects if isinstance(effect, Send)]
            parts |= dict.fromkeys([party], sent[0]) if sent and isinstance(sent[0], MaskedPart | ProvenPart) else {}
    except _Heard:
        pass
    keys = {party: getattr(roles[party], "mask_key", b"") for party in parts}
    last, other = user_name(LAST), user_name(OTHER)
    if reals.total is None or not parts.keys() >= {last, other} or not all(keys.values()):
        raise CannotBeMeasured(f"{problem.scheme.name} cannot be measured: its recommender names no total.")
    vectors = [first_vector(params, own.items, own.ratings) for own in problem.inputs]
    without = first_vector(params, problem.without.items, problem.without.ratings)
    ring, total = setting.ring, np.rint(reals.total * params.whole)
    rest = total - sum(vectors[:LAST])  # x of the last user, or its neighbour, and all shares
    bare, share = unmasked_upload(setting, keys[other], parts[other])
    own = bare - vectors[OTHER] + as_added(roles[THIRD_PARTY], OTHER, 0, share)
    masked = ring.to_signed(parts[last].values)[:, 0]
    return [_ratio(params, x, vectors[LAST], without) for x in (rest, rest - own, masked)]


def _ratio(params: HardenedParams, x: Floats, whole: Ints, without: Ints) -> float:
    """Compute the logarithm of the likelihood ratio, up to the variance: bounds need its sign alone."""
    return float(np.sum((x - without) ** 2.0 - (x - whole) ** 2.0) / 2 / params.squares[0])


def of_unit_sums(asked: Asked) -> Iterator[Found]:
    problem = pair_of(asked)
    params, seed = problem.params, derive(asked.seed, "canary", "unit sums", repr(asked.claim))
    repetitions = asked.repetitions // (WITH_PROOFS if params.proof == NORM_PROOF else 1)
    (chunks,) = spread(play_pair, [cut(problem, seed, repetitions)], asked.workers, asked.tell)
    columns = {name: np.concatenate([getattr(part, name) for part in chunks])
               for name in ("greatest", "released", "colluding", "masked")}  # fmt: skip
    seen = UnitRatios(seconds=sum(part.seconds for part in chunks), **columns)
    mu, arm, knows = params.mu(params.min_contributors), "release", "every other rating"
    claimed = gaussian_epsilon(mu, DELTA)
    name = "the released sum"
    yield arm, problem, seen, Statistic((RECOMMENDER,), knows, name, "noise", seen.released, 1, claimed, mu)
    yield arm, problem, seen, Statistic(
        (RECOMMENDER, "user"), f"{knows}, and the share of a colluding user", "the sum less that share", "noise",
        seen.colluding, 1, claimed, mu,
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
    whole = getattr(asked.params, "unit_of", USER) == USER
    there = "has rated everything, or nothing at all" if whole else "has rated the last item or not"
    return {
        "users": USERS,
        "items": ITEMS,
        "dim": 1,
        "neighbours": f"the last user {there}",
        "other_rating": "the middle of the range",
        "unit": asked.scheme.unit,
    }
