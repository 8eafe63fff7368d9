"""The launcher: it starts every party as a process of its own (or users in packs), follows the run, and cleans up.

A process that ends too early is restarted and resumes from the views of its parties; the other processes are told, so
that they ask it for the frames that were lost. With `on_death="drop"` a user whose process ended stays away.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from actors.crowd.secret_rows import pack_ranks
from actors.faults import Faults
from actors.journal import make_view_folders, view_end, view_path
from actors.keys import Roster, Secret
from actors.launch import reports
from actors.launch.forkserver import Nursery
from actors.launch.standstill import Standstill
from actors.metering.observer import Observer
from actors.metering.outcome import Attendance, Books, EventsFor, OnIteration, OnJoin, OnReplay, Outcome
from actors.seats import MOST_NAMED
from actors.timers import Watchdog
from actors.transport import ipc_folders
from protocol.errors import Aborted, Bug, Reason
from protocol.party.role import RECOMMENDER, role_of, user_index
from protocol.wire.messages import SETUP, Due, Event, Gone

_STARTUP_SECONDS = 120.0
_MOST_RESTARTS = 20  # of one party, unless faults are injected
_SILENCE = 0.2
_ASK_SOON = 0.3  # seconds of silence after which a server is asked again, if frames are lost by injected faults
_STALLED_DEADLINES, _STALLED_SECONDS = 4, 60.0  # without movement the run ends after the sum of both
_NO_MOVEMENT = (reports.Alive, reports.Missed, reports.Waits)
_STATUS_SECONDS = 5.0  # in which a server reports the parties that it waits for
_MOST_COMPUTED = 11  # times that patience is renewed for a server that computes in a single step
_LAST_SECONDS = 10.0  # minimum time for the last users to finish after the servers
_CLOSING_SECONDS = 30.0  # in which processes whose parties are all done close their connections


@dataclass(frozen=True, slots=True)
class Staff:
    """The layout of a run on this machine."""

    run_folder: Path
    views: frozenset[str]
    deadline: float
    transport: str = "tcp"
    users_per_process: int = 1
    on_death: str = "restart"  # of a user's process; "drop": the run goes on without the user
    faults: Faults | None = None
    resume: bool = False  # every party resumes from its view
    gone: frozenset[str] = frozenset()  # users that had gone for good before the run was stopped
    lock: int | None = None  # a descriptor that every process holds open
    reported: int = SETUP - 1  # the last iteration whose figures are known from before the run was stopped
    connected: int | None = None  # users that may be connected at once (`crowd.py`); None: all of them


class Launch:
    def __init__(
        self,
        roster: Roster,
        secrets: Sequence[Secret],
        staff: Staff,
        on_iteration: OnIteration | None = None,
        events_for: EventsFor | None = None,
        on_replay: OnReplay | None = None,
        on_join: OnJoin | None = None,
    ) -> None:
        self._events_for = events_for
        self._on_replay = on_replay
        self._on_join = on_join
        self._told = -1  # the latest iteration whose outside events were sent
        self._replaying: dict[str, int] = {}  # servers that replay their views, and the iteration they have reached
        self._latest: dict[str, Event] = {}
        self._tries: Counter[str] = Counter()
        self._roster = roster
        self._secrets = {secret.seat.party: secret for secret in secrets if secret.seat.party not in staff.gone}
        self._gone = {user_index(party) for party in staff.gone}
        self._staff = staff
        self._servers = roster.card.scheme.servers
        self._endpoints: dict[str, str] = {}
        self._alive: dict[int, list[str]] = {}
        self._ordered: dict[str, tuple[list[str], bool]] = {}  # by first party: packs without a process, and resume
        self._waiting = set(self._secrets)  # parties whose end was not reported yet
        self._left: set[str] = set()  # users that did not finish in time after the servers
        self._resumed: set[str] = set()
        self._attendance = Attendance()
        self._servers_done: float | None = None
        self._quitting = False
        self._orphans = 0  # processes that ended before they had a party
        self._users_per_process = max(1, staff.users_per_process)
        self.outcome = Outcome(gone=sorted(staff.gone, key=user_index))
        self._books = Books(self._servers, self.outcome, on_iteration, staff.reported)
        self._watchdog = Watchdog(_STALLED_SECONDS + _STALLED_DEADLINES * staff.deadline)
        self._statuses: dict[str, reports.Waits] = {}  # by server, since the last request
        self._computed = 0  # times that patience was renewed since the last movement, because a server computed
        self._heard: dict[str, int] = {}  # by host of a crowd, the frames that its last sign of life counted
        size = Observer.size(roster.card.params)
        self._observer_fd = os.memfd_create("keyhole-observer")
        os.ftruncate(self._observer_fd, size)
        self.observer = Observer(roster.card.params, memoryview(mmap.mmap(self._observer_fd, size)))

    def run(self) -> Outcome:
        self._started = self._news = time.monotonic()
        ipc_folders.remove_those_of_the_dead()
        self._sockets = ipc_folders.SocketFolder() if self._staff.transport == "ipc" else None
        make_view_folders(str(self._staff.run_folder), self._staff.views)
        locks = [] if self._staff.lock is None else [self._staff.lock]
        locks += [self._sockets.lock] if self._sockets else []
        self._nursery = Nursery(self._observer_fd, self._staff.run_folder / "actors.log", locks)
        try:
            self._nursery.prepare(self._common())
            if not self._staff.resume:
                self._happen(0)
            self._start_servers()
            self._start_users()
            while self._waiting or self._closing():
                self._pump(_SILENCE)
                self._check_the_last()
                if not self._waiting and not self._quitting:
                    self._quitting = True
                    self._nursery.tell_all(reports.Quit())
        except Aborted as abort:
            self.outcome.abort = abort
        except KeyboardInterrupt:
            self.outcome.abort = Aborted(Reason.INTERRUPTED)
        finally:
            self._stop()
        self._conclude()
        return self.outcome

    # --- starting ---------------------------------------------------------------------------------------------

    def _common(self) -> reports.Common:
        staff = self._staff
        return reports.Common(
            [folder for folder in sys.path if os.path.isabs(folder)],  # a person's own scheme may be there
            self._roster.to_dict(),
            str(staff.run_folder),
            staff.deadline,
            staff.faults.to_list() if staff.faults else None,
            staff.connected,
            _ASK_SOON if staff.faults and staff.faults.rate else None,
        )

    def _start(self, parties: Sequence[str], resume: bool) -> None:
        """Make the next idle process the host of `parties`, from the beginning or, with `resume`, from their views."""
        self._ordered[parties[0]] = (list(parties), resume)
        if resume:
            self._replaying |= {party: SETUP for party in parties if party in self._servers}
        secrets, most = [self._secrets[party] for party in parties], self._staff.connected
        crowd = most is not None and parties[0] not in self._servers
        order = reports.Hosting(
            list(parties),
            [] if crowd else [secret.to_dict() for secret in secrets],
            [party for party in parties if party in self._staff.views],
            self._endpoints,
            {party: self._bind(party) for party in parties if party in self._servers},
            list(parties) if resume else [],
            min(map(self._books.known, parties)),
            self._tries[parties[0]],
            most and max(1, most * len(parties) // self._roster.card.params.n_users),
        )
        self._nursery.order(order, pack_ranks(secrets) if crowd else None)
        for party in parties:  # it may not have received these events; a role ignores those that it knows
            if party in self._latest:
                self._say(party, self._latest[party])
            for user in sorted(self._gone) if party in self._servers else ():
                self._say(party, Gone(user))

    def _bind(self, server: str) -> str:
        """Return the address of `server` in its earlier life or, at its first start, any free one."""
        return self._endpoints.get(server) or (self._sockets.address(server) if self._sockets else "tcp://127.0.0.1:*")

    def _start_servers(self) -> None:
        for server in reversed(self._servers):  # an earlier server connects to the later ones
            self._nursery.fork(1)
            self._start([server], self._staff.resume)
            self._await(server, self._endpoints)
        if self._staff.resume:  # the recommender's iteration determines which users are online
            self._await(RECOMMENDER, self._resumed)

    def _await(self, server: str, known: Any) -> None:
        patience = time.monotonic() + _STARTUP_SECONDS
        while server not in known:
            if time.monotonic() > patience and known is self._endpoints:
                raise Aborted(Reason.PARTY_DIED, f"{server} did not start within {_STARTUP_SECONDS:.0f} s")
            self._pump(_SILENCE)

    def _start_users(self) -> None:
        users = [party for party in self._secrets if party not in self._servers]
        packs = [users[at : at + self._users_per_process] for at in range(0, len(users), self._users_per_process)]
        self._nursery.fork(len(packs))
        for pack in packs:
            self._start(pack, self._staff.resume)
            self._pump(0)
            while self._nursery.has_idle_orders():  # each waiting order keeps a descriptor open
                self._pump(_SILENCE)
        self.outcome.processes |= {"user": len(packs), **dict.fromkeys(map(role_of, self._servers), 1)}

    # --- following ----------------------------------------------------------------------------------------------

    def _pump(self, timeout: float | None) -> None:
        self._dispatch(timeout)
        if self._watchdog.is_stalled():
            self._judge_standstill()

    def _dispatch(self, timeout: float | None) -> None:
        told, exits = self._nursery.listen(timeout)
        for report in told:
            self._news = time.monotonic()
            if not isinstance(report, _NO_MOVEMENT):
                self._move()
            self._hear(report)
        for exited in exits:
            self._move()
            self._exited(exited.pid, exited.code)

    def _hear(self, report: Any) -> None:
        """Take note of the `report` of a host."""
        match report:
            case reports.Started(pid, parties):
                self._alive[pid] = parties
                self._ordered.pop(parties[0], None)
            case reports.Listens(server, endpoint):
                self._listens(server, endpoint)
            case reports.Joining(users):
                if self._on_join:
                    self._on_join(users)
            case reports.Finished():
                self._finished(report)
            case reports.Missed(server, users):
                self._nursery.call(server, users)
            case reports.Alive(host, heard):
                self._is_alive(host, heard)
            case reports.Waits():
                self._statuses[report.party] = report
            case reports.Replaying(party, iteration):
                self._replays(party, iteration)
            case reports.Resumed():
                self._has_resumed(report)
            case reports.Ended(party):
                if party in self._waiting:  # else it is a server that was restarted after its end
                    self._waiting.discard(party)
                    self._books.end(report)
            case reports.Closed():
                self._books.closed(report)
            case reports.Failed():
                raise report.error()
            case _:
                raise Bug(f"A host sent what is no report: {report!r}.")

    def _move(self) -> None:
        self._watchdog.moved()
        self._computed = 0

    def _judge_standstill(self) -> None:
        """Abort the run and say what it waits for, unless something moves after all or a server computes."""
        standstill = Standstill(self._servers, self._alive)
        self._statuses = {}
        for server in self._servers:
            self._nursery.tell(server, reports.Ask())
        until = time.monotonic() + _STATUS_SECONDS
        while len(self._statuses) < len(self._servers) and time.monotonic() < until:
            self._dispatch(_SILENCE)
        if not self._watchdog.is_stalled():
            return
        if standstill.is_computing(self._statuses) and self._computed < _MOST_COMPUTED:
            self._computed += 1
            self._watchdog.moved()
            return
        idle = [first for first in self._ordered if first not in self._servers]
        parts = [f"no process has taken the place of {', '.join(idle[:MOST_NAMED])}"] if idle else []
        parts += standstill.describe(self._statuses)
        seconds = self._watchdog.patience * (1 + self._computed)
        raise Aborted(Reason.STALLED, f"for {seconds:.0f} s: {'; '.join(parts)}")

    def _check_the_last(self) -> None:
        """Give up waiting for users that have not finished within a deadline after the servers were done."""
        if not self._waiting or not self._waiting.isdisjoint(self._servers):
            return
        if self._servers_done is None:
            self._servers_done = time.monotonic()
        if time.monotonic() > max(self._servers_done, self._news) + max(self._staff.deadline, _LAST_SECONDS):
            self.outcome.gone += sorted(self._waiting, key=user_index)  # the run is complete without them
            self._left |= self._waiting
            self._waiting.clear()

    def _closing(self) -> bool:
        """Tell whether processes are still closing their connections; those with users that were given up do not count.
        """
        busy = any(self._left.isdisjoint(parties) for parties in self._alive.values())
        return busy and time.monotonic() < self._news + _CLOSING_SECONDS

    def _exited(self, pid: int, code: int) -> None:
        parties = self._alive.pop(pid, [])
        if not parties:  # an order that it has not taken waits for the next process
            self._orphans += 1
            if self._orphans > _MOST_RESTARTS:
                raise Aborted(Reason.PARTY_DIED, f"processes that had no party yet, exit code {code}")
            self._nursery.fork(1)
            for ordered, resume in [order for first, order in self._ordered.items() if self._nursery.is_lost(first)]:
                self._start(ordered, resume)  # it had taken its order and not reported that
            return
        users = all(user_index(party) >= 0 for party in parties)
        missing = [party for party in parties if party in self._waiting]
        if not missing and (users or not self._waiting):  # a server is needed until every party has ended
            return
        if users and self._staff.on_death == "drop":
            self._drop(missing)
        elif self._can_resume(parties):
            self._tries.update(parties)
            self.outcome.restarts += 1
            self._nursery.fork(1)
            self._start(parties, resume=True)
        else:
            raise Aborted(Reason.PARTY_DIED, f"{', '.join(parties[:3])}, exit code {code}")

    def _can_resume(self, parties: list[str]) -> bool:
        """Tell whether `parties` can be restarted: all keep a view, users do not take turns, and restarts were few."""
        if self._staff.connected is not None:
            return False
        often = any(self._tries[party] >= _MOST_RESTARTS for party in parties) and self._staff.faults is None
        return self._staff.views.issuperset(parties) and not often

    def _drop(self, parties: list[str]) -> None:
        """Continue without the users `parties`; the servers are told, so that they do not wait for them."""
        self._waiting.difference_update(parties)
        self.outcome.gone += parties
        for party in parties:
            self._gone.add(user_index(party))
            for server in self._servers:
                self._say(server, Gone(user_index(party)))

    def _happen(self, iteration: int) -> None:
        """Send the outside events before `iteration`, once, to the parties that are still there.

        Events of earlier iterations of a resumed run are not sent: a user that starts is sent its latest event, and the
        earlier ones are in its view.
        """
        for each in range(self._told + 1, iteration + 1):
            for party, event in self._events_for(each) if self._events_for else ():
                if user_index(party) in self._gone:
                    continue
                if isinstance(event, Due):
                    event = Due(event.iteration, tuple(user for user in event.users if user not in self._gone))
                self._latest[party] = event
                if each == iteration:
                    self._say(party, event)
        self._told = max(self._told, iteration)

    def _say(self, party: str, event: Event) -> None:
        self._nursery.tell(party, reports.Happens(party, type(event).__name__, list(dataclasses.astuple(event))))

    def _listens(self, server: str, endpoint: str) -> None:
        again = server in self._endpoints
        self._endpoints[server] = endpoint
        if again:
            self._nursery.tell_all(reports.Restarted(server))

    def _is_alive(self, host: str, heard: int) -> None:
        """Count progress in the host of a crowd as movement, since its users may take minutes to join."""
        if self._heard.get(host) != heard:
            self._heard[host] = heard
            self._move()

    def _replays(self, party: str, iteration: int) -> None:
        if party in self._replaying:
            self._replaying[party] = iteration
            if self._on_replay:
                self._on_replay(party, iteration)

    def _has_resumed(self, report: reports.Resumed) -> None:
        party, iteration = report.party, max(report.iteration, 0)
        if self._staff.resume and party not in self._resumed:
            self._attendance.add(party, report.sent, report.received)
        self._resumed.add(party)
        self._replaying.pop(party, None)
        if self._staff.resume and self._resumed.issuperset(self._secrets):
            self.outcome.startup_seconds = self.outcome.startup_seconds or time.monotonic() - self._started
        if party == RECOMMENDER and iteration < self._roster.card.params.iterations:
            self._happen(iteration)

    def _finished(self, report: reports.Finished) -> None:
        """Take note of an iteration or, if it is below 0, of the set-up."""
        following, seconds = report.iteration + 1, report.seconds
        if report.iteration < 0:
            since = time.monotonic() - self._started
            self.outcome.startup_seconds = self.outcome.startup_seconds or since
            seconds = None if seconds is None else since
        elif (
            report.party == RECOMMENDER
            and following < self._roster.card.params.iterations
            and RECOMMENDER not in self._replaying
        ):
            self._happen(following)
        self._books.iteration(report, seconds)

    # --- ending -------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        self._nursery.stop()
        os.close(self._observer_fd)
        if self._sockets:
            self._sockets.remove()

    def _conclude(self) -> None:
        self._books.conclude()
        if self._staff.connected is not None:
            self.outcome.course["connected"] = self._staff.connected  # bytes depend on it
        folder = self._staff.run_folder
        if self.outcome.abort is None:
            self.outcome.item_factors = np.load(folder / "model" / "item_factors.npy", allow_pickle=False)
            return
        for party in self._staff.views:  # the end of each view is recorded, so that a later cut is detected
            if (end := view_end(view_path(str(folder), party))) is not None:
                self.outcome.views[party] = end
