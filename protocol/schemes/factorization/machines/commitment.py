"""The three sides of noise pre-commitment with α/β blinding. η_j is fixed before iteration 0, and no party knows it.

    recommender   deals committers i the blind β^i_j and the envelope H_j
    user          τ^i_j = enc(η^i_j) + β^i_j                                   uniform without β
    third party   τ~_j = α_j + Σ_i τ^i_j, keeps α_j                            (`SealHolder`)
    recommender   τ^_j = τ~_j − Σ_i β^i_j = α_j + Σ_i enc(η^i_j)               uniform without α (`NoiseCommitment`)

In every iteration the recommender puts τ^_j into the sum and the third party takes α_j out of it, so that exactly
Σ enc(η^i_j) remains, whichever users are online. If a committer fails, the item starts again with fresh H, β, shares
AND α: two sums under one α would differ by the missing share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from protocol.arithmetic.ring import Ring, everywhere
from protocol.arithmetic.tape import Tape, derive, exponential
from protocol.arrays import Ids, RingArray
from protocol.attendance import spans
from protocol.errors import Aborted, Reason
from protocol.party.role import THIRD_PARTY, Facts, Machine, Send, require, user_name
from protocol.schemes.base import Setting
from protocol.schemes.factorization.masked_sum import (
    MaskDealer,
    Part,
    contains,
    require_opened,
    require_rows,
    subset,
)
from protocol.wire.messages import Commit, CommitInFull, Message, OpenCommitment, SealedTotal

MOST_ATTEMPTS = 100


def blind_rows(ring: Ring, key: bytes, run_id: bytes, attempt: int, n_items: int, dim: int) -> RingArray:
    """Derive β^i_j from `key`: one row for each item that the user commits to in this attempt."""
    return ring.uniform(key, n_items, dim, run_id, "beta", attempt)


def choose_committers(tape: Tape, attempt: int, items: Ids, users: list[int], wanted: int) -> dict[int, Ids]:
    """Choose `wanted` users for every item, spread evenly: each item takes the next ones of a shuffled circle."""
    order = np.argsort(tape.normal(1, len(users), "committers", attempt)[0], kind="stable")
    circle = np.array(users, np.uint32)[order]
    places = (np.arange(len(items))[:, None] * wanted + np.arange(wanted)) % len(users)
    chosen = circle[places]  # one row per item; neighbours on the circle are distinct users
    return {user: items[(chosen == user).any(axis=1)] for user in sorted(map(int, np.unique(chosen)))}


class NoiseCommitment(Machine):
    """The recommender's side: it asks committers for the noise of every item, again where one of them failed.

    `ask`, then `take` what the third party sealed, until `done`; then `noise` holds τ^ of all `items`.
    """

    def __init__(self, setting: Setting, tape: Tape, dealer: MaskDealer, wanted: int) -> None:
        self._setting = setting
        self._tape = tape
        self._dealer = dealer
        self._wanted = wanted
        self._attempt = 0
        self._asked: dict[int, Part] = {}  # the committers of this attempt: items and blinds
        self._unsealed: Ids | None = None  # the items without noise; None before the first attempt
        self.noise = setting.ring.zeros(setting.params.n_items, setting.params.dim)  # τ^ of the sealed items
        self.attempts: list[Facts] = []

    @property
    def running(self) -> bool:
        return self._unsealed is not None and len(self._unsealed) > 0

    def begin(self, items: Ids) -> None:
        self._unsealed = items

    def ask(self, users: list[int], item_keys: Sequence[bytes]) -> list[Send]:
        """Ask for the noise of the items that have none yet, from fresh committers with fresh H, β and α."""
        unsealed, wanted, attempt = self._unsealed, self._wanted, self._attempt
        assert unsealed is not None
        if len(users) < wanted or attempt >= MOST_ATTEMPTS:
            raise Aborted(Reason.TOO_FEW_ONLINE, f"{len(users)} of {wanted} committers, attempt {attempt}")
        chosen = choose_committers(self._tape, attempt, unsealed, users, wanted)
        self._asked = {user: (items, self._blinds(user, len(items))) for user, items in chosen.items()}
        self._note(chosen)
        counts = np.full(len(unsealed), wanted, np.uint32)
        opening = OpenCommitment(attempt, np.array(list(chosen), np.uint32), unsealed, counts)
        requests = (Send(user_name(user), self._request(user, item_keys)) for user in chosen)
        return [Send(THIRD_PARTY, opening), *requests]

    def _blinds(self, user: int, rows: int) -> RingArray:
        ring, dim = self._setting.ring, self._setting.params.dim
        return blind_rows(ring, self._dealer.key(user), self._setting.run_id, self._attempt, rows, dim)

    def _request(self, user: int, item_keys: Sequence[bytes]) -> Message:
        items, blinds = self._asked[user]
        keys = tuple(derive(item_keys[item], "eta", self._attempt) for item in items)
        counts = np.full(len(items), self._wanted, np.uint32)
        if self._setting.params.wire == "compact":
            return Commit(self._attempt, items, counts, keys)
        envelopes = exponential(keys, self._setting.params.dim, "eta")
        return CommitInFull(self._attempt, items, counts, blinds, envelopes)

    def _note(self, chosen: Mapping[int, Ids]) -> None:
        assert self._unsealed is not None
        by_share: dict[int, list[int]] = {}
        for user, items in chosen.items():
            by_share.setdefault(len(items), []).append(user)
        asked = {str(share): spans(users) for share, users in sorted(by_share.items())}
        self.attempts.append({"opened": len(self._unsealed), "asked": asked, "sealed": 0})

    def take(self, total: SealedTotal) -> None:
        """Take the noise that the third party sealed in this attempt; its other items must be asked for again."""
        ring, dim, unsealed = self._setting.ring, self._setting.params.dim, self._unsealed
        require(unsealed is not None and len(unsealed), Reason.WRONG_KIND)
        assert unsealed is not None
        require(total.attempt == self._attempt, Reason.WRONG_ITERATION)
        require(len(total.values) == len(total.items), Reason.WRONG_LENGTH)
        require(not np.count_nonzero(~np.isin(total.items, unsealed)), Reason.UNKNOWN_ITEM)
        require(ring.fits(total.values, (len(total.items), dim)), Reason.OUT_OF_RANGE)
        self.noise[total.items] = unblind(ring, dim, total, self._asked)
        self._unsealed = unsealed[~np.isin(unsealed, total.items)]
        self.attempts[-1]["sealed"] = len(total.items)
        self._attempt += 1
        self._asked = self._asked if self.running else {}


def unblind(ring: Ring, dim: int, total: SealedTotal, parts: Mapping[int, Part]) -> RingArray:
    """Compute τ^_j = τ~_j − Σ β^i_j of the sealed items; `parts` are that attempt's committers: items and blinds."""
    blinds = []
    for items, rows in parts.values():
        sealed = np.isin(items, total.items)
        blinds.append((items[sealed], rows[sealed]))
    return ring.subtract(total.values, ring.sum_by_item(blinds, total.items, dim))


def split(
    ring: Ring, key: bytes, noise: RingArray, dealt: Mapping[int, Ids], items: Ids, iteration: int
) -> dict[int, RingArray]:
    """Split τ^_j of `items` into uniform pieces, one per invited rater; the last rater of an item gets the rest."""
    dim, pieces = noise.shape[1], {}
    last = np.zeros(len(noise), np.int64)
    for user, own in dealt.items():
        last[own] = user
    for user, own in dealt.items():
        rows = ring.uniform(key, len(own), dim, iteration, user).copy()
        rows[last[own] == user] = 0
        pieces[user] = rows
    parts = [(own, pieces[user]) for user, own in dealt.items()]
    rest = ring.subtract(noise[items], ring.sum_by_item(parts, items, dim))
    for user, own in dealt.items():
        mine = last[own] == user
        pieces[user][mine] = rest[np.searchsorted(items, own[mine])]
    return pieces


class SealHolder(Machine):
    """The third party's side. It draws α per attempt and item, and never uses one twice."""

    def __init__(self, ring: Ring, dim: int, n_users: int, n_items: int, tape: Tape) -> None:
        self._ring = ring
        self._dim = dim
        self._n_users = n_users
        self._n_items = n_items
        self._tape = tape
        self.attempt = 0
        self.opening: OpenCommitment | None = None
        self._parts: dict[int, Part] = {}
        self._gone: set[int] = set()
        self.seals = ring.zeros(n_items, dim)  # α_j of the sealed items
        self.sealed = np.zeros(n_items, np.bool_)

    def open(self, opening: OpenCommitment) -> None:
        require(self.opening is None, Reason.WRONG_KIND)
        require(opening.attempt == self.attempt, Reason.WRONG_ITERATION)
        require(len(opening.counts) == len(opening.items), Reason.WRONG_LENGTH)
        require(not len(opening.users) or opening.users[-1] < self._n_users, Reason.OUT_OF_RANGE)
        require(not len(opening.items) or opening.items[-1] < self._n_items, Reason.UNKNOWN_ITEM)
        require(everywhere(opening.counts >= 2), Reason.OUT_OF_RANGE)  # a sole committer would know the noise
        require(not np.count_nonzero(self.sealed[opening.items]), Reason.UNKNOWN_ITEM)
        self.opening = opening
        self._parts = {
            user: part
            for user, part in self._parts.items()
            if contains(opening.users, user) and subset(part[0], opening.items)
        }

    def add(self, user: int, attempt: int, items: Ids, values: RingArray) -> None:
        require(0 <= user < self._n_users, Reason.UNKNOWN_SENDER)
        require(attempt == self.attempt, Reason.WRONG_ITERATION)
        require(user not in self._parts, Reason.DUPLICATE)
        require_rows(self._ring, self._dim, self._n_items, items, values)
        require_opened(self.opening, user, items)
        self._parts[user] = (items, values)

    def lose(self, user: int) -> None:
        """Note that committer `user` will not answer any more; what it has sent counts."""
        self._gone.add(user)

    @property
    def complete(self) -> bool:
        if self.opening is None:
            return False
        return all(int(user) in self._parts or int(user) in self._gone for user in self.opening.users)

    def missing(self) -> list[int]:
        """List the committers that have not answered and still may."""
        asked = [] if self.opening is None else self.opening.users.tolist()
        return [user for user in asked if user not in self._parts and user not in self._gone]

    @property
    def committed(self) -> tuple[int, ...]:
        """Return the users that have committed in this attempt."""
        return tuple(self._parts)

    def seal(self) -> SealedTotal:
        """Compute τ~_j of every item with all its committers; other items are absent, and their sums are forgotten."""
        assert self.opening is not None
        opened = self.opening
        held = np.concatenate([np.zeros(0, np.uint32), *(items for items, _ in self._parts.values())])
        counts = np.bincount(np.searchsorted(opened.items, held), minlength=len(opened.items))
        whole = counts == opened.counts
        items = opened.items[whole]
        sums = self._ring.sum_by_item(list(self._parts.values()), opened.items, self._dim)[whole]
        alpha = self._draw(len(opened.items))[whole]
        self.seals[items] = alpha
        self.sealed[items] = True
        total = SealedTotal(self.attempt, items, self._ring.add(alpha, sums))
        self.attempt += 1
        self.opening = None
        self._parts = {}
        return total

    def _draw(self, rows: int) -> RingArray:
        return self._ring.uniform(self._tape.key("alpha"), rows, self._dim, self.attempt)
