"""The kernel's byte counts of each tcp connection that a server accepted, to be compared with the metered bytes.

libzmq closes its descriptor when a connection ends, and the counts are lost with it. So a second descriptor is kept for
each connection, and is read and closed when libzmq reports that the connection has ended. Until then the other end
does not see the connection close, so no descriptor may be forgotten.

Descriptor numbers are soon reused, and libzmq reports a connection only afterwards: by then its number may belong to
another connection. The inode of the socket (`st_ino`) identifies a connection, because it is not reused.

The first frame of a connection may be read after libzmq has reported that the connection ended. It is then assigned to
the ended connection of its descriptor that had carried more than a handshake, before any open one: frames come in the
order of connections.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from dataclasses import dataclass, replace

from actors import capacity
from protocol.wire.framing import ANSWERING_BYTES, DIALLING_BYTES

AVAILABLE = sys.platform == "linux"  # other systems have the counts elsewhere, or not at all
SPARE = 64  # connections of strangers that are watched at once; a flood of them must not take all descriptors

_INFO_BYTES = 256
_COUNTS = struct.Struct("=QQ")  # bytes acknowledged, bytes received
_COUNTS_AT = 120
_CLOSED, _CLOSE_WAIT = 7, 8


def why_not(server: str, endpoint: str, clients: int, again: bool) -> str | None:
    """Say in a sentence why `server` cannot read the kernel's counts of all its connections; None if it can.

    `again` says that the server was restarted, `clients` is how many connections it may have.
    """
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
    party: str = ""  # until its first frame


@dataclass(frozen=True, slots=True)
class _Counts:
    party: str
    received: int
    sent: int

    def is_ours(self) -> bool:
        """Tell whether the other end is a party: a server sends READY, which ends a handshake, only to known keys."""
        return bool(self.party) or self.sent >= ANSWERING_BYTES

    def has_unread(self) -> bool:
        """Tell whether a client with a known key sent a frame that nobody had read at the end of the connection."""
        return not self.party and self.sent >= ANSWERING_BYTES and self.received > DIALLING_BYTES


class ConnectionCounts:
    def __init__(self, clients: int) -> None:
        self._most = clients + SPARE
        self._open: dict[int, _Connection] = {}  # by libzmq's descriptor
        self._sockets: set[int] = set()  # inodes of the open connections
        self._over: dict[int, _Counts] = {}  # of ended connections, by inode
        self._unread: dict[int, list[int]] = {}  # by libzmq's descriptor: in `_over`, their first frame to come
        self.note: str | None = None  # why the counts are incomplete

    def accepted(self, descriptor: int) -> None:
        self.ended(descriptor)
        if len(self._open) >= self._most:
            self.note = f"More than {SPARE} strangers were connected at once, so that not every connection was watched."
            return
        try:
            file = os.dup(descriptor)
        except OSError:  # the connection has ended already
            return
        number = os.fstat(file).st_ino
        if number in self._sockets:  # the number now belongs to a descriptor that is kept here
            os.close(file)
            return
        self._over.pop(number, None)  # counted as its predecessor, which ended before its descriptor was duplicated
        self._sockets.add(number)
        self._open[descriptor] = _Connection(file, number)

    def spoke(self, descriptor: int, party: str) -> None:
        """Assign the connection of `descriptor` to `party`, from which its first frame has come."""
        if number := self._take_unread(descriptor):
            self._over[number] = replace(self._over[number], party=party)
        elif descriptor in self._open:
            self._open[descriptor].party = party

    def disown(self, descriptor: int) -> None:
        """Drop the connection of `descriptor`, which is a stranger's, without its counts."""
        if number := self._take_unread(descriptor):
            del self._over[number]
        elif connection := self._open.pop(descriptor, None):
            self._let_go(connection)

    def ended(self, descriptor: int) -> None:
        if connection := self._open.pop(descriptor, None):
            if counts := _read(connection):
                self._over[connection.socket_number] = counts
                if counts.has_unread():
                    self._unread.setdefault(descriptor, []).append(connection.socket_number)
            self._let_go(connection)

    def _take_unread(self, descriptor: int) -> int | None:
        """Take the ended connection of `descriptor` that a first frame belongs to, by its inode; None if none waits."""
        waiting = self._unread.pop(descriptor, [])
        numbers = [number for number in waiting if number in self._over]
        if numbers[1:]:
            self._unread[descriptor] = numbers[1:]
        return numbers[0] if numbers else None

    def _let_go(self, connection: _Connection) -> None:
        self._sockets.discard(connection.socket_number)
        os.close(connection.file)

    def is_left(self) -> bool:
        """Tell whether no connection of a party is open."""
        found = (_read(connection) for connection in self._open.values())
        return not any(counts is not None and counts.is_ours() for counts in found)

    def close(self) -> list[list[int | str]]:
        """List [party, connections, bytes received, bytes sent]; "" is for connections of parties that sent nothing."""
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
    """Read the counts of `connection`; None if it is not a tcp connection."""
    try:
        # not socket.socket, which converts these numbers to enumerations: a thousand connections may come in a second
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
    # The other end's FIN takes a sequence number, and the kernel counts it as a byte received. A reset closes at once;
    # EPIPE says that a FIN had come before it.
    ended = info[0] == _CLOSE_WAIT or error == errno.EPIPE
    return _Counts(connection.party, received - ended, sent)
