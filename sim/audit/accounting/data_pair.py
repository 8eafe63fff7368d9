"""A data pair: the recommender's role run again from its own view and with its own tape, with one rating flipped.

This applies where users hand their unmodified ratings to the recommender. Whatever reaches the *other* users may depend
on that rating only through noise. So the role runs with the ratings as they are, with one of them at the other end of
the scale, and with a tape that has the same starting factors and every other draw fresh. A row of numbers that follows
the rating and no fresh draw was released without noise. Such a row is tested again, with either rating (an average at
the end of its range stays there) and with larger draws: noise that is lost in rounding, as with an ε of a million, is
not missing. How much noise a row has is the subject of other questions.

Fields that are not numbers (which items, which neighbours) are not judged: a choice need not follow every draw.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import Name, Tape
from protocol.arrays import Floats
from protocol.errors import Aborted
from protocol.params import Params
from protocol.party.role import RECOMMENDER, Send, user_index
from protocol.wire.fields import field_kinds
from protocol.wire.messages import Event, GradedRatings, Message, RatingsHandover
from sim.audit.families.registry import family_of
from sim.audit.findings import Audited, Finding
from sim.audit.role_rerun import inputs_of, turns
from sim.views.evidence import Case
from sim.views.exhibits import Brought, Exhibits, Seen

HANDED = (RatingsHandover, GradedRatings)  # unmodified ratings
STRENGTHS = (1.0, 1e2, 1e4)  # factors for fresh normal draws

Sent = dict[str, list[Message]]  # user -> messages to it, in order


class FreshNoise(Tape):
    """Another tape with the same starting values and fresh draws otherwise."""

    __slots__ = ("_own", "_strength")

    def __init__(self, own: Tape, strength: float = 1.0, *name: Name) -> None:
        super().__init__(own.key("fresh noise", *name))
        self._own = own
        self._strength = strength

    def normal(self, rows: int, dim: int, *name: Name) -> Floats:
        return self._strength * super().normal(rows, dim, *name)

    def start(self, rows: int, dim: int, *name: Name) -> Floats:
        return self._own.start(rows, dim, *name)


@dataclass(frozen=True, slots=True, eq=False)
class Flip:
    """One rating, and the message that carries it with the other value."""

    user: int
    item: int
    rating: float
    other: float
    record: int
    message: Message


def data_pair(case: Case) -> Audited:
    """Return (the figures, findings); the figures are {} if the test does not apply."""
    params = case.card.params
    if math.isinf(params.epsilon) or not case.path(RECOMMENDER).is_file():
        return {}, []
    exhibits = Exhibits(case, (RECOMMENDER,))
    inputs, tape = list(inputs_of(exhibits, RECOMMENDER)), exhibits.brought(RECOMMENDER).tape
    step = family_of(case.card.scheme).rating_step(params)
    flip = choose_flip(params, [given for given in inputs if isinstance(given, Seen)], step)
    if flip is None:
        return {}, []
    flipped = list(_flipped(inputs, flip))
    base, other = _sent(case, inputs, tape), _sent(case, flipped, tape)
    if base is None or other is None:
        return {}, []
    tallies: dict[tuple[str, str], FieldTally] = {}
    runs = [base, other]
    for given, strength in itertools.product((inputs, flipped), STRENGTHS):
        noisy = _sent(case, given, FreshNoise(tape, strength))
        if noisy is None:  # the role aborts on noise this large
            continue
        runs += [base if given is inputs else other, noisy]
        tallies = _compared(runs, flip)
        if not any(tally.bare for tally in tallies.values()):
            break
    return _result(case, flip, tallies)


def choose_flip(params: Params, seen: Sequence[Seen], rating_step: float = 1.0) -> Flip | None:
    """Choose a rating of the most rated item, by the user with the fewest ratings; grades are `rating_step` apart.

    There it has the largest weight, and it affects the most users.
    """
    handed = [one for one in seen if isinstance(one.message, HANDED) and len(one.message.items)]
    if len(handed) < 2:
        return None
    item = int(np.bincount(np.concatenate([one.message.items for one in handed])).argmax())
    chosen = min((one for one in handed if item in one.message.items), key=lambda one: len(one.message.items))
    at = int(np.searchsorted(chosen.message.items, item))
    name = "grades" if isinstance(chosen.message, GradedRatings) else "values"
    values = getattr(chosen.message, name).copy()
    step, least = (rating_step, params.rating_min) if name == "grades" else (1.0, 0.0)
    rating = least + step * float(values[at])
    other = params.rating_min if rating > (params.rating_min + params.rating_max) / 2 else params.rating_max
    values[at] = round((other - least) / step) if name == "grades" else other
    message = dataclasses.replace(chosen.message, **{name: values})
    return Flip(user_index(chosen.sender), item, rating, other, chosen.record, message)


def _flipped(inputs: Sequence[Seen | Event], flip: Flip) -> Iterator[Seen | Event]:
    for given in inputs:
        is_it = isinstance(given, Seen) and given.record == flip.record
        yield dataclasses.replace(given, message=flip.message) if is_it else given


def _sent(case: Case, inputs: Sequence[Seen | Event], tape: Tape) -> Sent | None:
    """Collect what the role sends to each user; None if it aborts."""
    found: Sent = {}
    try:
        for turn in turns(case.card, RECOMMENDER, Brought(tape, None), inputs):
            for effect in turn.effects:
                if isinstance(effect, Send) and user_index(effect.to) >= 0:
                    found.setdefault(effect.to, []).append(effect.message)
    except Aborted:
        return None
    return found


# --- comparison of runs --------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """The changes of one field of one message."""

    largest: float  # largest change with the rating
    bare: float  # the same over rows that follow no noise


@dataclass(slots=True)
class FieldTally:
    """Counts for one field of one kind of message, over the other users."""

    messages: int = 0
    changed: int = 0  # messages whose field follows the rating
    bare: int = 0  # those of them with a row that follows no noise
    largest: float = 0.0
    largest_bare: float = 0.0

    def add(self, change: Change) -> None:
        self.messages += 1
        self.changed += change.largest > 0
        self.bare += change.bare > 0
        self.largest = max(self.largest, change.largest)
        self.largest_bare = max(self.largest_bare, change.bare)


def _compared(runs: Sequence[Sent], flip: Flip) -> dict[tuple[str, str], FieldTally]:
    """Tally the changes by kind and field.

    `runs` are pairs: the rating as it is and flipped, then runs without and with fresh noise.
    """
    tallies: dict[tuple[str, str], FieldTally] = {}
    known: dict[tuple[int, ...], Change] = {}  # a message about all items is shared by all users
    for user in runs[0]:
        if user_index(user) == flip.user:
            continue
        for messages in zip(*(run.get(user, []) for run in runs), strict=False):
            kind: Any = type(messages[0])
            for name, form in field_kinds(kind):
                if not form.is_number or any(type(message) is not kind for message in messages):
                    continue
                rows = [getattr(message, name) for message in messages]
                key = tuple(map(id, rows))
                if key not in known:
                    known[key] = compare(*rows)
                tallies.setdefault((kind.__name__, name), FieldTally()).add(known[key])
    return tallies


def _result(case: Case, flip: Flip, tallies: dict[tuple[str, str], FieldTally]) -> Audited:
    document: dict[str, Any] = {
        "user": flip.user,
        "item": flip.item,
        "rating": flip.rating,
        "other": flip.other,
        "others": case.card.params.n_users - 1,
        "fields": [
            {"kind": kind, "field": name, **dataclasses.asdict(tally)} for (kind, name), tally in tallies.items()
        ],
    }
    return document, [_finding(case, document, row) for row in document["fields"] if row["bare"]]


def compare(base: Floats, other: Floats, *noisy: Floats) -> Change:
    """Measure the change from `base` to `other`; a changed row is bare if it differs in no pair of `noisy`."""
    pairs = list(zip(noisy[::2], noisy[1::2], strict=True))
    if base.shape != other.shape:
        covered = any(one.shape != fresh.shape for one, fresh in pairs)
        return Change(math.inf, 0.0 if covered else math.inf)
    apart = np.abs(other.astype(np.float64) - base.astype(np.float64)).reshape(len(base), -1).max(axis=1, initial=0.0)
    still = np.ones(len(base), np.bool_)
    for one, fresh in pairs:
        still &= ~_rows_apart(one, fresh)
    return Change(float(apart.max(initial=0.0)), float(apart[still].max(initial=0.0)))


def _rows_apart(one: Floats, two: Floats) -> npt.NDArray[np.bool_]:
    if one.shape != two.shape:
        return np.ones(len(one), np.bool_)
    apart: npt.NDArray[np.bool_] = (one != two).reshape(len(one), -1).any(axis=1)
    return apart


def _finding(case: Case, document: dict[str, Any], row: dict[str, Any]) -> Finding:
    field = f"{row['kind']}.{row['field']}"
    return Finding(
        "missing-noise",
        f"One flipped rating of one user changes {field} of {row['bare']} of {document['others']} other users, and no "
        f"noise covers it.",
        ("user",),
        "break",
        claimed=f"ε = {case.card.params.epsilon:g}",
        measured={"messages": row["bare"], "others": document["others"], "largest_change": row["largest_bare"]},
        chance=0,
        confidence="exact: the role runs again, with the same inputs and the same tape",
        evidence=f"the recommender's role from its own view: user {document['user']} says {document['other']:g} of "
        f"item {document['item']} instead of {document['rating']:g}; {field} changes by up to "
        f"{row['largest_bare']:.3g}, and stays as it is when every draw but the starting factors is made afresh",
    )
