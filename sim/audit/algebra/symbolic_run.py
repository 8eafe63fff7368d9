"""Run every role again on linear forms, in the order that the views of a run recorded.

Messages are handed over as objects, so that a ring value keeps its form on the way; each must equal, word for word, the
frame in its receiver's view. The result is what every party heard, as nodes of one arena.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from protocol.arithmetic.tape import derivations
from protocol.arrays import Ints
from protocol.errors import Aborted
from protocol.party.party import iteration_of
from protocol.party.role import Effects, Send, role_of
from protocol.party.view import REJECTED, Broken, Record
from protocol.schemes.base import Setting
from protocol.wire.fields import (
    DigestField,
    DigitsField,
    FactorsField,
    FieldKind,
    FloatsField,
    ItemsField,
    KeysField,
    RingField,
    field_kinds,
)
from protocol.wire.messages import (
    CommitInFull,
    Event,
    ItemFactorsInFull,
    ItemFactorsWithPieces,
    Message,
    WelcomeInFull,
)
from sim.audit.algebra.linear_forms import Arena, Forms
from sim.audit.algebra.symbolic import FormRows, SymbolicReals, SymbolicRing, followed, proportional
from sim.audit.families.registry import family_of
from sim.audit.together import Rerun, Together, parties_of
from sim.views.evidence import Case

OPENINGS = 8  # of a server, that floats are compared with
ENVELOPES = (WelcomeInFull, CommitInFull, ItemFactorsInFull, ItemFactorsWithPieces)  # draws of a key, not sums


@dataclass(slots=True, eq=False)
class Heard:
    """Everything that one party received and the algebra follows."""

    nodes: list[Ints] = field(default_factory=list)  # forms of ring values and of marked reals
    keys: set[bytes] = field(default_factory=set)  # received, sent or drawn from, and the seed of its tape
    clear: set[str] = field(default_factory=set)  # senders of reals without a form: taken as known exactly
    published: bool = False  # a server sent reals without a form: envelopes, or a model
    model: bool = False  # these are a model, made from all users' data by a scheme without factors
    sightings: list[tuple[int, Ints]] = field(default_factory=list)  # (t, items): it received v_j(t) of these items

    @property
    def has_figures(self) -> bool:
        """Tell whether the party received numbers that a server computed."""
        return self.published or bool(self.sightings)


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """Sums that were opened. If they moved item factors, v_j(t) and v_j(t+1) together give them away."""

    party: str  # the party that opened them
    iteration: int
    items: Ints  # the item whose factors each sum moved; −1: no item
    nodes: Ints


class Unfollowed(NamedTuple):
    """A field of which some messages have numbers without a known form."""

    sender: str
    receiver: str
    kind: str
    field: str
    messages: int


@dataclass(frozen=True, slots=True, eq=False)
class Hearing:
    forms: Forms
    arena: Arena
    heard: dict[str, Heard]
    releases: list[Released]
    complete: bool  # every view was read to its end
    run_id: bytes
    seeds: frozenset[bytes] = frozenset()  # of all tapes
    unfollowed: list[Unfollowed] = field(default_factory=list)


class Actor(Rerun):
    def __init__(self, case: Case, party: str, arena: Arena) -> None:
        super().__init__(case, party)
        params = case.card.params
        self.ring = SymbolicRing(params.ring_bits, arena, party, params.ring_is_prime)
        self.reals = SymbolicReals(arena, party, _has_atom(case))
        self.heard = Heard()
        self.openings = deque[FormRows](maxlen=OPENINGS)  # the latest sums that it turned into floats, last first
        self.items: Ints = np.zeros(0, np.int64)  # rated by a user; empty for a server
        if self.brought.inputs is not None:
            self.items = self.brought.inputs.items.astype(np.int64)
        setting = Setting(params, case.card.run_id, self.ring, self.reals, case.card.setting.envelopes)
        self.role = case.card.make_role(party, setting, self.brought.tape, self.brought.inputs)


class SymbolicRerun(Together[Actor]):
    def __init__(self, case: Case, until: int | None = None, places: Ints | None = None) -> None:
        """Open all views; `until` is the iteration before which to stop, `places` the rows that are followed: all."""
        params, family = case.card.params, family_of(case.card.scheme)
        self._arena = Arena(places, lambda label: family.zero_chance(params, label))
        with derivations(self._arena.derive):
            actors = {party: Actor(case, party, self._arena) for party in parties_of(case, "algebra")}
        super().__init__(case, actors, until)
        self._releases: list[Released] = []
        self._doubtful: list[tuple[tuple[str, str, str, str], Ints]] = []  # sent when something was unfollowed
        self._fields = {cls: field_kinds(cls) for cls in case.card.scheme.messages}

    def run(self) -> Hearing:
        with derivations(self._arena.derive):
            self.play()
        seeds = {party: self.case.tape_seed(party) for party in self.reruns}
        for party, actor in self.reruns.items():
            actor.heard.keys |= {*actor.ring.drawn, seeds[party]}
        complete = all(actor.next() is None for actor in self.reruns.values())
        heard = {party: self.reruns[party].heard if party in self.reruns else Heard() for party in self.case.parties}
        forms = Forms(self._arena)
        told = self._releases, complete, self.case.card.run_id, frozenset(seeds.values()), self._unfollowed(forms)
        return Hearing(forms, self._arena, heard, *told)

    def _unfollowed(self, forms: Forms) -> list[Unfollowed]:
        """Count, by roles and field, the messages with numbers that could not be followed."""
        counts = Counter(place for place, nodes in self._doubtful if forms.has_unfollowed(nodes))
        return [Unfollowed(*place, count) for place, count in counts.items()]

    def tick(self, rerun: Actor, event: Event) -> Effects:
        return self._do(rerun, rerun.role.tick, event)

    def hear(self, rerun: Actor, record: Record, sender: str, message: Message) -> Effects:
        before = len(rerun.heard.nodes)
        self._note(rerun, sender, message)
        if record.type == REJECTED:
            return []
        recorded = rerun.recorded()
        if type(recorded) is not type(message) or not _same(recorded, message, self._fields[type(message)]):
            raise Broken(f"record {record.number} of {rerun.party} is not what the role of {sender} sends; see replay")
        arrived = rerun.heard.nodes[before:] if sender not in self.case.card.scheme.servers else []
        return self._do(rerun, rerun.role.receive, sender, message, arrived=arrived)

    def _do(self, actor: Actor, act: Callable[..., Effects], *given: Any, arrived: Sequence[Ints] = ()) -> Effects:
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
        if opened is not None:
            actor.openings.appendleft(opened)
            there = self._arena.chosen(len(opened))
            items = np.full(len(opened), -1) if moved is None or len(moved) != len(opened) else moved.astype(np.int64)
            items, nodes = items[there], opened.nodes[there]
            if not any(np.array_equal(nodes, one) for one in arrived):
                self._releases.append(Released(actor.party, before, items, nodes))
        return effects

    def sent(self, rerun: Actor, effect: Send) -> None:
        self._keys(rerun, effect.message)

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
            if kind is FactorsField and (told := self._told(actor, sender, message, len(value))) is not None:
                heard.sightings.append((iteration_of(message), told))
                continue
            if kind is RingField and isinstance(value, np.ndarray):
                value = followed(value, self._arena, sender)
            elif self._must_have_form(sender, message, name, kind):
                heard.published = True
                value = self._form_of(sender, value)
            if isinstance(value, FormRows):
                nodes = value.nodes[self._arena.chosen(len(value))]
                heard.nodes.append(nodes)
                if self._arena.doubtful:
                    place = (role_of(sender), role_of(actor.party), type(message).__name__, name)
                    self._doubtful.append((place, nodes))
            elif kind.is_number and len(value):
                if sender in self.case.card.scheme.servers:
                    heard.published = True
                    heard.model |= not self.case.card.scheme.factorizes
                else:
                    heard.clear.add(sender)

    def _must_have_form(self, sender: str, message: Message, name: str, kind: type[FieldKind]) -> bool:
        """Tell whether a field has numbers of a server that are neither envelopes nor a model."""
        scheme = self.case.card.scheme
        if sender not in scheme.servers or not scheme.factorizes or not issubclass(kind, FloatsField):
            return False
        return not (name == "envelopes" and isinstance(message, ENVELOPES))

    def _form_of(self, sender: str, numbers: Any) -> FormRows:
        """Find the sums that `numbers` are, up to a factor for each row; else they have no known form."""
        for opened in self.reruns[sender].openings:
            if len(numbers) and proportional(numbers, opened.values):
                return FormRows(numbers, opened.nodes)
        return followed(numbers, self._arena, sender)

    def _told(self, actor: Actor, sender: str, message: Message, rows: int) -> Ints | None:
        """Find the items whose factors a message has: those it names, all, the receiver's, or the sender's."""
        every = np.arange(self.case.card.params.n_items)
        named = [getattr(message, name) for name, kind in self._fields[type(message)] if kind is ItemsField]
        candidates = [*named, every, actor.items, self.reruns[sender].items]
        return next((items.astype(np.int64) for items in candidates if len(items) == rows), None)


def _has_atom(case: Case) -> bool:
    """Tell whether randomization may leave a value unchanged, so that zeros do not prove missing noise."""
    digits = any(kind is DigitsField for message in case.card.scheme.messages for _, kind in field_kinds(message))
    return digits and not math.isinf(case.card.params.epsilon)


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
