"""Starts every party as a process of its own (or users in packs), follows the run, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from actors.channel import Channel, Mailbox, send_file
from actors.journal import make_view_folders
from actors.keys import Roster, Secret
from actors.meter import Tally
from actors.observer import Observer
from actors.outcome import EventsFor, IterationDone, OnIteration, Outcome
from protocol.errors import Aborted, BadInput, Bug, Reason
from protocol.messages import Due, Event, Gone
from protocol.roles import RECOMMENDER, role_of, user_index

_LONGEST_IPC_FOLDER = 80  # a unix socket path has at most 107 bytes
_STARTUP_SECONDS = 120.0
_STOP_SECONDS = 10.0
_MOST_RESTARTS = 20  # of one user
_SILENCE = 0.2


@dataclass(frozen=True, slots=True)
class Staff:
    """How a run is laid out on this machine."""

    run_folder: Path
    views: frozenset[str]
    deadline: float
    transport: str = "tcp"
    users_per_process: int = 1
    on_death: str = "restart"  # of a user's process; "drop": the run goes on without it


@dataclass(slots=True)
class _Pending:
    """An iteration that not every server has reported yet."""

    tally: Tally = field(default_factory=Tally)
    reporters: set[str] = field(default_factory=set)
    seconds: float = 0.0
    invited: int = 0
    contributors: int = 0


class Launch:
    def __init__(
        self,
        roster: Roster,
        secrets: Sequence[Secret],
        staff: Staff,
        on_iteration: OnIteration | None = None,
        events_for: EventsFor | None = None,
    ) -> None:
        self._events_for = events_for
        self._lines: dict[str, Channel] = {}  # to the process of each party, for events
        self._latest: dict[str, Event] = {}
        self._gone: set[int] = set()
        self._tries: Counter[str] = Counter()
        self._roster = roster
        self._secrets = {secret.seat.party: secret for secret in secrets}
        self._staff = staff
        self._report_iteration = on_iteration
        self._servers = roster.card.scheme.servers
        self._endpoints: dict[str, str] = {}
        self._pending: dict[int, _Pending] = {}
        self._alive: dict[int, list[str]] = {}
        self._waiting = set(self._secrets)  # parties whose end was not reported
        self._servers_done: float | None = None
        self._users_per_process = max(1, staff.users_per_process)
        self.outcome = Outcome()
        params = roster.card.params
        size = Observer.size(params.n_users, params.n_items, params.dim)
        self._observer_fd = os.memfd_create("keyhole-observer")
        os.ftruncate(self._observer_fd, size)
        rating_range = (params.rating_min, params.rating_max)
        shared = memoryview(mmap.mmap(self._observer_fd, size))
        self.observer = Observer(params.n_users, params.n_items, params.dim, rating_range, shared)

    def run(self) -> Outcome:
        self._started = time.perf_counter()
        self._ipc_folder = _short_folder() if self._staff.transport == "ipc" else None
        make_view_folders(str(self._staff.run_folder), self._staff.views)
        self._open_zygote()
        try:
            self._start_servers()
            self._start_users()
            self._happen(0)
            while (self._waiting or self._alive) and not self._overdue():
                self._pump(_SILENCE)
        except Aborted as abort:
            self.outcome.abort = abort
        except KeyboardInterrupt:
            self.outcome.abort = Aborted(Reason.INTERRUPTED)
        finally:
            self._stop()
        self._conclude()
        return self.outcome

    # --- starting ---------------------------------------------------------------------------------------------

    def _open_zygote(self) -> None:
        control, far_control = socket.socketpair()
        self._orders, far_orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reports, far_reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control, self._mailbox = Channel(control), Mailbox(reports)
        descriptors = (far_control.fileno(), far_orders.fileno(), far_reports.fileno(), self._observer_fd)
        self._log = self._staff.run_folder / "actors.log"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OPENBLAS_NUM_THREADS": "1",  # no thread before the forks
            "MALLOC_ARENA_MAX": "1",  # ZeroMQ's two threads need no heaps of their own
        }
        with self._log.open("wb") as log:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "actors.zygote", *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the launcher alone, which then stops the rest
            )
        for far in (far_control, far_orders, far_reports):
            far.close()
        common = {
            "order": "common",
            "path": sys.path,
            "roster": self._roster.to_dict(),
            "run_folder": str(self._staff.run_folder),
            "deadline": self._staff.deadline,
        }
        self._control.send(common)

    def _fork(self, count: int) -> None:
        self._control.send({"order": "fork", "count": count})

    def _order(self, parties: Sequence[str], bind: dict[str, str], resume: bool = False) -> None:
        """The next idle process becomes the host of these parties, or goes on from their views."""
        line, far_line = socket.socketpair()
        channel = Channel(line)
        for old in {id(self._lines[party]): self._lines[party] for party in parties if party in self._lines}.values():
            old.close()
        self._lines |= dict.fromkeys(parties, channel)
        details = {
            "parties": list(parties),
            "secrets": [self._secrets[party].to_dict() for party in parties],
            "views": [party for party in parties if party in self._staff.views],
            "endpoints": self._endpoints,
            "bind": bind,
            "resume": list(parties) if resume else [],
        }
        send_file(self._orders, msgpack.packb(details), far_line)
        far_line.close()
        role = role_of(parties[0])
        if resume:
            return
        self.outcome.processes[role] = self.outcome.processes.get(role, 0) + 1

    def _start_servers(self) -> None:
        patience = time.monotonic() + _STARTUP_SECONDS
        for server in reversed(self._servers):  # an earlier one connects to the later ones
            folder = self._ipc_folder
            self._fork(1)
            self._order([server], {server: f"ipc://{folder}/{server}" if folder else "tcp://127.0.0.1:*"})
            while server not in self._endpoints:
                if time.monotonic() > patience:
                    raise Aborted(Reason.PARTY_DIED, f"{server} did not start within {_STARTUP_SECONDS:.0f} s")
                self._pump(_SILENCE)

    def _start_users(self) -> None:
        users = [party for party in self._secrets if party not in self._servers]
        packs = [users[at : at + self._users_per_process] for at in range(0, len(users), self._users_per_process)]
        self._fork(len(packs))
        for pack in packs:
            self._order(pack, {})
            self._pump(0)  # so that neither side waits for the other with full buffers

    # --- following ----------------------------------------------------------------------------------------------

    def _pump(self, timeout: float | None) -> None:
        sources: list[Channel | Mailbox] = [self._control, self._mailbox]
        ready, _, _ = select.select(sources, [], [], timeout)
        exits = (self._control.receive() or [self._zygote_died()]) if self._control in ready else []
        self._read_reports()  # before the exits: a party reports its end and then exits
        for event in exits:
            self._exited(event)

    def _overdue(self) -> bool:
        """The servers are done, and a user has not taken note within the time that an iteration may take."""
        if self._waiting.isdisjoint(self._servers) and self._servers_done is None:
            self._servers_done = time.monotonic()
        return self._servers_done is not None and time.monotonic() > self._servers_done + self._staff.deadline

    def _zygote_died(self) -> dict[str, Any]:
        raise Aborted(Reason.PARTY_DIED, f"the process that starts the others; see {self._log}")

    def _read_reports(self) -> None:
        while (event := self._mailbox.receive()) is not None:
            getattr(self, f"_on_{event['event']}")(event)

    def _exited(self, event: dict[str, Any]) -> None:
        parties = self._alive.pop(event["pid"], ["?"])
        missing = [party for party in parties if party in self._waiting or party == "?"]
        if not missing:
            return
        users = all(user_index(party) >= 0 for party in parties)
        if users and self._servers_done is not None:  # nobody is left who could say Finish to it
            self._waiting.difference_update(missing)
        elif users and self._staff.on_death == "drop":
            self._drop(missing)
        elif users and self._staff.on_death == "restart" and self._can_resume(parties):
            self._tries.update(parties)
            self.outcome.restarts += 1
            self._fork(1)
            self._order(parties, {}, resume=True)
            for party in parties:  # it may have died before it read this; a user ignores what it knows
                if party in self._latest:
                    self._tell(party, self._latest[party])
        else:
            raise Aborted(Reason.PARTY_DIED, f"{', '.join(missing[:3])}, exit code {event['code']}")

    def _can_resume(self, parties: list[str]) -> bool:
        """They all keep a view, and they do not die again and again."""
        return self._staff.views.issuperset(parties) and all(self._tries[party] < _MOST_RESTARTS for party in parties)

    def _drop(self, parties: list[str]) -> None:
        """These users are gone; the servers are told, so that nobody waits for them."""
        self._waiting.difference_update(parties)
        self.outcome.gone += parties
        for party in parties:
            self._gone.add(user_index(party))
            for server in self._servers:
                self._tell(server, Gone(user_index(party)))

    def _happen(self, iteration: int) -> None:
        """What comes from outside before this iteration, to whoever is still there."""
        for party, event in self._events_for(iteration) if self._events_for else []:
            if user_index(party) in self._gone:
                continue
            if isinstance(event, Due):
                event = Due(event.iteration, tuple(user for user in event.users if user not in self._gone))
            self._tell(party, event)

    def _tell(self, party: str, event: Event) -> None:
        self._latest[party] = event
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its end will be reported
            self._lines[party].send([party, type(event).__name__, *dataclasses.astuple(event)])

    def _on_started(self, event: dict[str, Any]) -> None:
        self._alive[event["pid"]] = event["parties"]

    def _on_ready(self, event: dict[str, Any]) -> None:
        self._endpoints[event["party"]] = event["endpoint"]

    def _on_joined(self, event: dict[str, Any]) -> None:
        self.outcome.startup_seconds = time.perf_counter() - self._started

    def _on_iteration(self, event: dict[str, Any]) -> None:
        pending = self._pending.setdefault(event["iteration"], _Pending())
        pending.tally += Tally.from_lists(event)
        pending.reporters.add(event["party"])
        if event["party"] == RECOMMENDER:
            pending.seconds, pending.invited = event["seconds"], event["invited"]
            pending.contributors = event["contributors"]
            if event["iteration"] + 1 < self._roster.card.params.iterations:
                self._happen(event["iteration"] + 1)
        if len(pending.reporters) == len(self._servers):
            del self._pending[event["iteration"]]
            if self._report_iteration:
                figures = (pending.seconds, pending.invited, pending.contributors, pending.tally)
                self._report_iteration(IterationDone(event["iteration"], *figures))

    def _on_end(self, event: dict[str, Any]) -> None:
        party = event["party"]
        self._waiting.discard(party)
        self.outcome.rejected.update(event["rejected"])
        if event["view"]:
            self.outcome.views[party] = (event["view"][0], event["view"][1])
        if "rows" in event:
            self.outcome.rest += Tally.from_lists(event)
        if party not in self._servers and event["uss"] is not None:
            self.outcome.user_process_uss.append(event["uss"])

    def _on_abort(self, event: dict[str, Any]) -> None:
        raise Aborted(Reason[event["reason"]], event["detail"] or event["party"])

    def _on_refused(self, event: dict[str, Any]) -> None:
        raise BadInput(event["sentence"])

    def _on_bug(self, event: dict[str, Any]) -> None:
        raise Bug(f"{event['party']} failed; the traceback is in {event['file']}")

    # --- ending -------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """The zygote kills what still runs and ends; if it cannot, its end takes the rest along."""
        try:
            self._control.send({"order": "stop"})
            self._zygote.wait(_STOP_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self._zygote.kill()
            self._zygote.wait()
        self._control.close()
        self._orders.close()
        self._mailbox.close()
        for line in self._lines.values():
            line.close()
        os.close(self._observer_fd)
        if self._ipc_folder:
            shutil.rmtree(self._ipc_folder, ignore_errors=True)
        if self._log.exists() and not self._log.stat().st_size:
            self._log.unlink()

    def _conclude(self) -> None:
        model = self._staff.run_folder / "model" / "item_factors.npy"
        if self.outcome.abort is None:
            self.outcome.item_factors = np.load(model, allow_pickle=False)


def _short_folder() -> str:
    """A private folder for ipc sockets whose paths fit into a socket address."""
    folder = tempfile.mkdtemp(prefix="kh-")
    if len(folder) <= _LONGEST_IPC_FOLDER:
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="kh-", dir="/tmp")
