"""Length-prefixed msgpack between the launcher and the processes it started. Never between parties."""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgpack

_PREFIX = struct.Struct("<I")


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
        data = self._end.recv(1 << 20)
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

    def close(self) -> None:
        self._end.close()


class Mailbox:
    """A sequenced-packet socket: many processes may write to one end, each value arrives whole."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, value: Any) -> None:
        self._end.send(msgpack.packb(value))

    def close(self) -> None:
        self._end.close()

    def receive(self) -> Any:
        """The next value, or None if none waits."""
        try:
            data = self._end.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        return msgpack.unpackb(data) if data else None
