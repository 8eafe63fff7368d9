"""A host of more users than may be connected at once; a user that is not awake costs only its rows in the ranks.

Each user has its own keys, sockets, tape and state, as in any host. A user is woken when something happens to it (it
joins, comes online or leaves) or when a server calls it (`calling.py`). It connects to the servers that called it or
that it has frames for, and asks them again, to receive what it has missed and to learn that its own frames arrived. It
then stays awake until another user needs its place. The user that has been idle longest takes its leave, closes its
connections, and its state is frozen (`protocol/freeze.py`). A user that has only joined is not stored, because that
state follows from its seat.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

from actors.crowd.away_states import Vault
from actors.crowd.secret_rows import Ranks
from actors.host import Host
from actors.journal import Journal, open_journal, view_path
from actors.keys import Roster
from actors.metering.observer import Observer
from actors.metering.recorder import Figures
from actors.pipes import Channel, Mailbox
from actors.seats import Hosted, Place
from actors.transport.waiting import Watch
from actors.transport.zeromq import ClientEnd
from protocol.card import seat_party
from protocol.freeze import put_down, take_up
from protocol.party.party import Party, Step, read_event
from protocol.party.role import user_index, user_name
from protocol.wire.messages import EVENTS, SETUP, Again, Event

_MOST_ASKING = 400  # users that wait for an answer at once: a server completes a few hundred handshakes per second
_LINGER_MS = 30_000  # in which the last frames of a user that closes must leave
_SIGN_OF_LIFE = 5.0  # seconds between two reports that this host works
_AGAIN = Again.__name__


@dataclass(slots=True, eq=False)
class Visitor(Hosted):
    """A user that is awake."""

    fresh: bool = False  # it starts now, so it cannot have missed anything
    asked: set[str] = field(default_factory=set)  # servers that have not answered yet
    touched: bool = False  # something has happened to it since it started


@dataclass(slots=True)
class _Errand:
    """The reasons to wake a user."""

    first: bool = False  # it has not started yet
    events: list[Event] = field(default_factory=list)
    callers: list[str] = field(default_factory=list)


class CrowdHost(Host):
    def __init__(
        self,
        roster: Roster,
        ranks: Ranks,
        place: Place,
        mailbox: Mailbox,
        observer: Observer | None,
        events: Channel,
        most: int,
    ) -> None:
        """Host the users of `ranks`, of which at most `most` are connected at once."""
        super().__init__(roster, (), place, mailbox.send, observer, events, mailbox=mailbox)
        self._context.max_sockets = 1023 + 8 * most
        self._watch = Watch()
        self._watch.register(events.fileno())
        self._roster, self._ranks, self._most = roster, ranks, most
        self._errands: OrderedDict[str, _Errand] = OrderedDict()
        self._awake: OrderedDict[str, Visitor] = OrderedDict()  # in the order in which they were last heard
        self._asking = 0  # users awake that wait for an answer
        self._ended: list[Visitor] = []  # users that finished in this round
        self._vault = Vault(place.run_folder)
        self._aside: dict[str, Party] = {}  # asleep, with a state that the vault cannot store
        self._rejected: dict[str, Counter[str]] = {}
        self._done_users: set[int] = set()
        self._sign = time.monotonic()
        self._moves = 0  # accepted frames, so that the launcher can tell work from a standstill

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        for user in self._ranks.users():
            self._errands[user_name(user)] = _Errand(first=True)
        self._tidy()

    def _look(self) -> None:
        for socket, _ in self._watch.poll(self._wait()):
            if socket not in self._by_socket:
                self._obey()
            elif not self._drain(*self._by_socket[socket]):
                self._watch.look_again(socket)

    def _finished(self) -> bool:
        return self._quit or len(self._done_users) == len(self._ranks)

    def _tidy(self) -> None:
        """Close the users that finished in this round, and wake those with an errand while there is room."""
        for visitor in self._ended:
            self._shut(visitor)
        self._ended = []
        while self._errands and self._asking < _MOST_ASKING and self._make_room():
            self._wake(*self._errands.popitem(last=False))
        if time.monotonic() > self._sign + _SIGN_OF_LIFE:
            self._sign = time.monotonic()
            self._report({"event": "alive", "host": user_name(self._ranks.users()[0]), "heard": self._moves})

    def _obey(self) -> None:
        """Carry out all orders that have arrived; a crowd gets thousands of them, too many to read singly."""
        assert self._events is not None
        orders = self._events.receive()
        if orders is None:
            self._watch.unregister(self._events.fileno())
        for name, kind, *fields in orders or ():
            if kind in EVENTS:
                self._happens(name, read_event(kind, *fields))
            elif kind == "Call":
                for user in fields[1]:
                    self._called(user, fields[0])
            elif kind == "Quit":
                self._quit = True

    def _happens(self, name: str, event: Event) -> None:
        if name in self._errands or name not in self._awake:
            self._errands.setdefault(name, _Errand()).events.append(event)
        else:
            self._awake[name].touched = True
            self._tick(self._awake[name], event)

    def _called(self, name: str, server: str) -> None:
        if user_index(name) in self._done_users:
            return
        visitor = self._awake.get(name)
        if visitor is None:
            errand = self._errands.setdefault(name, _Errand())
            errand.callers += [server] if server not in errand.callers else []
        elif server not in visitor.asked:
            self._ask(visitor, server)

    # --- coming ------------------------------------------------------------------------------------------------------

    def _make_room(self) -> bool:
        """Tell whether there is a place for a user, if need be by putting an idle one to sleep."""
        if len(self._awake) < self._most:
            return True
        idle = next((visitor for visitor in self._awake.values() if not visitor.asked), None)
        if idle is not None:
            self._rest(idle)
        return idle is not None

    def _wake(self, name: str, errand: _Errand) -> None:
        visitor = self._seat_visitor(name, errand.first)
        self._awake[name] = visitor
        if errand.first:
            self._settle(visitor, SETUP, visitor.party.start())
        for event in errand.events:
            visitor.touched = True
            self._tick(visitor, event)
        for server in errand.callers:
            if server not in visitor.asked:
                self._ask(visitor, server)
        if errand.first:  # only now, so that the answer confirms all frames sent above
            visitor.fresh = False
            for server in visitor.client_ends:
                self._ask(visitor, server)

    def _seat_visitor(self, name: str, first: bool) -> Visitor:
        secret, card, place = self._ranks.secret(user_index(name)), self._roster.card, self._place
        figures = Figures(name, None, place.reported, self._report, self._observer, secret.held_out, place.metering)
        figures.rejected = self._rejected.pop(name, Counter())
        path, keeps_view = view_path(place.run_folder, name), name in place.views
        party, opening = seat_party(card, secret.seat, keeps_view)
        visitor = Visitor(card, secret, party, None, None, {}, figures, fresh=first)
        if first:
            visitor.journal = open_journal(path, opening) if opening else None
            return visitor
        visitor.touched = True
        visitor.journal = Journal(path, again=True) if keeps_view else None
        if name in self._aside:
            visitor.party = self._aside.pop(name)
        elif (state := self._vault.get(user_index(name))) is not None:
            take_up(party, state)
        else:
            party.start()  # again, in memory alone: it had joined and received nothing since
            visitor.touched = False
        return visitor

    def _ask(self, visitor: Visitor, server: str) -> None:
        """Ask `server` what `visitor` has missed and which frames arrived; until the answer, `visitor` is not idle."""
        self._connect(visitor, server)
        [out] = visitor.party.ask_again([server])
        self._say(visitor, server, out.frame)
        self._asking += not visitor.asked
        visitor.asked.add(server)
        self._patience.watch((visitor, server))

    def _connect(self, visitor: Visitor, server: str) -> None:
        if server not in visitor.client_ends:
            address, keys = self._roster.address(server), visitor.secret.keys
            end = ClientEnd(self._context, server, address, keys, visitor.card.codec.max_frame)
            visitor.client_ends[server] = end
            self._watch.register(end.socket)
            self._by_socket[end.socket] = (visitor, end)

    def _hand_over(self, hosted: Hosted, to: str, frame: bytes) -> None:
        assert isinstance(hosted, Visitor)
        if to not in hosted.client_ends and not hosted.fresh:
            self._ask(hosted, to)
        if to in hosted.asked and not hosted.fresh:
            return  # the server's answer will show that this frame is missing, and it is sent then
        self._connect(hosted, to)
        self._say(hosted, to, frame)

    def _say(self, visitor: Visitor, server: str, frame: bytes) -> None:
        end = visitor.client_ends[server]
        end.send(server, frame)
        self._watch.look_again(end.socket)

    def _heard(self, hosted: Hosted, sender: str, step: Step) -> None:
        assert isinstance(hosted, Visitor)
        hosted.touched = True
        self._moves += step.rejected is None and (step.kind != _AGAIN or sender in hosted.asked)
        if step.kind == _AGAIN and sender in hosted.asked:
            self._answered(hosted, sender)
            if step.has_all:
                hosted.party.forget(sender)
        if hosted.party.name in self._awake:
            self._awake.move_to_end(hosted.party.name)

    def _answered(self, visitor: Visitor, server: str) -> None:
        visitor.asked.discard(server)
        self._asking -= not visitor.asked
        self._patience.forget((visitor, server))

    # --- going -------------------------------------------------------------------------------------------------------

    def _rest(self, visitor: Visitor) -> None:
        name, party = visitor.party.name, visitor.party
        for out in party.take_leave(visitor.client_ends):
            self._say(visitor, out.to, out.frame)
        self._shut(visitor)
        if visitor.figures.rejected:
            self._rejected[name] = visitor.figures.rejected
        if visitor.journal:
            visitor.journal.close()
        if not visitor.touched and not party.view:
            return
        if (state := put_down(party)) is not None:
            self._vault.put(user_index(name), state)
        else:
            self._aside[name] = party

    def _shut(self, visitor: Visitor) -> None:
        """Close the connections of `visitor`; each closes once its last frames have left."""
        self._asking -= bool(visitor.asked)
        for server in visitor.asked:
            self._patience.forget((visitor, server))
        visitor.asked = set()
        for end in visitor.client_ends.values():
            self._watch.unregister(end.socket)
            del self._by_socket[end.socket]
            end.close(_LINGER_MS)
        visitor.client_ends = {}
        del self._awake[visitor.party.name]

    def _finish(self, hosted: Hosted, memory: int | None) -> None:
        assert isinstance(hosted, Visitor)
        self._done_users.add(user_index(hosted.party.name))
        self._ended.append(hosted)
        super()._finish(hosted, memory)

    def _close(self) -> None:
        for visitor in list(self._awake.values()):
            self._shut(visitor)
        self._vault.close()
        self._watch.close()
        super()._close()

    def _abandon(self) -> None:
        vault: Any = getattr(self, "_vault", None)  # missing if the constructor failed before making it
        if vault:
            vault.close()
        super()._abandon()
