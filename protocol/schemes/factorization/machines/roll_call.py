"""The roll call of `dynamic`: which users are online, as they say between two iterations."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.attendance import spans
from protocol.errors import Reason
from protocol.party.role import Facts, Machine, require, user_name

OUTSIDE = "the source of arrivals and departures"


class RollCall(Machine):
    """The users that are online. `due` names those that must say Present or Absent, and `close` then counts them in.

    A user says it once before each iteration; the roll is closed when all that are due have spoken or are gone.
    """

    def __init__(self) -> None:
        self.online: set[int] = set()
        self.gone: set[int] = set()  # for good
        self._due = False  # the users that must speak before the next iteration have been named
        self._unheard: set[int] = set()  # those of them that have not spoken
        self._passed_over: set[int] = set()
        self._named = -1  # the latest iteration for which they were named: it may be told again after a restart
        self._said: dict[int, bool] = {}  # whether a user arrives (or leaves), since the roll was closed
        self._latest: dict[int, bool] = {}  # the changes before the iteration that runs
        self._ended: dict[int, bool] = {}  # the changes before the iteration that has ended

    def due(self, iteration: int, users: Iterable[int]) -> bool:
        """Note the users that must speak before `iteration`; return False if that was told before."""
        if iteration <= self._named:
            return False
        self._due, self._named = True, iteration
        self._unheard = set(users).difference(self._said, self._passed_over)
        return True

    def answer(self, user: int, arrives: bool) -> None:
        """Take a user's Present or Absent; refuse a second one, and one that changes nothing."""
        require(user not in self._said and (user in self.online) != arrives, Reason.DUPLICATE)
        self._said[user] = arrives
        self._unheard.discard(user)

    def lose(self, user: int) -> None:
        """Note that `user` will not come back; nobody waits for it any more."""
        self.gone.add(user)
        self.online.discard(user)

    def pass_over(self, user: int) -> None:
        """Note that `user` is not heard any more, though it is still there."""
        self._passed_over.add(user)
        self._unheard.discard(user)
        self.online.discard(user)

    @property
    def complete(self) -> bool:
        return self._due and self._unheard <= self.gone  # fast while many are missing: a larger set is no subset

    def awaited(self) -> list[str]:
        return list(map(user_name, sorted(self._unheard - self.gone))) if self._due else [OUTSIDE]

    def close(self) -> None:
        """Count in what was said: the iteration that follows has these users."""
        said, self._said, self._due = self._said, {}, False
        self._latest = said
        self.online |= {user for user, arrives in said.items() if arrives}
        self.online -= {user for user, arrives in said.items() if not arrives} | self.gone

    def end(self) -> None:
        """Note that the iteration has ended for which the roll was closed last."""
        self._ended = self._latest

    def facts(self) -> Facts:
        """Report which users came and left before the iteration that has ended."""
        came = spans(user for user, arrives in self._ended.items() if arrives)
        left = spans(user for user, arrives in self._ended.items() if not arrives)
        return {"present": came, "absent": left}
