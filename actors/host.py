"""The main loop of a process: a frame comes in, a role takes a step, its records go to the view, its frames go out.

A host runs one party or several (a packed host); each has its own keys, sockets, tape and view. A party may resume from
its view: it replays the view, then asks its peers for the frames that it missed. A server that is done keeps answering
such requests until the launcher says that every party is done.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any

import zmq

from actors.calling import Doorbell
from actors.faults import PHASES
from actors.journal import derive_again, open_journal, resume_party, view_path
from actors.keys import Roster, Secret
from actors.metering.observer import Observer
from actors.metering.outcome import EventsFor
from actors.metering.recorder import Figures, Report, own_memory, peak_memory, save_factors
from actors.pipes import Channel, Mailbox
from actors.seats import (
    MOST_NAMED,
    End,
    Hosted,
    Place,
    crash_here,
    describe,
    listen,
    look_on,
    status_of,
)
from actors.timers import Patience, Timers, Watchdog
from actors.transport import tcp_counts
from actors.transport.zeromq import ClientEnd, Context, Gate, ServerEnd
from protocol.card import seat_party
from protocol.errors import Aborted, Bug, Reason, during
from protocol.party.party import Outgoing, Step, read_event
from protocol.party.role import RECOMMENDER, user_name
from protocol.wire.messages import EVENTS, Again, Deadline, Event, Gone

_AGAIN = Again.__name__
_BURST = 64  # frames of one socket before the others get a turn
_TICK = 0.01  # seconds; the unit of an injected delay
_MOST_DERIVED = 3  # times that one peer may have the same old frames derived again
_FLUSH_SECONDS = 0.02  # until reports that did not fit are tried again
_LOOK_SECONDS = 0.2  # between two checks which clients are still connected
_KEPT_FOR_THE_AWAY = 1 << 30  # bytes of frames that are kept for users without a connection
_SEE_OFF_SECONDS = 3.0  # in which clients that are done close their connections, so that the kernel has counted all


class Host:
    def __init__(
        self,
        roster: Roster,
        secrets: Iterable[Secret],
        place: Place,
        report: Report,
        observer: Observer | None = None,
        events: Channel | None = None,
        events_for: EventsFor | None = None,
        mailbox: Mailbox | None = None,
    ) -> None:
        self._mailbox = mailbox  # carries the reports, if they may have to wait there
        self._events = events  # events from outside the protocol, sent by the launcher
        self._events_for = events_for  # or, without a launcher, given by a rule that every host knows
        self._place = place
        self._report = report
        self._observer = observer
        self._timers = Timers()
        self._watchdog = Watchdog(place.patience) if place.patience is not None else None
        wait = place.deadline / 2 if place.silence is None else place.silence
        self._patience: Patience[tuple[Hosted, str]] = Patience(wait)
        self._quit = self._weighed = False
        self._done: float | None = None  # when the last of the parties was done
        secrets = list(secrets)
        self._context: Context = zmq.Context()
        if len(secrets) > 100:
            self._context.max_sockets = 1023 + 4 * len(secrets)
        self._servers = roster.card.scheme.servers
        self._gate = Gate(self._context) if any(secret.seat.party in self._servers for secret in secrets) else None
        self._hosted: list[Hosted] = []
        self._poller = zmq.Poller()
        self._by_socket: dict[Any, tuple[Hosted, End | None]] = {}  # None: the monitor of its server's end
        try:
            for secret in secrets:
                self._hosted.append(self._seat(roster, secret))
        except BaseException:
            self._abandon()
            raise
        if events is not None:
            self._poller.register(events.fileno(), zmq.POLLIN)

    # --- taking seats ------------------------------------------------------------------------------------------------

    def _seat(self, roster: Roster, secret: Secret) -> Hosted:
        name, card, place = secret.seat.party, roster.card, self._place
        server_end, ahead, note = None, self._servers, None
        if name in self._servers:
            ahead = self._servers[self._servers.index(name) + 1 :]  # an earlier server connects to the later ones
            endpoint = place.bind.get(name) or roster.endpoints[name]
            clients = len(roster.public_keys) if place.connected is None else 2 * place.connected
            note = tcp_counts.why_not(name, endpoint, clients, place.metering, name in place.resume)
            assert self._gate is not None
            by_person = self._events is None
            server_end = listen(self._context, self._gate, roster, secret, place, endpoint, note is None, by_person)
            self._report({"event": "ready", "party": name, "endpoint": server_end.address.endpoint})
        max_frame = card.codec.max_frame
        ends = {s: ClientEnd(self._context, s, roster.address(s), secret.keys, max_frame) for s in ahead}
        own_servers, plane = ahead if server_end else None, (self._observer, secret.held_out)
        figures = Figures(name, own_servers, place.reported, self._report, *plane, place.metering, card.params.n_users)
        party, opening = seat_party(card, secret.seat, name in place.views)
        hosted = Hosted(card, secret, party, None, server_end, ends, figures, kernel_note=note)
        if server_end:  # the monitor is polled first, so that ended connections are known before frames are read
            self._poller.register(server_end.monitor, zmq.POLLIN)
            self._by_socket[server_end.monitor] = (hosted, None)
        for end in hosted.ends():
            self._poller.register(end.socket, zmq.POLLIN)
            self._by_socket[end.socket] = (hosted, end)
        if server_end and place.connected is not None:
            hosted.doorbell = Doorbell(card.scheme.can_wait)
        if place.faults:
            hosted.mischief = place.faults.of(name, place.incarnation, card.codec)
        if opening and name in place.resume:
            follow = functools.partial(look_on, hosted)
            path = view_path(place.run_folder, name)
            hosted.party, hosted.journal, hosted.first = resume_party(card, secret.seat, path, follow)
        elif opening:
            hosted.journal = open_journal(view_path(place.run_folder, name), opening)
        if hosted.doorbell:
            hosted.party.keep_bytes = _KEPT_FOR_THE_AWAY
        if server_end and not hosted.mischief:
            hosted.party.burst = _BURST
        if hosted.mischief and hosted.journal and hosted.party.view:
            hosted.journal = hosted.mischief.journal(hosted.journal, hosted.party.view)
        return hosted

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._open()
            if self._watchdog:  # the time of replaying views does not count
                self._watchdog.moved()
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
        self._apply_rule(max([0, *(h.party.role.iteration for h in self._hosted if h.party.name == RECOMMENDER)]))

    def _look(self) -> None:
        for socket, _ in self._poller.poll(self._wait()):
            if socket in self._by_socket:
                self._drain(*self._by_socket[socket])
            else:
                self._obey()

    def _tidy(self) -> None:
        """Have the launcher call the users that were not connected when a frame was sent to them in this round."""
        for hosted in self._hosted if self._gate else ():
            if hosted.doorbell and hosted.server_end:
                self._see_who_left(hosted, hosted.server_end, hosted.doorbell)
            if hosted.doorbell and (users := hosted.doorbell.take_calls()):
                self._report({"event": "call", "party": hosted.party.name, "users": users})

    def _begin(self, hosted: Hosted) -> None:
        self._settle(hosted, hosted.before, hosted.first or hosted.party.start())
        hosted.servers = [(hosted, server) for server in hosted.client_ends]
        for server in hosted.servers if hosted.listens() else ():
            self._patience.watch(server)
            if hosted.first:
                self._patience.urge(server)
        if hosted.first:
            hosted.figures.watch(hosted.party.role, hosted.party.done)
            hosted.figures.resumed(hosted.party)

    def _finished(self) -> bool:
        if not all(hosted.party.done for hosted in self._hosted):
            return False
        servers = [hosted.server_end for hosted in self._hosted if hosted.server_end]
        if self._events is not None or not servers:
            return self._quit or not servers
        if self._done is None:  # without a launcher, clients close their connections when they are done
            self._done = time.monotonic()
        return all(map(ServerEnd.is_left, servers)) or time.monotonic() > self._done + self._place.deadline

    def _close(self) -> None:
        """Close all connections; the last frames still leave, and servers wait until the clients have received them."""
        for hosted in self._hosted:
            for client_end in hosted.client_ends.values():
                self._poller.unregister(client_end.socket)
                client_end.close()
            hosted.client_ends = {}
        self._see_off()
        for hosted in self._hosted:
            if hosted.server_end:
                self._close_server(hosted, hosted.server_end)
        if self._gate:
            self._gate.close()
        self._context.term()

    def _see_off(self) -> None:
        """Wait until the clients have closed their connections: then the kernel has counted every acknowledged byte."""
        ledgers = [end.ledger for hosted in self._hosted if (end := hosted.server_end) and end.ledger]
        until = time.monotonic() + _SEE_OFF_SECONDS
        while not all(ledger.is_left() for ledger in ledgers) and time.monotonic() < until:
            for socket, _ in self._poller.poll(int(1000 * _LOOK_SECONDS)):
                if socket in self._by_socket:
                    self._drain(*self._by_socket[socket])

    def _close_server(self, hosted: Hosted, end: ServerEnd) -> None:
        self._note_refusals(hosted)
        counted, note = (end.ledger.close(), end.ledger.note) if end.ledger else (None, hosted.kernel_note)
        hosted.figures.closed(end.handshakes(), counted, note, peak_memory())
        end.close()

    def _abandon(self) -> None:
        """Close everything at once; no further frame leaves."""
        for hosted in self._hosted:
            if hosted.server_end and hosted.server_end.ledger:
                hosted.server_end.ledger.close()
        if self._gate:
            self._gate.close()
        self._context.destroy(linger=0)

    def _drain(self, hosted: Hosted, end: End | None) -> bool:
        """Read from `end`; True if it is empty. A client's end is read once: a second, empty read costs as much."""
        server = hosted.server_end
        for _ in range(_BURST if end is server else 1):
            arrived = end.receive() if end else None
            if arrived is None:
                break
            self._handle(hosted, *arrived)
        if server and hosted.journal:
            hosted.journal.flush()
        if server and (end is None or server.has_dropped()):
            self._note_refusals(hosted)
        return arrived is None

    def _handle(self, hosted: Hosted, sender: str, frame: bytes) -> None:
        if sender in hosted.client_ends and hosted.listens():
            self._patience.heard((hosted, sender), hosted.servers)
        before = hosted.party.role.iteration
        step = hosted.party.receive(sender, frame)
        if self._watchdog and step.rejected is None and step.kind != _AGAIN:
            self._watchdog.moved()
        hosted.figures.received(sender, step, len(frame))
        if step.wants:
            step.sends = self._derive(hosted, *step.wants) + step.sends
        if step.has_all and hosted.doorbell:
            hosted.doorbell.has_all(sender)
            hosted.party.forget(sender)
        self._heard(hosted, sender, step)
        self._settle(hosted, before, step)

    def _heard(self, hosted: Hosted, sender: str, step: Step) -> None:
        """Take note of a step; overridden by a host whose users come and go."""

    def _derive(self, hosted: Hosted, peer: str, first: int, end: int) -> list[Outgoing]:
        """Derive the frames to `peer` from `first` up to `end` from the view, because they are no longer kept."""
        name = hosted.party.name
        before, times = hosted.derived.get(peer, (-1, 0))
        times = times + 1 if before == first else 1  # a peer that makes progress may ask any number of times
        hosted.derived[peer] = (first, times)
        if name not in self._place.views or times > _MOST_DERIVED:
            return []
        if hosted.journal:
            hosted.journal.flush()
        path = view_path(self._place.run_folder, name)
        return derive_again(hosted.card, hosted.secret.seat, path, peer, first, end)

    def _settle(self, hosted: Hosted, before: int, step: Step) -> None:
        """Carry out `step`: write its records to the view first, then the person's figures, then send its frames."""
        party = hosted.party
        turned = party.role.iteration != before
        if hosted.mischief:
            crash_here(hosted, step, PHASES[0])
        if hosted.journal and step.records:
            if hosted.server_end and not (hosted.mischief or turned or step.sends or step.abort or step.done):
                hosted.journal.hold(step.records)  # until the end of the burst, since no frame depends on them
            else:
                hosted.journal.append(step.records)
        if hosted.mischief:
            crash_here(hosted, step, PHASES[1])
        if step.abort is not None:
            raise step.abort
        memory = self._memory() if step.done else None  # before the observer's shared memory is touched again
        if turned or step.done:
            hosted.figures.watch(party.role, step.done)
        self._carry_out(hosted, step)
        if hosted.mischief:
            crash_here(hosted, step, PHASES[2])
        if hosted.server_end:
            with during(party.name, "working ahead"):
                party.role.work_ahead()
        if turned:
            hosted.figures.turned(party.role)
        if turned and before >= 0 and party.name == RECOMMENDER and not step.done:
            self._apply_rule(party.role.iteration)
        if step.done:
            self._finish(hosted, memory)

    def _carry_out(self, hosted: Hosted, step: Step) -> None:
        """Send the frames and start the timers of `step`; a long one comes in parts, so that users can start early."""
        part = step
        while True:
            for out in part.sends:
                self._send(hosted, out)
            for iteration in part.timers:
                self._timers.schedule(self._place.deadline, functools.partial(self._deadline, hosted, iteration))
            if not part.rest:
                return
            part = hosted.party.go_on(part.rest)
            step.done = step.done or part.done
            if hosted.journal:
                hosted.journal.append(part.records)

    def _memory(self) -> int | None:
        """Measure the memory of this process once, since the time this takes grows with its size."""
        weighed, self._weighed = self._weighed, True
        return None if weighed else own_memory()

    def _send(self, hosted: Hosted, out: Outgoing) -> None:
        hosted.figures.sent(out)
        if hosted.doorbell and out.to not in hosted.client_ends:
            hosted.doorbell.sent(out.to, out.kind)
        if hosted.mischief is None:
            self._hand_over(hosted, out.to, out.frame)
            return
        leaving = hosted.mischief.deliver(out)
        hosted.figures.suffered(out, [frame for _, frame in leaving])
        for delay, frame in leaving:
            self._timers.schedule(delay * _TICK, functools.partial(self._hand_over, hosted, out.to, frame))

    def _hand_over(self, hosted: Hosted, to: str, frame: bytes) -> None:
        end = hosted.client_ends.get(to) or hosted.server_end
        if end is None:
            raise Bug(f"{hosted.party.name} has no connection to {to!r}")
        if not end.send(to, frame):
            hosted.figures.undelivered(to, len(frame))
            if hosted.doorbell:
                hosted.doorbell.missed(to)

    def _finish(self, hosted: Hosted, memory: int | None) -> None:
        party = hosted.party
        if hosted.journal:
            hosted.journal.close()
        if party.name == RECOMMENDER and party.result is not None:
            save_factors(self._place.run_folder, party.result)
        for server in hosted.servers if not hosted.listens() else ():
            self._patience.forget(server)
        hosted.figures.ended(party, memory)

    # --- what is no frame --------------------------------------------------------------------------------------------

    def _obey(self) -> None:
        """Carry out an order of the launcher: an event [party, kind, fields…], or one for the host, with no party."""
        assert self._events is not None
        order = self._events.receive_one()
        if order is None:
            self._poller.unregister(self._events.fileno())
            return
        name, kind, *fields = order
        if kind in EVENTS:
            hosted = next(hosted for hosted in self._hosted if hosted.party.name == name)
            self._tick(hosted, read_event(kind, *fields))
        elif kind == "Restarted":  # frames on their way to and from this server are lost
            for hosted in self._hosted:
                if fields[0] in hosted.client_ends and hosted.listens():
                    self._patience.urge((hosted, fields[0]))
        elif kind == "Status":
            for hosted in self._hosted:
                self._report(status_of(hosted.party))
        else:
            self._quit = True

    def _tick(self, hosted: Hosted, event: Event) -> None:
        before = hosted.party.role.iteration
        if self._watchdog:
            self._watchdog.moved()
        self._settle(hosted, before, hosted.party.tick(event))
        if isinstance(event, Gone) and hosted.server_end:
            hosted.server_end.revoke(user_name(event.user))

    def _apply_rule(self, iteration: int) -> None:
        """Apply the rule's events before `iteration` to the parties of this host."""
        parties = {hosted.party.name: hosted for hosted in self._hosted}
        for name, event in self._events_for(iteration) if self._events_for else []:
            if name in parties:
                self._tick(parties[name], event)

    def _note_refusals(self, hosted: Hosted) -> None:
        """Count refused strangers; the view gets a record at 1, 2, 4, 8 … of a kind, so that a flood cannot fill it."""
        end = hosted.server_end
        assert end is not None
        while end.revoked_frames:
            hosted.figures.revoked(*end.revoked_frames.pop())
        for kind in end.refusals():
            hosted.figures.refused[kind] += 1
            count = hosted.figures.refused[kind]
            records = hosted.party.note("Refused", kind, count) if count & (count - 1) == 0 else []
            if hosted.journal and records:
                hosted.journal.append(records)

    def _see_who_left(self, hosted: Hosted, end: ServerEnd, doorbell: Doorbell) -> None:
        """Note the users that closed, after reading their last frames: one may confirm that the user has everything."""
        if left := end.left():
            while not self._drain(hosted, end):
                pass
            for user in left:
                doorbell.missed(user)

    def _wait(self) -> int | None:
        """Compute the milliseconds until something is due; None to wait for a frame."""
        waits = [self._patience.seconds(), self._timers.seconds()]
        if self._watchdog:
            waits.append(self._watchdog.seconds())
        if self._done is not None:
            waits.append(_LOOK_SECONDS)
        if self._mailbox and self._mailbox.pending:
            waits.append(_FLUSH_SECONDS)
        due = [seconds for seconds in waits if seconds is not None]
        return int(1000 * min(due)) + 1 if due else None

    def _expire(self) -> None:
        self._timers.expire()
        for hosted, server in self._patience.overdue():
            for out in hosted.party.ask_again([server]):
                self._send(hosted, out)
        if self._watchdog and self._watchdog.is_stalled() and self._done is None:
            states = "; ".join(describe(hosted.party) for hosted in self._hosted[:MOST_NAMED])
            raise Aborted(Reason.STALLED, f"for {self._watchdog.patience:.0f} s: {states}")

    def _deadline(self, hosted: Hosted, iteration: int) -> None:
        if not hosted.party.done and hosted.party.role.iteration == iteration:
            self._tick(hosted, Deadline(iteration))
