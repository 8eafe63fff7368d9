"""The recommender of `dynamic`: users' presence, the commitment before iteration 0, the sealed noise in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.noise import floor_of
from protocol.arithmetic.ring import Ids, RingArray
from protocol.arithmetic.tape import Tape, derive, exponential
from protocol.attendance import draw_invited, spans
from protocol.errors import Aborted, Reason
from protocol.params import Params
from protocol.party.role import (
    THIRD_PARTY,
    Effects,
    Facts,
    Send,
    require,
    user_index,
    user_name,
    users_without,
)
from protocol.schemes.base import Setting
from protocol.schemes.factorization.commitment import blind_rows, choose_committers, unblind
from protocol.schemes.factorization.masked import MaskedRecommender
from protocol.schemes.factorization.masked_sum import Part
from protocol.wire.messages import (
    SETUP,
    Absent,
    Commit,
    CommitInFull,
    Due,
    Event,
    Gone,
    ItemFactors,
    ItemFactorsWithPieces,
    Message,
    OpenCommitment,
    OpenSum,
    Present,
    SealedTotal,
    Welcome,
)

MOST_ATTEMPTS = 100
OUTSIDE = "the source of arrivals and departures"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicParams(Params):
    online: int  # the most users that take part in an iteration
    committers: int  # users that commit to each item's objective noise


class DynamicRecommender(MaskedRecommender):
    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting, tape)
        params = setting.params
        assert isinstance(params, DynamicParams)
        self.limit, self.wanted = params.online, params.committers
        self.online: set[int] = set()
        self.due: frozenset[int] | None = None  # the users whose Present or Absent must come before the next iteration
        self.unheard: set[int] = set()  # those of them that have not said it yet
        self.told = -1  # the latest iteration for which `Due` came: it may come again after a restart
        self.changes: dict[int, bool] = {}
        self.latest: dict[int, bool] = {}  # the changes before the iteration that runs
        self.last_changes: dict[int, bool] = {}  # the changes before the iteration that has ended
        self.commitments: list[Facts] = []
        self.complete_roll = False  # every user that is not gone has joined
        self.begun = False
        self.attempt = 0
        self.committing: dict[int, Part] = {}  # the committers of this attempt: items and blinds
        self.sealed_noise = setting.ring.zeros(params.n_items, params.dim)  # τ^
        self.unsealed: Ids = np.zeros(0, np.uint32)
        self.pieces: dict[int, RingArray] = {}

    # --- presence ----------------------------------------------------------------------------------------------

    def joined(self) -> Effects:
        never = sum(user not in self.supports for user in self.gone)
        if len(self.supports) + never < self.params.n_users:
            return []
        self.count_raters()
        self.complete_roll = True
        return self._continue()

    def tick(self, event: Event) -> Effects:
        if isinstance(event, Due) and event.iteration == max(self.iteration, 0) and event.iteration > self.told:
            self.due, self.told = frozenset(event.users), event.iteration
            self.unheard = set(self.due.difference(self.changes))
            return self._continue()
        if isinstance(event, Gone) and event.user not in self.gone:
            self.gone.add(event.user)
            self.online.discard(event.user)
            return self._continue() if self.complete_roll else self.joined()
        return []

    def awaited(self) -> Sequence[str]:
        if not self.complete_roll:
            return users_without(self.params.n_users, self.supports.keys() | self.gone)
        if self._running():
            return (THIRD_PARTY,)
        return list(map(user_name, sorted(self.unheard - self.gone))) if self.due is not None else (OUTSIDE,)

    def presence(self, sender: str, message: Present | Absent) -> Effects:
        user = user_index(sender)
        require(user in self.supports, Reason.UNKNOWN_SENDER)
        require(message.iteration == max(self.iteration, 0) and not self._running(), Reason.WRONG_ITERATION)
        arrives = isinstance(message, Present)
        require(user not in self.changes and (user in self.online) != arrives, Reason.DUPLICATE)
        self.changes[user] = arrives
        self.unheard.discard(user)
        return self._continue()

    def _running(self) -> bool:
        return self.begun and (self.iteration == SETUP or self.opened is not None)

    def _continue(self) -> Effects:
        """Go on if nothing runs, every user has joined, and every Present or Absent that is due has come."""
        if self._running() or not self.complete_roll or self.due is None:
            return []
        if not self.unheard <= self.gone:  # fast while many are missing: a larger set is no subset
            return []
        self.online |= {user for user, arrives in self.changes.items() if arrives}
        self.online -= {user for user, arrives in self.changes.items() if not arrives} | self.gone
        self.due, self.latest, self.changes = None, self.changes, {}
        if self.begun:
            return self.open_iteration()
        self.begun = True
        self.unsealed = np.flatnonzero(self.n_raters).astype(np.uint32)
        return [*self.welcome(), *self._commitment()]

    def facts(self) -> Facts:
        facts = super().facts()
        if "welcomed" in facts:
            return {**facts, "commitments": self.commitments}
        came = spans(user for user, arrives in self.last_changes.items() if arrives)
        left = spans(user for user, arrives in self.last_changes.items() if not arrives)
        return {**facts, "present": came, "absent": left}

    def next_iteration(self) -> Effects:
        self.opened = None
        if self.iteration >= 0:
            self.last_changes = self.latest
        if self.iteration + 1 >= self.params.iterations:
            return super().next_iteration()
        self.iteration += 1
        return self._continue() if self.iteration else self.open_iteration()

    # --- the commitment ----------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, (Present, Absent)):
            return self.presence(sender, message)
        if isinstance(message, SealedTotal):
            return self._sealed(sender, message)
        return super().receive(sender, message)

    def welcome(self) -> list[Send]:
        self.welcomed = tuple(self.still_there())
        if self.params.wire != "compact":
            return []
        none = np.zeros(0, np.uint32)
        return [
            Send(user_name(user), Welcome(none, self.dealer.key(user), tuple(self.item_keys[item] for item in items)))
            for user, items in self.still_there().items()
        ]

    def _commitment(self) -> Effects:
        """Ask for the noise of the items that have none yet, from fresh committers with fresh H, β and α."""
        users = sorted(self.online - self.gone)
        if len(users) < self.wanted or self.attempt >= MOST_ATTEMPTS:
            raise Aborted(Reason.TOO_FEW_ONLINE, f"{len(users)} of {self.wanted} committers, attempt {self.attempt}")
        chosen = choose_committers(self.tape, self.attempt, self.unsealed, users, self.wanted)
        self._note_commitment(chosen)
        counts = np.full(len(self.unsealed), self.wanted, np.uint32)
        opening = OpenCommitment(self.attempt, np.array(list(chosen), np.uint32), self.unsealed, counts)
        ring, dim, run_id = self.setting.ring, self.params.dim, self.setting.run_id
        self.committing = {}
        sends = [Send(THIRD_PARTY, opening)]
        for user, items in chosen.items():
            blinds = blind_rows(ring, self.dealer.key(user), run_id, self.attempt, len(items), dim)
            self.committing[user] = (items, blinds)
            keys = tuple(derive(self.item_keys[item], "eta", self.attempt) for item in items)
            counts = np.full(len(items), self.wanted, np.uint32)
            if self.params.wire == "compact":
                sends.append(Send(user_name(user), Commit(self.attempt, items, counts, keys)))
            else:
                envelopes = exponential(keys, dim, "eta")
                sends.append(Send(user_name(user), CommitInFull(self.attempt, items, counts, blinds, envelopes)))
        return sends

    def _note_commitment(self, chosen: Mapping[int, Ids]) -> None:
        by_share: dict[int, list[int]] = {}
        for user, items in chosen.items():
            by_share.setdefault(len(items), []).append(user)
        asked = {str(share): spans(users) for share, users in sorted(by_share.items())}
        self.commitments.append({"opened": len(self.unsealed), "asked": asked, "sealed": 0})

    def _sealed(self, sender: str, total: SealedTotal) -> Effects:
        require(sender == THIRD_PARTY, Reason.UNKNOWN_SENDER)
        require(self.begun and self.iteration == SETUP, Reason.WRONG_KIND)
        require(total.attempt == self.attempt, Reason.WRONG_ITERATION)
        require(len(total.values) == len(total.items), Reason.WRONG_LENGTH)
        require(not np.count_nonzero(~np.isin(total.items, self.unsealed)), Reason.UNKNOWN_ITEM)
        require(self.setting.ring.fits(total.values, (len(total.items), self.params.dim)), Reason.OUT_OF_RANGE)
        self.sealed_noise[total.items] = unblind(self.setting.ring, self.params.dim, total, self.committing)
        self.unsealed = self.unsealed[~np.isin(self.unsealed, total.items)]
        self.commitments[-1]["sealed"] = len(total.items)
        self.attempt += 1
        return self._commitment() if len(self.unsealed) else self.next_iteration()

    # --- one iteration -----------------------------------------------------------------------------------------

    def invited(self) -> list[int]:
        """Return the users that are online, or `limit` of them, drawn anew in every iteration."""
        users = sorted(self.online - self.gone)
        return draw_invited(self.tape, self.iteration, users, self.limit)

    def open_iteration(self) -> list[Send]:
        params = self.params
        self.dealt = {user: self.supports[user] for user in self.invited()}
        held = np.concatenate([np.zeros(0, np.uint32), *self.dealt.values()])
        raters = np.bincount(held, minlength=params.n_items)
        floors = floor_of(raters, params.dropout_allowance, params.min_contributors)
        items = np.flatnonzero(raters).astype(np.uint32)
        self.opened = OpenSum(self.iteration, np.array(list(self.dealt), np.uint32), items, floors[items])
        self.agreed = None
        factors = self.outgoing_factors()
        opening = [Send(THIRD_PARTY, self.opened)]
        if params.wire == "compact":
            return opening + [
                Send(user_name(user), ItemFactors(self.iteration, floors[own], factors[own]))
                for user, own in self.dealt.items()
            ]
        envelopes, self.pieces = self._envelopes("rho", self.iteration), self._split(items)
        return opening + [
            Send(user_name(user), self._in_full(user, own, floors[own], factors[own], envelopes[own]))
            for user, own in self.dealt.items()
        ]

    def _in_full(self, user: int, own: Ids, floors: Any, factors: Any, envelopes: Any) -> ItemFactorsWithPieces:
        masks = self.dealer.masks(user, self.iteration, own)
        return ItemFactorsWithPieces(self.iteration, floors, factors, masks, envelopes, self.pieces[user])

    def _split(self, items: Ids) -> dict[int, RingArray]:
        """Split τ^_j into uniform pieces, one per invited rater; the last rater of an item gets the rest."""
        ring, dim, key = self.setting.ring, self.params.dim, self.tape.key("pieces")
        last = np.zeros(self.params.n_items, np.int64)
        for user, own in self.dealt.items():
            last[own] = user
        pieces = {}
        for user, own in self.dealt.items():
            rows = ring.uniform(key, len(own), dim, self.iteration, user).copy()
            rows[last[own] == user] = 0
            pieces[user] = rows
        parts = [(own, pieces[user]) for user, own in self.dealt.items()]
        rest = ring.subtract(self.sealed_noise[items], ring.sum_by_item(parts, items, dim))
        for user, own in self.dealt.items():
            mine = last[own] == user
            pieces[user][mine] = rest[np.searchsorted(items, own[mine])]
        return pieces

    def complete(self, words: RingArray, items: Ids) -> RingArray:
        """Add the sealed noise: all of it (compact), or the pieces whose holders did not contribute (paper)."""
        ring, dim = self.setting.ring, self.params.dim
        if self.params.wire == "compact":
            return ring.add(words, self.sealed_noise[items])
        assert self.agreed is not None
        missing: list[Part] = []
        for user, own in self.dealt.items():
            if user not in self.agreed:
                released = np.isin(own, items)
                missing.append((own[released], self.pieces[user][released]))
        return ring.add(words, ring.sum_by_item(missing, items, dim))
