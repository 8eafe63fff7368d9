"""All roles in one process: the same parties, codec and views as the processes, without sockets.

Frames wait in one queue per (sender, receiver). If `order` is given, a generator seeded with it decides which
edge delivers next, so that every order of arrival that ZeroMQ could produce can be produced here. When no frame
is left and a timer runs, its deadline has come.

A run that ended too early goes on from its views. Every party is restored from its view, and clients ask their servers
again for the frames that were on their way. Events from outside are told again; roles ignore those that they know.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from actors.blame import is_own, scheme_failed
from actors.everyone_online import everyone_stays, takes_presence
from actors.journal import Journal, derive_again, make_view_folders, resume_party, view_path
from actors.metering.observer import HeldOut, Observer
from actors.metering.outcome import Attendance, Books, EventsFor, OnIteration, Outcome
from actors.metering.recorder import Figures
from actors.seats import MOST_NAMED, describe
from protocol.card import Card, Seat, seat_party
from protocol.errors import Aborted, Bug, Reason, SchemeFailed
from protocol.party.party import Outgoing, Party, Step
from protocol.party.role import RECOMMENDER, user_index
from protocol.party.view import END, EVENT, SENT, SIGNED, Record
from protocol.schemes import Scheme
from protocol.wire.messages import SETUP, Deadline, Due, Event, Gone

Edge = tuple[str, str]


def servers_of(scheme: Scheme, party: str) -> tuple[str, ...]:
    """List the servers whose client `party` is: all of them for a user, the later ones for a server."""
    return scheme.servers[scheme.servers.index(party) + 1 :] if party in scheme.servers else scheme.servers


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
        resume: bool = False,
        reported: int = SETUP - 1,
    ) -> None:
        """Set up all parties.

        `silent` gives by iteration the users whose answers come too late, `gone` the users that end in it. With
        `resume`, each party in `with_view` goes on from its view in the run folder, and the figures of the iterations
        up to `reported` are not reported again.
        """
        if events_for is None and takes_presence(card.scheme):
            events_for = everyone_stays(card.params.n_users)
        self._card = card
        self._seats = {seat.party: seat for seat in seats}
        self._run_folder = run_folder
        self._with_view = with_view if run_folder is not None else frozenset[str]()
        self._resume = resume
        self._events_for = events_for
        self._silent = silent or {}
        self._gone = gone or {}
        self._left: set[int] = set()
        self._late: list[tuple[str, str, bytes]] = []
        self._observer = observer
        self._held_out = held_out or {}
        self._random = None if order is None else random.Random(order)
        self._fifo: deque[Edge] = deque()  # edges in the order of sending; one entry per waiting frame
        self._waiting: dict[Edge, deque[bytes]] = {}
        self._timers: deque[tuple[str, int]] = deque()
        self._told = -1  # the latest iteration whose outside events were told
        self._journals: dict[str, Journal] = {}
        self.parties: dict[str, Party] = {}
        self._openings: dict[str, bytes] = {}
        for name, seat in self._seats.items():
            self.parties[name], self._openings[name] = seat_party(card, seat, name in with_view)
        self._at = dict.fromkeys(self.parties, SETUP)  # the iteration that each party was in after its last step
        self._ended: set[str] = set()  # parties whose final figures were reported
        self._held_back: list[dict[str, Any]] | None = None  # reports to be handled once all parties are restored
        self.outcome = Outcome(processes={"inprocess": 1})
        self._books = Books(card.scheme.servers, self.outcome, on_iteration, reported)
        self._figures = {name: self._new_figures(name) for name in self.parties}
        self._started = time.perf_counter()

    def run(self) -> Outcome:
        try:
            if self._run_folder is not None:
                make_view_folders(self._run_folder, self._with_view)
            if self._resume:
                self._go_on()
            else:
                self._begin(self.parties)
                self._happen(0)
            self._work()
        except Aborted as abort:
            self.outcome.abort = abort
        except (Exception, SystemExit) as error:
            self.outcome.abort = scheme_failed(error, self._card.scheme)
            if self.outcome.abort is None:
                raise
        finally:
            self._close()
        return self.outcome

    def _work(self) -> None:
        while self._fifo or self._timers:
            self._deliver() if self._fifo else self._expire()
        if self._finished():
            return
        states = "; ".join(describe(self.parties[server]) for server in self._card.scheme.servers)
        if self._resume:  # a view may lack the records of frames that other parties have
            raise Aborted(Reason.STALLED, f"no frame is on its way: {states}")
        if is_own(self._card.scheme):
            waiting = [party for party in self.parties.values() if not party.done]
            states = "; ".join(map(describe, waiting[:MOST_NAMED]))
            raise SchemeFailed(f"no frame is on its way and not every role has returned Done: {states}")
        raise Bug("no frame is on its way and not every role has finished")

    def _finished(self) -> bool:
        return all(party.done or user_index(name) in self._left for name, party in self.parties.items())

    # --- the first step of a party, and the first after a break ----------------------------------------------------

    def _begin(self, names: Iterable[str]) -> None:
        for name in names:
            step, opening = self.parties[name].start(), self._openings.pop(name)
            step.kind = "start"
            if name in self._with_view:
                self._keep(name, Journal(self._path(name)))
                step.records.insert(0, opening)
            self._settle(self.parties[name], step)

    def _go_on(self) -> None:
        """Go on after a break.

        A party without a view begins anew, and is told all outside events from the first iteration on.
        """
        fresh = [name for name in self.parties if name not in self._with_view]
        self._held_back = []
        steps = {name: self._revive(name) for name in self.parties if name in self._with_view}
        self.outcome.startup_seconds = time.perf_counter() - self._started
        attendance = Attendance()
        for name in steps:
            attendance.add(name, *self.parties[name].counts())
        reports, self._held_back = self._held_back, None
        for report in reports:  # only now, as a report may lead to a look at any party
            self._report(report)
        recommender = self.parties[RECOMMENDER]
        now = max(recommender.role.iteration, 0)
        self._begin(fresh)
        for iteration in range(now):
            self._happen(iteration, fresh)
        for name, step in steps.items():
            unfinished = name == RECOMMENDER and step.records  # its last step may enter an iteration now
            self._at[name] = self._figures[name].iteration if unfinished else self.parties[name].role.iteration
            self._settle(self.parties[name], step)
        if self._told < now and not recommender.done:
            self._happen(now)
        for name in self.parties:
            self._ask_again(name)

    def _revive(self, name: str) -> Step:
        """Restore a party from its view; the step holds what it has not written or sent yet."""
        self._openings.pop(name, None)
        self._figures[name] = self._new_figures(name)
        party, journal, step = resume_party(self._card, self._seats[name], self._path(name), self._follow)
        self.parties[name] = party
        self._keep(name, journal)
        self._figures[name].watch(party.role, party.done)
        step.kind = "start"
        return step

    def _follow(self, party: Party, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the `records` of a view that `party` replays, and count them as they were counted the first time."""
        figures = self._figures[party.name]
        for record in records:
            if record.type not in (SENT, END, SIGNED):
                figures.turned(party.role)
            yield record
            figures.recount(record, self._card.codec)
            if party.name == RECOMMENDER and record.type == EVENT and record.fields[0] == Gone.__name__:
                self._left.add(record.fields[1])

    def _keep(self, name: str, journal: Journal) -> None:
        self._journals[name] = journal

    def _ask_again(self, name: str, servers: Iterable[str] | None = None) -> None:
        """Let the party `name` ask the given servers again for missing frames, or all of its servers."""
        asked = servers_of(self._card.scheme, name) if servers is None else servers
        for out in self.parties[name].ask_again(asked):
            self._post(name, out)

    def _path(self, name: str) -> str:
        assert self._run_folder is not None
        return view_path(self._run_folder, name)

    # --- frames ----------------------------------------------------------------------------------------------------

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
        self._hand(sender, receiver, self._waiting[edge].popleft())

    def _hand(self, sender: str, receiver: str, frame: bytes) -> Step:
        party = self.parties[receiver]
        step = party.receive(sender, frame)
        self._figures[receiver].received(sender, step, len(frame))
        if step.wants is not None and receiver in self._with_view:
            older = derive_again(self._card, self._seats[receiver], self._path(receiver), *step.wants)
            step.sends[:0] = older
        self._settle(party, step)
        return step

    def _expire(self) -> None:
        name, iteration = self._timers.popleft()
        party = self.parties[name]
        if not party.done and party.role.iteration == iteration:  # else the iteration ended in time
            self._settle(party, party.tick(Deadline(iteration)))

    def _settle(self, party: Party, step: Step) -> None:
        """Carry out `step`: write its records first, then let the observer look, then send its frames."""
        before, self._at[party.name] = self._at[party.name], party.role.iteration
        turned = party.role.iteration != before
        self._write(party.name, step)
        if step.abort is not None:
            raise step.abort
        figures = self._figures[party.name]
        if turned or step.done:
            figures.watch(party.role, step.done)
        self._send(party.name, step)
        self._timers.extend((party.name, iteration) for iteration in step.timers)
        figures.turned(party.role)
        if party.name == RECOMMENDER and turned:
            self._deliver_late()
            if before >= 0 and not party.done:
                self._happen(party.role.iteration)
        if step.done:
            figures.ended(party, None)

    def _write(self, name: str, step: Step) -> None:
        if step.records and name in self._journals:
            self._journals[name].append(step.records)

    def _send(self, name: str, step: Step) -> None:
        for out in step.sends:
            if out.kind == "MaskedGradient" and user_index(name) in self._silent.get(out.iteration, ()):
                self._late.append((name, out.to, out.frame))
                continue
            self._post(name, out)
            if out.kind == "OpenSum":
                self._lose(out.iteration)

    def _post(self, name: str, out: Outgoing) -> None:
        self._figures[name].sent(out)
        self._put((name, out.to), out.frame)

    def _put(self, edge: Edge, frame: bytes) -> None:
        self._waiting.setdefault(edge, deque()).append(frame)
        self._fifo.append(edge)

    # --- what comes from outside -----------------------------------------------------------------------------------

    def _happen(self, iteration: int, to: Container[str] | None = None) -> None:
        """Tell the outside events that come before `iteration`, to all parties or only to those in `to`."""
        self._told = iteration
        for name, event in self._events_for(iteration) if self._events_for else []:
            if user_index(name) in self._left or (to is not None and name not in to):
                continue
            if isinstance(event, Due):
                event = Due(event.iteration, tuple(user for user in event.users if user not in self._left))
            self._tell(name, event)

    def _tell(self, name: str, event: Event) -> None:
        party = self.parties[name]
        self._settle(party, party.tick(event))

    def _lose(self, iteration: int) -> None:
        for user in sorted(self._gone.get(iteration, ())):
            if user not in self._left:
                self._left.add(user)
                self._tell(RECOMMENDER, Gone(user))

    def _deliver_late(self) -> None:
        for sender, receiver, frame in self._late:
            if user_index(sender) not in self._left and not self.parties[receiver].done:
                self._put((sender, receiver), frame)
        self._late = []

    # --- figures ---------------------------------------------------------------------------------------------------

    def _new_figures(self, name: str) -> Figures:
        """Make the figures of a new or restored party; iterations that were reported are not reported again."""
        ahead = servers_of(self._card.scheme, name) if name in self._card.scheme.servers else None
        reported = self._books.reported.get(name, SETUP - 1)
        held_out, n_users = self._held_out.get(name), self._card.params.n_users
        return Figures(name, ahead, reported, self._report, self._observer, held_out, n_users=n_users)

    def _report(self, report: dict[str, Any]) -> None:
        if self._held_back is not None:
            self._held_back.append(report)
        elif report["event"] == "joined":
            seconds = time.perf_counter() - self._started
            self.outcome.startup_seconds = self.outcome.startup_seconds or seconds
            self._books.iteration(report, None if report["seconds"] is None else seconds)
        elif report["event"] == "iteration":
            self._books.iteration(report, report["seconds"])
        elif report["event"] == "end" and report["party"] not in self._ended:
            self._ended.add(report["party"])
            self._books.end(report)
        elif report["event"] == "closed":
            self._books.closed(report)

    def _close(self) -> None:
        self._held_back = None
        for journal in self._journals.values():
            journal.close()
        for name, party in self.parties.items():
            if name not in self._ended:
                self.outcome.rejected.update(self._figures[name].rejected)
            if party.view is not None:
                self.outcome.views[name] = (party.view.records, party.view.head)
        for server in self._card.scheme.servers:
            clients = [name for name in self.parties if server in servers_of(self._card.scheme, name)]
            handshakes = dict.fromkeys(clients, 0)  # no connection was made; one per client is counted by formula
            self._figures[server].closed(handshakes, None, "All parties were in one process, so nothing was sent.")
        self._books.conclude()
        recommender = self.parties[RECOMMENDER]
        self.outcome.item_factors = recommender.result if recommender.done else None
