"""The three sides of the masked modular sum with a semi-honest third party.

    user          φ^i_j = enc(∇) + enc(η share) + enc(ρ share) + ψ^i_j                 (`mask_rows` gives ψ)
    third party   collects, closes once, announces, and after agreement releases φ_j = Σ_i φ^i_j   (`SumHolder`)
    recommender   Σ_i values = φ_j − Σ_i ψ^i_j, over the contributors                             (`MaskDealer`)

Masks are one-time: a fresh key per user and run, a stream per (run id, purpose, iteration), a position in it per
item and coordinate. An iteration number has one contributor set for ever: sums over two sets that differ in
one user would differ by that user's message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgpack
import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Ring, everywhere
from protocol.arithmetic.tape import Tape
from protocol.arrays import Ids, RingArray
from protocol.errors import Aborted, Reason
from protocol.party.role import Machine, require
from protocol.wire.messages import Contributors, MaskedTotal, OpenCommitment, OpenSum

Part = tuple[Ids, RingArray]


def mask_rows(ring: Ring, key: bytes, run_id: bytes, iteration: int, n_items: int, dim: int) -> RingArray:
    """Derive ψ^i_j(t), one row for each of the user's items in their order: both sides always need all of them."""
    return ring.uniform(key, n_items, dim, run_id, "psi", iteration)


def contributor_digest(iteration: int, supports: Iterable[tuple[int, Ids]]) -> bytes:
    """Hash the contributors and the items of each, in the order of users."""
    digest = hashlib.sha256(msgpack.packb(["contributors", iteration]))
    for user, items in supports:
        digest.update(msgpack.packb([user, items.astype("<u4").tobytes()]))
    return digest.digest()


class MaskDealer(Machine):
    """The recommender's side: it knows every mask and subtracts those of the contributors."""

    derived = frozenset({"_keys"})

    def __init__(self, ring: Ring, dim: int, run_id: bytes, tape: Tape) -> None:
        self._ring = ring
        self._dim = dim
        self._run_id = run_id
        self._tape = tape
        self._keys: dict[int, bytes] = {}

    def key(self, user: int) -> bytes:
        if user not in self._keys:
            self._keys[user] = self._tape.key("mask", user)
        return self._keys[user]

    def masks(self, user: int, iteration: int, items: Ids) -> RingArray:
        return mask_rows(self._ring, self.key(user), self._run_id, iteration, len(items), self._dim)

    def sum(self, iteration: int, supports: Mapping[int, Ids], opened: Ids) -> RingArray:
        """Sum ψ^i_j for the opened items; `supports` are the contributors and the items that each of them sent."""
        parts = [(items, self.masks(user, iteration, items)) for user, items in supports.items()]
        return self._ring.sum_by_item(parts, opened, self._dim)

    def unmask(self, total: MaskedTotal, masks: RingArray, opened: Ids) -> RingArray:
        """Compute φ_j − Σ ψ^i_j for the released items."""
        return self._ring.subtract(total.values, masks[np.searchsorted(opened, total.items)])


class SumHolder(Machine):
    """The third party's side: it adds values that it cannot read, and releases only the total.

    A user may be faster than the recommender's opening message, so contributions to the coming iteration are
    held from the moment the previous one was released; the opening then drops those that it does not name.
    """

    def __init__(self, ring: Ring, dim: int, n_users: int, n_items: int, iterations: int = 1 << 62) -> None:
        self._iterations = iterations
        self._ring = ring
        self._dim = dim
        self._n_users = n_users
        self._n_items = n_items
        self.iteration = 0
        self.opening: OpenSum | None = None
        self._opened = np.zeros(n_items, np.bool_)  # the items of the opening
        self._invited: set[int] = set()
        self.closing: Contributors | None = None
        self._parts: dict[int, Part] = {}
        self._gone: set[int] = set()

    def open(self, opening: OpenSum) -> None:
        require(self.opening is None, Reason.WRONG_KIND)
        require(opening.iteration == self.iteration < self._iterations, Reason.WRONG_ITERATION)
        require(len(opening.floors) == len(opening.items), Reason.WRONG_LENGTH)
        require(not len(opening.users) or opening.users[-1] < self._n_users, Reason.OUT_OF_RANGE)
        require(not len(opening.items) or opening.items[-1] < self._n_items, Reason.UNKNOWN_ITEM)
        require(everywhere(opening.floors >= 1), Reason.OUT_OF_RANGE)
        self.opening = opening
        self._invited = set(opening.users.tolist())
        self._opened = np.zeros(self._n_items, np.bool_)
        self._opened[opening.items] = True
        self._parts = {user: part for user, part in self._parts.items() if self._is_opened(user, part[0])}

    def add(self, user: int, iteration: int, items: Ids, values: RingArray) -> None:
        require(0 <= user < self._n_users, Reason.UNKNOWN_SENDER)
        require(iteration == self.iteration < self._iterations and self.closing is None, Reason.WRONG_ITERATION)
        require(user not in self._parts, Reason.DUPLICATE)
        require_rows(self._ring, self._dim, self._n_items, items, values)
        if self.opening is not None:
            require(user in self._invited, Reason.UNKNOWN_SENDER)
            require(everywhere(self._opened[items]), Reason.UNKNOWN_ITEM)
        self._parts[user] = (items, values)

    def _is_opened(self, user: int, items: Ids) -> bool:
        return user in self._invited and everywhere(self._opened[items])

    @property
    def complete(self) -> bool:
        if self.opening is None:
            return False
        missing = len(self.opening.users) - len(self._parts)
        return missing == 0 or (0 < missing <= len(self._gone) and self._only_the_gone_are_missing())

    def missing(self) -> list[int]:
        """List the users that are invited, have not answered and still may."""
        waits = self.opening is not None and self.closing is None
        return sorted(self._invited.difference(self._parts, self._gone)) if waits else []

    def lose(self, user: int) -> None:
        """Note that `user` will not answer any more; what it has sent to this iteration counts."""
        self._gone.add(user)

    def _only_the_gone_are_missing(self) -> bool:
        assert self.opening is not None
        return all(user in self._parts or user in self._gone for user in self._invited)

    def close(self) -> Contributors:
        """Fix the contributor set of this iteration and announce it."""
        assert self.opening is not None and self.closing is None
        users = sorted(self._parts)
        named = [self._parts[user][0] for user in users]
        held = np.concatenate(named) if named else np.zeros(0, np.uint32)
        counts = np.bincount(held, minlength=self._n_items)[self.opening.items]
        self.closing = Contributors(
            iteration=self.iteration,
            users=np.array(users, np.uint32),
            counts=counts.astype(np.uint32),
            digest=contributor_digest(self.iteration, zip(users, named, strict=True)),
        )
        return self.closing

    def release(self, iteration: int, digest: bytes) -> MaskedTotal:
        """Compute the total of every item at or above its floor; an item below it is absent, never a row of zeros."""
        require(self.closing is not None, Reason.WRONG_KIND)
        assert self.opening is not None and self.closing is not None
        require(iteration == self.iteration, Reason.WRONG_ITERATION)
        if digest != self.closing.digest:
            raise Aborted(Reason.DISAGREEMENT, f"iteration {iteration}")
        reached = self.closing.counts >= self.opening.floors
        sums = self._ring.sum_by_item(list(self._parts.values()), self.opening.items, self._dim)
        total = MaskedTotal(self.iteration, self.opening.items[reached], sums[reached])
        self.iteration += 1
        self.opening = self.closing = None
        self._parts = {}
        return total


def require_rows(ring: Ring, dim: int, n_items: int, items: Ids, values: RingArray) -> None:
    """Require one row of ring elements for each of `items`, all of which exist."""
    require(not len(items) or items[-1] < n_items, Reason.UNKNOWN_ITEM)
    require(len(values) == len(items), Reason.WRONG_LENGTH)
    require(ring.fits(values, (len(items), dim)), Reason.OUT_OF_RANGE)


def require_opened(opening: OpenSum | OpenCommitment | None, user: int, items: Ids) -> None:
    """Require that `opening`, if it has come already, names `user` and `items`."""
    if opening is not None:
        require(contains(opening.users, user), Reason.UNKNOWN_SENDER)
        require(subset(items, opening.items), Reason.UNKNOWN_ITEM)


def contains(increasing: npt.NDArray[np.uint32], value: int) -> bool:
    place = int(increasing.searchsorted(value))
    return place < len(increasing) and int(increasing[place]) == value


def subset(items: Ids, increasing: Ids) -> bool:
    places = increasing.searchsorted(items)
    return everywhere(places < len(increasing)) and everywhere(increasing[places] == items)
