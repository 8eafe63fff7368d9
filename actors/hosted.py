"""What a host knows of each of its parties, and of where it works."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from actors.doorbell import Doorbell
from actors.faults import PHASES, Faults
from actors.figures import Figures
from actors.journal import Journal
from actors.keys import Secret
from actors.transport import ClientEnd, ServerEnd
from protocol.messages import SETUP
from protocol.party import Party, Step
from protocol.roles import user_name
from protocol.seating import Card
from protocol.view import END, EVENT, SENT, SIGNED, Record

End = ServerEnd | ClientEnd

_LEAVE_SECONDS = 0.02  # in which frames that were handed over are on the wire


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how this host works; nothing of it reaches a role."""

    run_folder: str  # not a Path: what a user's process touches, it owns
    views: frozenset[str]  # parties that keep a view
    deadline: float  # seconds that an iteration may take
    bind: dict[str, str] = field(default_factory=dict)  # server -> endpoint, where it differs from the roster's
    resume: frozenset[str] = frozenset()  # parties that go on from their views
    reported: int = SETUP - 1  # the launcher has the figures of the iterations up to this one
    silence: float | None = None  # seconds after which a server is asked again; half of the deadline
    faults: Faults | None = None
    incarnation: int = 0  # how often these parties were started before
    metering: str = "on"  # of servers: "on", "off", or "pairs" (in every other two iterations)
    connected: int | None = None  # users that are connected at a time, who come and go; None: all of them, and stay


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
    first: Step | None = None  # after a restart: what the view says is still to be done
    derived: dict[str, tuple[int, int]] = field(default_factory=dict)  # by peer: first frame, how often in a row
    servers: list[tuple[Hosted, str]] = field(default_factory=list)  # whom it asks when it hears nothing
    kernel_note: str | None = None  # of a server: why it does not read what the kernel counts
    doorbell: Doorbell | None = None  # of a server whose users come and go

    def listens(self) -> bool:
        """A user that is done wants nothing more; a server may still be asked for its last frames."""
        return not self.party.done or self.server_end is not None

    def ends(self) -> list[End]:
        return [*([self.server_end] if self.server_end else []), *self.client_ends.values()]


def look_on(hosted: Hosted, party: Party, records: Iterable[Record]) -> Iterator[Record]:
    """Look on while a party does again what its view says: the figures are those of the first time."""
    hosted.party = party
    for record in records:
        if record.type not in (SENT, END, SIGNED) and party.role.iteration != hosted.before:
            hosted.figures.watch(party.role, False)
            hosted.figures.turned(party.role)
            hosted.before = party.role.iteration
        yield record
        hosted.figures.recount(record, hosted.card.codec)
        if record.type == EVENT and record.fields[0] == "Gone" and hosted.server_end:
            hosted.server_end.revoke(user_name(record.fields[1]))


def crash_here(hosted: Hosted, step: Step, phase: str) -> None:
    if not hosted.mischief or not hosted.journal:  # without a view it could not come back
        return
    if step.rejected is None and hosted.mischief.crashes(step.kind or "start", phase):
        if phase == PHASES[2]:
            time.sleep(_LEAVE_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)
