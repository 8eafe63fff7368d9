"""Run every role again on linear forms, in the order that the views of a run recorded.

Messages are handed over as objects, so that a ring value keeps its form on the way; each must equal, word for word, the
frame in its receiver's view. The result is what every party heard, as nodes of one arena.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from actors.capacity import check_files, files_of
from protocol.errors import Aborted, BadInput
from protocol.party.party import iteration_of, read_event
from protocol.party.role import Effects, Role, Send
from protocol.party.view import EVENT, INPUT, RECEIVED, REJECTED, Broken, CutOff, Record
from protocol.schemes.base import Setting
from protocol.wire.fields import DigestField, DigitsField, FactorsField, ItemsField, KeysField, field_kinds
from protocol.wire.messages import EVENTS, Hello, Message
from sim.audit.algebra.linear_forms import Arena, Forms, Nodes
from sim.audit.algebra.symbolic import FormRows, SymbolicReals, SymbolicRing
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits, read_input, read_message


@dataclass(slots=True, eq=False)
class Heard:
    """Everything that one party received and the algebra follows."""

    nodes: list[Nodes] = field(default_factory=list)  # forms of ring values and of marked reals
    keys: set[bytes] = field(default_factory=set)  # received, sent or drawn from
    clear: set[str] = field(default_factory=set)  # senders of reals without a form: taken as known exactly
    published: bool = False  # a server sent reals without a form: envelopes, or a model
    model: bool = False  # these are a model, made from all users' data by a scheme without factors
    sightings: list[tuple[int, Nodes]] = field(default_factory=list)  # (t, items): it received v_j(t) of these items

    @property
    def has_figures(self) -> bool:
        """Tell whether the party received numbers that a server computed."""
        return self.published or bool(self.sightings)


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """Sums that were opened. If they moved item factors, v_j(t) and v_j(t+1) together give them away."""

    party: str  # the party that opened them
    iteration: int
    items: Nodes  # the item whose factors each sum moved; −1: no item
    nodes: Nodes


@dataclass(frozen=True, slots=True, eq=False)
class Hearing:
    forms: Forms
    arena: Arena
    heard: dict[str, Heard]
    releases: list[Released]
    complete: bool  # every view was read to its end


class Actor:
    def __init__(self, case: Case, party: str, arena: Arena) -> None:
        params = case.card.params
        self.party = party
        self.ring = SymbolicRing(params.ring_bits, arena, party)
        self.reals = SymbolicReals(arena, party, _has_atom(case))
        self.records = _whole(Exhibits(case, (party,)).records(party))
        self.pending: Record | None = None
        self.message: Message | None = None  # decoded from the pending record, on first use
        self.heard = Heard()
        self.items: Nodes = np.zeros(0, np.int64)  # rated by a user; empty for a server
        record = next((record for record in self.records if record.type == INPUT), None)
        if record is None:
            raise Broken(f"the view of {party} does not say what it brought")
        brought = read_input(case, party, record)
        if brought.inputs is not None:
            self.items = brought.inputs.items.astype(np.int64)
        setting = Setting(params, case.card.run_id, self.ring, self.reals, case.card.setting.envelopes)
        self.role: Role = case.card.scheme.make_role(party, setting, brought.tape, brought.inputs)

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
        return self.pending

    def taken(self) -> None:
        self.pending = self.message = None


class SymbolicRerun:
    def __init__(self, case: Case, until: int | None = None) -> None:
        """Open all views; `until` is the iteration before which to stop."""
        self._case = case
        self._until = math.inf if until is None else until
        check_files(files_of(len(case.parties), 0))  # all views are open at once
        self._arena = Arena()
        self._queues: dict[tuple[str, str], deque[Message]] = {}
        case.card.setting.envelopes.sharers += 2  # caches them: all raters of an item derive the same ones
        if len(case.kept) < len(case.parties):
            raise BadInput("The algebra needs the view of every party: run it again with --views full.")
        there = [party for party in case.parties if case.path(party).is_file()]  # the others ended before sending
        self._actors = {party: Actor(case, party, self._arena) for party in there}
        self._ready: deque[str] = deque()
        self._releases: list[Released] = []
        self._fields = {cls: field_kinds(cls) for cls in case.card.scheme.messages}

    def run(self) -> Hearing:
        for party, actor in self._actors.items():
            self._carry_out(party, actor.role.start())
        self._ready.extend(self._actors)
        while self._ready:
            self._advance(self._actors[self._ready.popleft()])
        for actor in self._actors.values():
            actor.heard.keys |= actor.ring.drawn
        complete = all(actor.next() is None for actor in self._actors.values())
        heard = {party: self._actors[party].heard if party in self._actors else Heard() for party in self._case.parties}
        return Hearing(Forms(self._arena), self._arena, heard, self._releases, complete)

    def _advance(self, actor: Actor) -> None:
        """Advance `actor` through its view until it needs a message that has not been sent yet."""
        while (record := actor.next()) is not None:
            if self._is_beyond(actor, record):
                return
            if record.type == EVENT:
                effects = self._do(actor, actor.role.tick, read_event(*record.fields))
            else:
                sender = record.fields[0]
                if record.type == RECEIVED and isinstance(self._recorded(actor, record), Hello):
                    actor.taken()
                    continue
                queue = self._queues.get((sender, actor.party))
                if not queue:
                    return
                effects = self._hear(actor, record, sender, queue.popleft())
            actor.taken()
            self._carry_out(actor.party, effects)

    def _is_beyond(self, actor: Actor, record: Record) -> bool:
        """Tell whether `record` belongs to an iteration at or after `until`."""
        if math.isinf(self._until) or record.type == REJECTED:
            return False
        what = read_event(*record.fields) if record.type == EVENT else self._recorded(actor, record)
        return bool(getattr(what, "iteration", -1) >= self._until)

    def _recorded(self, actor: Actor, record: Record) -> Message:
        """Decode the pending record only once: an actor is asked often while it waits."""
        if actor.message is None:
            actor.message = read_message(self._case, actor.party, record).message
        return actor.message

    def _hear(self, actor: Actor, record: Record, sender: str, message: Message) -> Effects:
        """Deliver `message` to `actor`; a message that the party refuses counts as seen all the same."""
        before = len(actor.heard.nodes)
        self._note(actor, sender, message)
        if record.type == REJECTED:
            return []
        recorded = self._recorded(actor, record)
        if type(recorded) is not type(message) or not _same(recorded, message, self._fields[type(message)]):
            raise Broken(f"record {record.number} of {actor.party} is not what the role of {sender} sends; see replay")
        arrived = actor.heard.nodes[before:] if sender not in self._case.card.scheme.servers else []
        return self._do(actor, actor.role.receive, sender, message, arrived=arrived)

    def _do(self, actor: Actor, act: Callable[..., Effects], *given: Any, arrived: Sequence[Nodes] = ()) -> Effects:
        """Let the role `act`, and note what it opened as a release.

        `arrived` is what came from one user: a party that opens exactly that has read a message and made no sum.
        """
        actor.ring.opened = actor.reals.opened = None
        before = actor.role.iteration
        effects: Effects
        try:
            effects = act(*given)
        except Aborted:  # what it opened before aborting, it has seen
            effects = []
        opened = actor.ring.opened if actor.ring.opened is not None else actor.reals.opened
        moved = getattr(actor.role, "last_moved", None)
        if opened is not None and not any(np.array_equal(opened, nodes) for nodes in arrived):
            items = np.full(len(opened), -1) if moved is None or len(moved) != len(opened) else moved.astype(np.int64)
            self._releases.append(Released(actor.party, before, items, opened))
        return effects

    def _carry_out(self, party: str, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._keys(self._actors[party], effect.message)
                self._queues.setdefault((party, effect.to), deque()).append(effect.message)
                if effect.to in self._actors:
                    self._ready.append(effect.to)

    def _keys(self, actor: Actor, message: Message) -> None:
        for name, kind in self._fields[type(message)]:
            value = getattr(message, name)
            if kind is DigestField:
                actor.heard.keys.add(value)
            elif kind is KeysField:
                actor.heard.keys.update(value)

    def _note(self, actor: Actor, sender: str, message: Message) -> None:
        heard = actor.heard
        self._keys(actor, message)
        for name, kind in self._fields[type(message)]:
            value = getattr(message, name)
            if isinstance(value, FormRows):
                heard.nodes.append(value.nodes)
            elif kind is FactorsField and (told := self._told(actor, sender, message, len(value))) is not None:
                heard.sightings.append((iteration_of(message), told))
            elif kind.is_number and len(value):
                if sender in self._case.card.scheme.servers:
                    heard.published = True
                    heard.model |= not self._case.card.scheme.factorizes
                else:
                    heard.clear.add(sender)

    def _told(self, actor: Actor, sender: str, message: Message, rows: int) -> Nodes | None:
        """Find the items whose factors a message has: those it names, all, the receiver's, or the sender's."""
        every = np.arange(self._case.card.params.n_items)
        named = [getattr(message, name) for name, kind in self._fields[type(message)] if kind is ItemsField]
        candidates = [*named, every, actor.items, self._actors[sender].items]
        return next((items.astype(np.int64) for items in candidates if len(items) == rows), None)


def _has_atom(case: Case) -> bool:
    """Tell whether randomization may leave a value unchanged, so that zeros do not prove missing noise."""
    digits = any(kind is DigitsField for message in case.card.scheme.messages for _, kind in field_kinds(message))
    return digits and not math.isinf(case.card.params.epsilon)


def _whole(records: Iterator[Record]) -> Iterator[Record]:
    """Drop a record that a killed process left half-written; its consequences have not happened."""
    try:
        yield from records
    except CutOff:
        return


def _same(recorded: Message, derived: Message, fields: Iterable[tuple[str, Any]]) -> bool:
    for name, _ in fields:
        ours, theirs = getattr(derived, name), getattr(recorded, name)
        ours = ours.values if isinstance(ours, FormRows) else ours
        if isinstance(theirs, np.ndarray):
            if not np.array_equal(ours, theirs):
                return False
        elif ours != theirs:
            return False
    return True
