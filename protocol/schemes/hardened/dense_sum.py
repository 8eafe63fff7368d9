"""The third party's side of a dense sum: it adds vectors that it cannot read, and closes every round once.

A round that closes below the floor ends the run and nothing leaves: with fewer shares the noise would be too small.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Ring
from protocol.arrays import RingArray
from protocol.errors import Aborted, Reason
from protocol.party.role import require
from protocol.schemes.factorization.masked_sum import contributor_digest
from protocol.wire.messages import Contributors

NOTHING: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)


def digest_of(iteration: int, users: npt.NDArray[np.integer]) -> bytes:
    return contributor_digest(iteration, ((user, NOTHING) for user in users.tolist()))


class DenseSum:
    """The sum of one round after the other; `lengths` has the number of places of each."""

    def __init__(self, ring: Ring, lengths: tuple[int, ...], n_users: int, floor: int) -> None:
        self._ring = ring
        self._lengths = lengths
        self._n_users = n_users
        self._floor = floor
        self.iteration = 0
        self.closing: Contributors | None = None
        self._gone: set[int] = set()
        self._begin()

    def _begin(self) -> None:
        self.closing = None
        self.added: set[int] = set()
        if not self.done:
            self.total = self._ring.zeros(self._lengths[self.iteration], 1)

    @property
    def done(self) -> bool:
        return self.iteration == len(self._lengths)

    @property
    def complete(self) -> bool:
        """Tell whether everybody has added that still can."""
        return self.closing is None and len(self.added | self._gone) == self._n_users

    def missing(self) -> list[int]:
        return [user for user in range(self._n_users) if user not in self.added and user not in self._gone]

    def lose(self, user: int) -> None:
        self._gone.add(user)

    def check(self, user: int, iteration: int) -> None:
        """Refuse a user that cannot add to this round."""
        require(0 <= user < self._n_users, Reason.UNKNOWN_SENDER)
        require(not self.done and iteration == self.iteration and self.closing is None, Reason.WRONG_ITERATION)
        require(user not in self.added, Reason.DUPLICATE)

    def add(self, user: int, iteration: int, values: RingArray) -> None:
        self.check(user, iteration)
        rows = self._lengths[iteration]
        require(len(values) == rows, Reason.WRONG_LENGTH)
        require(self._ring.fits(values, (rows, 1)), Reason.OUT_OF_RANGE)
        self.total = self._ring.add(self.total, values)
        self.added.add(user)

    def close(self) -> Contributors:
        """Fix who contributed to this round; raise `Aborted` below the floor."""
        if len(self.added) < self._floor:
            words = f"{len(self.added)} contributed to round {self.iteration + 1}, and {self._floor} are needed"
            raise Aborted(Reason.TOO_FEW_SHARES, words)
        users = np.array(sorted(self.added), np.uint32)
        self.closing = Contributors(self.iteration, users, NOTHING, digest_of(self.iteration, users))
        return self.closing

    def release(self, iteration: int, digest: bytes) -> RingArray:
        """Hand out the total of the closed round, once, and begin the next."""
        require(self.closing is not None, Reason.WRONG_KIND)
        assert self.closing is not None
        require(iteration == self.iteration, Reason.WRONG_ITERATION)
        if digest != self.closing.digest:
            raise Aborted(Reason.DISAGREEMENT, f"round {iteration + 1}")
        total, self.iteration = self.total, self.iteration + 1
        self._begin()
        return total
