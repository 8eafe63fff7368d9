"""The main loop of a process: a frame comes in, a role takes a step, its records go to the view, its frames go out.

A host runs one party or several (a packed host); each has its own keys, sockets, tape and view (`seats.py`). A step is
carried out by the stage (`stage.py`). A party may resume from its view: it replays the view, then asks its peers for
the frames that it missed. A server that is done keeps answering such requests until the launcher says that every party
is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import zmq

from actors.keys import Roster, Secret
from actors.launch.reports import Ask, Happens, Quit, Restarted, read
from actors.metering.observer import Observer
from actors.metering.recorder import Report, own_memory
from actors.pipes import Channel, Mailbox
from actors.seats import End, FaultyHosted, Hosted, Place, status_of, take_seat
from actors.timers import Patience, Timers
from actors.transport.sockets import Sockets
from actors.transport.waiting import Watch
from protocol.errors import during
from protocol.party.party import Step, read_event
from protocol.wire.messages import Deadline, Event, Gone

_DRAINED = 64  # frames of one socket before the others get a turn
_FLUSH_SECONDS = 0.02  # until reports that did not fit are tried again
LOOK_SECONDS = 0.2  # between two checks which clients are still connected
_SEE_OFF_SECONDS = 3.0  # in which clients that are done close their connections, so that the kernel has counted all


class Host:
    kind: type[Hosted] = Hosted

    def __init__(
        self,
        roster: Roster,
        secrets: Iterable[Secret],
        place: Place,
        report: Report,
        observer: Observer | None = None,
        orders: Channel | None = None,
        mailbox: Mailbox | None = None,
        poller: zmq.Poller | Watch | None = None,
    ) -> None:
        self.roster, self.place, self.report, self.observer = roster, place, report, observer
        self.orders = orders  # of the launcher, if there is one
        self._mailbox = mailbox  # carries the reports, if they may have to wait there
        self.timers = Timers()
        wait = place.deadline / 2 if place.silence is None else place.silence
        self._patience: Patience[tuple[Hosted, str]] = Patience(wait)
        self._quit = self._weighed = False
        secrets, servers = list(secrets), roster.card.scheme.servers
        serves = any(secret.seat.party in servers for secret in secrets)
        self.sockets = Sockets(len(secrets), serves, poller or zmq.Poller())
        self._hosted: list[Hosted] = []
        try:
            for secret in secrets:
                self._seat(secret)
        except BaseException:
            self._abandon()
            raise
        if orders is not None:
            self.sockets.add(orders.fileno(), None)

    def _seat(self, secret: Secret) -> None:
        hosted = take_seat(self, secret, FaultyHosted if self.place.faults else self.kind)
        self._hosted.append(hosted)
        if hosted.server_end:  # the monitor is polled first, so that ended connections are known before frames are read
            self.sockets.add(hosted.server_end.monitor, (hosted, None))
        for end in hosted.ends():
            self.sockets.add(end.socket, (hosted, end))

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._open()
            while not self._finished():
                if self._mailbox:
                    self._mailbox.flush()
                self._look()
                self._expire()
                self._tidy()
        except BaseException:
            self._abandon()
            raise
        self._close()

    def _open(self) -> None:
        for hosted in self._hosted:
            self._begin(hosted)

    def _begin(self, hosted: Hosted) -> None:
        resumed = hosted.party.name in self.place.resume
        self._settle(hosted, hosted.first_step())
        hosted.servers = [(hosted, server) for server in hosted.client_ends]
        for server in hosted.servers if hosted.listens() else ():
            self._patience.watch(server)
            if resumed:
                self._patience.urge(server)
        if resumed:
            hosted.figures.watch(hosted.party.role, hosted.party.done)
            hosted.figures.resumed(hosted.party)

    def _look(self) -> None:
        for socket, owner in self.sockets.poll(self._wait()):
            if owner is None:
                self._obey()
            elif not self._drain(*owner):
                self.sockets.look_again(socket)

    def _wait(self) -> int | None:
        """Compute the milliseconds until something is due; None to wait for a frame."""
        due = [seconds for seconds in self._waits() if seconds is not None]
        return int(1000 * min(due)) + 1 if due else None

    def _waits(self) -> list[float | None]:
        pending = self._mailbox is not None and self._mailbox.pending
        return [self._patience.seconds(), self.timers.seconds(), _FLUSH_SECONDS if pending else None]

    def _expire(self) -> None:
        self.timers.expire()
        for hosted, server in self._patience.overdue():
            for out in hosted.party.ask_again([server]):
                hosted.leave(out)

    def _tidy(self) -> None:
        """End a round; overridden by hosts of a run in which users come and go."""

    def _finished(self) -> bool:
        """Tell whether the parties are done; a server goes on answering until the launcher says that all are."""
        done = all(hosted.party.done for hosted in self._hosted)
        return done and (self._quit or not any(hosted.server_end for hosted in self._hosted))

    # --- steps -------------------------------------------------------------------------------------------------------

    def _drain(self, hosted: Hosted, end: End | None) -> bool:
        """Read from `end`; True if it is empty. A client's end is read once: a second, empty read costs as much."""
        server = hosted.server_end
        for _ in range(_DRAINED if end is server else 1):
            arrived = end.receive() if end else None
            if arrived is None:
                break
            self._handle(hosted, *arrived)
        if server and hosted.journal:
            hosted.journal.flush()
        if server and (end is None or server.has_dropped()):
            hosted.note_refusals()
        return arrived is None

    def _handle(self, hosted: Hosted, sender: str, frame: bytes) -> None:
        if sender in hosted.client_ends and hosted.listens():
            self._patience.heard((hosted, sender), hosted.servers)
        step = hosted.receive(sender, frame)
        self._heard(hosted, sender, step)
        self._settle(hosted, step)

    def _heard(self, hosted: Hosted, sender: str, step: Step) -> None:
        """Take note of a step; overridden by hosts that look on."""

    def _settle(self, hosted: Hosted, step: Step) -> None:
        """Perform `step`, and do what follows from it in this host."""
        hosted.perform(step)
        if hosted.server_end:
            with during(hosted.party.name, "working ahead"):
                hosted.party.role.work_ahead()
        if step.done and not hosted.listens():
            for server in hosted.servers:
                self._patience.forget(server)

    def weigh(self) -> int | None:
        """Measure the memory of this process once, since the time this takes grows with its size."""
        weighed, self._weighed = self._weighed, True
        return None if weighed else own_memory()

    # --- what is no frame --------------------------------------------------------------------------------------------

    def _obey(self) -> None:
        """Carry out an order of the launcher."""
        assert self.orders is not None
        values = self.orders.receive_one()
        order = None if values is None else read(values)
        if order is None:
            self.sockets.remove(self.orders.fileno())
        elif isinstance(order, Happens):
            hosted = next(hosted for hosted in self._hosted if hosted.party.name == order.party)
            self._tick(hosted, read_event(order.kind, *order.fields))
        elif isinstance(order, Restarted):
            for hosted in self._hosted:
                if order.server in hosted.client_ends and hosted.listens():
                    self._patience.urge((hosted, order.server))
        elif isinstance(order, Ask):
            for hosted in self._hosted:
                self.report(status_of(hosted.party))
        elif isinstance(order, Quit):
            self._quit = True

    def _tick(self, hosted: Hosted, event: Event) -> None:
        self._settle(hosted, hosted.party.tick(event))
        if isinstance(event, Gone):
            hosted.gone(event.user)

    def deadline(self, hosted: Hosted, iteration: int) -> None:
        if not hosted.party.done and hosted.party.role.iteration == iteration:
            self._tick(hosted, Deadline(iteration))

    # --- the end -----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Close all connections; the last frames still leave, and servers wait until the clients have received them."""
        for hosted in self._hosted:
            for client_end in hosted.client_ends.values():
                self.sockets.remove(client_end.socket)
                client_end.close()
            hosted.client_ends = {}
        self._see_off()
        for hosted in self._hosted:
            if hosted.server_end:
                hosted.close_server(hosted.server_end)
        self.sockets.close()

    def _see_off(self) -> None:
        """Wait until the clients have closed their connections: then the kernel has counted every acknowledged byte."""
        ledgers = [end.ledger for hosted in self._hosted if (end := hosted.server_end) and end.ledger]
        until = time.monotonic() + _SEE_OFF_SECONDS
        while not all(ledger.is_left() for ledger in ledgers) and time.monotonic() < until:
            for _, owner in self.sockets.poll(int(1000 * LOOK_SECONDS)):
                if owner is not None:
                    self._drain(*owner)

    def _abandon(self) -> None:
        """Close everything at once; no further frame leaves."""
        for hosted in self._hosted:
            if hosted.server_end and hosted.server_end.ledger:
                hosted.server_end.ledger.close()
        self.sockets.close(at_once=True)
