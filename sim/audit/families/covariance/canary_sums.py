"""Noisy sums over users: covariance, covariance-masked and hybrid, played through their roles.

Users receive only what is made of the noisy sums, so these are taken where they pass through the recommender's reals
(`computed`): what follows is post-processing, and is not played. The adversary of differential privacy knows every
other rating, so it works out both sums, without (m) and with (m') the record; those of the second round use the
averages that are published by then:

    Σ ((x − m)² − (x − m')²) / 2σ²   (Gaussian noise)      Σ (|x − m| − |x − m'|) / b   (Laplace noise)

is ln P(x | with)/P(x | without), and the sum over rounds is that of both together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.reals import Reals
from protocol.arithmetic.ring import Label, Ring
from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import Flags, Floats, RealArray
from protocol.card import all_parties
from protocol.errors import Aborted, BadInput, Rejected
from protocol.party.role import RECOMMENDER, Role, Send, UserInput, user_name
from protocol.play import play
from protocol.schemes.base import Scheme, Setting, Shape
from protocol.schemes.covariance.averages import Averages
from protocol.schemes.covariance.options import CovarianceParams, HybridParams
from protocol.schemes.covariance.parts import first_part, second_part
from protocol.schemes.covariance.round_noise import scales_for
from protocol.wire.messages import MaskedPart, MaskWelcome, Message
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.chunks import coins

USERS, ITEMS = 3, 6  # more items bring the covariance closer to its sensitivity, but take longer
FAR, ATTEMPTS = 0.5, 20  # FAR is relative to γ; one in four perturbations is larger
_SIZED = frozenset({"items", "rank", "neighbours"})  # determined by the size of a run
COLUMNS = ("overall", "items", "covariance", "own_shares", "masked", "told")



@dataclass(frozen=True)
class World:
    """One of the two data sets."""

    params: CovarianceParams
    inputs: tuple[UserInput, ...]


@dataclass(frozen=True)
class Neighbours:
    """Two data sets: the last user has one rating less, or is absent; the others rate everything in the middle."""

    scheme: Scheme
    without: World
    whole: World

    @property
    def params(self) -> CovarianceParams:
        return self.whole.params


@dataclass(frozen=True)
class Ratios:
    """Log likelihood ratios, one row per repetition; columns that do not apply to the roles are empty."""

    greatest: Flags  # the record is present
    overall: Floats
    items: Floats
    covariance: Floats
    own_shares: Floats  # of the last user's part, to a coalition that knows all others
    masked: Floats  # the same for what the third party received
    told: Floats  # number of raters of the last item, as told to another rater; not a ratio
    seconds: float

    def __len__(self) -> int:
        return len(self.greatest)


def neighbours_of(scheme: Scheme, params: CovarianceParams | None, epsilon: float, **budgets: float) -> Neighbours:
    """Make the two data sets with the options of the run; `budgets` replace its split."""
    rating_range = (1.0, 5.0) if params is None else (params.rating_min, params.rating_max)
    names = [name for name in scheme.options if name not in _SIZED and params is not None and hasattr(params, name)]
    options = {name: getattr(params, name) for name in names} | budgets
    least, greatest = rating_range
    step = None if params is None else params.rating_step or None
    middle = (least + greatest) / 2 if step is None else least + step * round((greatest - least) / step / 2)
    others = (_rated(np.full(ITEMS, middle)),) * (USERS - 1)
    canary = _rated(np.full(ITEMS, greatest))
    whole = _world(scheme, (*others, canary), rating_range, step, epsilon, options)
    fewer = others if whole.params.per_user else (*others, UserInput(canary.items[:-1], canary.ratings[:-1]))
    if not whole.params.per_user:
        return Neighbours(scheme, World(whole.params, fewer), whole)
    return Neighbours(scheme, _world(scheme, fewer, rating_range, step, epsilon, options), whole)


def _rated(ratings: Floats) -> UserInput:
    return UserInput(np.arange(len(ratings), dtype=np.uint32), ratings)


def _world(
    scheme: Scheme,
    inputs: tuple[UserInput, ...],
    rating_range: tuple[float, float],
    step: float | None,
    epsilon: float,
    options: dict[str, Any],
) -> World:
    n = len(inputs)
    shape = Shape(n, ITEMS, rating_range, (ITEMS,) * n, np.full(ITEMS, n, np.int64), step)
    try:
        params, _ = scheme.make_params(shape, epsilon=epsilon, **options)
    except BadInput as error:
        raise CannotBeMeasured(f"{scheme.name} cannot be measured with {n} users and {ITEMS} items: {error}") from error
    return World(CovarianceParams.of(params), inputs)


# --- one repetition --------------------------------------------------------------------------------------------------


class _Enough(Exception):
    """Raised once both totals are known: the rest of the run reveals nothing more."""


class _HeardReals(Reals):
    """Reals that keep the totals that a recommender computes."""

    __slots__ = ("totals",)

    def __init__(self) -> None:
        self.totals: list[Floats] = []

    def computed(self, values: RealArray, label: Label) -> RealArray:
        if label.what == "total":
            self.totals.append(values.copy())
            if len(self.totals) == 2:
                raise _Enough
        return values


@dataclass(frozen=True)
class Repetition:
    roles: dict[str, Role]  # as they were when the second total was known
    first: Floats
    second: Floats
    averages: Averages
    sent: list[tuple[str, Message]]  # (party, message), in order


class Troupe:
    """A world and everything that its repetitions share."""

    def __init__(self, scheme: Scheme, world: World, run_id: bytes) -> None:
        self.scheme, self.world = scheme, world
        self._reals = _HeardReals()
        self.setting = Setting(world.params, run_id, Ring(world.params.ring_bits), self._reals)
        self.parties = all_parties(scheme, world.params.n_users)

    def role(self, party: str, tape: Tape) -> Role:
        own = None if party in self.scheme.servers else self.world.inputs[int(party.partition(":")[2])]
        return self.scheme.make_role(party, self.setting, tape, own)

    def play(self, seed: bytes) -> Repetition:
        self._reals.totals.clear()
        roles = {party: self.role(party, Tape(derive(seed, party))) for party in self.parties}
        sent: list[tuple[str, Message]] = []
        try:
            for party, _, _, effects in play(roles):
                sent += [(party, effect.message) for effect in effects if isinstance(effect, Send)]
        except _Enough:
            averages: Averages | None = getattr(roles[RECOMMENDER], "averages", None)
            if averages is not None:
                first, second = self._reals.totals
                return Repetition(roles, first, second, averages, sent)
        raise CannotBeMeasured(f"{self.scheme.name} cannot be measured: its recommender names no totals and averages.")

    def summed(self, seed: bytes, heard: Repetition) -> list[UserInput]:
        """Return the ratings of every user as they are summed: perturbed ones as the users sent them.

        If the last user sent none in this run, its message is recreated with the same tape.
        """
        if not isinstance(self.world.params, HybridParams):
            return list(self.world.inputs)
        opened: Callable[[Message], tuple[Any, Floats]] = getattr(heard.roles[RECOMMENDER], "opened")  # noqa: B009
        last = user_name(self.world.params.n_users - 1)
        effects = self.role(last, Tape(derive(seed, last))).start()
        own = [effect.message for effect in effects if isinstance(effect, Send)]
        others = [message for party, message in heard.sent if party not in (last, *self.scheme.servers)]
        return [UserInput(*opened(message)) for message in (*others, *own)]

    def telling(self, seed: bytes) -> bytes:
        """Derive seeds from `seed` until the record is far out after its perturbation, and return the last.

        At most `ATTEMPTS` are tried. The claim holds for every perturbed record, and the choice does not depend on
        whether the record is present.
        """
        params, user = self.world.params, user_name(self.world.params.n_users - 1)
        if not isinstance(params, HybridParams) or not params.gamma:
            return seed
        for attempt in range(ATTEMPTS):
            chosen = derive(seed, attempt)
            sent = self.role(user, Tape(derive(chosen, user))).start()
            values = [effect.message.values[-1, 0] for effect in sent if isinstance(effect, Send)]
            if values and values[-1] >= params.rating_max + FAR * params.gamma:
                break
        return chosen


def ratio(params: CovarianceParams, x: Floats, without: Floats, whole: Floats, scales: Floats) -> Floats:
    """Compute the log likelihood ratio of each number separately."""
    if params.gaussian:
        each: Floats = ((x - without) ** 2 - (x - whole) ** 2) / (2 * scales**2)
    else:
        each = (np.abs(x - without) - np.abs(x - whole)) / scales
    return each


def play_chunk(problem: Neighbours, seed: bytes, first: int, count: int) -> Ratios:
    """Play repetitions first … first + count − 1; the result does not depend on the process."""
    began = time.process_time()
    troupes = [Troupe(problem.scheme, world, derive(seed, "run")) for world in (problem.without, problem.whole)]
    rows, truth = [], coins(seed, first, count)
    for place, there in enumerate(truth):
        try:
            chosen = troupes[1].telling(derive(seed, first + place))
            rows.append(_ratios_of(troupes, chosen, bool(there)))
        except (Rejected, Aborted) as error:
            words = f"{problem.scheme.name} cannot be measured: its canary ended with {error}."
            raise CannotBeMeasured(words) from error
    columns = {name: np.array([row.get(name, []) for row in rows], np.float64) for name in COLUMNS}
    return Ratios(greatest=truth, seconds=time.process_time() - began, **columns)


def _ratios_of(troupes: list[Troupe], seed: bytes, there: bool) -> dict[str, Any]:
    heard = troupes[there].play(seed)
    params, averages = troupes[1].world.params, heard.averages
    without, users = (troupe.summed(seed, heard) for troupe in troupes)
    canary = without[-1] if len(without) == len(users) else None
    told = [message.counts[-1] for _, message in heard.sent if isinstance(message, MaskWelcome) and len(message.counts)]
    found: dict[str, Any] = {"told": told[0]} if told else {}
    rounds: list[tuple[Floats, Callable[[UserInput], Floats], float]] = [
        (heard.first, lambda own: first_part(params, own.items, own.ratings), 0.0),
        (heard.second, lambda own: second_part(params, averages, own.items, own.ratings), averages.spread),
    ]
    uploads = own_uploads(troupes[there], heard) if canary is not None else []
    for round_, (noisy, part, spread) in enumerate(rounds, 1):
        once, scales = {id(own): part(own) for own in users}, scales_for(params, round_, spread)
        parts = [once[id(own)] for own in users]  # identical users share one object
        absent = np.zeros(len(noisy)) if canary is None else part(canary)
        others = np.sum(parts[:-1], axis=0)
        each = ratio(params, noisy, others + absent, others + parts[-1], scales)
        found |= {"covariance": each.sum()} if round_ == 2 else {"overall": each[:2].sum(), "items": each[2:].sum()}
        for name, values in zip(("own_shares", "masked"), uploads[round_ - 1] if uploads else (), strict=False):
            share = scales / math.sqrt(len(users)) if params.gaussian else scales
            found[name] = found.get(name, 0.0) + ratio(params, values, absent, parts[-1], share).sum()
    return found


def own_uploads(troupe: Troupe, heard: Repetition) -> list[tuple[Floats, Floats]]:
    """List (what the last user added, what the third party received of it) for each round, as numbers.

    The first is what the recommender and all other users know together: the total without masks, less their parts. The
    second is read as if there were no masks. The list is empty in the sparse form, whose messages reveal what is rated.
    """
    params, setting = troupe.world.params, troupe.setting
    if getattr(params, "form", "sparse") == "sparse":
        return []
    from protocol.schemes.covariance.covariance_masked_roles import masks_of

    user = user_name(params.n_users - 1)
    key: bytes = getattr(heard.roles[user], "mask_key")  # noqa: B009
    found = []
    for party, message in heard.sent:
        if party == user and isinstance(message, MaskedPart):
            fixed = FixedPoint(setting.ring, getattr(params, "fraction_bits_of")(message.iteration))  # noqa: B009
            masks = masks_of(setting, key, message.iteration, len(message.values))
            both = setting.ring.subtract(message.values, masks), message.values
            own, received = (fixed.decode(values)[:, 0] for values in both)
            found.append((own, received))
    return found


def joined(parts: Sequence[Ratios]) -> Ratios:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("greatest", *COLUMNS)}
    return Ratios(seconds=sum(part.seconds for part in parts), **columns)
