"""What a host tells the launcher and the person about its parties: bytes, times, errors, refusals."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from actors.journal import if_full
from actors.meter import Meter
from actors.observer import HeldOut, Observer
from protocol.codec import Codec
from protocol.party import Outgoing, Party, Step, iteration_of, result_digest
from protocol.roles import RECOMMENDER, FactorizingRecommender, Role, role_of
from protocol.view import EVENT, RECEIVED, REJECTED, SENT, Record

Report = Callable[[dict[str, Any]], None]

_ALL = 1 << 62


class Figures:
    """Of one party. A server counts every frame that it sends, and those that it receives from users."""

    def __init__(
        self,
        party: str,
        serves: bool,
        reported: int,
        report: Report,
        observer: Observer | None,
        held_out: HeldOut | None,
    ) -> None:
        self._party = party
        self._meter = Meter() if serves else None
        self._reported = reported  # the launcher has the figures of the iterations up to this one
        self._report = report
        self._observer = observer
        self._held_out = held_out
        self._clock: float | None = None  # None while a view is done again: nobody knows how long it took
        self.rejected: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()  # connections of strangers

    # --- while it works ----------------------------------------------------------------------------------------------

    def received(self, sender: str, step: Step, size: int) -> None:
        if self._clock is None:
            self._clock = time.perf_counter()
        if step.rejected is not None:
            self.rejected[step.rejected.name] += 1
        elif self._meter and role_of(sender) == "user":
            self._meter.count(step.iteration, sender, self._party, step.kind, size)

    def sent(self, out: Outgoing) -> None:
        if self._meter:
            self._meter.count(out.iteration, self._party, out.to, out.kind, len(out.frame))

    def recount(self, record: Record, codec: Codec) -> None:
        """The same from a record of the view, which is done again."""
        if record.type == REJECTED:
            self.rejected[record.fields[1]] += 1
        elif record.type == EVENT and record.fields[0] == "Refused":
            self.refused[record.fields[1]] = record.fields[2]
        elif record.type == SENT and self._meter:
            to, kind, iteration, size, _ = record.fields
            self._meter.count(iteration, self._party, to, kind, size)
        elif record.type == RECEIVED and self._meter and role_of(record.fields[0]) == "user":
            sender, frame = record.fields
            _, message = codec.decode(frame)
            self._meter.count(iteration_of(message), sender, self._party, type(message).__name__, len(frame))

    def watch(self, role: Role, done: bool) -> None:
        if self._observer is not None:
            self._observer.watch(self._party, role, done, self._held_out)

    # --- when something is over --------------------------------------------------------------------------------------

    def turned(self, role: Role, finished: int, now: int) -> None:
        """From one iteration to another; `finished` is −1 (or below) for the set-up."""
        clock, seconds = time.perf_counter(), None
        if self._clock is not None:
            seconds, self._clock = clock - self._clock, clock
        if self._meter is None:
            return
        if finished < 0:
            if self._party == RECOMMENDER and now >= 0:
                self._report({"event": "joined"})
            return
        tally = self._meter.take(finished)
        if finished <= self._reported:
            return
        invited, contributors = turnout(role)
        self._report(
            {
                "event": "iteration",
                "party": self._party,
                "iteration": finished,
                "seconds": seconds,
                "invited": invited,
                "contributors": contributors,
                **tally.to_lists(),
            }
        )

    def ended(self, party: Party, memory: int | None) -> None:
        view = party.view
        self._report(
            {
                "event": "end",
                "party": party.name,
                "view": [view.records, view.head] if view else None,
                "result": None if party.result is None else result_digest(party.result).hex(),
                "rejected": dict(self.rejected),
                "uss": memory,
                **(self._meter.take(_ALL).to_lists() if self._meter else {}),
            }
        )


def turnout(role: Role) -> tuple[int, int]:
    """(invited, contributors) of the latest iteration, where the recommender knows."""
    return (role.n_invited, role.n_contributors) if isinstance(role, FactorizingRecommender) else (0, 0)


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
    """In one step, so that a reader never sees half of it."""
    folder = Path(run_folder) / "model"
    part = folder / "item_factors.part.npy"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        np.save(part, factors)
        os.replace(part, folder / "item_factors.npy")
    except OSError as error:
        raise if_full(error, str(folder)) from error
