"""The loop of a process: frames in, one step of a role, its records into the view, its frames out.

A host runs one party or several (a packed host); each has its own keys, sockets, tape and view.
"""

from __future__ import annotations

import heapq
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from actors.channel import Channel
from actors.journal import Journal, resume_party, view_path
from actors.keys import Roster, Secret
from actors.meter import Meter
from actors.observer import HeldOut, Observer
from actors.outcome import EventsFor
from actors.transport import ClientEnd, Context, Gate, ServerEnd
from protocol.messages import EVENTS, SETUP, Deadline
from protocol.party import Party, Step, result_digest
from protocol.roles import RECOMMENDER, FactorizingRecommender, role_of
from protocol.seating import seat_party

Report = Callable[[dict[str, Any]], None]
End = ServerEnd | ClientEnd

KEPT_FRAMES = 6  # per user at a server, for a user that was restarted; the protocols keep fewer on their way
_BURST = 64  # frames of one socket before the others get a turn


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how this host works; nothing of it reaches a role."""

    run_folder: str  # not a Path: what a user's process touches, it owns
    views: frozenset[str]  # parties that keep a view
    deadline: float  # seconds that an iteration may take
    bind: dict[str, str] = field(default_factory=dict)  # server -> endpoint, where it differs from the roster's
    resume: frozenset[str] = frozenset()  # parties that go on from their views


@dataclass(slots=True)
class _Hosted:
    party: Party
    journal: Journal | None
    server_end: ServerEnd | None
    client_ends: dict[str, ClientEnd]
    held_out: HeldOut | None
    meter: Meter | None
    rejected: Counter[str] = field(default_factory=Counter)
    clock: float = 0.0
    first: Step | None = None  # after a restart: what the view says is still to be sent

    def ends(self) -> list[End]:
        return [*([self.server_end] if self.server_end else []), *self.client_ends.values()]


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
    ) -> None:
        self._events = events  # what comes from outside the protocol, by way of the launcher
        self._events_for = events_for  # or, without a launcher, by a rule that every host knows
        self._place = place
        self._report = report
        self._observer = observer
        self._timers: list[tuple[float, int, _Hosted, int]] = []
        self._ticket = itertools.count()  # keeps equal times apart in the heap
        secrets = list(secrets)
        self._context: Context = zmq.Context()
        if len(secrets) > 100:
            self._context.max_sockets = 1023 + 4 * len(secrets)
        servers = roster.card.scheme.servers
        self._gate = Gate(self._context) if any(secret.seat.party in servers for secret in secrets) else None
        self._hosted: list[_Hosted] = []
        try:
            for secret in secrets:
                self._hosted.append(self._seat(roster, secret))
        except BaseException:
            self._abandon()
            raise
        self._poller = zmq.Poller()
        self._by_socket: dict[Any, tuple[_Hosted, End]] = {}
        if events is not None:
            self._poller.register(events.fileno(), zmq.POLLIN)
        for hosted in self._hosted:
            for end in hosted.ends():
                self._poller.register(end.socket, zmq.POLLIN)
                self._by_socket[end.socket] = (hosted, end)

    def _seat(self, roster: Roster, secret: Secret) -> _Hosted:
        name, card = secret.seat.party, roster.card
        servers = card.scheme.servers
        max_frame = card.codec.max_frame
        server_end, ahead = None, servers
        if name in servers:
            ahead = servers[servers.index(name) + 1 :]  # an earlier server connects to the later ones
            keys = {key: party for party, key in roster.public_keys.items() if party not in ahead and party != name}
            endpoint = self._place.bind.get(name) or roster.endpoints[name]
            assert self._gate is not None
            server_end = ServerEnd(self._context, self._gate, name, endpoint, secret.keys, keys, max_frame)
            self._report({"event": "ready", "party": name, "endpoint": server_end.address.endpoint})
        ends = {s: ClientEnd(self._context, s, roster.address(s), secret.keys, max_frame) for s in ahead}
        party, opening = seat_party(card, secret.seat, name in self._place.views)
        if server_end:
            party.keep_frames(KEPT_FRAMES)
        meter = Meter() if server_end else None
        hosted = _Hosted(party, None, server_end, ends, secret.held_out, meter, clock=time.perf_counter())
        if opening and name in self._place.resume:
            hosted.journal, hosted.first = resume_party(party, view_path(self._place.run_folder, name))
            hosted.first.sends += party.ask_again(ends)
        elif opening:
            hosted.journal = Journal(view_path(self._place.run_folder, name))
            hosted.journal.append([opening])
        return hosted

    def run(self) -> None:
        try:
            for hosted in self._hosted:
                self._settle(hosted, SETUP, hosted.first or hosted.party.start())
            self._apply_rule(0)
            while not all(hosted.party.done for hosted in self._hosted):
                for socket, _ in self._poller.poll(self._patience()):
                    if socket in self._by_socket:
                        self._drain(*self._by_socket[socket])
                    else:
                        self._happen()
                self._expire()
        except BaseException:
            self._abandon()
            raise
        self._close()

    def _close(self) -> None:
        """The last frames still leave."""
        for hosted in self._hosted:
            for end in hosted.ends():
                end.close()
        if self._gate:
            self._gate.close()
        self._context.term()

    def _abandon(self) -> None:
        """Nothing more leaves."""
        if self._gate:
            self._gate.close()
        self._context.destroy(linger=0)

    def _happen(self) -> None:
        """An event from the launcher: [party, kind, fields…]."""
        assert self._events is not None
        order = self._events.receive_one()
        if order is None:
            self._poller.unregister(self._events.fileno())
            return
        name, kind, *fields = order
        hosted = next(hosted for hosted in self._hosted if hosted.party.name == name)
        before = hosted.party.role.iteration
        event = EVENTS[kind](*(tuple(value) if isinstance(value, list) else value for value in fields))
        self._settle(hosted, before, hosted.party.tick(event))

    def _apply_rule(self, iteration: int) -> None:
        """The events of the rule for the parties of this host."""
        parties = {hosted.party.name: hosted for hosted in self._hosted}
        for name, event in self._events_for(iteration) if self._events_for else []:
            if name in parties:
                hosted = parties[name]
                self._settle(hosted, hosted.party.role.iteration, hosted.party.tick(event))

    def _drain(self, hosted: _Hosted, end: End) -> None:
        for _ in range(_BURST):
            arrived = end.receive()
            if arrived is None:
                return
            if not hosted.party.done:
                self._handle(hosted, *arrived)

    def _handle(self, hosted: _Hosted, sender: str, frame: bytes) -> None:
        before = hosted.party.role.iteration
        step = hosted.party.receive(sender, frame)
        if step.rejected is not None:
            hosted.rejected[step.rejected.name] += 1
        elif hosted.meter and role_of(sender) == "user":
            hosted.meter.count(step.iteration, sender, hosted.party.name, step.kind, len(frame))
        self._settle(hosted, before, step)

    def _settle(self, hosted: _Hosted, before: int, step: Step) -> None:
        """Write before you speak: the view, then the person's figures, then the frames."""
        party = hosted.party
        if hosted.journal and step.records:
            hosted.journal.append(step.records)
        if step.abort is not None:
            raise step.abort
        turned = party.role.iteration != before
        memory = own_memory() if step.done else None  # before the last look at memory that is shared
        if self._observer is not None and (turned or step.done):
            self._observer.watch(party.name, party.role, step.done, hosted.held_out)
        for out in step.sends:
            if hosted.meter:
                hosted.meter.count(out.iteration, party.name, out.to, out.kind, len(out.frame))
            end = hosted.client_ends.get(out.to) or hosted.server_end
            assert end is not None
            end.send(out.to, out.frame)
        for iteration in step.timers:
            due = time.monotonic() + self._place.deadline
            heapq.heappush(self._timers, (due, next(self._ticket), hosted, iteration))
        if turned and hosted.meter:
            self._turn(hosted, before)
        if turned and before >= 0 and party.name == RECOMMENDER and not step.done:
            self._apply_rule(party.role.iteration)
        if step.done:
            self._finish(hosted, memory)

    def _turn(self, hosted: _Hosted, finished: int) -> None:
        """A server has finished an iteration (or, with −1, the set-up): tell the launcher."""
        assert hosted.meter is not None
        now = time.perf_counter()
        seconds, hosted.clock = now - hosted.clock, now
        if finished < 0:
            if hosted.party.name == RECOMMENDER:
                self._report({"event": "joined"})
            return
        role = hosted.party.role
        invited = contributors = 0
        if isinstance(role, FactorizingRecommender):
            invited, contributors = role.n_invited, role.n_contributors
        self._report(
            {
                "event": "iteration",
                "party": hosted.party.name,
                "iteration": finished,
                "seconds": seconds,
                "invited": invited,
                "contributors": contributors,
                **hosted.meter.take(finished).to_lists(),
            }
        )

    def _finish(self, hosted: _Hosted, memory: int | None) -> None:
        party = hosted.party
        if hosted.journal:
            hosted.journal.close()
        if party.result is not None:
            save_factors(self._place.run_folder, party.result)
        view = party.view
        self._report(
            {
                "event": "end",
                "party": party.name,
                "view": [view.records, view.head] if view else None,
                "result": None if party.result is None else result_digest(party.result).hex(),
                "rejected": dict(hosted.rejected),
                "uss": memory,
                **(hosted.meter.take(1 << 62).to_lists() if hosted.meter else {}),
            }
        )

    def _patience(self) -> int | None:
        """Milliseconds until the next deadline; None waits for a frame."""
        if not self._timers:
            return None
        return max(0, int(1000 * (self._timers[0][0] - time.monotonic())) + 1)

    def _expire(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            _, _, hosted, iteration = heapq.heappop(self._timers)
            role = hosted.party.role
            if not hosted.party.done and role.iteration == iteration:
                self._settle(hosted, role.iteration, hosted.party.tick(Deadline(iteration)))


def own_memory() -> int | None:
    """Bytes that this process shares with no other (USS); None where the kernel does not say."""
    try:
        file = os.open("/proc/self/smaps_rollup", os.O_RDONLY)
    except OSError:
        return None
    lines = os.read(file, 1 << 16).splitlines()
    os.close(file)
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(b"Private_"))


def save_factors(run_folder: str, factors: np.ndarray) -> None:
    folder = Path(run_folder) / "model"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    np.save(folder / "item_factors.npy", factors)

