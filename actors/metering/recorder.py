"""A host's reports to the launcher and the person about its parties: bytes, times, errors, refusals."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from actors.journal import if_full
from actors.launch.reports import Closed, Ended, Finished, Joining, Replaying, Resumed
from actors.metering.meter import AGAIN, ALL, REJECTED, RESEND, UNDELIVERED, Meter, Tally
from actors.metering.observer import HeldOut, Observer
from protocol.errors import during
from protocol.party.party import Outgoing, Party, Step, result_digest
from protocol.party.role import RECOMMENDER, LeadingRecommender, Role, role_of, user_index
from protocol.party.view import CHECKPOINT, EVENT, RECEIVED, SENT, Record
from protocol.party.view import REJECTED as REJECTED_RECORD
from protocol.wire.codec import Codec
from protocol.wire.messages import SETUP, Again

Report = Callable[[tuple[Any, ...]], None]  # given a message of `reports.py`

_AGAIN = Again.__name__
_JOINING_SECONDS = 0.5  # between two reports of the users that have joined
_SIGN_SECONDS = 1.0  # between two reports that a view is being replayed


class Figures:
    """The figures of one party. A server counts every frame that it sends, and those that it receives from users."""

    def __init__(
        self,
        party: str,
        ahead: tuple[str, ...] | None,  # the servers whose client this server is; None for a user
        reported: int,
        report: Report,
        observer: Observer | None,
        held_out: HeldOut | None,
        n_users: int = 0,  # of the run: in a crowd, single users are not counted
    ) -> None:
        self._party = party
        self._ahead = ahead
        self._meter = Meter(party, n_users) if ahead is not None else None
        self.reported = reported  # the driver has the figures of the iterations up to this one
        self._report = report
        self._observer = observer
        self._held_out = held_out
        counted = {RECEIVED, SENT} if self._meter else set()
        self.counted = frozenset(counted | {EVENT, REJECTED_RECORD, CHECKPOINT})  # types of records with figures
        self.iteration = SETUP  # of the party at the last call of `turned`
        self._clock: float | None = None  # None while a view is replayed: the original duration is unknown
        self._ended = self._again = False
        self._joining: set[str] = set()  # parties that the recommender heard from before its first iteration
        self._told = 0.0  # when their number was last reported
        self._sign = time.monotonic()  # when the replay of a view began, or was last reported
        self.rejected: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()  # connections of strangers

    # --- while it works ----------------------------------------------------------------------------------------------

    def received(self, sender: str, step: Step, size: int) -> None:
        if self._clock is None:
            self._clock = time.perf_counter()
        reason = None if step.rejected is None else step.rejected.name
        if reason and not self._ended and not step.unrecorded:
            self.rejected[reason] += 1
        if self.iteration < 0 and self._party == RECOMMENDER:
            self._join(sender)
        if self._meter:
            if sender not in self._meter.greeted:
                self._greet(self._meter, sender, now=True)
            self._count_received(self._meter, sender, step.kind, step.iteration, size, reason)

    def _join(self, sender: str) -> None:
        """Note that `sender` has joined, and report the number of users at intervals, for the person that waits."""
        self._joining.add(sender)
        if (now := time.monotonic()) > self._told + _JOINING_SECONDS:
            self._told = now
            self._report(Joining(sum(user_index(name) >= 0 for name in self._joining)))

    def _greet(self, meter: Meter, sender: str, now: bool) -> None:
        if sender not in (self._ahead or ()):
            meter.greet(sender, now)

    def _count_received(
        self, meter: Meter, sender: str, kind: str, iteration: int, size: int, reason: str | None
    ) -> None:
        """Count a frame from a user; a frame from a server is counted where it is sent."""
        if not sender.startswith("user:"):
            return
        if reason:
            meter.count_apart(REJECTED + reason, sender, self._party, size)
        elif kind == _AGAIN:
            meter.count_apart(AGAIN, sender, self._party, size)
        else:
            meter.received(iteration, sender, kind, size)

    def sent(self, out: Outgoing) -> None:
        if not self._meter:
            return
        if out.kind == _AGAIN:
            self._meter.count_apart(AGAIN, self._party, out.to, len(out.frame))
        elif out.kind == RESEND:
            self._meter.count_apart(RESEND, self._party, out.to, len(out.frame))
        else:
            self._meter.sent(out.iteration, out.to, out.kind, len(out.frame))

    def undelivered(self, to: str, size: int) -> None:
        """Count a frame of `size` bytes that was counted as sent, but did not leave."""
        if self._meter:
            self._meter.count_apart(UNDELIVERED, self._party, to, size)

    def suffered(self, out: Outgoing, leaving: list[bytes]) -> None:
        """Correct the counts after an injected fault: `out` was counted, but the frames `leaving` leave instead."""
        if not self._meter:
            return
        sizes = [len(frame) for frame in leaving]
        if len(out.frame) in sizes:
            sizes.remove(len(out.frame))
        else:
            self.undelivered(out.to, len(out.frame))
        for size in sizes:
            self._meter.count_apart(RESEND, self._party, out.to, size)

    def revoked(self, sender: str, size: int) -> None:
        """Count a frame from a user that has gone for good; it reached no role."""
        if self._meter:
            self._meter.count_apart(REJECTED + "REVOKED", sender, self._party, size)

    def recount(self, record: Record, codec: Codec) -> None:
        """Count one `record` of a view that is replayed, as it was counted the first time."""
        kind, fields, self._again = record.type, record.fields, True
        if kind == REJECTED_RECORD:
            self.rejected[fields[1]] += 1
        elif kind == EVENT and fields[0] == "Refused":
            self.refused[fields[1]] = fields[2]
        if self._meter:
            self._recount(self._meter, kind, fields, codec)

    def _recount(self, meter: Meter, kind: int, fields: list[Any], codec: Codec) -> None:
        if kind == SENT:
            to, name, iteration, size, _ = fields
            meter.sent(iteration, to, name, size)
            return
        asked = kind == EVENT and fields[0] == _AGAIN
        sender = fields[1] if asked else fields[0]
        if asked or kind in (RECEIVED, REJECTED_RECORD):
            self._greet(meter, sender, now=False)
        if asked:
            size = len(codec.encode(Again(fields[2], 0), 0))
            self._count_received(meter, sender, _AGAIN, SETUP, size, None)
        elif kind == REJECTED_RECORD:
            self._count_received(meter, sender, "", SETUP, fields[2], fields[1])
        elif kind == RECEIVED and role_of(sender) == "user":
            self._count_received(meter, sender, *codec.peek(fields[1]), len(fields[1]), None)

    def passed(self, iteration: int) -> None:
        """Add what was recounted before `iteration` to the totals alone: it was reported in an earlier life."""
        if self._meter:
            self._meter.take(iteration - 1)
        self.iteration = iteration

    def watch(self, role: Role, done: bool) -> None:
        if self._observer is not None:
            with during(self._party, "when it was measured"):
                self._observer.watch(self._party, role, done, self._held_out)

    # --- when something is over --------------------------------------------------------------------------------------

    def replaying(self, role: Role) -> None:
        """Report at intervals the iteration that the replay of the party's view has reached."""
        if (now := time.monotonic()) > self._sign + _SIGN_SECONDS:
            self._sign = now
            self._report(Replaying(self._party, role.iteration))

    def resumed(self, party: Party) -> None:
        """Report that `party` has replayed its view, and how many frames that view has sent and received by peer."""
        sent, received = party.counts()
        iteration = party.role.iteration
        self.reported = min(self.reported, iteration - 1)  # iterations of lost views are reported again
        self._report(Resumed(self._party, iteration, sent, received))

    def turned(self, role: Role) -> None:
        """Report the finished iteration if `role` has entered another one; called when a step's frames have left."""
        finished, self.iteration = self.iteration, role.iteration
        if finished == self.iteration or self._ahead is None:
            return
        self._joining.clear()
        if finished < 0 and (self._party != RECOMMENDER or self.iteration < 0):
            return  # other servers report their set-up with the first iteration
        finished = max(finished, SETUP)
        clock, seconds = time.perf_counter(), None
        if self._clock is not None:
            seconds, self._clock = clock - self._clock, clock
        tally = self._meter.take(finished) if self._meter else Tally()
        if finished <= self.reported:
            return
        self._report(Finished(self._party, finished, seconds, *turnout(role), role.facts(), tally.to_lists()))

    def ended(self, party: Party, memory: int | None) -> None:
        self._ended = True
        view, tally = party.view, self._meter.take(ALL) if self._meter else Tally()
        course, figures = ({}, {}) if self._ahead is None else (party.role.facts(), party.role.figures())
        result = None if party.result is None else result_digest(party.result).hex()
        end = [view.records, view.head] if view else None
        rejected = dict(self.rejected)
        self._report(Ended(party.name, end, result, rejected, memory, course, figures, tally.to_lists()))

    def closed(
        self, handshakes: Mapping[str, int], kernel: list[list[Any]] | None, note: str | None, peak: int | None = None
    ) -> None:
        """Report the last figures of a server that closes, with the `kernel` counts or a `note` why there are none.

        `handshakes` gives their number by party, in this life of the server; `peak` is the process's peak memory.
        """
        meter = self._meter
        assert meter is not None
        meter.close_handshakes(handshakes)
        tally = meter.take(ALL).to_lists()  # before the sums, of which it is a part
        self._report(
            Closed(
                self._party,
                dict(self.refused),
                meter.parties(),
                meter.by_party,
                meter.apart(),
                self._again,
                meter.kernel(kernel),
                note,
                peak,
                tally,
            )
        )


def turnout(role: Role) -> tuple[int, int]:
    """Return (invited, contributors) of the latest iteration; zeros for a role that does not know them."""
    return (role.n_invited, role.n_contributors) if isinstance(role, LeadingRecommender) else (0, 0)


def own_memory() -> int | None:
    """Read the bytes that this process shares with no other (USS); None where the kernel does not say."""
    try:
        file = os.open("/proc/self/smaps_rollup", os.O_RDONLY)
    except OSError:
        return None
    lines = os.read(file, 1 << 16).splitlines()
    os.close(file)
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(b"Private_"))


def peak_memory() -> int:
    """Read the peak memory of this process in bytes, shared memory included."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def save_factors(run_folder: str, factors: np.ndarray) -> None:
    """Replace the file of item `factors` in one step, so that a reader never sees half of it."""
    folder = Path(run_folder) / "model"
    part = folder / "item_factors.part.npy"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(part, flags, 0o600), "wb") as file:
            np.save(file, factors)
        os.replace(part, folder / "item_factors.npy")
    except OSError as error:
        raise if_full(error, str(folder)) from error
