"""What a driver tells about a run, while it goes on and when it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from actors.metering.meter import MOST_PARTIES, Row, Tally
from protocol.errors import Aborted
from protocol.party.role import RECOMMENDER, Facts, user_index
from protocol.party.view import Broken
from protocol.wire.messages import SETUP, Event


@dataclass(frozen=True, slots=True)
class IterationDone:
    iteration: int  # −1: the set-up, when everyone has joined
    seconds: float | None  # unknown for one that was read back from a view
    invited: int
    contributors: int
    tally: Tally  # late set-up comes with an iteration
    course: Facts = field(default_factory=dict)


OnIteration = Callable[[IterationDone], None]
OnJoin = Callable[[int], None]  # so many users have been heard by the recommender
OnReplay = Callable[[str, int], None]  # a server does again what its view says, and is in this iteration
EventsFor = Callable[[int], list[tuple[str, Event]]]  # what comes from outside before an iteration, and to whom


@dataclass(slots=True)
class Outcome:
    item_factors: npt.NDArray[np.float64] | None = None
    abort: Aborted | None = None
    views: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # party -> (records, head of the chain)
    predictions: dict[str, str] = field(default_factory=dict)  # by user, the digest of what it predicts at its end
    rejected: Counter[str] = field(default_factory=Counter)
    strangers: Counter[str] = field(default_factory=Counter)  # connections that were refused, by kind
    rest: Tally = field(default_factory=Tally)  # traffic that was told with no iteration
    course: Facts = field(default_factory=dict)  # at the end
    figures: Facts = field(default_factory=dict)  # what the servers found out on the way
    parties: list[Row] = field(default_factory=list)  # phase, sender, receiver, kind, messages, payload, wire bytes
    parties_note: str | None = None  # why users are not told apart there, in `apart` and in `kernel`
    apart: list[Row] = field(default_factory=list)  # what, sender, receiver, messages, payload, wire bytes
    apart_note: str | None = None  # why it may be more
    kernel: list[Row] | None = None  # server, party, connections, bytes received, bytes sent
    kernel_note: str | None = "The run did not come to its end."  # why there is none
    startup_seconds: float = 0.0
    restarts: int = 0
    gone: list[str] = field(default_factory=list)  # users whose processes ended and were not started again
    processes: dict[str, int] = field(default_factory=dict)
    user_process_uss: list[int] = field(default_factory=list)  # bytes that each user process owned at its end
    peaks: dict[str, int] = field(default_factory=dict)  # by server, the most bytes that its process had in memory


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
    """Holds what resumed parties have exchanged against each other: nobody has received what was not sent.

    A view that was cut behind frames that others have could only be waited for, for ever.
    """

    def __init__(self) -> None:
        self._exchanged: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        self._servers: list[str] = []  # of them; users exchange nothing with each other

    def add(self, party: str, sent: dict[str, int], received: dict[str, int]) -> None:
        """`Broken` names the party whose view is too short."""
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
    """Puts together what the figures of the parties report, and tells an iteration when every server has."""

    def __init__(
        self, servers: Iterable[str], outcome: Outcome, on_iteration: OnIteration | None, reported: int = SETUP - 1
    ) -> None:
        """`reported`: the last iteration whose figures are known already, from before the run was stopped."""
        self._servers = frozenset(servers)
        self._outcome = outcome
        self._on_iteration = on_iteration
        self._pending: dict[int, _Pending] = {}
        self._closed: dict[str, dict[str, Any]] = {}
        self.reported = dict.fromkeys(self._servers, reported)  # the last iteration that each server has reported

    def knows(self, report: dict[str, Any]) -> bool:
        return bool(report["iteration"] <= self.reported[report["party"]])

    def iteration(self, report: dict[str, Any], seconds: float | None) -> None:
        """The recommender's set-up is one too; that of the others comes with their iterations."""
        if self.knows(report):
            return
        number, server = report["iteration"], report["party"]
        self.reported[server] = number
        pending = self._pending.setdefault(number, _Pending())
        pending.tally.add(Tally.from_lists(report))
        pending.course |= report["course"]
        pending.reporters.add(server)
        if server == RECOMMENDER:
            pending.seconds, pending.invited, pending.contributors = seconds, report["invited"], report["contributors"]
        if pending.reporters == (self._servers if number >= 0 else {RECOMMENDER}):
            del self._pending[number]
            if self._on_iteration:
                figures = (pending.seconds, pending.invited, pending.contributors, pending.tally, pending.course)
                self._on_iteration(IterationDone(number, *figures))

    def end(self, report: dict[str, Any]) -> None:
        """Of any party, once."""
        party, outcome = report["party"], self._outcome
        outcome.rejected.update(report["rejected"])
        if report["view"]:
            outcome.views[party] = (report["view"][0], report["view"][1])
        if party in self._servers:
            outcome.rest.add(Tally.from_lists(report))
            outcome.course |= report["course"]
            outcome.figures |= report["figures"]
            return
        if report["result"] is not None:
            outcome.predictions[party] = report["result"]
        if report["uss"] is not None:
            outcome.user_process_uss.append(report["uss"])

    def closed(self, report: dict[str, Any]) -> None:
        self._closed[report["party"]] = report

    def conclude(self) -> None:
        """After the last report. What was told with no iteration is not lost."""
        outcome = self._outcome
        for pending in self._pending.values():
            outcome.rest.add(pending.tally)
        for _, report in sorted(self._closed.items()):
            outcome.strangers.update(report["strangers"])
            outcome.rest.add(Tally.from_lists(report))
            outcome.parties += report["parties"]
            outcome.apart += report["apart"]
            if report["peak"] is not None:
                outcome.peaks[report["party"]] = report["peak"]
            if not report["by_party"]:
                outcome.parties_note = A_CROWD
            if report["again"]:
                outcome.apart_note = SOME_LOST
        if outcome.abort is None:
            self._conclude_kernel()

    def _conclude_kernel(self) -> None:
        """All servers' counts, or why there are none: a comparison of half of them would say nothing."""
        silent = [f"{server} did not say what it had counted." for server in self._servers - self._closed.keys()]
        notes = [report["kernel_note"] for report in self._closed.values() if report["kernel_note"]]
        self._outcome.kernel_note = next(iter(silent + notes), None)
        if self._outcome.kernel_note is None:
            self._outcome.kernel = [
                [server, *row] for server, report in sorted(self._closed.items()) for row in report["kernel"]
            ]
