"""Run one party's role twice from its own view: the same messages and events, and another input.

What arrives is held fixed. That is how a rating is released: given all that was released before, the next release
depends on the ratings only through the user that has them. (In the second run of a pair the released sums change as
well, and all users answer to them; such answers are made from what was released already, and leak no more.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from protocol.arithmetic.ring import Label
from protocol.arrays import Flags, Floats, Ids
from protocol.errors import Aborted, Rejected
from protocol.party.party import iteration_of
from protocol.party.role import Send
from protocol.wire.messages import Event
from sim.audit.pairs.change import RatingChange
from sim.audit.pairs.deviations import FURTHER, MISSING, REFUSED, Deviation, Spot, compare
from sim.audit.role_rerun import Marked, RoleTurn, inputs_of, turns
from sim.views.evidence import Case
from sim.views.exhibits import Brought, Exhibits, Seen


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """How far one labelled number moves: a row for each of `items`."""

    what: str
    iteration: int
    items: Ids
    before: Floats
    after: Floats

    @property
    def rows(self) -> Floats:
        return self.after - self.before

    @property
    def idle(self) -> Flags:
        """Mark the entries that are 0 both times."""
        idle: Flags = (self.before == 0) & (self.after == 0)
        return idle


@dataclass(slots=True, eq=False)
class TwoRuns:
    """How two runs of one role differ, in the numbers that pass through its arithmetic and in what it sends."""

    party: str
    shifts: list[Shift] = field(default_factory=list)  # of the numbers that noise protects
    noises: list[Label] = field(default_factory=list)  # the noise that was drawn beside them
    noise_shifts: list[Shift] = field(default_factory=list)  # of that noise
    deviations: list[Deviation] = field(default_factory=list)  # in the messages that the role sends


@dataclass(slots=True, eq=False)
class Twice(TwoRuns):
    """What a change of ratings does to the role of the user that has it, on the recorded incoming messages."""

    change: RatingChange = field(kw_only=True)


Given = Sequence[Seen | Event]
Side = tuple[Brought, Given]  # what a role brings, and what reaches it


def run_twice(case: Case, change: RatingChange) -> Twice:
    """Run the role of the user of `change` with both inputs on what its view recorded."""
    exhibits = Exhibits(case, (change.party,))
    tape, given = exhibits.brought(change.party).tape, list(inputs_of(exhibits, change.party))
    found = Twice(change.party, change=change)
    note_all(case, found, (Brought(tape, change.before), given), (Brought(tape, change.after), given))
    return found


def note_all(case: Case, found: TwoRuns, first: Side, second: Side) -> None:
    """Run the role of `found` on both sides, and note in it how they differ."""
    for number, (one, other) in enumerate(paired_turns(case, found.party, first, second)):
        if one is None or other is None:
            found.deviations.append(_refused(found.party, first[1][number - 1]))
            return
        note_turn(case, found, one, other)


def note_turn(case: Case, found: TwoRuns, one: RoleTurn, other: RoleTurn) -> list[Shift]:
    """Note how two turns differ; return how far the noise of this turn moves."""
    known = len(found.noise_shifts)
    _add_marks(found, one.passed.entered, other.passed.entered)
    found.deviations += sent_apart(case, found.party, one, other)
    return found.noise_shifts[known:]


def paired_turns(
    case: Case, party: str, first: Side, second: Side
) -> Iterator[tuple[RoleTurn | None, RoleTurn | None]]:
    """Yield both turns of each input; None where a role refuses its input or aborts, which ends it."""
    one, other = (turns(case.card, party, brought, given) for brought, given in (first, second))
    while True:
        pair = _next(one), _next(other)
        if pair[0] is None and pair[1] is None:
            return
        yield pair


def before(given: Iterable[Seen | Event], until: int | None) -> list[Seen | Event]:
    """Take what reached a role up to the first message of iteration `until`; None means everything."""
    return list(itertools.takewhile(lambda one: until is None or time_of(one) < until, given))


def only(given: Iterable[Seen | Event], iterations: frozenset[int] | None) -> list[Seen | Event]:
    """Take what reached a role in the set-up and in `iterations`; None means everything."""
    return [one for one in given if iterations is None or time_of(one) < 0 or time_of(one) in iterations]


def time_of(given: Seen | Event) -> int:
    return given.iteration if isinstance(given, Seen) else iteration_of(given)


def _next(some: Iterator[RoleTurn]) -> RoleTurn | None:
    try:
        return next(some, None)
    except (Rejected, Aborted):
        return None


def _refused(party: str, given: Seen | Event) -> Deviation:
    """Say that the role refuses `given`, or ends at it, with one of the two inputs alone."""
    if not isinstance(given, Seen):
        return Spot(party, -1, iteration_of(given), party).differs(type(given).__name__, None, REFUSED)
    place = Spot(party, given.record, given.iteration, given.sender)
    return place.differs(type(given.message).__name__, None, REFUSED)


def _add_marks(found: TwoRuns, before: list[Marked], after: list[Marked]) -> None:
    for one, other in zip(before, after, strict=False):
        label, same = one.label, other.label.what == one.label.what and one.values.shape == other.values.shape
        if not same:
            continue  # another number of rows: what is sent has another length, too
        sides = (np.asarray(side.values, np.float64).reshape(len(one.values), -1) for side in (one, other))
        shift = Shift(label.what, label.iteration, label.items, *sides)
        if label.shares is None:
            found.shifts.append(shift)
        else:
            found.noises.append(label)
            found.noise_shifts.append(shift)


def sent_apart(case: Case, party: str, one: RoleTurn, other: RoleTurn) -> list[Deviation]:
    """Compare the messages of two turns, each in the place where its receiver would see it."""
    first, second = (
        [effect for effect in turn.effects if isinstance(effect, Send)] for turn in (one, other)
    )
    found = []
    for before, after in zip(first, second, strict=False):
        place = Spot(before.to, -1, iteration_of(before.message), party)
        if before.to != after.to:
            found.append(place.differs(type(before.message).__name__, None, MISSING))
        else:
            found += compare(place, before.message, after.message, case.card.params)
    for send in first[len(second) :]:
        place = Spot(send.to, -1, iteration_of(send.message), party)
        found.append(place.differs(type(send.message).__name__, None, MISSING))
    for send in second[len(first) :]:
        place = Spot(send.to, -1, iteration_of(send.message), party)
        found.append(place.differs(type(send.message).__name__, None, FURTHER))
    return found
