"""Length-prefixed msgpack between the launcher and the processes it started. Never between parties."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

import msgpack

_PREFIX = struct.Struct("<I")
_FILE = struct.Struct("i")  # a descriptor in ancillary data
_ONE_FILE = socket.CMSG_SPACE(_FILE.size)
_PACKET = 1 << 16  # a longer value travels as a file: the kernel limits what fits into one packet


class Channel:
    """A stream socket that carries whole values; several processes must not share one end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, value: Any) -> None:
        data = msgpack.packb(value)
        self._end.sendall(_PREFIX.pack(len(data)) + data)

    def receive(self) -> list[Any] | None:
        """What has arrived since the last call (it blocks if nothing has); None at the end of the stream."""
        try:
            data = self._end.recv(1 << 20)
        except ConnectionResetError:  # it ended with something unread
            data = b""
        if not data:
            return None
        self._buffer += data
        values = []
        while len(self._buffer) >= _PREFIX.size:
            (length,) = _PREFIX.unpack_from(self._buffer)
            if len(self._buffer) < _PREFIX.size + length:
                break
            values.append(msgpack.unpackb(bytes(self._buffer[_PREFIX.size : _PREFIX.size + length])))
            del self._buffer[: _PREFIX.size + length]
        return values

    def is_closed(self) -> bool:
        """Nobody has the other end, from which nothing unread has come."""
        try:
            return not self._end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def receive_one(self) -> Any:
        """The next value and not a byte more, so that the reader's memory stays as it is; None at the end."""
        prefix = self._end.recv(_PREFIX.size, socket.MSG_WAITALL)
        if len(prefix) < _PREFIX.size:
            return None
        data = self._end.recv(_PREFIX.unpack(prefix)[0], socket.MSG_WAITALL)
        return msgpack.unpackb(data)

    def close(self) -> None:
        self._end.close()


def send_file(end: socket.socket, data: bytes, companion: socket.socket, shared: bytes | None = None) -> None:
    """Bytes of any length as the descriptor of an unnamed file in memory, and a socket to go with them.

    `shared` is a second file, which the receiver does not read but maps.
    """
    files = [_memory_file(part) for part in (data, shared) if part is not None]
    try:
        socket.send_fds(end, [b"."], [files[0], companion.fileno(), *files[1:]])
    finally:
        for file in files:
            os.close(file)


def _memory_file(data: bytes) -> int:
    file = os.memfd_create("keyhole-order")
    written = 0
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])
    return file


def _read_and_close(file: int) -> bytes:
    try:
        return os.pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)


def receive_file(end: socket.socket) -> tuple[bytes, int, int | None] | None:
    """What `send_file` sent (the socket and the shared file as descriptors), or None at the end of the stream."""
    _, descriptors, _, _ = socket.recv_fds(end, 1, 3)
    if len(descriptors) < 2:
        return None
    file, companion, *shared = descriptors
    return _read_and_close(file), companion, shared[0] if shared else None


class Mailbox:
    """A sequenced-packet socket: many processes may write to one end, each value arrives whole."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, value: Any) -> None:
        data = msgpack.packb(value)
        if len(data) <= _PACKET:
            self._end.send(data)
            return
        file = _memory_file(data)
        try:
            socket.send_fds(self._end, [b"."], [file])
        finally:
            os.close(file)

    def close(self) -> None:
        self._end.close()

    def receive(self) -> Any:
        """The next value, or None if none waits."""
        try:
            data, ancillary, _, _ = self._end.recvmsg(_PACKET, _ONE_FILE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        if ancillary:  # not by socket.recv_fds, which takes flags and does nothing with them
            data = _read_and_close(_FILE.unpack(ancillary[0][2])[0])
        return msgpack.unpackb(data) if data else None
