"""Waits for many sockets at once in time that depends on those that have something, not on how many there are.

libzmq gives each socket a descriptor that becomes readable when something may have come. Two rules go with it: a socket
is read until nothing is left, and it is looked at again after something was sent over it, because sending takes note of
what has come and then the descriptor says nothing. `zmq.Poller` looks at every socket every time: with a thousand users
in a process that is most of the time.
"""

from __future__ import annotations

import select
from typing import Any

import zmq


class Watch:
    """In place of a `zmq.Poller`, for sockets that are read and for plain descriptors."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, Any] = {}
        self._descriptor: dict[Any, int] = {}
        self._again: dict[Any, None] = {}  # sockets to look at in any case, in order

    def register(self, socket: Any, flags: int = zmq.POLLIN) -> None:
        plain = isinstance(socket, int)
        descriptor = socket if plain else socket.getsockopt(zmq.FD)
        self._epoll.register(descriptor, select.EPOLLIN)
        self._by_descriptor[descriptor], self._descriptor[socket] = socket, descriptor
        if not plain:
            self.look_again(socket)

    def unregister(self, socket: Any) -> None:
        descriptor = self._descriptor.pop(socket)
        self._epoll.unregister(descriptor)
        del self._by_descriptor[descriptor]
        self._again.pop(socket, None)

    def look_again(self, socket: Any) -> None:
        """After something was sent over it, or when it was not read to the end."""
        self._again[socket] = None

    def poll(self, timeout: int | None = None) -> list[tuple[Any, int]]:
        """Sockets that may have something, as a `zmq.Poller` has it; `timeout` in milliseconds."""
        seconds = 0 if self._again else None if timeout is None else timeout / 1000
        ready, self._again = self._again, {}
        for descriptor, _ in self._epoll.poll(seconds):
            ready[self._by_descriptor[descriptor]] = None
        return [(socket, zmq.POLLIN) for socket in ready]

    def close(self) -> None:
        self._epoll.close()
