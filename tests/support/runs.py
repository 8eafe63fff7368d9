"""Whole runs in one process for tests: users who stay away, faults with a witness, and what views must then hold."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.faults import Faults
from actors.journal import view_path
from actors.metering.outcome import Outcome
from protocol.card import Card, Seat, seat_party
from protocol.errors import Rejected
from protocol.party.party import Outgoing, Step
from protocol.party.role import RECOMMENDER, user_index
from protocol.party.signing import make_signer
from protocol.party.view import EVENT, RECEIVED, REJECTED, Record, read_records
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedUser
from protocol.wire.messages import Again, Due, Event, Gone, ItemFactors, ItemFactorsInFull, MaskedGradient
from sim.drivers.faulty import FaultyInProcess, FaultyPlayed
from sim.drivers.inprocess import Edge, InProcess, Played
from sim.plan.churn import ChurnPlan
from support.basics import small_run


def long(test: Any) -> Any:
    """Mark a test at full length, which is skipped unless KEYHOLE_LONG is set."""
    skipped = pytest.mark.skipif(not os.environ.get("KEYHOLE_LONG"), reason="Set KEYHOLE_LONG=1 to run it: minutes.")
    return pytest.mark.long(skipped(test))


def play(
    card: Card, seats: list[Seat], folder: Path | None = None, views: Iterable[str] = (), **options: Any
) -> InProcess:
    """Run to the end; check that nothing aborts, and that only late messages are refused."""
    where = None if folder is None else str(folder)
    run = Directed(card, seats, run_folder=where, with_view=frozenset(views), **options)
    outcome = run.run()
    assert outcome.abort is None
    assert set(outcome.rejected) <= ({"WRONG_ITERATION"} if options.get("silent") else set())
    return run


def factors_of(card: Card, seats: list[Seat], **options: Any) -> np.ndarray:
    factors = play(card, seats, **options).outcome.item_factors
    assert factors is not None
    return factors


End = tuple[bytes, dict[str, str]]  # item factors, and by user the digest of what it predicts


def end_of(outcome: Outcome, predict: bool = True) -> End:
    """Return the results of a completed run, at the recommender and at every user, to compare bit for bit.

    Users of a scheme that does not factorize `predict` when they are asked, so their views have no digest of it.
    """
    assert outcome.abort is None and outcome.item_factors is not None and bool(outcome.predictions) is predict
    return outcome.item_factors.tobytes(), outcome.predictions


class Skipper(MaskedUser):
    """A user that is offline in some iterations: it neither steps nor answers."""

    skipped: frozenset[int] = frozenset()

    def receive(self, sender, message):
        if isinstance(message, ItemFactors | ItemFactorsInFull) and message.iteration in self.skipped:
            return []
        return super().receive(sender, message)


class MaskedWithSkippers(Masked):
    def __init__(self, absent: dict[int, set[int]]) -> None:
        self._absent = absent  # iteration -> users

    def make_role(self, party, setting, tape, inputs):
        if not party.startswith("user:"):
            return super().make_role(party, setting, tape, inputs)
        user = Skipper(setting, tape, inputs)
        number = int(party.partition(":")[2])
        user.skipped = frozenset(t for t, absent in self._absent.items() if number in absent)
        return user


def with_skippers(card: Card, absent: dict[int, set[int]]) -> Card:
    return dataclasses.replace(card, scheme=MaskedWithSkippers(absent))


def unit(rows: np.ndarray) -> list[list[float]]:
    return [[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in rows.tolist()]


def by_item(items: Iterable[int], rows: np.ndarray) -> dict[int, list[Any]]:
    return dict(zip([int(item) for item in items], rows.tolist(), strict=True))


# --- runs in which a test decides the order of arrival, whose answers are late, and who goes for good ---------------

Users = Mapping[int, frozenset[int]]  # by iteration


class _Directing(InProcess):
    def __init__(
        self,
        card: Card,
        seats: Iterable[Seat],
        *faults: Any,
        order: int | None = None,
        silent: Users | None = None,
        gone: Users | None = None,
        **options: Any,
    ) -> None:
        """`order` seeds the draw of the edge that delivers next. `silent`: users whose answers come too late; `gone`:
        users that end in that iteration."""
        super().__init__(card, seats, *faults, **options)
        self._random = None if order is None else random.Random(order)
        self._silent, self._gone = silent or {}, gone or {}
        self.late: list[tuple[Edge, bytes]] = []
        self.left: set[int] = set()
        rule = self._events_for
        self._events_for = rule and (lambda iteration: list(filter(None, map(self._without_left, rule(iteration)))))

    def _without_left(self, happening: tuple[str, Event]) -> tuple[str, Event] | None:
        name, event = happening
        if user_index(name) in self.left:
            return None
        if isinstance(event, Due):
            event = Due(event.iteration, tuple(user for user in event.users if user not in self.left))
        return name, event

    def _finished(self) -> bool:
        return all(party.done or user_index(name) in self.left for name, party in self.parties.items())

    def _next_edge(self) -> Edge:
        if self._random is None:
            return super()._next_edge()
        at = self._random.randrange(len(self._fifo))
        edge = self._fifo[at]
        self._fifo[at] = self._fifo[-1]
        self._fifo.pop()
        return edge

    def put(self, edge: Edge, frame: bytes) -> None:
        user = user_index(edge[0])
        silent = any(user in users for users in self._silent.values())
        message = self.card.codec.decode(frame)[1] if silent else None
        if isinstance(message, MaskedGradient) and user in self._silent.get(message.iteration, ()):
            self.late.append((edge, frame))
        else:
            super().put(edge, frame)

    def _settle(self, name: str, step: Step) -> None:
        before = self._cast[name].figures.iteration
        super()._settle(name, step)
        if name == RECOMMENDER and before != self._cast[name].figures.iteration:
            late, self.late = self.late, []
            for (sender, receiver), frame in late:
                if user_index(sender) not in self.left and not self.parties[receiver].done:
                    super().put((sender, receiver), frame)

    def lose(self, iteration: int) -> None:
        for user in sorted(self._gone.get(iteration, frozenset()) - self.left):
            self.left.add(user)
            self._tell(RECOMMENDER, Gone(user))


class Leaving(Played):
    """A performer of a directed run."""

    driver: _Directing

    def leave(self, out: Outgoing) -> None:
        super().leave(out)
        if out.kind == "OpenSum":
            self.driver.lose(out.iteration)

    def gone(self, user: int) -> None:
        if self.party.name == RECOMMENDER:
            self.driver.left.add(user)


class LeavingFaulty(Leaving, FaultyPlayed):
    """A performer of `DirectedFaulty`."""

    driver: DirectedFaulty


class Directed(_Directing):
    kind = Leaving


class DirectedFaulty(_Directing, FaultyInProcess):
    kind = LeavingFaulty

    def _tell(self, name: str, event: Event) -> None:
        if isinstance(event, Gone):
            self._outside.append((name, event))
        else:
            super()._tell(name, event)

    def _tell_again(self, name: str) -> None:
        super()._tell_again(name)
        if name == RECOMMENDER:
            self._outside.extend((name, Gone(user)) for user in sorted(self.left))


# --- runs with faults, and a witness ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Staged:
    """A small run, and its result when nothing goes wrong."""

    card: Card
    seats: list[Seat]
    churns: bool
    options: dict[str, Any]

    @property
    def everyone(self) -> frozenset[str]:
        return frozenset(seat.party for seat in self.seats)

    def settings(self, folder: Path | None = None) -> dict[str, Any]:
        """Return the options of a driver; each driver needs a new churn plan."""
        plan = ChurnPlan(self.card.params.n_users, 0.6, 0.3, bytes([2]) * 32)
        events = {"events_for": plan.events} if self.churns else {}
        where = {} if folder is None else {"run_folder": str(folder)}
        return {**where, "with_view": self.everyone, **events, **self.options}

    def undisturbed(self, folder: Path) -> End:
        return self.end_of(Directed(self.card, self.seats, **self.settings(folder)).run())

    def end_of(self, outcome: Outcome) -> End:
        return end_of(outcome, self.card.scheme.factorizes)


def staged(scheme: str, wire: str, options: dict[str, Any] | None = None, **settings: Any) -> Staged:
    """Prepare a run with signed views; users of `dynamic` come and go."""
    card, seats = small_run(scheme, wire=wire, **settings)
    signed = [dataclasses.replace(seat, signer=make_signer(bytes(32), seat.party)) for seat in seats]
    return Staged(card, signed, scheme == "dynamic", options or {})


class Witness(LeavingFaulty):
    """Sees what a party of `Witnessed` writes and sends."""

    driver: Witnessed

    def leave(self, out: Outgoing) -> None:
        if out.kind != "Again":  # which has no number, and no record
            self.driver.frames_left += 1
            view = Path(view_path(str(self.driver.folder), self.party.name)).read_bytes()
            name = self.party.name
            assert hashlib.sha256(out.frame).digest() in view, f"{name} sends what it has not written down"
        super().leave(out)

    def write(self, step: Step) -> None:
        """Note the frame that caused a step if its record, the first one, was written: a torn write may lack it."""
        handed, self.driver.handed = self.driver.handed, None
        path = view_path(str(self.driver.folder), self.party.name)
        before = os.path.getsize(path)
        try:
            super().write(step)
        finally:
            if handed and step.records and os.path.getsize(path) - before >= len(step.records[0]):
                self.driver.written[self.party.name].append(handed)


class Witnessed(DirectedFaulty):
    """Sees for every frame that leaves that it is in its sender's view, and which frames a receiver writes down."""

    kind = Witness

    def __init__(self, run: Staged, faults: Faults, folder: Path, **options: Any) -> None:
        super().__init__(run.card, run.seats, faults, **run.settings(folder), **options)
        self.folder = folder
        self.frames_left = 0
        self.silent_rounds = 0
        self.written: dict[str, list[tuple[str, bytes]]] = defaultdict(list)  # by receiver: (sender, frame)
        self.handed: tuple[str, bytes] | None = None

    def _all_ask_again(self) -> None:
        self.silent_rounds += 1
        super()._all_ask_again()

    def _hand(self, sender: str, receiver: str, frame: bytes) -> Step:
        self.handed = (sender, frame)
        return super()._hand(sender, receiver, frame)

    def check_views(self) -> None:
        for seat in self._seats.values():
            records = check_view(self.card, seat, self.folder)
            self._check_each_frame_has_its_record(seat.party, records)

    def _check_each_frame_has_its_record(self, name: str, records: list[Record]) -> None:
        """Check that each frame has a record, in order, with the reason that follows from it and the frames before."""
        accepted: dict[str, list[bytes]] = defaultdict(list)
        expected = [_record_of(self.card, sender, frame, accepted[sender]) for sender, frame in self.written[name]]
        assert [_about_a_frame(record) for record in records if _about_a_frame(record)] == expected


def _record_of(card: Card, sender: str, frame: bytes, accepted: list[bytes]) -> tuple[Any, ...]:
    try:
        number, message = card.codec.decode(frame)
    except Rejected as refusal:
        return (REJECTED, sender, refusal.reason.name, hashlib.sha256(frame).digest())
    if isinstance(message, Again):
        return (EVENT, sender, message.received)
    if number == len(accepted):
        accepted.append(frame)
        return (RECEIVED, sender, frame)
    reason = "GAP" if number > len(accepted) else "REPLAYED"  # never CONFLICT: a retry is the same bytes
    return (REJECTED, sender, reason, hashlib.sha256(frame).digest())


def _about_a_frame(record: Record) -> tuple[Any, ...]:
    if record.type == RECEIVED:
        return (RECEIVED, *record.fields)
    if record.type == REJECTED:
        sender, reason, _, digest, _ = record.fields
        return (REJECTED, sender, reason, digest)
    if record.type == EVENT and record.fields[0] == "Again":
        return (EVENT, *record.fields[1:])
    return ()


def check_view(card: Card, seat: Seat, folder: Path) -> list[Record]:
    """Check that the view is complete, and that a replay of the role does what the view says and nothing else."""
    with open(view_path(str(folder), seat.party), "rb") as stream:
        records = list(read_records(stream))
    party, _ = seat_party(card, seat, with_view=True)
    rest = party.replay(records[2:])
    assert party.done and (rest.records, rest.sends) == ([], [])
    return records
