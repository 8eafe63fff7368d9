"""All roles in one process: the same parties, codec and views as the processes, without sockets.

Frames wait in one queue per (sender, receiver), and are delivered in the order in which they were sent. When no frame
is left and a timer runs, its deadline has come.

A run that ended too early goes on from its views. Every party is restored from its view, and clients ask their servers
again for the frames that were on their way. Events from outside are told again; roles ignore those that they know.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container, Iterable
from typing import Any

from actors.blame import is_own, scheme_failed
from actors.journal import make_view_folders, view_path
from actors.launch.reports import Closed, Ended, Finished
from actors.metering.observer import HeldOut, Observer
from actors.metering.outcome import Attendance, Books, EventsFor, OnIteration, Outcome
from actors.metering.recorder import Figures
from actors.seats import MOST_NAMED, describe
from actors.stage import Performer
from protocol.card import Card, Seat
from protocol.errors import Aborted, Bug, Reason, SchemeFailed
from protocol.everyone_online import everyone_stays, takes_presence
from protocol.party.party import Party, Step
from protocol.party.role import RECOMMENDER
from protocol.schemes import Scheme
from protocol.wire.messages import SETUP, Deadline, Event

Edge = tuple[str, str]


def servers_of(scheme: Scheme, party: str) -> tuple[str, ...]:
    """List the servers whose client `party` is: all of them for a user, the later ones for a server."""
    return scheme.servers[scheme.servers.index(party) + 1 :] if party in scheme.servers else scheme.servers


class Played(Performer):
    """A party whose frames wait in queues, and whose timers run out when no frame is left."""

    def __init__(self, driver: InProcess, seat: Seat, figures: Figures, path: str | None) -> None:
        super().__init__(driver.card, seat, figures, path)
        self.driver = driver

    def hand_over(self, to: str, frame: bytes) -> None:
        self.driver.put((self.party.name, to), frame)

    def schedule(self, iteration: int) -> None:
        self.driver.timers.append((self.party.name, iteration))


class InProcess:
    kind: type[Played] = Played

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
        events_for: EventsFor | None = None,
        resume: bool = False,
        reported: int = SETUP - 1,
    ) -> None:
        """Seat all parties; those in `with_view` write a view to the run folder.

        With `resume`, each of them goes on from it; the figures of the iterations up to `reported` are known.
        """
        if events_for is None and takes_presence(card.scheme):
            events_for = everyone_stays(card.params.n_users)
        self.card = card
        self._seats = {seat.party: seat for seat in seats}
        self._run_folder = run_folder
        self._with_view = with_view
        self._resume = resume
        self._events_for = events_for
        self._observer = observer
        self._held_out = held_out or {}
        self._fifo: deque[Edge] = deque()  # edges in the order of sending; one entry per waiting frame
        self._waiting: dict[Edge, deque[bytes]] = {}
        self.timers: deque[tuple[str, int]] = deque()
        self._told = -1  # the latest iteration for which it was told what comes from outside
        self._started: set[str] = set()  # parties that have taken their first step
        self._ended: set[str] = set()  # parties whose figures at their end are told
        self._held_back: list[tuple[Any, ...]] | None = None  # reports, while parties are read back
        self.outcome = Outcome(processes={"inprocess": 1})
        self._books = Books(card.scheme.servers, self.outcome, on_iteration, reported)
        self._cast = {name: self._seat(name) for name in self._seats}
        self._began = time.perf_counter()

    @property
    def parties(self) -> dict[str, Party]:
        return {name: performer.party for name, performer in self._cast.items()}

    def _seat(self, name: str) -> Played:
        """Seat a party at its start, or one that is read back; what was reported is not reported again."""
        ahead = servers_of(self.card.scheme, name) if name in self.card.scheme.servers else None
        reported = self._books.known(name)
        plane = self._report, self._observer, self._held_out.get(name)
        figures = Figures(name, ahead, reported, *plane, self.card.params.n_users)
        path = view_path(self._run_folder, name) if self._run_folder and name in self._with_view else None
        return self.kind(self, self._seats[name], figures, path)

    def run(self) -> Outcome:
        try:
            if self._run_folder is not None:
                make_view_folders(self._run_folder, self._with_view)
            if self._resume:
                self._go_on()
            else:
                self._begin(self._cast)
                self._happen(0)
            self._work()
        except Aborted as abort:
            self.outcome.abort = abort
        except (Exception, SystemExit) as error:
            self.outcome.abort = scheme_failed(error, self.card.scheme)
            if self.outcome.abort is None:
                raise
        finally:
            self._close()
        return self.outcome

    def _work(self) -> None:
        while self._fifo or self.timers:
            self._deliver() if self._fifo else self._expire()
        if self._finished():
            return
        states = "; ".join(describe(self.parties[server]) for server in self.card.scheme.servers)
        if self._resume or self.card.cheat:  # a view was cut behind what others had heard of it, or a cheat was refused
            raise Aborted(Reason.STALLED, f"no frame is on its way: {states}")
        if is_own(self.card.scheme):
            waiting = [party for party in self.parties.values() if not party.done]
            states = "; ".join(map(describe, waiting[:MOST_NAMED]))
            raise SchemeFailed(f"no frame is on its way and not every role has returned Done: {states}")
        raise Bug("no frame is on its way and not every role has finished")

    def _finished(self) -> bool:
        return all(performer.party.done for performer in self._cast.values())

    # --- the first step of a party, and the first after a break ----------------------------------------------------

    def _begin(self, names: Iterable[str]) -> None:
        for name in names:
            self._started.add(name)
            self._settle(name, self._cast[name].begin())

    def _go_on(self) -> None:
        """After a break. Who keeps no view begins anew, and is told everything from the first iteration on."""
        fresh = [name for name, performer in self._cast.items() if performer.path is None]
        self._held_back = []
        steps = {name: self._revive(name) for name, performer in self._cast.items() if performer.path is not None}
        self.outcome.startup_seconds = time.perf_counter() - self._began
        attendance = Attendance()
        for name in steps:
            attendance.add(name, *self._cast[name].party.counts())
        reports, self._held_back = self._held_back, None
        for report in reports:  # only now, as a report may lead to a look at any party
            self._report(report)
        recommender = self._cast[RECOMMENDER].party
        now = max(recommender.role.iteration, 0)
        self._begin(fresh)
        for iteration in range(now):
            self._happen(iteration, fresh)
        for name, step in steps.items():
            self._settle(name, step)
        if self._told < now and not recommender.done:
            self._happen(now)
        for name in self._cast:
            self._ask_again(name)

    def _revive(self, name: str) -> Step:
        """Restore the party from its view, with the step in which the view ends."""
        self._started.add(name)
        step = self._cast[name].resume()
        party = self._cast[name].party
        self._cast[name].figures.watch(party.role, party.done)
        return step

    def _ask_again(self, name: str, servers: Iterable[str] | None = None) -> None:
        """Have the party ask `servers` again for frames, or all of its servers."""
        performer = self._cast[name]
        for out in performer.party.ask_again(servers_of(self.card.scheme, name) if servers is None else servers):
            performer.leave(out)

    # --- frames ----------------------------------------------------------------------------------------------------

    def _next_edge(self) -> Edge:
        return self._fifo.popleft()

    def _deliver(self) -> None:
        sender, receiver = edge = self._next_edge()
        self._hand(sender, receiver, self._waiting[edge].popleft())

    def _hand(self, sender: str, receiver: str, frame: bytes) -> Step:
        step = self._cast[receiver].receive(sender, frame)
        self._settle(receiver, step)
        return step

    def _expire(self) -> None:
        name, iteration = self.timers.popleft()
        party = self._cast[name].party
        if not party.done and party.role.iteration == iteration:  # else it was over in time
            self._settle(name, party.tick(Deadline(iteration)))

    def _settle(self, name: str, step: Step) -> None:
        """Perform `step`, and let happen what comes from outside before an iteration that it has entered."""
        performer = self._cast[name]
        before, party = performer.figures.iteration, performer.party
        performer.perform(step)
        if name == RECOMMENDER and 0 <= before < party.role.iteration and not party.done:
            self._turn(party.role.iteration)

    def _turn(self, iteration: int) -> None:
        if self._told < iteration:  # else it happened in an earlier life of the recommender
            self._happen(iteration)

    def put(self, edge: Edge, frame: bytes) -> None:
        """Let `frame` wait on `edge`, (sender, receiver)."""
        self._waiting.setdefault(edge, deque()).append(frame)
        self._fifo.append(edge)

    # --- what comes from outside -----------------------------------------------------------------------------------

    def _happen(self, iteration: int, to: Container[str] | None = None) -> None:
        """Tell the outside events that come before `iteration`, to all parties or only to those in `to`."""
        self._told = iteration
        for name, event in self._events_for(iteration) if self._events_for else []:
            if to is None or name in to:
                self._tell(name, event)

    def _tell(self, name: str, event: Event) -> None:
        self._settle(name, self._cast[name].party.tick(event))

    # --- figures ---------------------------------------------------------------------------------------------------

    def _report(self, report: tuple[Any, ...]) -> None:
        if self._held_back is not None:
            self._held_back.append(report)
        elif isinstance(report, Finished):
            seconds = report.seconds
            if report.iteration < 0:
                since = time.perf_counter() - self._began
                self.outcome.startup_seconds = self.outcome.startup_seconds or since
                seconds = None if seconds is None else since
            self._books.iteration(report, seconds)
        elif isinstance(report, Ended) and report.party not in self._ended:
            self._ended.add(report.party)
            self._books.end(report)
        elif isinstance(report, Closed):
            self._books.closed(report)

    def _close(self) -> None:
        self._held_back = None
        for name, performer in self._cast.items():
            performer.finish()
            if name not in self._ended:
                self.outcome.rejected.update(performer.figures.rejected)
            if performer.party.view is not None:
                self.outcome.views[name] = (performer.party.view.records, performer.party.view.head)
        for server in self.card.scheme.servers:
            clients = [name for name in self._cast if server in servers_of(self.card.scheme, name)]
            handshakes = dict.fromkeys(clients, 0)  # none was made: one of each is counted, by formula
            note = "All parties were in one process, so nothing was sent."
            self._cast[server].figures.closed(handshakes, None, note)
        self._books.conclude()
        recommender = self._cast[RECOMMENDER].party
        self.outcome.item_factors = recommender.result if recommender.done else None
