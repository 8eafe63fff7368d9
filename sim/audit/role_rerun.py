"""Run a party's role again from its own view: any holder of the view knows what the role computed.

The role is given a ring and reals that keep what passes through them. An audit learns what a role computed in this way,
and from the role's public state after a turn, and in no other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.reals import Reals
from protocol.arithmetic.ring import Label, Ring
from protocol.arrays import Floats, Integers, RealArray, RingArray
from protocol.card import Card
from protocol.errors import Aborted
from protocol.params import Params
from protocol.party.party import read_event
from protocol.party.role import Effects, Role
from protocol.party.view import EVENT, RECEIVED
from protocol.play import perform
from protocol.wire.messages import EVENTS, Event, Hello
from sim.views.exhibits import Brought, Exhibits, Seen, read_message


class Marked(NamedTuple):
    label: Label
    values: Floats  # one row for each of the label's items


@dataclass(slots=True, eq=False)
class Passed:
    """The numbers that passed through the arithmetic of a role in one turn."""

    entered: list[Marked] = field(default_factory=list)  # that the role added to others, or masked
    encoded: list[RingArray] = field(default_factory=list)  # the words of all numbers, labelled or not
    computed: list[Marked] = field(default_factory=list)
    opened: RingArray | None = None  # the last words that became numbers
    summed: Floats | None = None  # the last sum of reals that became bare numbers

    def labelled(self, what: str) -> Floats | None:
        """Return the last computed numbers of the label `what`; None without any."""
        return next((mark.values for mark in reversed(self.computed) if mark.label.what == what), None)


class Probe:
    """The ring and the reals of one role; `take` returns what passed through them since the last call."""

    def __init__(self, params: Params) -> None:
        self.passed = Passed()
        self.ring, self.reals = _HearingRing(self, params), _HearingReals(self)

    def take(self) -> Passed:
        passed, self.passed = self.passed, Passed()
        return passed


class _HearingRing(Ring):
    def __init__(self, probe: Probe, params: Params) -> None:
        super().__init__(params.ring_bits, params.ring_is_prime)
        self._probe, self._params = probe, params

    def from_integers(self, integers: Integers, label: Label | None = None) -> RingArray:
        passed, words = self._probe.passed, super().from_integers(integers, label)
        passed.encoded.append(words)
        if label is not None:
            passed.entered.append(Marked(label, integers / 2.0 ** fraction_bits(self._params, label.iteration)))
        return words

    def to_signed(self, words: RingArray) -> npt.NDArray[np.int64]:
        self._probe.passed.opened = words
        return super().to_signed(words)


class _HearingReals(Reals):
    __slots__ = ("_probe",)

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def mark(self, values: RealArray, label: Label) -> RealArray:
        self._probe.passed.entered.append(Marked(label, np.array(values, np.float64)))
        return values

    def computed(self, values: RealArray, label: Label) -> RealArray:
        self._probe.passed.computed.append(Marked(label, values))
        return values

    def open(self, values: RealArray) -> Floats:
        self._probe.passed.summed = values
        return values


def fraction_bits(params: Params, iteration: int) -> int:
    """Look up the fraction bits of `iteration`, which may differ from round to round."""
    of = getattr(params, "fraction_bits_of", None)
    return int(params.fraction_bits if of is None else of(iteration))


class RoleTurn(NamedTuple):
    sender: str | None  # of a message
    given: Any  # a message or an event; None at the start
    effects: Effects
    role: Role  # its state after the turn
    passed: Passed


def turns(card: Card, party: str, brought: Brought, inputs: Iterable[Seen | Event]) -> Iterator[RoleTurn]:
    """Give a fresh role of `party` its start and then `inputs`; raise `Aborted` where it does."""
    probe = Probe(card.params)
    setting = replace(card.setting, ring=probe.ring, reals=probe.reals)
    role = card.make_role(party, setting, brought.tape, brought.inputs)
    probe.take()
    cues = (
        (party, given.sender, given.message) if isinstance(given, Seen) else (party, None, given) for given in inputs
    )
    for _, sender, given, effects in perform({party: role}, cues, lambda party, effects: None):
        yield RoleTurn(sender, given, effects, role, probe.take())


def rerun(exhibits: Exhibits, party: str) -> Iterator[RoleTurn]:
    """Yield every turn of the role of `party`, in order, until its view or the run ends."""
    try:
        yield from turns(exhibits.case.card, party, exhibits.brought(party), inputs_of(exhibits, party))
    except Aborted:
        return


def inputs_of(exhibits: Exhibits, party: str) -> Iterator[Seen | Event]:
    """Yield the inputs that the role of `party` was given after its start, in order."""
    for record in exhibits.records(party):
        if record.type == EVENT and record.fields[0] in EVENTS:
            yield read_event(*record.fields)
        elif record.type == RECEIVED:
            seen = read_message(exhibits.case, party, record)
            if not isinstance(seen.message, Hello):
                yield seen
