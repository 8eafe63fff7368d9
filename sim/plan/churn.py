"""The presence of users: drawn by the emulator from the run's seed, and told to the users as events from outside.

A user starts online with probability join / (join + leave) (1 if both are 0). After each iteration, a user that is
offline comes online with probability `join`, and a user that is online leaves with probability `leave`.
"""

from __future__ import annotations

import numpy as np

from protocol.arithmetic.tape import keystream
from protocol.arrays import Flags, Floats
from protocol.party.role import RECOMMENDER, user_name
from protocol.wire.messages import Churn, Due, Event


class ChurnPlan:
    """Flags by iteration, in order. It depends only on the seed and the presence in the previous iteration."""

    def __init__(self, n_users: int, join: float, leave: float, run_seed: bytes) -> None:
        self._join, self._leave = join, leave
        self._n_users = n_users
        self._seed = run_seed
        self._iteration = 0
        start = join / (join + leave) if join + leave > 0 else 1.0
        self._online: Flags = self._uniform(0) < start

    def _uniform(self, iteration: int) -> Floats:
        words = np.frombuffer(keystream(self._seed, 8 * self._n_users, "churn", iteration), "<u8")
        uniform: Floats = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return uniform

    def online(self, iteration: int) -> Flags:
        """Tell for each user whether it is online in `iteration`; call it with iterations in increasing order."""
        while self._iteration < iteration:
            self._iteration += 1
            draw = self._uniform(self._iteration)
            self._online = np.where(self._online, draw >= self._leave, draw < self._join)
        return self._online.copy()

    def events(self, iteration: int) -> list[tuple[str, Event]]:
        """List the (party, event) pairs before `iteration`: for every user whose state changes, and the recommender."""
        before = self.online(iteration - 1) if iteration else np.zeros(self._n_users, np.bool_)
        after = self.online(iteration)
        changed = [int(user) for user in np.flatnonzero(before != after)]
        told: list[tuple[str, Event]] = [(user_name(user), Churn(iteration, bool(after[user]))) for user in changed]
        return [*told, (RECOMMENDER, Due(iteration, tuple(changed)))]
