"""What the kernel counted on each tcp connection that a server accepted, for a comparison with what was metered.

libzmq closes its descriptor of a connection when it ends, and the counts go with it. So a second descriptor is kept of
each, which is read and closed when libzmq says that the connection is over. Until then the other end hears nothing of
its end, so that none may be forgotten.

Numbers of descriptors come back soon, and libzmq tells of a connection after the fact: by then its number may belong to
another one. What a descriptor really is shows in the number of its socket (`st_ino`), which does not come back.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from dataclasses import dataclass

from actors import capacity
from protocol.wire.framing import ANSWERING_BYTES

AVAILABLE = sys.platform == "linux"  # elsewhere the counts stand in other places, or nowhere
SPARE = 64  # connections of strangers that are watched at a time; a flood of them must not take all descriptors

_INFO_BYTES = 256
_COUNTS = struct.Struct("=QQ")  # bytes acknowledged, bytes received
_COUNTS_AT = 120
_CLOSED, _CLOSE_WAIT = 7, 8


def why_not(server: str, endpoint: str, clients: int, metering: str, again: bool) -> str | None:
    """None if this server can read what the kernel counts on all of its connections, else a sentence."""
    if metering != "on":
        return "Metering was not on all the time."
    if not endpoint.startswith("tcp:"):
        return "The kernel counts the bytes of tcp connections alone, and these were of another kind."
    if again:
        return f"{server} was started again, and the counts of its earlier connections were gone with them."
    if not AVAILABLE:
        return "Only Linux tells how many bytes a connection has carried."
    return capacity.make_room_for_twice(clients)


@dataclass(slots=True)
class _Connection:
    file: int
    socket_number: int
    party: str = ""  # nothing has come yet


@dataclass(frozen=True, slots=True)
class _Counts:
    party: str
    received: int
    sent: int

    def is_ours(self) -> bool:
        """The last that a server says in a handshake is READY, and it says that to keys of its roster alone."""
        return bool(self.party) or self.sent >= ANSWERING_BYTES


class ConnectionCounts:
    def __init__(self, clients: int) -> None:
        self._most = clients + SPARE
        self._open: dict[int, _Connection] = {}  # by libzmq's descriptor
        self._sockets: set[int] = set()  # numbers of those that are open
        self._over: dict[int, _Counts] = {}  # by number of the socket
        self.note: str | None = None  # why the counts are not all that there were

    def accepted(self, descriptor: int) -> None:
        self.ended(descriptor)
        if len(self._open) >= self._most:
            self.note = f"More than {SPARE} strangers were connected at once, so that not every connection was watched."
            return
        try:
            file = os.dup(descriptor)
        except OSError:  # it has ended already
            return
        number = os.fstat(file).st_ino
        if number in self._sockets:  # the descriptor is one of ours by now
            os.close(file)
            return
        self._over.pop(number, None)  # taken for this one's predecessor, which had ended before it could be looked at
        self._sockets.add(number)
        self._open[descriptor] = _Connection(file, number)

    def spoke(self, descriptor: int, party: str) -> None:
        """The first frame of a connection; the latest that says so has this descriptor now."""
        if descriptor in self._open:
            self._open[descriptor].party = party

    def disown(self, descriptor: int) -> None:
        """It is a stranger's, whatever it brings."""
        if connection := self._open.pop(descriptor, None):
            self._let_go(connection)

    def ended(self, descriptor: int) -> None:
        if connection := self._open.pop(descriptor, None):
            if counts := _read(connection):
                self._over[connection.socket_number] = counts
            self._let_go(connection)

    def _let_go(self, connection: _Connection) -> None:
        self._sockets.discard(connection.socket_number)
        os.close(connection.file)

    def is_left(self) -> bool:
        """No connection of a party is open."""
        found = (_read(connection) for connection in self._open.values())
        return not any(counts is not None and counts.is_ours() for counts in found)

    def close(self) -> list[list[int | str]]:
        """[party, connections, bytes received, bytes sent], "" for parties that opened one and said nothing over it."""
        for descriptor in list(self._open):
            self.ended(descriptor)
        sums: dict[str, list[int]] = {}
        for counts in self._over.values():
            if counts.is_ours():
                entry = sums.setdefault(counts.party, [0, 0, 0])
                for place, amount in enumerate((1, counts.received, counts.sent)):
                    entry[place] += amount
        return [[party, *sums[party]] for party in sorted(sums)]


def _read(connection: _Connection) -> _Counts | None:
    """None if that is no tcp connection after all."""
    try:
        # not socket.socket, which makes enumerations of these numbers: there may be a thousand connections in a second
        end = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=connection.file)
    except OSError:
        return None
    try:
        info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        error = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if info[0] == _CLOSED else 0
        sent, received = _COUNTS.unpack_from(info, _COUNTS_AT)
    except (OSError, struct.error):
        return None
    finally:
        end.detach()
    # The other end's FIN takes a number in the stream, and the kernel counts it as a byte received. A reset closes at
    # once; EPIPE says that a FIN had come before it.
    ended = info[0] == _CLOSE_WAIT or error == errno.EPIPE
    return _Counts(connection.party, received - ended, sent)
