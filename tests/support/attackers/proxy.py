"""An attacker on the wire: a proxy that passes ZMTP 3 streams on, frame by frame, and flips one bit in some messages.

The greeting and the commands of the handshake are not altered. The bit lies in the body of a message frame: with CURVE
the body is "MESSAGE", a nonce and a box, without it the message itself.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

GREETING_BYTES = 64
_LARGE, _COMMAND = 0x02, 0x04

UP, DOWN = "up", "down"  # client -> server, server -> client
Choose = Callable[[str, int], bool]  # (direction, number of the message in its connection): alter it?


def never(direction: str, number: int) -> bool:
    return False


def only(direction: str, number: int) -> Choose:
    """Choose the message with this number in this direction of every connection."""
    return lambda way, at: (way, at) == (direction, number)


def sometimes(rate: float, seed: int) -> Choose:
    chance = random.Random(seed)
    return lambda way, at: chance.random() < rate


@dataclass(slots=True)
class _Pipe:
    """One direction of one connection."""

    source: socket.socket
    sink: socket.socket
    direction: str
    buffer: bytearray = field(default_factory=bytearray)
    greeting: int = GREETING_BYTES  # bytes of it still to come
    messages: int = 0


class FlippingProxy:
    def __init__(self, endpoint: str, choose: Choose, seed: int = 1) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self._server = (host, int(port))
        self._choose = choose
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stop, self._stopped = socket.socketpair()
        self._selector.register(self._stopped, selectors.EVENT_READ)
        self.passed: Counter[str] = Counter()  # messages, by direction
        self.altered: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.close()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._stopped:
                    self._close_all()
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._move(key.data)

    def _close_all(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._server)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(client, selectors.EVENT_READ, _Pipe(client, server, UP))
        self._selector.register(server, selectors.EVENT_READ, _Pipe(server, client, DOWN))

    def _move(self, pipe: _Pipe) -> None:
        try:
            data = pipe.source.recv(1 << 16)
            if data:
                pipe.sink.sendall(self._through(pipe, data))
                return
        except OSError:
            pass
        for end in (pipe.source, pipe.sink):  # one side has closed: close the other too
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()

    def _through(self, pipe: _Pipe, data: bytes) -> bytes:
        """Pass all complete frames on; keep an incomplete one for later. Pass a greeting on as it comes."""
        out, rest = bytearray(data[: pipe.greeting]), data[pipe.greeting :]
        pipe.greeting -= len(out)
        pipe.buffer += rest
        while (size := _frame_size(pipe.buffer)) is not None:
            frame = bytes(pipe.buffer[:size])
            del pipe.buffer[:size]
            out += frame if frame[0] & _COMMAND else self._message(pipe, frame)
        return bytes(out)

    def _message(self, pipe: _Pipe, frame: bytes) -> bytes:
        number, pipe.messages = pipe.messages, pipe.messages + 1
        if not self._choose(pipe.direction, number):
            self.passed[pipe.direction] += 1
            return frame
        self.altered[pipe.direction] += 1
        body = 9 if frame[0] & _LARGE else 2
        bit = self._random.randrange(8 * body, 8 * len(frame))
        altered = bytearray(frame)
        altered[bit // 8] ^= 1 << bit % 8
        return bytes(altered)


def _frame_size(buffer: bytearray) -> int | None:
    """Return the size of the first frame (flags, length in one byte or eight, body); None if it is incomplete."""
    head = 9 if buffer and buffer[0] & _LARGE else 2
    if len(buffer) < head:
        return None
    size = head + int.from_bytes(buffer[1:head], "big")
    return size if len(buffer) >= size else None
