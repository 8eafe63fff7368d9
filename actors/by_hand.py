"""A host that a person started: no launcher tells it what happens, when everything is over, or that nothing moves."""

from __future__ import annotations

import time
from collections.abc import Iterable

from actors.host import LOOK_SECONDS, Host
from actors.keys import Roster, Secret
from actors.metering.outcome import EventsFor
from actors.metering.recorder import Report
from actors.seats import MOST_NAMED, Hosted, Place, describe
from actors.timers import Watchdog
from actors.transport.zeromq import ServerEnd
from protocol.errors import Aborted, Reason
from protocol.party.party import Step
from protocol.party.role import RECOMMENDER
from protocol.wire.messages import Again, Event


class HostByHand(Host):
    def __init__(
        self,
        roster: Roster,
        secrets: Iterable[Secret],
        place: Place,
        report: Report,
        patience: float,
        events_for: EventsFor | None,
    ) -> None:
        """Give up after `patience` seconds without a step; `events_for` is a rule that every host knows."""
        super().__init__(roster, secrets, place, report)
        self._watchdog = Watchdog(patience)
        self._events_for = events_for
        self._done: float | None = None  # when the last of the parties was done

    def _open(self) -> None:
        super()._open()
        self._apply_rule(max([0, *(h.party.role.iteration for h in self._hosted if h.party.name == RECOMMENDER)]))
        self._watchdog.moved()  # the time of replaying views does not count

    def _heard(self, hosted: Hosted, sender: str, step: Step) -> None:
        if step.rejected is None and step.kind != Again.__name__:
            self._watchdog.moved()

    def _tick(self, hosted: Hosted, event: Event) -> None:
        self._watchdog.moved()
        super()._tick(hosted, event)

    def _settle(self, hosted: Hosted, step: Step) -> None:
        party, before = hosted.party, hosted.figures.iteration
        super()._settle(hosted, step)
        if party.name == RECOMMENDER and 0 <= before < party.role.iteration and not step.done:
            self._apply_rule(party.role.iteration)

    def _apply_rule(self, iteration: int) -> None:
        """Apply the rule's events before `iteration` to the parties of this host."""
        parties = {hosted.party.name: hosted for hosted in self._hosted}
        for name, event in self._events_for(iteration) if self._events_for else []:
            if name in parties:
                self._tick(parties[name], event)

    def _waits(self) -> list[float | None]:
        return [*super()._waits(), self._watchdog.seconds(), None if self._done is None else LOOK_SECONDS]

    def _expire(self) -> None:
        super()._expire()
        if self._watchdog.is_stalled() and self._done is None:
            states = "; ".join(describe(hosted.party) for hosted in self._hosted[:MOST_NAMED])
            raise Aborted(Reason.STALLED, f"for {self._watchdog.patience:.0f} s: {states}")

    def _finished(self) -> bool:
        """Wait until the parties are done and, at a server, until its clients have closed their connections."""
        if not all(hosted.party.done for hosted in self._hosted):
            return False
        self._done = self._done or time.monotonic()
        servers = [hosted.server_end for hosted in self._hosted if hosted.server_end]
        return all(map(ServerEnd.is_left, servers)) or time.monotonic() > self._done + self.place.deadline
