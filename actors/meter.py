"""Bytes by iteration, sender, receiver and kind, counted where a server sends, and where it receives from a user.

So every message of a run is counted once, by one of the two servers. What is no part of the protocol's own course is
counted apart: frames that are sent again, questions for them, frames that are refused, connections beyond a party's
first, and frames of the course that were not handed over because there was no way to their receiver (`UNDELIVERED`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.framing import ANSWERING_BYTES, DIALLING_BYTES, HANDSHAKE, Traffic, wire_size
from protocol.messages import SETUP
from protocol.roles import role_of

ALL = 1 << 62  # an iteration beyond every other
COURSE = 0  # the phase of all iterations and the end together, beside that of the set-up
RESEND, AGAIN, UNDELIVERED, RECONNECT, REJECTED = "resend", "again", "undelivered", "reconnect", "rejected:"

_role, _wire = functools.cache(role_of), functools.cache(wire_size)  # of few names and sizes, again and again

Frame = tuple[str, str, str, int]  # sender, receiver, kind, payload bytes
Row = list[Any]


@dataclass(slots=True)
class Tally:
    """What a meter hands over: rows of traffic, and what single users received and sent in the latest iteration."""

    rows: list[Traffic] = field(default_factory=list)
    users: dict[str, list[int]] = field(default_factory=dict)  # wire bytes down and up

    def to_lists(self) -> dict[str, Any]:
        return {"rows": [list(dataclasses.astuple(row)) for row in self.rows], "users": self.users}

    @classmethod
    def from_lists(cls, data: Mapping[str, Any]) -> Tally:
        return cls([Traffic(*row) for row in data["rows"]], data["users"])

    def add(self, other: Tally) -> None:
        """What another server has counted in the same iteration."""
        rows = {row_key(row): row for row in self.rows}
        for row in other.rows:
            known = rows.get(row_key(row))
            rows[row_key(row)] = row if known is None else _together(known, row)
        self.rows = sorted(rows.values(), key=row_key)
        for user, (down, up) in other.users.items():
            known_down, known_up = self.users.get(user, (0, 0))
            self.users[user] = [known_down + down, known_up + up]


def row_key(row: Traffic) -> tuple[int, str, str, str]:
    return row.iteration, row.sender, row.receiver, row.kind


def _together(one: Traffic, other: Traffic) -> Traffic:
    messages, payload = one.messages + other.messages, one.payload_bytes + other.payload_bytes
    return Traffic(*row_key(one), messages, payload, one.wire_bytes + other.wire_bytes)


class Meter:
    """While frames come and go they are only listed; they are added up when an iteration is over and taken."""

    def __init__(self) -> None:
        self._frames: dict[int, list[Frame]] = defaultdict(list)  # by iteration
        self.greeted: dict[str, bool] = {}  # clients, and whether their first handshake was in this server's life
        self._handshakes: list[tuple[str, str]] = []  # client and server, since they were last taken
        self._parties = _Sums()
        self._apart = _Sums()

    # --- while frames come and go ------------------------------------------------------------------------------------

    def count(self, iteration: int, sender: str, receiver: str, kind: str, payload: int) -> None:
        self._frames[iteration].append((sender, receiver, kind, payload))

    def count_apart(self, what: str, sender: str, receiver: str, payload: int) -> None:
        self._apart.add((what, sender, receiver), payload, wire_size(payload))

    def greet(self, client: str, server: str, now: bool = True) -> None:
        """Something came from this client: it has opened a connection, in this life of the server or an earlier one.

        Counted here and not when the connection was made, so that a view which is done again gives the same.
        """
        if client not in self.greeted:
            self.greeted[client] = now
            self._handshakes.append((client, server))

    def close_handshakes(self, server: str, made: Mapping[str, int]) -> None:
        """How many each client has made in this life of the server: of those who never said anything, and the rest."""
        for client, times in made.items():
            self.greet(client, server)
            for _ in range(times - self.greeted[client]):
                self._apart.add((RECONNECT, client, server), 0, DIALLING_BYTES)
                self._apart.add((RECONNECT, server, client), 0, ANSWERING_BYTES)

    # --- when something is over --------------------------------------------------------------------------------------

    def take(self, up_to: int) -> Tally:
        """Everything of the iterations up to this one, which are complete; it is forgotten here, except by party."""
        tally, rows = Tally(), _Sums()
        handshakes, self._handshakes = self._handshakes, []
        for client, server in handshakes:
            for sender, receiver, wire in ((client, server, DIALLING_BYTES), (server, client, ANSWERING_BYTES)):
                rows.add((SETUP, role_of(sender), role_of(receiver), HANDSHAKE), 0, wire)
                self._parties.add((SETUP, sender, receiver, HANDSHAKE), 0, wire)
                if up_to == SETUP:
                    _add_to_user(tally.users, sender, receiver, wire)
        for iteration in sorted(number for number in self._frames if number <= up_to):
            users = tally.users if iteration == up_to else {}
            self._add_up(iteration, self._frames.pop(iteration), rows, users)
        tally.rows = [Traffic(*key, *rows[key]) for key in sorted(rows)]
        return tally

    def _add_up(self, iteration: int, frames: list[Frame], rows: _Sums, users: dict[str, list[int]]) -> None:
        """One look at each frame, without a call that is not needed: this is most of what metering costs."""
        phase, parties = SETUP if iteration < 0 else COURSE, self._parties
        for sender, receiver, kind, payload in frames:
            wire = _wire(payload)
            party_key, row_key = (phase, sender, receiver, kind), (iteration, _role(sender), _role(receiver), kind)
            for sums in (parties.get(party_key) or parties.new(party_key), rows.get(row_key) or rows.new(row_key)):
                sums[0] += 1
                sums[1] += payload
                sums[2] += wire
            _add_to_user(users, sender, receiver, wire)

    def parties(self) -> list[Row]:
        """[phase, sender, receiver, kind, messages, payload bytes, wire bytes] of what was taken so far."""
        return [[*key, *self._parties[key]] for key in sorted(self._parties)]

    def apart(self) -> list[Row]:
        """[what, sender, receiver, messages, payload bytes, wire bytes]"""
        return [[*key, *self._apart[key]] for key in sorted(self._apart)]


class _Sums(dict[tuple[Any, ...], list[int]]):
    """Messages, payload bytes and wire bytes, by whatever they are added up for."""

    def new(self, key: tuple[Any, ...]) -> list[int]:
        return self.setdefault(key, [0, 0, 0])

    def add(self, key: tuple[Any, ...], payload: int, wire: int) -> None:
        sums = self.new(key)
        for place, amount in enumerate((1, payload, wire)):
            sums[place] += amount


def _add_to_user(users: dict[str, list[int]], sender: str, receiver: str, wire: int) -> None:
    """No message is from one user to another."""
    if receiver[:5] == "user:":
        users.setdefault(receiver, [0, 0])[0] += wire
    elif sender[:5] == "user:":
        users.setdefault(sender, [0, 0])[1] += wire
