"""Bytes by iteration, sender, receiver and kind, counted where a server sends, and where it receives from a user.

Thus every message of a run is counted once, by one of the two servers. Traffic outside the protocol's own course is
counted apart: frames that are sent again, requests for them, refused frames, connections beyond a party's first, and
frames of the course that could not be handed over because their receiver was not connected (`UNDELIVERED`).

The totals of single parties are kept too; in a crowd, all users share one total.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.party.role import role_of
from protocol.wire.framing import ANSWERING_BYTES, DIALLING_BYTES, HANDSHAKE, Traffic, wire_size
from protocol.wire.messages import SETUP

ALL = 1 << 62  # an iteration beyond every other
COURSE = 0  # the phase after the set-up: all iterations and the end
RESEND, AGAIN, UNDELIVERED, RECONNECT, REJECTED = "resend", "again", "undelivered", "reconnect", "rejected:"

MOST_PARTIES = 20_000  # users whose bytes are kept singly; with more, a server would hold millions of sums
_MOST_SIZES = 20_000  # (party, size) counts that are kept before they are added up, which bounds the memory
_role, _wire = functools.cache(role_of), functools.cache(wire_size)  # few names and sizes, which recur all the time

Row = list[Any]
_Edge = tuple[int, str, str, bool]  # iteration, role of the other end, kind, and whether the server received it


@dataclass(slots=True)
class Tally:
    """Rows of traffic, and the bytes that each user received and sent in the latest iteration."""

    rows: list[Traffic] = field(default_factory=list)
    users: dict[str, list[int]] = field(default_factory=dict)  # wire bytes down and up

    def to_lists(self) -> list[Any]:
        return [[as_row(row) for row in self.rows], self.users]

    @classmethod
    def from_lists(cls, data: Sequence[Any]) -> Tally:
        rows, users = data
        return cls([Traffic(*row) for row in rows], users)

    def add(self, other: Tally) -> None:
        """Add the tally `other` of another server for the same iteration."""
        rows = {row_key(row): row for row in self.rows}
        for row in other.rows:
            known = rows.get(row_key(row))
            rows[row_key(row)] = row if known is None else _together(known, row)
        self.rows = sorted(rows.values(), key=row_key)
        for user, (down, up) in other.users.items():
            known_down, known_up = self.users.get(user, (0, 0))
            self.users[user] = [known_down + down, known_up + up]


def as_row(row: Traffic) -> Row:
    return [*row_key(row), row.messages, row.payload_bytes, row.wire_bytes]


def row_key(row: Traffic) -> tuple[int, str, str, str]:
    return row.iteration, row.sender, row.receiver, row.kind


def _together(one: Traffic, other: Traffic) -> Traffic:
    messages, payload = one.messages + other.messages, one.payload_bytes + other.payload_bytes
    return Traffic(*row_key(one), messages, payload, one.wire_bytes + other.wire_bytes)


class Meter:
    """The meter of one server. It lists frames as they come and go, and adds them up when an iteration is taken.

    Each list holds one kind in one direction, so that adding up is a few sums over a list. The traffic of each party is
    kept as counts by size, since few sizes recur. In a crowd, all users count as one party.
    """

    def __init__(self, server: str, n_users: int = 0) -> None:
        self._server = server
        self.by_party = n_users <= MOST_PARTIES
        self._frames: dict[_Edge, list[tuple[str, int]]] = defaultdict(list)  # party and payload bytes
        self._totals: dict[_Edge, Counter[tuple[str, int]]] = defaultdict(Counter)  # by phase instead of iteration
        self._parties, self._apart = _Sums(), _Sums()
        self.greeted: dict[str, bool] = {}  # clients, and whether their first handshake was in this server's life
        self._handshakes: list[str] = []  # clients, since they were last taken

    # --- while frames come and go ------------------------------------------------------------------------------------

    def sent(self, iteration: int, to: str, kind: str, payload: int) -> None:
        self._frames[iteration, _role(to), kind, False].append((to, payload))

    def received(self, iteration: int, sender: str, kind: str, payload: int) -> None:
        self._frames[iteration, _role(sender), kind, True].append((sender, payload))

    def count_apart(self, what: str, sender: str, receiver: str, payload: int) -> None:
        self._apart.add((what, self._label(sender), self._label(receiver)), 1, payload, wire_size(payload))

    def _label(self, party: str) -> str:
        return party if self.by_party else _role(party)

    def greet(self, client: str, now: bool = True) -> None:
        """Count the first handshake of `client`, from which a frame has come.

        `now` is False if the connection was opened in an earlier life of the server. The handshake is counted here, not
        when the connection is made, so that replaying a view gives the same counts.
        """
        if client not in self.greeted:
            self.greeted[client] = now
            self._handshakes.append(client)

    def close_handshakes(self, made: Mapping[str, int]) -> None:
        """Count the handshakes that were not counted yet: those of silent clients, and all beyond a client's first.

        `made` gives, by client, the handshakes in this life of the server.
        """
        for client, times in made.items():
            self.greet(client)
            further = times - self.greeted[client]
            if further > 0:
                label = self._label(client)
                self._apart.add((RECONNECT, label, self._server), further, 0, further * DIALLING_BYTES)
                self._apart.add((RECONNECT, self._server, label), further, 0, further * ANSWERING_BYTES)

    # --- when something is over --------------------------------------------------------------------------------------

    def take(self, up_to: int) -> Tally:
        """Hand over the traffic of the iterations up to `up_to`, which are complete; only totals by party are kept."""
        tally, rows = Tally(), _Sums()
        self._take_handshakes(rows, tally.users if up_to == SETUP else {})
        for edge in [edge for edge in self._frames if edge[0] <= up_to]:
            iteration, role, kind, up = edge
            frames = self._frames.pop(edge)
            sizes = [size for _, size in frames]
            sums = len(frames), sum(sizes), sum(map(_wire, sizes))
            rows.add((iteration, *self._ends(role, up), kind), *sums)
            phase = SETUP if iteration < 0 else COURSE
            if self.by_party:
                self._add_to_totals((phase, role, kind, up), frames)
            else:
                self._parties.add((phase, *self._ends(role, up), kind), *sums)
            if iteration == up_to and role == "user":
                for user, size in frames:
                    _user(tally.users, user)[up] += _wire(size)
        tally.rows = [Traffic(*key, *rows[key]) for key in sorted(rows)]
        return tally

    def _ends(self, other: str, up: bool) -> tuple[str, str]:
        """Return (sender, receiver) of a frame to or from `other`, `up` being the direction to the server."""
        return (other, self._server) if up else (self._server, other)

    def _take_handshakes(self, rows: _Sums, users: dict[str, list[int]]) -> None:
        for client in self._handshakes:
            for up, wire in ((True, DIALLING_BYTES), (False, ANSWERING_BYTES)):
                rows.add((SETUP, *self._ends(_role(client), up), HANDSHAKE), 1, 0, wire)
                self._parties.add((SETUP, *self._ends(self._label(client), up), HANDSHAKE), 1, 0, wire)
                if _role(client) == "user":
                    _user(users, client)[up] += wire
        self._handshakes = []

    def _add_to_totals(self, edge: _Edge, frames: list[tuple[str, int]]) -> None:
        counts = self._totals[edge]
        counts.update(frames)
        if len(counts) > _MOST_SIZES:
            self._fold(edge)

    def _fold(self, edge: _Edge) -> None:
        phase, _, kind, up = edge
        for (party, size), times in self._totals.pop(edge).items():
            self._parties.add((phase, *self._ends(party, up), kind), times, times * size, times * _wire(size))

    def parties(self) -> list[Row]:
        """List [phase, sender, receiver, kind, messages, payload bytes, wire bytes] of all traffic taken so far."""
        for edge in list(self._totals):
            self._fold(edge)
        return [[*key, *self._parties[key]] for key in sorted(self._parties)]

    def kernel(self, counts: list[Row] | None) -> list[Row] | None:
        """Return `counts`, [party, connections, bytes received, bytes sent]; the users of a crowd are added up."""
        if counts is None or self.by_party:
            return counts
        sums = _Sums()
        for party, *amounts in counts:
            sums.add((_role(party) if party else "",), *amounts)
        return [[*key, *sums[key]] for key in sorted(sums)]

    def apart(self) -> list[Row]:
        """List [what, sender, receiver, messages, payload bytes, wire bytes] of the traffic outside the course."""
        return [[*key, *self._apart[key]] for key in sorted(self._apart)]


class _Sums(dict[tuple[Any, ...], list[int]]):
    """Sums of messages, payload bytes and wire bytes, by any key."""

    def add(self, key: tuple[Any, ...], messages: int, payload: int, wire: int) -> None:
        sums = self.setdefault(key, [0, 0, 0])
        for place, amount in enumerate((messages, payload, wire)):
            sums[place] += amount


def _user(users: dict[str, list[int]], user: str) -> list[int]:
    """Return the entry [down, up] of `user`, which a bool "is up" indexes; add it if it is missing."""
    return users.get(user) or users.setdefault(user, [0, 0])
