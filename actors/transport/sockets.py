"""The sockets of a process, and the owner of each."""

from __future__ import annotations

from typing import Any

import zmq

from actors.transport.waiting import Watch
from actors.transport.zeromq import Context, Gate


class Sockets:
    """One context, a gate if servers listen in it, and a poller that names the owner of a socket with news."""

    def __init__(self, parties: int, serves: bool, poller: zmq.Poller | Watch) -> None:
        self.context: Context = zmq.Context()
        if parties > 100:
            self.context.max_sockets = 1023 + 4 * parties
        self.gate = Gate(self.context) if serves else None
        self._poller = poller
        self._owners: dict[Any, Any] = {}

    def add(self, socket: Any, owner: Any) -> None:
        self._poller.register(socket, zmq.POLLIN)
        self._owners[socket] = owner

    def remove(self, socket: Any) -> None:
        self._poller.unregister(socket)
        del self._owners[socket]

    def poll(self, timeout: int | None) -> list[tuple[Any, Any]]:
        """List the sockets that may be readable, each with its owner, waiting up to `timeout` milliseconds."""
        return [(socket, self._owners[socket]) for socket, _ in self._poller.poll(timeout)]

    def look_again(self, socket: Any) -> None:
        """Return `socket` from the next poll; a `zmq.Poller` looks at every socket anyway."""
        if isinstance(self._poller, Watch):
            self._poller.look_again(socket)

    def close(self, at_once: bool = False) -> None:
        """Close the context once the last frames have left or, `at_once`, without them."""
        if isinstance(self._poller, Watch):
            self._poller.close()
        if self.gate:
            self.gate.close()
        self.context.destroy(linger=0) if at_once else self.context.term()
