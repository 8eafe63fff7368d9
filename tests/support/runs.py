"""Whole runs in one process for tests: users who stay away, faults with a witness, and what views must then hold."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections import defaultdict
from collections.abc import Iterable
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
from protocol.party.signing import make_signer
from protocol.party.view import EVENT, RECEIVED, REJECTED, Record, read_records
from protocol.schemes.factorization.masked import Masked, MaskedUser
from protocol.wire.messages import Again, ItemFactors, ItemFactorsInFull
from sim.drivers.faulty import FaultyInProcess
from sim.drivers.inprocess import InProcess
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
    run = InProcess(card, seats, run_folder=where, with_view=frozenset(views), **options)
    outcome = run.run()
    assert outcome.abort is None
    assert set(outcome.rejected) <= ({"WRONG_ITERATION"} if options.get("silent") else set())
    return run


def factors_of(card: Card, seats: list[Seat], **options: Any) -> np.ndarray:
    factors = play(card, seats, **options).outcome.item_factors
    assert factors is not None
    return factors


End = tuple[bytes, dict[str, str]]  # item factors, and by user the digest of what it predicts


def end_of(outcome: Outcome) -> End:
    """Return the results of a completed run, at the recommender and at every user, to compare bit for bit."""
    assert outcome.abort is None and outcome.item_factors is not None and outcome.predictions
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
        return end_of(InProcess(self.card, self.seats, **self.settings(folder)).run())


def staged(scheme: str, wire: str, options: dict[str, Any] | None = None, **settings: Any) -> Staged:
    """Prepare a run with signed views; users of `dynamic` come and go."""
    card, seats = small_run(scheme, wire=wire, **settings)
    signed = [dataclasses.replace(seat, signer=make_signer(bytes(32), seat.party)) for seat in seats]
    return Staged(card, signed, scheme == "dynamic", options or {})


class Witnessed(FaultyInProcess):
    """Checks that every frame that leaves is in its sender's view, and notes which frames each receiver writes down."""

    def __init__(self, run: Staged, faults: Faults, folder: Path, **options: Any) -> None:
        super().__init__(run.card, run.seats, faults, **run.settings(folder), **options)
        self.folder = folder
        self.frames_left = 0
        self.silent_rounds = 0
        self.written: dict[str, list[tuple[str, bytes]]] = defaultdict(list)  # by receiver: (sender, frame)
        self._handed: tuple[str, bytes] | None = None

    def _post(self, name: str, out: Outgoing) -> None:
        if out.kind != "Again":  # it has no number and no record
            self.frames_left += 1
            view = Path(view_path(str(self.folder), name)).read_bytes()
            assert hashlib.sha256(out.frame).digest() in view, f"{name} sends what it has not written down"
        super()._post(name, out)

    def _all_ask_again(self) -> None:
        self.silent_rounds += 1
        super()._all_ask_again()

    def _hand(self, sender: str, receiver: str, frame: bytes) -> Step:
        self._handed = (sender, frame)
        return super()._hand(sender, receiver, frame)

    def _write(self, name: str, step: Step) -> None:
        """Note the frame that caused a step if its record, the first one, was written: a torn write may lack it."""
        handed, self._handed = self._handed, None
        path = view_path(str(self.folder), name)
        before = os.path.getsize(path)
        try:
            super()._write(name, step)
        finally:
            if handed and step.records and os.path.getsize(path) - before >= len(step.records[0]):
                self.written[name].append(handed)

    def check_views(self) -> None:
        for seat in self._seats.values():
            records = check_view(self._card, seat, self.folder)
            self._check_each_frame_has_its_record(seat.party, records)

    def _check_each_frame_has_its_record(self, name: str, records: list[Record]) -> None:
        """Check that each frame has a record, in order, with the reason that follows from it and the frames before."""
        accepted: dict[str, list[bytes]] = defaultdict(list)
        expected = [_record_of(self._card, sender, frame, accepted[sender]) for sender, frame in self.written[name]]
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
