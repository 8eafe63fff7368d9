"""Pipes that carry msgpack values between the launcher and the processes that it started, never between parties.

No two processes of a run can block each other with full pipes, because writes here do not wait. Data that a pipe does
not take is kept in memory, the writer returns to reading, and `flush` sends the rest later. The launcher waits in one
place only, `Nursery.listen`, until data arrives or a pipe takes more. The zygote and the hosts wait for the launcher
alone: the zygote for the rest of an order, a host when the launcher has left `MOST_PENDING` bytes of reports unread, or
when it has nothing left to do but report. Since the launcher always returns to `listen`, each of these waits ends.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from typing import Any

import msgpack

from protocol.errors import Aborted, Reason

MOST_PENDING = 64 << 20  # bytes that may wait for one reader
_PREFIX = struct.Struct("<I")
_FILE = struct.Struct("i")  # a descriptor in ancillary data
_ONE_FILE = socket.CMSG_SPACE(_FILE.size)
_PACKET = 1 << 16  # a longer value travels as a file: the kernel limits what fits into one packet
_NO_WAIT = socket.MSG_DONTWAIT  # per call: a flag of the socket would be shared with processes that inherited it


def pack(value: Any) -> bytes:
    """Pack `value`; text may hold bytes that are not UTF-8, as names of folders may."""
    packed: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return packed


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, unicode_errors="surrogateescape")


class Channel:
    """A stream socket that carries whole values; several processes must not share one end."""

    def __init__(self, end: socket.socket, reader: str = "") -> None:
        """Wrap the socket `end`; `reader` names the other end in messages to the person."""
        self._end = end
        self._reader = reader
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, value: Any) -> None:
        """Send `value` without waiting; a reader that leaves `MOST_PENDING` bytes unread ends the run."""
        if self.pending > MOST_PENDING:
            raise Aborted(Reason.STALLED, f"{self._reader} does not read: {self.pending} bytes wait for it")
        data = pack(value)
        self._outgoing += _PREFIX.pack(len(data)) + data
        self.flush()

    @property
    def pending(self) -> int:
        """Count the bytes that the pipe has not taken yet."""
        return len(self._outgoing)

    def flush(self) -> None:
        """Send as much of the waiting data as the pipe takes now."""
        while self._outgoing:
            try:
                with memoryview(self._outgoing) as waiting:
                    sent = self._end.send(waiting[: 1 << 20], _NO_WAIT)
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                self._outgoing.clear()  # it will never be read
                raise
            del self._outgoing[:sent]

    def receive(self) -> list[Any] | None:
        """Read the values that have arrived, waiting if no data has; None at the end of the stream."""
        try:
            data = self._end.recv(1 << 20)
        except ConnectionResetError:  # the other end closed with unread data
            data = b""
        if not data:
            return None
        self._incoming += data
        values = []
        while len(self._incoming) >= _PREFIX.size:
            (length,) = _PREFIX.unpack_from(self._incoming)
            if len(self._incoming) < _PREFIX.size + length:
                break
            values.append(unpack(bytes(self._incoming[_PREFIX.size : _PREFIX.size + length])))
            del self._incoming[: _PREFIX.size + length]
        return values

    def is_closed(self) -> bool:
        """Tell whether the other end is closed and all of its data has been read."""
        try:
            return not self._end.recv(1, socket.MSG_PEEK | _NO_WAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def receive_one(self) -> Any:
        """Read the next value and not a byte more, so that no buffer grows in the reader's memory; None at the end."""
        prefix = self._end.recv(_PREFIX.size, socket.MSG_WAITALL)
        if len(prefix) < _PREFIX.size:
            return None
        data = self._end.recv(_PREFIX.unpack(prefix)[0], socket.MSG_WAITALL)
        return unpack(data)

    def close(self) -> None:
        self._end.close()


class Orders:
    """A sequenced-packet socket from which each new process takes one order."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._waiting: deque[tuple[bytes, socket.socket, bytes | None]] = deque()

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, data: bytes, companion: socket.socket, shared: bytes | None = None) -> None:
        """Send `data` of any length as an unnamed file in memory, with the socket `companion`, which is closed here.

        `shared` is sent as a second file, which the receiver maps instead of reading it. This does not wait.
        """
        self._waiting.append((data, companion, shared))
        self.flush()

    @property
    def pending(self) -> int:
        """Count the orders that the pipe has not taken yet."""
        return len(self._waiting)

    def flush(self) -> None:
        while self._waiting:
            data, companion, shared = self._waiting[0]
            files = [_memory_file(part) for part in (data, shared) if part is not None]
            try:
                _send_files(self._end, files[0], companion.fileno(), *files[1:])
            except BlockingIOError:
                return
            finally:
                for file in files:
                    os.close(file)
            companion.close()
            self._waiting.popleft()

    def close(self) -> None:
        for _, companion, _ in self._waiting:
            companion.close()
        self._end.close()


def receive_order(end: socket.socket) -> tuple[bytes, int, int | None] | None:
    """Receive an order of `Orders`: its data, and the descriptors of the companion and of the shared file, if any.

    None at the end of the stream.
    """
    _, descriptors, _, _ = socket.recv_fds(end, 1, 3)
    if len(descriptors) < 2:
        return None
    file, companion, *shared = descriptors
    return _read_and_close(file), companion, shared[0] if shared else None


class Mailbox:
    """A sequenced-packet socket: many processes may write to one end, and each value arrives whole."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._waiting: deque[bytes] = deque()
        self._pending = 0

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, value: Any) -> None:
        """Send `value`; wait only if the reader leaves `MOST_PENDING` bytes unread, so as not to fill the memory."""
        data = pack(value)
        self._waiting.append(data)
        self._pending += len(data)
        self.flush(wait=self._pending > MOST_PENDING)

    @property
    def pending(self) -> int:
        """Count the bytes that the socket has not taken yet."""
        return self._pending

    def flush(self, wait: bool = False) -> None:
        """Send what the socket takes now, or everything if told to `wait`."""
        while self._waiting:
            data = self._waiting[0]
            try:
                self._post(data)
            except BlockingIOError:
                if not wait:
                    return
                select.select([], [self._end], [])
                continue
            self._waiting.popleft()
            self._pending -= len(data)

    def _post(self, data: bytes) -> None:
        if len(data) <= _PACKET:
            self._end.send(data, _NO_WAIT)
            return
        file = _memory_file(data)
        try:
            _send_files(self._end, file)
        finally:
            os.close(file)

    def close(self) -> None:
        self._end.close()

    def receive(self) -> Any:
        """Receive the next value, or None if there is no value."""
        try:
            data, ancillary, _, _ = self._end.recvmsg(_PACKET, _ONE_FILE, _NO_WAIT)
        except BlockingIOError:
            return None
        if ancillary:  # not with socket.recv_fds, which ignores its flags
            data = _read_and_close(_FILE.unpack(ancillary[0][2])[0])
        return unpack(data) if data else None


def _send_files(end: socket.socket, *files: int) -> None:
    """Send the descriptors `files`; socket.send_fds cannot do it without waiting, because it ignores its flags."""
    packed = b"".join(map(_FILE.pack, files))
    end.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)], _NO_WAIT)


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
