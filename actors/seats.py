"""The seat of a party in a host: its connections, and the settings of the host itself."""

from __future__ import annotations

import functools
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actors.faults import PHASES, Faults, Sufferer
from actors.journal import view_path
from actors.keys import Secret
from actors.launch.reports import Listens, Waits
from actors.metering.recorder import Figures, peak_memory, save_factors
from actors.stage import START, Performer
from actors.transport import tcp_counts
from actors.transport.zeromq import ClientEnd, ServerEnd
from protocol.errors import Aborted, BadInput, Bug, Reason
from protocol.party.party import Outgoing, Party, Step
from protocol.party.role import RECOMMENDER, user_name
from protocol.wire.messages import SETUP

if TYPE_CHECKING:
    from actors.host import Host

End = ServerEnd | ClientEnd

_PORT_SECONDS, _PORT_TICK = 10.0, 0.01  # in which the port of a killed server must become free again
MOST_NAMED = 5  # parties in a sentence
_MOST_DERIVED = 3  # times that one peer may have the same old frames derived again
_LEAVE_SECONDS = 0.02  # in which frames that were handed over get on the wire
_TICK = 0.01  # seconds; the unit of an injected delay
_BURST = 64  # frames of a long step that leave before the next ones are made


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how a host works; no role sees any of it."""

    run_folder: str  # not a Path, whose code would cost each user's process memory pages of its own
    views: frozenset[str]  # parties that keep a view
    deadline: float  # seconds that an iteration may take
    bind: dict[str, str] = field(default_factory=dict)  # server -> endpoint, where it differs from the roster's
    resume: frozenset[str] = frozenset()  # parties that resume from their views
    reported: int = SETUP - 1  # the launcher has the figures of the iterations up to this one
    silence: float | None = None  # seconds after which a silent server is asked again; None: half of the deadline
    faults: Faults | None = None
    incarnation: int = 0  # how often these parties were started before
    connected: int | None = None  # users connected at once, which come and go; None: all users stay connected


class Hosted(Performer):
    """A party of a host, with its connections."""

    def __init__(self, host: Host, secret: Secret, clients_of: tuple[str, ...] | None = None) -> None:
        """Seat the party of `secret`; a server is a client of the servers `clients_of`."""
        card, place, name = host.roster.card, host.place, secret.seat.party
        plane = host.report, host.observer, secret.held_out
        figures = Figures(name, clients_of, place.reported, *plane, card.params.n_users)
        path = view_path(place.run_folder, name) if name in place.views else None
        super().__init__(card, secret.seat, figures, path)
        self.host = host
        self.secret = secret
        self.checkpoints = place.connected is None  # else nobody can be restored
        self.server_end: ServerEnd | None = None
        self.client_ends: dict[str, ClientEnd] = {}
        self.servers: list[tuple[Hosted, str]] = []  # those that it asks again after a silence
        self.kernel_note: str | None = None  # of a server: why it does not read the kernel's counts
        self._derived: dict[str, tuple[int, int]] = {}  # by peer: first frame asked for, times in a row

    def first_step(self) -> Step:
        """Begin, or resume from the view; return the step, which is still to be performed."""
        step = self.resume() if self.path is not None and self.party.name in self.host.place.resume else self.begin()
        if self.server_end and self.host.place.faults is None:
            self.party.burst = _BURST
        return step

    def listens(self) -> bool:
        """Tell whether the party still takes part: a user that is done does not, a server may be asked again."""
        return not self.party.done or self.server_end is not None

    def ends(self) -> list[End]:
        return [*([self.server_end] if self.server_end else []), *self.client_ends.values()]

    def derive(self, path: str, peer: str, first: int, end: int) -> list[Outgoing]:
        """Derive old frames again; a peer that makes progress may ask any number of times."""
        before, times = self._derived.get(peer, (-1, 0))
        times = times + 1 if before == first else 1
        self._derived[peer] = (first, times)
        return super().derive(path, peer, first, end) if times <= _MOST_DERIVED else []

    def write(self, step: Step) -> None:
        """Write the records of `step`; those of a server that cause nothing wait until the end of the burst."""
        first = step.kind == START  # it holds the opening of the view, without which nobody could read the file
        turned = self.party.role.iteration != self.figures.iteration
        if self.journal and self.server_end and not (first or turned or step.sends or step.abort or step.done):
            self.journal.hold(step.records)
        else:
            super().write(step)

    def hand_over(self, to: str, frame: bytes) -> None:
        end = self.client_ends.get(to) or self.server_end
        if end is None:
            raise Bug(f"{self.party.name} has no connection to {to!r}")
        if not end.send(to, frame):
            self.undelivered(to, frame)

    def undelivered(self, to: str, frame: bytes) -> None:
        """Note that `frame` did not leave, because `to` is not connected."""
        self.figures.undelivered(to, len(frame))

    def schedule(self, iteration: int) -> None:
        self.host.timers.schedule(self.host.place.deadline, functools.partial(self.host.deadline, self, iteration))

    def weigh(self) -> int | None:
        return self.host.weigh()

    def finish(self) -> None:
        super().finish()
        if self.party.name == RECOMMENDER and self.party.result is not None:
            save_factors(self.host.place.run_folder, self.party.result)

    def gone(self, user: int) -> None:
        if self.server_end:
            self.server_end.revoke(user_name(user))

    def note_refusals(self) -> None:
        """Count refused strangers; the view gets a record at 1, 2, 4, 8 … of a kind, so that a flood cannot fill it."""
        end = self.server_end
        assert end is not None
        while end.revoked_frames:
            self.figures.revoked(*end.revoked_frames.pop())
        for kind in end.refusals():
            self.figures.refused[kind] += 1
            count = self.figures.refused[kind]
            records = self.party.note("Refused", kind, count) if count & (count - 1) == 0 else []
            if self.journal and records:
                self.journal.append(records)

    def close_server(self, end: ServerEnd) -> None:
        """Report the last figures of a server, and close its end."""
        self.note_refusals()
        counted, note = (end.ledger.close(), end.ledger.note) if end.ledger else (None, self.kernel_note)
        self.figures.closed(end.handshakes(), counted, note, peak_memory())
        end.close()


class FaultyHosted(Sufferer, Hosted):
    def __init__(self, host: Host, secret: Secret, clients_of: tuple[str, ...] | None = None) -> None:
        super().__init__(host, secret, clients_of)
        assert host.place.faults is not None
        self.mischief = host.place.faults.of(self.party.name, host.place.incarnation, self.card.codec)

    def crash(self, phase: str, step: Step) -> None:
        if phase == PHASES[2]:
            time.sleep(_LEAVE_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    def delay(self, ticks: int, to: str, frame: bytes) -> None:
        self.host.timers.schedule(ticks * _TICK, functools.partial(self.hand_over, to, frame))


def take_seat(host: Host, secret: Secret, kind: type[Hosted]) -> Hosted:
    """Seat the party of `secret` in `host`, with a connection to every server that it is a client of."""
    name, card = secret.seat.party, host.roster.card
    servers = card.scheme.servers
    ahead = servers[servers.index(name) + 1 :] if name in servers else servers  # an earlier server is their client
    hosted = kind(host, secret, ahead if name in servers else None)
    if name in servers:
        hosted.server_end = _open_server(host, hosted)
    for server in ahead:
        address, keys = host.roster.address(server), secret.keys
        hosted.client_ends[server] = ClientEnd(host.sockets.context, server, address, keys, card.codec.max_frame)
    return hosted


def _open_server(host: Host, hosted: Hosted) -> ServerEnd:
    """Open the socket of a server to its clients; it keeps the kernel's counts, if they can be read.

    The port of a killed server may stay in use for a moment, by a client that reconnects to it.
    """
    roster, place, name = host.roster, host.place, hosted.party.name
    endpoint, resumes = place.bind.get(name) or roster.endpoints[name], name in place.resume
    clients = len(roster.public_keys) if place.connected is None else 2 * place.connected
    hosted.kernel_note = tcp_counts.why_not(name, endpoint, clients, resumes)
    closed_to = roster.card.scheme.servers[roster.card.scheme.servers.index(name) :]  # and itself
    keys = {key: party for party, key in roster.public_keys.items() if party not in closed_to}
    assert host.sockets.gate is not None
    own = (host.sockets.context, host.sockets.gate, name, endpoint, hosted.secret.keys)
    kernel, comings = hosted.kernel_note is None, place.connected is not None
    until = time.monotonic() + (_PORT_SECONDS if resumes else 0.0)
    while True:
        try:
            end = ServerEnd(*own, keys, roster.card.codec.max_frame, kernel=kernel, comings=comings)
            host.report(Listens(name, end.address.endpoint))
            return end
        except BadInput as taken:
            if time.monotonic() >= until:
                by_person = host.orders is None  # a person has chosen the port, and can choose another
                raise taken if by_person or not resumes else Aborted(Reason.PARTY_DIED, str(taken)) from None
            time.sleep(_PORT_TICK)


def status_of(party: Party) -> Waits:
    """Report what `party` is doing."""
    awaited = () if party.done else party.role.awaited()
    named = list(awaited[:MOST_NAMED])
    return Waits(party.name, party.role.iteration, party.done, named, len(awaited) - len(named))


def describe(party: Party) -> str:
    """Describe in words what `party` is doing."""
    return describe_status(status_of(party))


def describe_status(status: Waits) -> str:
    if status.done:
        return f"{status.party} is done"
    where = "the set-up" if status.iteration < 0 else f"iteration {status.iteration}"
    more = [f"{status.more} others"] if status.more else []
    whom = " and ".join(filter(None, [", ".join(status.awaited), *more])) or "no party that it knows of"
    return f"{status.party} is in {where} and waits for {whom}"
