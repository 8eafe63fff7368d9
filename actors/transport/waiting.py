"""A poller of many sockets, whose cost grows with the sockets that are ready, not with all that are registered.

libzmq gives each socket a descriptor that becomes readable when a frame may have arrived. This imposes two rules: a
socket must be read until it is empty, and it must be checked again after a send, because sending processes arrivals
without leaving the descriptor readable. `zmq.Poller` checks every socket at every call, which takes most of the time
with a thousand users in a process.
"""

from __future__ import annotations

import select
from typing import Any

import zmq


class Watch:
    """A replacement for `zmq.Poller`, for sockets that are read and for plain descriptors."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, Any] = {}
        self._descriptor: dict[Any, int] = {}
        self._again: dict[Any, None] = {}  # sockets to return from the next poll in any case, in order

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
        """Return `socket` from the next poll, because a frame was sent over it or it was not read until empty."""
        self._again[socket] = None

    def poll(self, timeout: int | None = None) -> list[tuple[Any, int]]:
        """List the sockets that may be readable, as `zmq.Poller` does, waiting up to `timeout` milliseconds."""
        seconds = 0 if self._again else None if timeout is None else timeout / 1000
        ready, self._again = self._again, {}
        for descriptor, _ in self._epoll.poll(seconds):
            ready[self._by_descriptor[descriptor]] = None
        return [(socket, zmq.POLLIN) for socket in ready]

    def close(self) -> None:
        self._epoll.close()
