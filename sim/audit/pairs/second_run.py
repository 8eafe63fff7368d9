"""The second run of a pair: all roles again with the same tapes and events, and one user's ratings changed.

Roles are pure, so every difference between what a party receives now and what its view recorded is caused by that
change. The first run is the recorded one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol.errors import Aborted, Rejected
from protocol.party.party import iteration_of
from protocol.party.role import Effects, Send
from protocol.party.view import END, REJECTED, SENT, Record
from protocol.wire.messages import Event, Hello, Message
from sim.audit.pairs.change import RatingChange
from sim.audit.pairs.deviations import FURTHER, KIND, MISSING, REFUSED, Deviation, Spot, compare
from sim.audit.together import Rerun, Together, parties_of
from sim.views.evidence import Case


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message as the sender's view names it."""

    record: int
    to: str
    kind: str
    iteration: int


class SecondRole(Rerun):
    """One party's role in the second run, and what it sent in the first."""

    def __init__(self, case: Case, party: str, change: RatingChange | None) -> None:
        super().__init__(case, party)
        self.before: deque[SentMessage] = deque()
        self.after: deque[SentMessage] = deque()
        self.ended = False  # the view of the first run is whole
        self.differs = False  # its messages are no longer those of the first run, so that they are not compared
        card, inputs = case.card, self.brought.inputs
        if change is not None and party == change.party:
            inputs = change.after
        self.role = card.scheme.make_role(party, card.setting, self.brought.tape, inputs)

    def passed(self, record: Record) -> None:
        if record.type == SENT and record.fields[1] != Hello.__name__:
            to, kind, iteration, *_ = record.fields
            self.before.append(SentMessage(record.number, to, kind, iteration))
        self.ended |= record.type == END


class SecondRun(Together[SecondRole]):
    def __init__(self, case: Case, change: RatingChange | None, until: int | None) -> None:
        parties = parties_of(case, "second run of a pair")
        super().__init__(case, {party: SecondRole(case, party, change) for party in parties}, until)
        self.deviations: list[Deviation] = []

    def tick(self, rerun: SecondRole, event: Event) -> Effects:
        return self._do(rerun.role.tick, event)

    def hear(self, rerun: SecondRole, record: Record, sender: str, message: Message) -> Effects:
        kind, iteration = type(message).__name__, iteration_of(message)
        place = Spot(rerun.party, record.number, iteration, sender)
        if record.type != REJECTED and not rerun.differs:
            found = compare(place, rerun.recorded(), message, self.case.card.params)
            self.deviations += found
            rerun.differs = any(one.what == KIND for one in found)
        try:
            effects = self._do(rerun.role.receive, sender, message)
        except Rejected:
            effects, refused = [], True
        else:
            refused = False
        if refused != (record.type == REJECTED) and not rerun.differs:
            self.deviations.append(place.differs(kind, None, REFUSED))
        return effects

    def _do(self, act: Callable[..., Effects], *given: Any) -> Effects:
        try:
            return act(*given)
        except Aborted:
            return []

    def sent(self, rerun: SecondRole, effect: Send) -> None:
        kind = type(effect.message).__name__
        rerun.after.append(SentMessage(-1, effect.to, kind, iteration_of(effect.message)))

    def run(self) -> list[Deviation]:
        """Play, and list the differences in all views, in the order of the records of each."""
        self.play()
        for rerun in self.reruns.values():
            while math.isinf(self.until) and rerun.next() is not None:  # inputs that never came in the second run
                rerun.taken()
            self._count_sent(rerun)
        order = {party: at for at, party in enumerate(self.case.parties)}
        # an altered view may hold frames to a party that the run does not have: last
        return sorted(self.deviations, key=lambda one: (order.get(one.party, len(order)), one.record))

    def _count_sent(self, rerun: SecondRole) -> None:
        """Compare which messages the party sent to whom: the first that differs stands in the view of its receiver."""
        for first, second in zip(rerun.before, rerun.after, strict=False):
            if (first.to, first.kind, first.iteration) != (second.to, second.kind, second.iteration):
                self._note(rerun.party, first, KIND if first.to == second.to else MISSING)
                return
        if not math.isinf(self.until):
            return
        if len(rerun.before) > len(rerun.after):
            self._note(rerun.party, rerun.before[len(rerun.after)], MISSING)
        elif len(rerun.before) < len(rerun.after) and rerun.ended:
            self._note(rerun.party, rerun.after[len(rerun.before)], FURTHER)

    def _note(self, sender: str, one: SentMessage, what: str) -> None:
        """Note a message that is not sent, or sent in another place; the record is that of the sender's view."""
        self.deviations.append(Deviation(one.to, one.record, one.iteration, sender, one.kind, None, what))


def deviations(case: Case, change: RatingChange | None, until: int | None = None) -> list[Deviation]:
    """Run all roles again with `change`, and list what differs in every party's view before iteration `until`."""
    return SecondRun(case, change, until).run()
