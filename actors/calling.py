"""Which users a server has to call: something for them cannot wait, and they have no connection open.

Where there are more users than connections, users open one when they have something to say or when they are called,
and close it when others need the room. A call takes the way that events take, by the launcher: it stands for what wakes
a person's device, and is no message. Whoever is called asks the server again and is sent what it has missed.
"""

from __future__ import annotations

from protocol.wire.messages import Again, Hello

_NO_CALL = frozenset({Again.__name__, Hello.__name__, "resend"})


class Doorbell:
    def __init__(self, can_wait: frozenset[str]) -> None:
        self._can_wait = can_wait | _NO_CALL
        self._owed: set[str] = set()  # users that may not have what cannot wait
        self._calls: dict[str, None] = {}  # in the order in which they were missed

    def sent(self, user: str, kind: str) -> None:
        if kind not in self._can_wait:
            self._owed.add(user)

    def has_all(self, user: str) -> None:
        """It said so."""
        self._owed.discard(user)

    def missed(self, user: str) -> None:
        """It was not there, or has gone and perhaps took nothing along."""
        if user in self._owed:
            self._calls[user] = None

    def take_calls(self) -> list[str]:
        calls, self._calls = self._calls, {}
        return list(calls)
