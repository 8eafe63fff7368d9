"""The users that a server must call, because a frame for them cannot wait and they have no open connection.

Where there are more users than connections, a user opens one when it has something to send or when it is called, and
closes it when other users need the room. A call goes through the launcher, as events do: it stands for the signal that
wakes a person's device, and is not a message. A called user asks the server again and receives what it has missed.
"""

from __future__ import annotations

from protocol.wire.messages import Again, Hello

_NO_CALL = frozenset({Again.__name__, Hello.__name__, "resend"})


class Doorbell:
    def __init__(self, can_wait: frozenset[str]) -> None:
        self._can_wait = can_wait | _NO_CALL
        self._owed: set[str] = set()  # users that may lack a frame that cannot wait
        self._calls: dict[str, None] = {}  # users to call, in the order in which they were missed

    def sent(self, user: str, kind: str) -> None:
        if kind not in self._can_wait:
            self._owed.add(user)

    def has_all(self, user: str) -> None:
        """Note that `user` has confirmed every frame."""
        self._owed.discard(user)

    def missed(self, user: str) -> None:
        """Note that `user` was not connected, or closed its connection perhaps before the last frame arrived."""
        if user in self._owed:
            self._calls[user] = None

    def take_calls(self) -> list[str]:
        calls, self._calls = self._calls, {}
        return list(calls)
