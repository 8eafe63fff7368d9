"""Bytes by iteration, sender, receiver and kind, counted where a server sends, and where it receives from a user.

So every message of a run is counted once, by one of the two servers.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from protocol.framing import Traffic, wire_size
from protocol.roles import role_of


@dataclass(frozen=True, slots=True)
class Spread:
    """Wire bytes per (user, iteration): how many of these there are, their sum and the largest."""

    count: int = 0
    total: int = 0
    most: int = 0

    def __add__(self, other: Spread) -> Spread:
        return Spread(self.count + other.count, self.total + other.total, max(self.most, other.most))


@dataclass(slots=True)
class Tally:
    """What a meter hands over: rows of traffic, and what single users received and sent."""

    rows: list[Traffic] = field(default_factory=list)
    down: Spread = Spread()
    up: Spread = Spread()

    def to_lists(self) -> dict[str, Any]:
        rows = [list(dataclasses.astuple(row)) for row in self.rows]
        return {"rows": rows, "down": dataclasses.astuple(self.down), "up": dataclasses.astuple(self.up)}

    @classmethod
    def from_lists(cls, data: dict[str, Any]) -> Tally:
        return cls([Traffic(*row) for row in data["rows"]], Spread(*data["down"]), Spread(*data["up"]))

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.rows + other.rows, self.down + other.down, self.up + other.up)


class Meter:
    def __init__(self) -> None:
        self._rows: dict[tuple[int, str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        self._down: dict[tuple[int, str], int] = defaultdict(int)
        self._up: dict[tuple[int, str], int] = defaultdict(int)

    def count(self, iteration: int, sender: str, receiver: str, kind: str, payload: int) -> None:
        wire = wire_size(payload)
        row = self._rows[iteration, role_of(sender), role_of(receiver), kind]
        row[0] += 1
        row[1] += payload
        row[2] += wire
        if iteration >= 0 and receiver.startswith("user:"):
            self._down[iteration, receiver] += wire
        elif iteration >= 0 and sender.startswith("user:"):
            self._up[iteration, sender] += wire

    def take(self, up_to: int) -> Tally:
        """Everything of the iterations up to this one, which are complete; it is forgotten here."""
        tally = Tally()
        for key in sorted(key for key in self._rows if key[0] <= up_to):
            tally.rows.append(Traffic(*key, *self._rows.pop(key)))
        tally.down, tally.up = _spread(self._down, up_to), _spread(self._up, up_to)
        return tally


def _spread(sums: dict[tuple[int, str], int], up_to: int) -> Spread:
    taken = [sums.pop(key) for key in [key for key in sums if key[0] <= up_to]]
    return Spread(len(taken), sum(taken), max(taken, default=0))
