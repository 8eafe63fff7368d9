"""Run the roles of all parties again, in the order in which their views recorded what reached them.

Messages are handed over as objects, from the role that sends to the role that receives. What came from outside
(deadlines, arrivals, departures) comes at the recorded places. What is made of a turn is up to a subclass.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from actors.capacity import check_files, files_of
from protocol.errors import BadInput
from protocol.party.party import read_event
from protocol.party.role import Effects, Role, Send
from protocol.party.view import EVENT, INPUT, RECEIVED, REJECTED, Broken, CutOff, Record
from protocol.play import Cue, perform
from protocol.wire.messages import EVENTS, Event, Hello, Message
from sim.views.evidence import Case
from sim.views.exhibits import Brought, Exhibits, read_input, read_message


class Rerun:
    """The role of one party that is run again, and the records of its view that are still to come."""

    role: Role

    def __init__(self, case: Case, party: str) -> None:
        self.case = case
        self.party = party
        self.records = _whole(Exhibits(case, (party,)).records(party))
        self.pending: Record | None = None
        self._message: Message | None = None  # decoded from the pending record, on first use
        record = next((record for record in self.records if record.type == INPUT), None)
        if record is None:
            raise Broken(f"the view of {party} does not say what it brought")
        self.brought: Brought = read_input(case, party, record)

    def next(self) -> Record | None:
        """Return the pending record, if any; `taken` moves on to the next one."""
        while self.pending is None:
            record = next(self.records, None)
            if record is None:
                return None
            refused = record.type == REJECTED and record.fields[4]  # its sequence number is used up all the same
            happened = record.type == EVENT and record.fields[0] in EVENTS
            if record.type == RECEIVED or refused or happened:
                self.pending = record
            else:
                self.passed(record)
        return self.pending

    def passed(self, record: Record) -> None:
        """Pass over a `record` that is no input of the role."""

    def recorded(self) -> Message:
        """Decode the pending record only once: a role is asked often while it waits."""
        assert self.pending is not None
        if self._message is None:
            self._message = read_message(self.case, self.party, self.pending).message
        return self._message

    def taken(self) -> None:
        self.pending = self._message = None


R = TypeVar("R", bound=Rerun)


class Together(Generic[R]):
    def __init__(self, case: Case, reruns: Mapping[str, R], until: int | None = None) -> None:
        """`until` is the iteration before which to stop; None means the whole run."""
        self.case = case
        self.until = math.inf if until is None else until
        self.reruns = reruns
        self.queues: dict[tuple[str, str], deque[Message]] = {}  # by sender and receiver
        self._ready: deque[str] = deque()

    def play(self) -> None:
        roles = {party: _Following(self, rerun) for party, rerun in self.reruns.items()}
        for _ in perform(roles, self._cues(), self.carry_out):
            pass

    def _cues(self) -> Iterator[Cue]:
        self._ready.extend(self.reruns)
        while self._ready:
            yield from self._cues_of(self.reruns[self._ready.popleft()])

    def _cues_of(self, rerun: R) -> Iterator[Cue]:
        """Yield what the view of `rerun` recorded, until it needs a message that has not been sent yet."""
        while (record := rerun.next()) is not None and not self._is_beyond(rerun, record):
            if record.type == EVENT:
                yield rerun.party, None, read_event(*record.fields)
            elif record.type != RECEIVED or not isinstance(rerun.recorded(), Hello):
                sender = record.fields[0]
                queue = self.queues.get((sender, rerun.party))
                if not queue:
                    return
                yield rerun.party, sender, queue.popleft()
            rerun.taken()

    def _is_beyond(self, rerun: R, record: Record) -> bool:
        """Tell whether `record` belongs to an iteration at or after `until`."""
        if math.isinf(self.until) or record.type == REJECTED:
            return False
        what = read_event(*record.fields) if record.type == EVENT else rerun.recorded()
        return bool(getattr(what, "iteration", -1) >= self.until)

    def tick(self, rerun: R, event: Event) -> Effects:
        raise NotImplementedError

    def hear(self, rerun: R, record: Record, sender: str, message: Message) -> Effects:
        """Hand `message` to the role; a message that the party refused counts as seen all the same."""
        raise NotImplementedError

    def carry_out(self, party: str, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sent(self.reruns[party], effect)
                self.queues.setdefault((party, effect.to), deque()).append(effect.message)
                if effect.to in self.reruns:
                    self._ready.append(effect.to)

    def sent(self, rerun: R, effect: Send) -> None:
        """Note a message that the role of `rerun` sends."""


class _Following(Role):
    """A role in whose place a `Together` acts."""

    def __init__(self, together: Together[R], rerun: R) -> None:
        self.start = rerun.role.start  # type: ignore[method-assign]
        self._together, self._rerun = together, rerun

    def tick(self, event: Event) -> Effects:
        return self._together.tick(self._rerun, event)

    def receive(self, sender: str, message: Message) -> Effects:
        assert self._rerun.pending is not None
        return self._together.hear(self._rerun, self._rerun.pending, sender, message)


def parties_of(case: Case, question: str) -> list[str]:
    """List the parties that have views; all must be kept, because `question` needs the view of every party."""
    check_files(files_of(len(case.parties), 0))  # all views are open at once
    case.card.setting.envelopes.sharers += 2  # caches them: all raters of an item derive the same ones
    if len(case.kept) < len(case.parties):
        raise BadInput(f"The {question} needs the view of every party: run it again with --views full.")
    return [party for party in case.parties if case.path(party).is_file()]  # the others ended before sending


def _whole(records: Iterator[Record]) -> Iterator[Record]:
    """Drop a record that a killed process left half-written; its consequences have not happened."""
    try:
        yield from records
    except CutOff:
        return
