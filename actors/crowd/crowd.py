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

from actors.crowd.away_states import Vault
from actors.crowd.secret_rows import Ranks
from actors.host import Host
from actors.journal import Journal
from actors.keys import Roster, Secret
from actors.launch.reports import Alive, Call, Happens, Quit, read
from actors.metering.observer import Observer
from actors.metering.recorder import Report
from actors.pipes import Channel, Mailbox
from actors.seats import Hosted, Place
from actors.transport.waiting import Watch
from actors.transport.zeromq import ClientEnd
from protocol.freeze import put_down, take_up
from protocol.party.party import Party, Step, read_event
from protocol.party.role import user_index, user_name
from protocol.wire.messages import Again, Event

_MOST_ASKING = 400  # users that wait for an answer at once: a server completes a few hundred handshakes per second
_LINGER_MS = 30_000  # in which the last frames of a user that closes must leave
_SIGN_OF_LIFE = 5.0  # seconds between two reports that this host works
_AGAIN = Again.__name__


class Visitor(Hosted):
    """A user that is awake."""

    host: CrowdHost

    def __init__(self, host: CrowdHost, secret: Secret, fresh: bool) -> None:
        super().__init__(host, secret)
        self.fresh = fresh  # it starts now, so it cannot have missed anything
        self.asked: set[str] = set()  # servers that have not answered yet
        self.touched = not fresh  # something has happened to it since it started

    def go_on(self, path: str | None, state: bytes | Party | None) -> None:
        """Become what the user was when it went to sleep, with this `state`; None: it had joined, and no more."""
        self.journal = Journal(path, again=True) if path is not None else None
        if isinstance(state, Party):
            self.party = state
        elif state is not None:
            take_up(self.party, state)
        else:
            self.party.start()  # again, in memory alone
            self.touched = False
        self.figures.iteration = self.party.role.iteration

    def hand_over(self, to: str, frame: bytes) -> None:
        if to not in self.client_ends and not self.fresh:
            self.host.ask(self, to)
        if to in self.asked and not self.fresh:
            return  # the server's answer will show that this frame is missing, and it is sent then
        self.host.connect(self, to)
        self.say(to, frame)

    def say(self, server: str, frame: bytes) -> None:
        end = self.client_ends[server]
        end.send(server, frame)
        self.host.sockets.look_again(end.socket)


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
        report: Report,
        observer: Observer | None,
        orders: Channel,
        mailbox: Mailbox,
        most: int,
    ) -> None:
        """Host the users of `ranks`, of which at most `most` are connected at once."""
        super().__init__(roster, (), place, report, observer, orders, mailbox, Watch())
        self.sockets.context.max_sockets = 1023 + 8 * most
        self._ranks, self._most = ranks, most
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
            self.report(Alive(user_name(self._ranks.users()[0]), self._moves))

    def _obey(self) -> None:
        """Carry out all orders that have arrived; a crowd gets thousands of them, too many to read singly."""
        assert self.orders is not None
        orders = self.orders.receive()
        if orders is None:
            self.sockets.remove(self.orders.fileno())
        for order in map(read, orders or ()):
            if isinstance(order, Happens):
                self._happens(order.party, read_event(order.kind, *order.fields))
            elif isinstance(order, Call):
                for user in order.users:
                    self._called(user, order.server)
            elif isinstance(order, Quit):
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
            self.ask(visitor, server)

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
        visitor = Visitor(self, self._ranks.secret(user_index(name)), errand.first)
        visitor.figures.rejected = self._rejected.pop(name, Counter())
        self._awake[name] = visitor
        if errand.first:
            self._settle(visitor, visitor.begin())
        else:
            visitor.go_on(visitor.path, self._aside.pop(name, None) or self._vault.get(user_index(name)))
        for event in errand.events:
            visitor.touched = True
            self._tick(visitor, event)
        for server in errand.callers:
            if server not in visitor.asked:
                self.ask(visitor, server)
        if errand.first:  # only now, so that the answer confirms all frames sent above
            visitor.fresh = False
            for server in visitor.client_ends:
                self.ask(visitor, server)

    def ask(self, visitor: Visitor, server: str) -> None:
        """Ask `server` what `visitor` has missed and which frames arrived; until the answer, `visitor` is not idle."""
        self.connect(visitor, server)
        [out] = visitor.party.ask_again([server])
        visitor.say(server, out.frame)
        self._asking += not visitor.asked
        visitor.asked.add(server)
        self._patience.watch((visitor, server))

    def connect(self, visitor: Visitor, server: str) -> None:
        if server not in visitor.client_ends:
            address, keys = self.roster.address(server), visitor.secret.keys
            end = ClientEnd(self.sockets.context, server, address, keys, visitor.card.codec.max_frame)
            visitor.client_ends[server] = end
            self.sockets.add(end.socket, (visitor, end))

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
            visitor.say(out.to, out.frame)
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
            self.sockets.remove(end.socket)
            end.close(_LINGER_MS)
        visitor.client_ends = {}
        del self._awake[visitor.party.name]

    def _settle(self, hosted: Hosted, step: Step) -> None:
        super()._settle(hosted, step)
        if step.done:
            assert isinstance(hosted, Visitor)
            self._done_users.add(user_index(hosted.party.name))
            self._ended.append(hosted)

    def _close(self) -> None:
        for visitor in list(self._awake.values()):
            self._shut(visitor)
        self._vault.close()
        super()._close()

    def _abandon(self) -> None:
        self._vault.close()
        super()._abandon()
