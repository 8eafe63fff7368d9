"""The state that a host keeps for each of its parties, and the settings of the host itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from actors.calling import Doorbell
from actors.faults import PHASES, Faults
from actors.journal import Journal
from actors.keys import Roster, Secret
from actors.metering.recorder import Figures
from actors.transport.zeromq import ClientEnd, Context, Gate, ServerEnd
from protocol.card import Card
from protocol.errors import Aborted, BadInput, Reason
from protocol.party.party import Party, Step
from protocol.party.role import user_name
from protocol.party.view import END, EVENT, SENT, SIGNED, Record
from protocol.wire.messages import SETUP

End = ServerEnd | ClientEnd

_PORT_SECONDS, _PORT_TICK = 10.0, 0.01  # in which the port of a killed server must become free again
MOST_NAMED = 5  # parties in a sentence
_SIGN_SECONDS = 1.0  # between two reports that a view is being replayed
_LEAVE_SECONDS = 0.02  # in which frames that were handed over get on the wire


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
    metering: str = "on"  # of servers: "on", "off", or "pairs" (in every other pair of iterations)
    connected: int | None = None  # users connected at once, which come and go; None: all users stay connected
    patience: float | None = None  # seconds without a step after which this host gives up; None: a launcher watches


@dataclass(slots=True, eq=False)
class Hosted:
    card: Card
    secret: Secret
    party: Party
    journal: Journal | None
    server_end: ServerEnd | None
    client_ends: dict[str, ClientEnd]
    figures: Figures
    mischief: Any = None  # planned faults, if there are any
    before: int = SETUP  # the iteration that the first step finds
    first: Step | None = None  # after a restart: the rest of the step in which the view ends
    derived: dict[str, tuple[int, int]] = field(default_factory=dict)  # by peer: first frame asked for, times in a row
    servers: list[tuple[Hosted, str]] = field(default_factory=list)  # those that it asks again after a silence
    kernel_note: str | None = None  # of a server: why it does not read the kernel's counts
    doorbell: Doorbell | None = None  # of a server whose users come and go

    def listens(self) -> bool:
        """Tell whether the party still takes part: a user that is done does not, a server may be asked again."""
        return not self.party.done or self.server_end is not None

    def ends(self) -> list[End]:
        return [*([self.server_end] if self.server_end else []), *self.client_ends.values()]


def listen(
    context: Context,
    gate: Gate,
    roster: Roster,
    secret: Secret,
    place: Place,
    endpoint: str,
    count: bool,
    by_person: bool,
) -> ServerEnd:
    """Open the socket of a server at `endpoint` to the clients of `roster`; with `count`, keep the kernel's counts.

    The port of a killed server may stay in use for a moment, by a client that reconnects to it. `by_person` says that
    the person has chosen the port, and can choose another.
    """
    name, servers = secret.seat.party, roster.card.scheme.servers
    closed_to = servers[servers.index(name) :]  # itself, and the servers that it is a client of
    keys = {key: party for party, key in roster.public_keys.items() if party not in closed_to}
    resumes = name in place.resume
    until = time.monotonic() + (_PORT_SECONDS if resumes else 0.0)
    while True:
        try:
            max_frame, comings = roster.card.codec.max_frame, place.connected is not None
            own = (context, gate, name, endpoint, secret.keys)
            return ServerEnd(*own, keys, max_frame, kernel=count, comings=comings)
        except BadInput as taken:
            if time.monotonic() >= until:
                raise taken if by_person or not resumes else Aborted(Reason.PARTY_DIED, str(taken)) from None
            time.sleep(_PORT_TICK)


def status_of(party: Party) -> dict[str, Any]:
    """Report to the launcher what `party` is doing."""
    awaited = () if party.done else party.role.awaited()
    named = list(awaited[:MOST_NAMED])
    return {
        "event": "status",
        "party": party.name,
        "iteration": party.role.iteration,
        "done": party.done,
        "awaited": named,
        "more": len(awaited) - len(named),
    }


def describe(party: Party) -> str:
    """Describe in words what `party` is doing."""
    return describe_status(status_of(party))


def describe_status(status: dict[str, Any]) -> str:
    if status["done"]:
        return f"{status['party']} is done"
    where = "the set-up" if status["iteration"] < 0 else f"iteration {status['iteration']}"
    more = [f"{status['more']} others"] if status["more"] else []
    whom = " and ".join(filter(None, [", ".join(status["awaited"]), *more])) or "no party that it knows of"
    return f"{status['party']} is in {where} and waits for {whom}"


def look_on(hosted: Hosted, party: Party, records: Iterable[Record]) -> Iterator[Record]:
    """Follow the replay of a view, so that the figures of `hosted` become those of the first time.

    Replayed iterations are not announced again; only the progress of the replay is reported at intervals.
    """
    hosted.party, sign = party, time.monotonic()
    for record in records:
        if time.monotonic() > sign + _SIGN_SECONDS:
            sign = time.monotonic()
            hosted.figures.replaying(party.role)
        if record.type not in (SENT, END, SIGNED) and party.role.iteration != hosted.before:
            hosted.figures.watch(party.role, False)
            hosted.figures.turned(party.role)
            hosted.before = party.role.iteration
        yield record
        hosted.figures.recount(record, hosted.card.codec)
        if record.type == EVENT and record.fields[0] == "Gone" and hosted.server_end:
            hosted.server_end.revoke(user_name(record.fields[1]))


def crash_here(hosted: Hosted, step: Step, phase: str) -> None:
    if not hosted.mischief or not hosted.journal:  # without a view the party could not resume
        return
    if step.rejected is None and hosted.mischief.crashes(step.kind or "start", phase):
        if phase == PHASES[2]:
            time.sleep(_LEAVE_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)
