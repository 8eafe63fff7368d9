"""The stage, the one place where a step of a party becomes durable and its frames then leave: write before you speak.

Every driver performs every step of its parties through a `Performer`. A driver's subclass says how a frame is handed
over and how a timer runs. Figures are taken around a step, and planned faults wrap one (`faults.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from actors.journal import ODD, Journal, Onlooker, broken_after, derive_again, resume_party
from actors.metering.recorder import Figures
from protocol.card import Card, Seat, seat_party
from protocol.party.party import Outgoing, Party, Step
from protocol.party.role import user_index
from protocol.party.view import CHECKPOINT, END, EVENT, SENT, SIGNED, Record
from protocol.wire.messages import Barred, Gone

START = "start"  # the kind of a first step
EVERY = 100  # iterations between two checkpoints of a view
SHARE = 8  # of a view, checkpoints are at most about one part in so many


class Performer:
    """A party at work, with the file of its view and its figures."""

    checkpoints = True  # it may be restored from its view

    def __init__(self, card: Card, seat: Seat, figures: Figures, path: str | None) -> None:
        """Seat the party; `path` is the file of its view, None if it keeps none."""
        self.card, self.seat, self.figures, self.path = card, seat, figures, path
        self.journal: Journal | None = None
        self._mark: int | None = None  # the checkpoint from which the party was restored
        self._due = EVERY  # the iteration from which the view may have its next checkpoint
        self.party, self._opening = seat_party(card, seat, path is not None)

    # --- the first step ----------------------------------------------------------------------------------------------

    def begin(self) -> Step:
        """Begin the view of the party; return its first step."""
        step = self.party.start()
        step.kind = START
        if self.path is not None:
            self.keep(Journal(self.path))
            step.records.insert(0, self._opening)
        return step

    def resume(self) -> Step:
        """Restore the party from its view; return the step in which that ends, with what is yet to be written and sent.
        """
        assert self.path is not None
        onlooker = Onlooker(self.figures.reported, self._passed, self.figures.counted, self._follow)
        self.party, journal, step = resume_party(self.card, self.seat, self.path, onlooker)
        self._put_off()
        step.kind = START
        self.keep(journal)
        return step

    def _passed(self, party: Party, record: Record) -> None:
        """Take from a `record` that is not replayed what the figures need; the last of them is the checkpoint."""
        self.figures.replaying(party.role)
        self._recount(record)
        if record.type == CHECKPOINT:
            self._mark = record.number
            self.figures.passed(record.fields[0])
            self.figures.watch(party.role, False)

    def _follow(self, party: Party, records: Iterable[Record]) -> Iterator[Record]:
        """Follow the replay of the view, so that the figures become those of the first time."""
        self.party, figures = party, self.figures
        for record in records:
            figures.replaying(party.role)
            if record.type not in (SENT, END, SIGNED) and party.role.iteration != figures.iteration:
                figures.watch(party.role, False)
                figures.turned(party.role)
            yield record
            self._recount(record)

    def _recount(self, record: Record) -> None:
        self.figures.recount(record, self.card.codec)
        if record.type == EVENT and record.fields[0] == Gone.__name__:
            self.gone(record.fields[1])

    def keep(self, journal: Journal) -> None:
        """Write the view to `journal` from now on."""
        self.journal = journal

    # --- every step --------------------------------------------------------------------------------------------------

    def receive(self, sender: str, frame: bytes) -> Step:
        """Have the party read `frame`; return the step, which is still to be performed."""
        try:
            step = self.party.receive(sender, frame)
        except ODD as error:
            if self._mark is None:
                raise
            raise broken_after(self._mark) from error
        self.figures.received(sender, step, len(frame))
        if step.wants is not None and self.path is not None:
            step.sends[:0] = self.derive(self.path, *step.wants)
        return step

    def derive(self, path: str, peer: str, first: int, end: int) -> list[Outgoing]:
        """Derive the frames to `peer` from `first` up to `end` from the view, because they are no longer kept."""
        if self.journal:
            self.journal.flush()
        return derive_again(self.card, self.seat, path, peer, first, end)

    def perform(self, step: Step) -> None:
        """Carry out `step`, and take the figures of the party before its frames leave and after they have left."""
        role, memory = self.party.role, self.weigh() if step.done else None
        if step.done or role.iteration != self.figures.iteration:
            self.figures.watch(role, step.done)
        self.carry_out(step)
        self.figures.turned(role)
        if self._due <= role.iteration < self.card.params.iterations:
            self.checkpoint()
        if step.done:
            self.finish()
            self.figures.ended(self.party, memory)
        if step.barred is not None:
            self.perform(self.party.tick(Barred(user_index(step.barred))))

    def carry_out(self, step: Step) -> None:
        """Write what `step` caused to the view, then send it; a long step comes in parts, so that users start early."""
        self.write(step)
        if step.abort is not None:
            raise step.abort
        self.send(step)
        rest = step.rest
        while rest:
            part = self.party.go_on(rest)
            self.write(part)
            self.send(part)
            step.done, rest = step.done or part.done, part.rest

    def write(self, step: Step) -> None:
        if self.journal and step.records:
            self.journal.append(step.records)

    def send(self, step: Step) -> None:
        for out in step.sends:
            self.leave(out)
        for iteration in step.timers:
            self.schedule(iteration)

    def leave(self, out: Outgoing) -> None:
        self.figures.sent(out)
        self.hand_over(out.to, out.frame)

    def checkpoint(self) -> None:
        """Write the state of the party to the view, unless checkpoints would then be too large a part of it."""
        self._put_off()
        state = self.party.state_of(self.party) if self.journal and self.checkpoints else None
        if self.journal and state is not None and SHARE * len(state) <= self.journal.since_checkpoint:
            self.journal.append(self.party.checkpoint(state))
            self.journal.since_checkpoint = 0

    def _put_off(self) -> None:
        self._due = (max(self.party.role.iteration, 0) // EVERY + 1) * EVERY

    def finish(self) -> None:
        """Close the file of the view."""
        if self.journal:
            self.journal.close()
            self.journal = None

    # --- given by the driver -----------------------------------------------------------------------------------------

    def hand_over(self, to: str, frame: bytes) -> None:
        raise NotImplementedError

    def schedule(self, iteration: int) -> None:
        """Deliver `Deadline(iteration)` to the party when the patience of the run with `iteration` ends."""
        raise NotImplementedError

    def weigh(self) -> int | None:
        """Measure the memory of the party's process; None if that says nothing about this party."""
        return None

    def gone(self, user: int) -> None:
        """Note that `user` has gone for good, as the party was told."""
