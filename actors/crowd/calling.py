"""The users that a server must call, because a frame for them cannot wait and they have no open connection.

Where there are more users than connections, a user opens one when it has something to send or when it is called, and
closes it when other users need the room. A call goes through the launcher, as events do: it stands for the signal that
wakes a person's device, and is not a message. A called user asks the server again and receives what it has missed.
"""

from __future__ import annotations

from actors.host import Host
from actors.launch.reports import Missed
from actors.seats import Hosted
from protocol.party.party import Outgoing, Step
from protocol.wire.messages import Again, Hello

_KEPT_FOR_THE_AWAY = 1 << 30  # bytes of frames that are kept for users without a connection

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


class CallingServer(Hosted):
    """A server whose users come and go."""

    doorbell: Doorbell

    def first_step(self) -> Step:
        step = super().first_step()
        self.doorbell = Doorbell(self.card.scheme.can_wait)
        self.party.keep_bytes = _KEPT_FOR_THE_AWAY
        return step

    def leave(self, out: Outgoing) -> None:
        if out.to not in self.client_ends:
            self.doorbell.sent(out.to, out.kind)
        super().leave(out)

    def undelivered(self, to: str, frame: bytes) -> None:
        super().undelivered(to, frame)
        self.doorbell.missed(to)


class CallingHost(Host):
    """The host of such a server, which has the launcher call users."""

    kind = CallingServer

    def _heard(self, hosted: Hosted, sender: str, step: Step) -> None:
        if step.has_all and isinstance(hosted, CallingServer):
            hosted.doorbell.has_all(sender)
            hosted.party.forget(sender)

    def _tidy(self) -> None:
        """Have the launcher call the users that were not connected when a frame was sent to them in this round."""
        for hosted in self._hosted:
            if isinstance(hosted, CallingServer):
                self._see_who_left(hosted)
                if users := hosted.doorbell.take_calls():
                    self.report(Missed(hosted.party.name, users))

    def _see_who_left(self, hosted: CallingServer) -> None:
        """Note the users that closed, after reading their last frames: one may confirm that the user has everything."""
        assert hosted.server_end is not None
        if left := hosted.server_end.left():
            while not self._drain(hosted, hosted.server_end):
                pass
            for user in left:
                hosted.doorbell.missed(user)
