"""The reports of a driver about a run, during the run and at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from actors.launch.reports import Closed, Ended, Finished
from actors.metering.meter import MOST_PARTIES, Row, Tally
from protocol.arrays import Floats
from protocol.errors import Aborted
from protocol.party.role import RECOMMENDER, Facts, user_index
from protocol.party.view import Broken
from protocol.play import EventsFor as EventsFor
from protocol.wire.messages import SETUP


@dataclass(frozen=True, slots=True)
class IterationDone:
    iteration: int  # −1: the set-up, when every user has joined
    seconds: float | None  # None if it was replayed from a view
    invited: int
    contributors: int
    tally: Tally  # may hold rows of the set-up that were reported late
    course: Facts = field(default_factory=dict)


OnIteration = Callable[[IterationDone], None]
OnJoin = Callable[[int], None]  # given how many users the recommender has heard from
OnReplay = Callable[[str, int], None]  # given a server that replays its view, and the iteration it has reached


@dataclass(slots=True)
class Outcome:
    item_factors: Floats | None = None
    abort: Aborted | None = None
    views: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # party -> (records, head of the chain)
    predictions: dict[str, str] = field(default_factory=dict)  # by user, the digest of its final predictions
    rejected: Counter[str] = field(default_factory=Counter)
    strangers: Counter[str] = field(default_factory=Counter)  # connections that were refused, by kind
    rest: Tally = field(default_factory=Tally)  # traffic that was reported with no iteration
    course: Facts = field(default_factory=dict)  # at the end
    figures: Facts = field(default_factory=dict)  # `Role.figures` of the servers
    parties: list[Row] = field(default_factory=list)  # phase, sender, receiver, kind, messages, payload, wire bytes
    parties_note: str | None = None  # why `parties`, `apart` and `kernel` add up all users
    apart: list[Row] = field(default_factory=list)  # what, sender, receiver, messages, payload, wire bytes
    apart_note: str | None = None  # why `apart` may be incomplete
    kernel: list[Row] | None = None  # server, party, connections, bytes received, bytes sent
    kernel_note: str | None = "The run did not complete."  # why `kernel` is None
    startup_seconds: float = 0.0
    restarts: int = 0
    gone: list[str] = field(default_factory=list)  # users whose processes ended and were not restarted
    processes: dict[str, int] = field(default_factory=dict)
    user_process_uss: list[int] = field(default_factory=list)  # bytes that each user process owned at its end
    peaks: dict[str, int] = field(default_factory=dict)  # by server, the peak memory of its process in bytes


A_CROWD = f"Bytes of single users are kept in runs of up to {MOST_PARTIES:,} users: here they are added up."
SOME_LOST = (
    "At least: a server was started again, and what it had sent again or had been asked for before is in no view."
)


@dataclass(slots=True)
class _Pending:
    """An iteration that not every server has reported yet."""

    tally: Tally = field(default_factory=Tally)
    course: Facts = field(default_factory=dict)
    reporters: set[str] = field(default_factory=set)
    seconds: float | None = None
    invited: int = 0
    contributors: int = 0


class Attendance:
    """Compares the frame counts of resumed parties: no party can have received more than its peer sent.

    If a view lacks frames that other parties have received, the run could only wait for its party for ever.
    """

    def __init__(self) -> None:
        self._exchanged: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        self._servers: list[str] = []  # those added so far; users exchange nothing with each other

    def add(self, party: str, sent: dict[str, int], received: dict[str, int]) -> None:
        """Add the counts of `party` by peer; raise `Broken`, naming the party whose view is too short."""
        is_user = user_index(party) >= 0
        peers = list(self._servers if is_user else self._exchanged)
        self._exchanged[party] = (sent, received)
        self._servers += [] if is_user else [party]
        for peer in peers:
            self._compare(party, peer)
            self._compare(peer, party)

    def _compare(self, sender: str, receiver: str) -> None:
        sent, received = self._exchanged[sender][0].get(receiver, 0), self._exchanged[receiver][1].get(sender, 0)
        if received > sent:
            words = f"has {sent} frames to {receiver}, which has received {received} of them"
            raise Broken(f"the view of {sender} ends too early: it {words}")


class Books:
    """Combines the reports of all parties, and announces an iteration once every server has reported it."""

    def __init__(
        self, servers: Iterable[str], outcome: Outcome, on_iteration: OnIteration | None, reported: int = SETUP - 1
    ) -> None:
        """Begin after `reported`, the last iteration whose figures are known from before the run was stopped."""
        self._servers = frozenset(servers)
        self._outcome = outcome
        self._on_iteration = on_iteration
        self._pending: dict[int, _Pending] = {}
        self._closed: dict[str, Closed] = {}
        self.reported = dict.fromkeys(self._servers, reported)  # the last iteration that each server has reported

    def known(self, party: str) -> int:
        """Return the last iteration whose figures `party` need not report: of a user, one that all servers reported."""
        return self.reported.get(party, min(self.reported.values()))

    def iteration(self, report: Finished, seconds: float | None) -> None:
        """Add a server's `report` of an iteration, which took `seconds`.

        The recommender's set-up is reported as an iteration of its own; that of other servers comes with their first.
        """
        number, server = report.iteration, report.party
        if number <= self.reported[server]:
            return
        self.reported[server] = number
        pending = self._pending.setdefault(number, _Pending())
        pending.tally.add(Tally.from_lists(report.tally))
        pending.course |= report.course
        pending.reporters.add(server)
        if server == RECOMMENDER:
            pending.seconds, pending.invited, pending.contributors = seconds, report.invited, report.contributors
        if pending.reporters == (self._servers if number >= 0 else {RECOMMENDER}):
            del self._pending[number]
            if self._on_iteration:
                figures = (pending.seconds, pending.invited, pending.contributors, pending.tally, pending.course)
                self._on_iteration(IterationDone(number, *figures))

    def end(self, report: Ended) -> None:
        """Add the `report` of a party's end; call this once for each party."""
        party, outcome = report.party, self._outcome
        outcome.rejected.update(report.rejected)
        if report.view:
            outcome.views[party] = (report.view[0], report.view[1])
        if party in self._servers:
            outcome.rest.add(Tally.from_lists(report.tally))
            outcome.course |= report.course
            notes = [*outcome.figures.get("notes", ()), *report.figures.get("notes", ())]
            outcome.figures |= report.figures | ({"notes": notes} if notes else {})
            return
        if report.result is not None:
            outcome.predictions[party] = report.result
        if report.uss is not None:
            outcome.user_process_uss.append(report.uss)

    def closed(self, report: Closed) -> None:
        self._closed[report.party] = report

    def conclude(self) -> None:
        """Complete the outcome after the last report, with the traffic of iterations that were never completed."""
        outcome = self._outcome
        for pending in self._pending.values():
            outcome.rest.add(pending.tally)
        for _, report in sorted(self._closed.items()):
            outcome.strangers.update(report.strangers)
            outcome.rest.add(Tally.from_lists(report.tally))
            outcome.parties += report.parties
            outcome.apart += report.apart
            if report.peak is not None:
                outcome.peaks[report.party] = report.peak
            if not report.by_party:
                outcome.parties_note = A_CROWD
            if report.again:
                outcome.apart_note = SOME_LOST
        if outcome.abort is None:
            self._conclude_kernel()

    def _conclude_kernel(self) -> None:
        """Take the kernel's counts if all servers have them, else the reason: a part of them proves nothing."""
        silent = [f"{server} did not say what it had counted." for server in self._servers - self._closed.keys()]
        notes = [report.kernel_note for report in self._closed.values() if report.kernel_note]
        self._outcome.kernel_note = next(iter(silent + notes), None)
        if self._outcome.kernel_note is None:
            self._outcome.kernel = [
                [server, *row] for server, report in sorted(self._closed.items()) for row in report.kernel or ()
            ]
