"""All roles in one process: the same parties, codec and views as the processes, without sockets.

Frames wait in one queue per (sender, receiver). With `order` given, a generator seeded with it decides which
edge delivers next, so that every order of arrival that ZeroMQ could produce can be produced here. When no frame
is left and a timer runs, its deadline has come.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterable, Mapping

from actors.journal import Journal, make_view_folders, view_path
from actors.meter import Meter
from actors.observer import HeldOut, Observer
from actors.outcome import EventsFor, IterationDone, OnIteration, Outcome
from actors.presence import everyone_stays, takes_presence
from protocol.errors import Aborted, Bug
from protocol.messages import SETUP, Deadline, Due, Gone
from protocol.party import Party, Step
from protocol.roles import RECOMMENDER, FactorizingRecommender, user_index, user_name
from protocol.seating import Card, Seat, seat_party

Edge = tuple[str, str]


class InProcess:
    def __init__(
        self,
        card: Card,
        seats: Iterable[Seat],
        *,
        observer: Observer | None = None,
        held_out: dict[str, HeldOut] | None = None,
        run_folder: str | None = None,
        with_view: frozenset[str] = frozenset(),
        on_iteration: OnIteration | None = None,
        order: int | None = None,
        events_for: EventsFor | None = None,
        silent: Mapping[int, frozenset[int]] | None = None,
        gone: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        """`silent`: by iteration, users whose answers come too late; `gone`: by iteration, users that end in it."""
        if events_for is None and takes_presence(card.scheme):
            events_for = everyone_stays(card.params.n_users)
        self._events_for = events_for
        self._silent = silent or {}
        self._gone = gone or {}
        self._left: set[int] = set()
        self._late: list[tuple[str, str, bytes]] = []
        self._observer = observer
        self._held_out = held_out or {}
        self._on_iteration = on_iteration
        self._random = None if order is None else random.Random(order)
        self._meter = Meter()
        self._fifo: deque[Edge] = deque()  # edges in the order of sending; one entry per waiting frame
        self._waiting: dict[Edge, deque[bytes]] = {}
        self._timers: deque[tuple[str, int]] = deque()
        self._journals: dict[str, Journal] = {}
        self.parties: dict[str, Party] = {}
        self.outcome = Outcome(processes={"inprocess": 1})
        self._clock = self._started = time.perf_counter()
        if run_folder is not None:
            make_view_folders(run_folder, with_view)
        for seat in seats:
            self.parties[seat.party], opening = seat_party(card, seat, seat.party in with_view)
            if opening and run_folder is not None:
                self._journals[seat.party] = Journal(view_path(run_folder, seat.party))
                self._journals[seat.party].append([opening])

    def run(self) -> Outcome:
        try:
            for party in list(self.parties.values()):
                self._settle(party, SETUP, party.start())
            self._happen(0)
            while self._fifo or self._timers:
                self._deliver() if self._fifo else self._expire()
            left = {user_name(user) for user in self._left}
            if not all(party.done or party.name in left for party in self.parties.values()):
                raise Bug("no frame is on its way and not every role has finished")
        except Aborted as abort:
            self.outcome.abort = abort
        finally:
            self._close()
        return self.outcome

    def _next_edge(self) -> Edge:
        if self._random is None:
            return self._fifo.popleft()
        at = self._random.randrange(len(self._fifo))
        edge = self._fifo[at]
        self._fifo[at] = self._fifo[-1]
        self._fifo.pop()
        return edge

    def _deliver(self) -> None:
        sender, receiver = edge = self._next_edge()
        frame = self._waiting[edge].popleft()
        party = self.parties[receiver]
        if party.done:
            return
        before = party.role.iteration
        step = party.receive(sender, frame)
        if step.rejected is not None:
            self.outcome.rejected[step.rejected.name] += 1
        self._settle(party, before, step)

    def _expire(self) -> None:
        name, iteration = self._timers.popleft()
        party = self.parties[name]
        if not party.done and party.role.iteration == iteration:  # else it was over in time
            self._settle(party, iteration, party.tick(Deadline(iteration)))

    def _settle(self, party: Party, before: int, step: Step) -> None:
        """Journal first, then the person's figures, then the frames."""
        if step.records and party.name in self._journals:
            self._journals[party.name].append(step.records)
        if step.abort is not None:
            raise step.abort
        if self._observer is not None and (party.role.iteration != before or step.done):
            self._observer.watch(party.name, party.role, step.done, self._held_out.get(party.name))
        for out in step.sends:
            if out.kind == "MaskedGradient" and user_index(party.name) in self._silent.get(out.iteration, ()):
                self._late.append((party.name, out.to, out.frame))
                continue
            self._meter.count(out.iteration, party.name, out.to, out.kind, len(out.frame))
            edge = (party.name, out.to)
            self._waiting.setdefault(edge, deque()).append(out.frame)
            self._fifo.append(edge)
            if out.kind == "OpenSum":
                self._lose(out.iteration)
        self._timers.extend((party.name, iteration) for iteration in step.timers)
        if party.name == RECOMMENDER and party.role.iteration != before:
            self._turn(party, before)
            if before >= 0 and not party.done:
                self._happen(party.role.iteration)

    def _happen(self, iteration: int) -> None:
        """What comes from outside before this iteration."""
        for name, event in self._events_for(iteration) if self._events_for else []:
            if user_index(name) in self._left:
                continue
            if isinstance(event, Due):
                event = Due(event.iteration, tuple(user for user in event.users if user not in self._left))
            party = self.parties[name]
            self._settle(party, party.role.iteration, party.tick(event))

    def _lose(self, iteration: int) -> None:
        for user in sorted(self._gone.get(iteration, ())):
            if user in self._left:
                continue
            self._left.add(user)
            recommender = self.parties[RECOMMENDER]
            self._settle(recommender, recommender.role.iteration, recommender.tick(Gone(user)))

    def _deliver_late(self) -> None:
        for sender, receiver, frame in self._late:
            if user_index(sender) not in self._left and not self.parties[receiver].done:
                self._waiting.setdefault((sender, receiver), deque()).append(frame)
                self._fifo.append((sender, receiver))
        self._late = []

    def _turn(self, recommender: Party, finished: int) -> None:
        self._deliver_late()
        now = time.perf_counter()
        seconds, self._clock = now - self._clock, now
        if finished < 0:
            self.outcome.startup_seconds = now - self._started
            return
        role = recommender.role
        invited = contributors = 0
        if isinstance(role, FactorizingRecommender):
            invited, contributors = role.n_invited, role.n_contributors
        if self._on_iteration:
            self._on_iteration(IterationDone(finished, seconds, invited, contributors, self._meter.take(finished)))

    def _close(self) -> None:
        for journal in self._journals.values():
            journal.close()
        for name, party in self.parties.items():
            if party.view is not None:
                self.outcome.views[name] = (party.view.records, party.view.head)
        recommender = self.parties[RECOMMENDER]
        self.outcome.item_factors = recommender.result if recommender.done else None
        self.outcome.rest = self._meter.take(1 << 62)
