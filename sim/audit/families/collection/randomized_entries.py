"""Entries of a rating vector that a user randomizes itself: laplace-ratings, randomized-response, and hybrid's r'.

The two data sets differ in one entry, so every entry of a vector is a repetition of its own, if the mechanism treats
entries independently. That is measured too, with vectors of two entries, one of them known (`beside`): a draw that both
share would reveal the other.

The statistic is ln P(received | second)/P(received | first), by the exact law of the mechanism.

| arm | neighbours | what is measured |
|---|---|---|
| `release` | one entry of a vector | the received entry, for each pair of its possible values |
| `beside` | the same, in a vector whose other entry is known | draws that two entries share |
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import Flags, Floats
from protocol.params import Params
from protocol.party.role import RECOMMENDER, Send, UserInput, user_name
from protocol.schemes.base import Scheme, Setting, Shape
from protocol.schemes.collection.collecting import CollectingParams
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse
from protocol.wire.messages import Message, PerturbedRatings, RandomizedLevels
from sim.audit.canary.bound_rows import Asked, Found, Statistic
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.chunks import coins

VECTOR = 400  # entries of a vector in which each is a repetition
ENTRIES = 20  # per requested repetition: entries are cheap
PAIRS = (("least", "greatest"), ("missing", "greatest"), ("missing", "least"))
# In this range entries can tell too little noise from enough and show the claimed ε; outside, ε = 1 is measured too.
MEASURABLE = (0.1, 6.0)
STAND_IN = 1.0

Entry = float | None  # a rating, or missing


@dataclass(frozen=True)
class Vectors:
    """A problem: each entry (with `beside`, entry 0 alone) is the first or the second of `pair`."""

    scheme: Scheme
    params: Params
    pair: tuple[Entry, Entry]
    beside: Entry = None  # entry 1 of vectors of two; None: every entry is a repetition

    @property
    def known_beside(self) -> bool:
        return self.beside is not None


@dataclass(frozen=True)
class Received:
    """The entries that were received; NaN for an entry that is said to be missing."""

    greatest: Flags
    entries: Floats  # ratings as scaled on the wire, or levels
    others: Floats  # the same for entry 1, with `beside`
    kind: type
    seconds: float

    def __len__(self) -> int:
        return len(self.greatest)


def vectors_of(
    scheme: Scheme, params: Params | None, epsilon: float, pair: tuple[str, str], beside: bool = False, **options: Any
) -> Vectors:
    """Make the problem; `pair` names least, greatest or missing, and the rating beside is the least."""
    rating_range = (1.0, 5.0) if params is None else (params.rating_min, params.rating_max)
    entry: dict[str, Entry] = {"least": rating_range[0], "greatest": rating_range[1], "missing": None}
    n_items, step = 2 if beside else VECTOR, 1.0 if params is None else getattr(params, "step", 0.0) or None
    shape = Shape(1, n_items, rating_range, (n_items,), np.ones(n_items, np.int64), step)
    made, _ = scheme.make_params(shape, epsilon=epsilon, **options)
    return Vectors(scheme, made, (entry[pair[0]], entry[pair[1]]), rating_range[0] if beside else None)


def receive(problem: Vectors, seed: bytes, repetitions: int) -> Received:
    """Collect what the recommender receives of `repetitions` entries, with a coin for each."""
    began, truth = time.process_time(), coins(seed, 0, repetitions)
    setting = Setting(problem.params, derive(seed, "run"), Ring(problem.params.ring_bits))
    size = 1 if problem.known_beside else VECTOR
    numbers, others, kind = np.full(repetitions, np.nan), np.full(repetitions, np.nan), type(None)
    for first in range(0, repetitions, size):
        part = truth[first : first + size]
        inputs = _inputs(problem, part)
        role = problem.scheme.make_role(user_name(0), setting, Tape(derive(seed, first)), inputs)
        sent = [effect.message for effect in role.start() if isinstance(effect, Send) and effect.to == RECOMMENDER]
        if len(sent) != 1:
            raise CannotBeMeasured(f"{problem.scheme.name} cannot be measured: a user does not begin with its ratings.")
        said, kind = said_of(problem, sent[0]), type(sent[0])
        numbers[first : first + size] = said[: len(part)]
        if problem.known_beside:
            others[first] = said[1]
    return Received(truth, numbers, others, kind, time.process_time() - began)


def _inputs(problem: Vectors, truth: Flags) -> UserInput:
    one, other = (math.nan if entry is None else entry for entry in problem.pair)
    known = [] if problem.beside is None else [problem.beside]
    entries = np.concatenate([np.where(truth, other, one), known])
    items = np.flatnonzero(~np.isnan(entries)).astype(np.uint32)
    return UserInput(items, entries[items])


def said_of(problem: Vectors, message: Message) -> Floats:
    """Return what `message` says of every entry; NaN means missing."""
    said = np.full(problem.params.n_items, np.nan)
    if isinstance(message, PerturbedRatings):
        said[message.items] = message.values[:, 0]
    elif isinstance(message, RandomizedLevels):
        levels = message.levels[:, 0].astype(np.float64)
        said = np.where(levels == 0, np.nan, levels)
    else:
        kind = type(message).__name__
        raise CannotBeMeasured(f"{problem.scheme.name} cannot be measured: no law of a {kind} is known.")
    return said


# --- the recommender's statistics -------------------------------------------------------------------------------------


def log_ratio(problem: Vectors, received: Received) -> Floats:
    """Compute the log ratio by the exact law; rounded, so that equal ratios stay equal."""
    law = _laplace_ratio if received.kind is PerturbedRatings else _response_ratio
    return np.round(law(problem, received.entries), 9)


def _laplace_ratio(problem: Vectors, said: Floats) -> Floats:
    mechanism = ModifiedLaplace(problem.params.epsilon)
    here, there = (0.0 if entry is None else _scaled(problem, entry) for entry in problem.pair)
    gone_here, gone_there = (mechanism.mass_missing(entry) for entry in problem.pair)
    present = math.log1p(-gone_there) - math.log1p(-gone_here)
    numbers = present + (np.abs(said - here) - np.abs(said - there)) / mechanism.scale
    return np.where(np.isnan(said), math.log(gone_there / gone_here), numbers)


def _response_ratio(problem: Vectors, said: Floats) -> Floats:
    (one, other), levels = _levels(problem), _grid(problem).levels
    mechanism = RandomizedResponse(problem.params.epsilon, levels)
    table = [math.log(mechanism.mass(other, level) / mechanism.mass(one, level)) for level in range(levels + 1)]
    ratios: Floats = np.array(table)[np.nan_to_num(said, nan=0.0).astype(np.int64)]
    return ratios


def _grid(problem: Vectors) -> Grid:
    return CollectingParams.of(problem.params).grid


def _levels(problem: Vectors) -> tuple[int, int]:
    one, other = (0 if entry is None else int(_grid(problem).level_of(np.array(entry))) for entry in problem.pair)
    return one, other


def _scaled(problem: Vectors, entry: float) -> float:
    return float(_grid(problem).scaled(np.array(entry)))


def beside_known(problem: Vectors, received: Received) -> Floats:
    """Compute what the known entry tells if both share draws; larger for the second of the pair."""
    if received.kind is PerturbedRatings:
        return _laplace_beside(problem, received)
    one, other = _levels(problem)
    assert problem.beside is not None
    said = np.nan_to_num(received.entries, nan=0.0)
    speaks = np.where(said == other, 1.0, np.where(said == one, -1.0, 0.0))
    kept = received.others == int(_grid(problem).level_of(np.array(problem.beside)))
    return np.where(kept, speaks, -speaks)


def _laplace_beside(problem: Vectors, received: Received) -> Floats:
    assert problem.beside is not None
    if None in problem.pair:  # entry 1 is rated, so it is received unless it was flipped
        rated = 1.0 if problem.pair[0] is None else -1.0
        agree = np.isnan(received.entries) == np.isnan(received.others)
        return np.where(agree, rated, -rated)
    apart, known = received.entries - received.others, _scaled(problem, problem.beside)
    here, there = (_scaled(problem, entry) for entry in problem.pair if entry is not None)
    nearer: Floats = np.nan_to_num(np.abs(apart - (here - known)) - np.abs(apart - (there - known)), nan=0.0)
    return nearer


# --- arms -------------------------------------------------------------------------------------------------------------


def of_entries(asked: Asked) -> Iterator[Found]:
    measurable = MEASURABLE[0] <= asked.claim <= MEASURABLE[1]
    for epsilon in (asked.claim,) if measurable else (STAND_IN, asked.claim):
        for pair in PAIRS:
            yield of_entry(asked, epsilon, pair)
        if epsilon == asked.claim and not measurable:
            continue
        for pair in PAIRS[:2]:
            yield of_entry(asked, epsilon, pair, beside=True)


def of_entry(asked: Asked, epsilon: float, pair: tuple[str, str], beside: bool = False) -> Found:
    arm, words = "beside" if beside else "release", " or ".join(pair)
    problem = vectors_of(asked.scheme, asked.params, epsilon, pair, beside)
    seed = derive(asked.seed, "canary", arm, words, repr(epsilon))
    received = receive(problem, seed, asked.repetitions * (1 if beside else ENTRIES))
    if beside:
        knows, name = "the other entry of a vector of two", f"entry beside a known one, {words}"
        values = beside_known(problem, received)
    else:
        knows, name = "that the entry is one of two (likelihood ratio by the exact law)", f"entry, {words}"
        values = log_ratio(problem, received)
    knows, ratio = f"the upload, and {knows}", None if beside else values
    return arm, problem, received, Statistic((RECOMMENDER,), knows, name, "noise", values, ratio=ratio)


def entry_problem(asked: Asked) -> dict[str, Any]:
    return {
        "users": 1,
        "items": VECTOR,
        "dim": 1,
        "neighbours": "one entry of a user's vector is the least rating, the greatest, or missing; each entry of a "
        "vector is a repetition, and of a vector of two the first",
        "other_rating": None,
        "unit": asked.scheme.unit,
    }
