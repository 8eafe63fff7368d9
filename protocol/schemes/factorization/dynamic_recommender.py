"""The recommender of `dynamic`: the roll call, then the commitment before iteration 0 or the next iteration, in turn.

Each of the three is a small machine of its own: `RollCall`, `NoiseCommitment` and, as in `masked`, `MaskedIteration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats32, Ids, RingArray
from protocol.attendance import draw_invited
from protocol.errors import Reason
from protocol.params import JointRule, declared
from protocol.party.role import THIRD_PARTY, Effects, Facts, Send, require, user_index, user_name, users_without
from protocol.schemes.base import Setting
from protocol.schemes.factorization.factorization import MaskedParams
from protocol.schemes.factorization.machines.commitment import NoiseCommitment, split
from protocol.schemes.factorization.machines.roll_call import RollCall
from protocol.schemes.factorization.masked_roles import FLOODED, MaskedRecommender
from protocol.schemes.factorization.masked_sum import Part
from protocol.wire.messages import (
    SETUP,
    Absent,
    Barred,
    Due,
    Event,
    Gone,
    ItemFactorsWithPieces,
    Message,
    Present,
    SealedTotal,
    Welcome,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicParams(MaskedParams):
    online: int = declared(otherwise=lambda values: values["n_users"])  # the most users that take part in an iteration
    committers: int = declared(  # users that commit to each item's objective noise
        lambda value: value >= 2, "committers must be 2 or more, or one user knows the noise; not {value}.", 3
    )

    together: ClassVar[tuple[JointRule, ...]] = (
        *MaskedParams.together,
        JointRule(
            "online",
            lambda one: 1 <= one.online <= one.n_users,
            lambda one: f"--online must be between 1 and the {one.n_users} users, not {one.online}.",
        ),
        JointRule(
            "committers",
            lambda one: one.committers <= one.n_users,
            lambda one: f"The pre-commitment needs {one.committers} users and there {_how_to_lower(one.n_users)}.",
        ),
    )


def _how_to_lower(n_users: int) -> str:
    """Write the end of a sentence: how many users there are, and what to do if `n_users` are fewer than committers."""
    if n_users < 2:
        return "is 1, and 2 is the least: take more users, or a scheme without it (--scheme masked)"
    return f"are {n_users}: set committers lower (--set committers={n_users})"


class DynamicRecommender(MaskedRecommender):
    restorable = True

    def __init__(self, setting: Setting, tape: Tape) -> None:
        super().__init__(setting, tape)
        params = DynamicParams.of(setting.params)
        self.limit = params.online
        self.roll = RollCall()
        self.gone = self.roll.gone
        self.commitment = NoiseCommitment(setting, tape, self.dealer, params.committers)
        self.everyone_joined = False  # or is gone
        self.pieces: dict[int, RingArray] = {}  # of the sealed noise, by user, in the paper's wire form

    def joined(self) -> Effects:
        never = sum(user not in self.supports for user in self.gone)
        if len(self.supports) + never < self.params.n_users:
            return []
        self.count_raters()
        self.everyone_joined = True
        return self._go_on()

    def tick(self, event: Event) -> Effects:
        if isinstance(event, Due) and event.iteration == max(self.iteration, 0):
            return self._go_on() if self.roll.due(event.iteration, event.users) else []
        if isinstance(event, Gone) and event.user not in self.gone:
            self.roll.lose(event.user)
            return self._go_on() if self.everyone_joined else self.joined()
        if isinstance(event, Barred):
            self.struck.add(event.user, FLOODED)
            self.roll.pass_over(event.user)
            return self._go_on()
        return []

    def awaited(self) -> Sequence[str]:
        if not self.everyone_joined:
            return users_without(self.params.n_users, self.supports.keys() | self.gone)
        return (THIRD_PARTY,) if self._busy() else self.roll.awaited()

    def receive(self, sender: str, message: Message) -> Effects:
        if isinstance(message, (Present, Absent)):
            return self.presence(sender, message)
        if isinstance(message, SealedTotal):
            return self._sealed(sender, message)
        return super().receive(sender, message)

    def presence(self, sender: str, message: Present | Absent) -> Effects:
        user = user_index(sender)
        require(user in self.supports, Reason.UNKNOWN_SENDER)
        require(message.iteration == max(self.iteration, 0) and not self._busy(), Reason.WRONG_ITERATION)
        self.roll.answer(user, isinstance(message, Present))
        return self._go_on()

    def _busy(self) -> bool:
        return self.commitment.running or self.current.opened is not None

    def _go_on(self) -> Effects:
        """Commit, or open the next iteration, if neither runs, every user has joined and the roll is complete."""
        if self._busy() or not self.everyone_joined or not self.roll.complete:
            return []
        self.roll.close()
        if self.iteration != SETUP:
            return self.open_iteration()
        self.commitment.begin(np.flatnonzero(self.n_raters).astype(np.uint32))
        return [*self.welcome(), *self._commit()]

    def welcome(self) -> list[Send]:
        users = self.taking_part()
        self.welcomed = tuple(users)
        if self.params.wire != "compact":
            return []
        none = np.zeros(0, np.uint32)
        return [
            Send(user_name(user), Welcome(none, self.dealer.key(user), self.keys_of(items)))
            for user, items in users.items()
        ]

    def _commit(self) -> list[Send]:
        return self.commitment.ask(self._present(), self.item_keys)

    def _present(self) -> list[int]:
        return [user for user in sorted(self.roll.online - self.gone) if user not in self.struck]

    def _sealed(self, sender: str, total: SealedTotal) -> Effects:
        require(sender == THIRD_PARTY, Reason.UNKNOWN_SENDER)
        self.commitment.take(total)
        return self._commit() if self.commitment.running else self.next_iteration()

    def next_iteration(self) -> Effects:
        if self.iteration != SETUP:
            self.roll.end()
        if self.iteration + 1 >= self.params.iterations:
            return super().next_iteration()
        self.iteration += 1
        return self._go_on() if self.iteration else self.open_iteration()

    def open_iteration(self) -> list[Send]:
        """Open the sum among the users that are online, or `limit` of them, drawn anew in every iteration."""
        invited = draw_invited(self.tape, self.iteration, self._present(), self.limit)
        dealt = {user: self.supports[user] for user in invited}
        held = np.concatenate([np.zeros(0, np.uint32), *dealt.values()])
        raters = np.bincount(held, minlength=self.params.n_items)
        if self.params.wire != "compact":
            key, items = self.tape.key("pieces"), np.flatnonzero(raters).astype(np.uint32)
            self.pieces = split(self.setting.ring, key, self.commitment.noise, dealt, items, self.iteration)
        return self.open_sum(dealt, raters)

    def in_full(self, user: int, floors: Ids, factors: Floats32, envelopes: Floats32) -> Message:
        masks = self.dealer.masks(user, self.iteration, self.dealt[user])
        return ItemFactorsWithPieces(self.iteration, floors, factors, masks, envelopes, self.pieces[user])

    def complete(self, words: RingArray, items: Ids) -> RingArray:
        """Add the sealed noise: all of it (compact), or the pieces whose holders did not contribute (paper)."""
        ring = self.setting.ring
        if self.params.wire == "compact":
            return ring.add(words, self.commitment.noise[items])
        assert self.current.agreed is not None
        missing: list[Part] = []
        for user, own in self.dealt.items():
            if user not in self.current.agreed:
                released = np.isin(own, items)
                missing.append((own[released], self.pieces[user][released]))
        return ring.add(words, ring.sum_by_item(missing, items, self.params.dim))

    def facts(self) -> Facts:
        facts = super().facts()
        return {**facts, **({"commitments": self.commitment.attempts} if "welcomed" in facts else self.roll.facts())}
