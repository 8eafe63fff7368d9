"""The third parties that cheat: a sum over two sets, and sums that are not of those who were announced."""

from __future__ import annotations

import numpy as np

from protocol.arithmetic.factors import first_factors
from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Tape
from protocol.arrays import Ids, RingArray
from protocol.cheats.cheat import CHEATER
from protocol.party.role import RECOMMENDER, Effects, Send, user_index
from protocol.schemes.factorization.factorization import MaskedParams
from protocol.schemes.factorization.masked_roles import ThirdParty
from protocol.wire.messages import MaskedGradient, MaskedTotal, Message


class _Remembering(ThirdParty):
    """A third party that keeps what each user sent to the iteration that runs."""

    parts: dict[tuple[int, int], tuple[Ids, RingArray]]  # by iteration and user

    def prepare(self, tape: Tape) -> None:
        self.parts = {}

    def receive(self, sender: str, message: Message) -> Effects:
        effects = super().receive(sender, message)
        if isinstance(message, MaskedGradient):
            self.parts[message.iteration, user_index(sender)] = message.items, message.values
        totals = [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, MaskedTotal)]
        for total in totals:
            effects = self.released(effects, total)
            self.parts = {key: part for key, part in self.parts.items() if key[0] > total.iteration}
        return effects

    def released(self, effects: Effects, total: MaskedTotal) -> Effects:
        """Return what this party sends in the place of `effects`, which hold the honest `total`."""
        return effects

    def without(self, total: MaskedTotal, user: int) -> MaskedTotal:
        """Take out of `total` what `user` has sent."""
        if (total.iteration, user) not in self.parts:
            return total
        items, values = self.parts[total.iteration, user]
        summed = np.isin(items, total.items)
        part = self.ring.sum_by_item([(items[summed], values[summed])], total.items, self.params.dim)
        return MaskedTotal(total.iteration, total.items, self.ring.subtract(total.values, part))


class Splitting(_Remembering):
    """It releases each sum twice: of all contributors, and of all but one, a different one in each iteration."""

    def released(self, effects: Effects, total: MaskedTotal) -> Effects:
        there = sorted(user for iteration, user in self.parts if iteration == total.iteration)
        if not there:
            return effects
        victim = there[total.iteration % len(there)]
        return [*effects, Send(RECOMMENDER, self.without(total, victim))]


class Lying(_Remembering):
    """It announces the cheated user among the contributors, and leaves its message out."""

    def released(self, effects: Effects, total: MaskedTotal) -> Effects:
        lie = self.without(total, CHEATER)
        return [
            Send(one.to, lie) if isinstance(one, Send) and one.message is total else one for one in effects
        ]


class Adding(_Remembering):
    """It adds the gradient of a user that is not there: as large as one can be, in one direction, for every item."""

    def prepare(self, tape: Tape) -> None:
        super().prepare(tape)
        self.direction = first_factors(tape, 1, self.params.dim, "add")[0]

    def released(self, effects: Effects, total: MaskedTotal) -> Effects:
        params = MaskedParams.of(self.params)
        rows = np.tile(-2 * params.clip * self.direction, (len(total.items), 1))
        label = Label("gradient", total.iteration, total.items)
        ghost = FixedPoint(self.ring, params.fraction_bits).encode(rows, label)
        more = MaskedTotal(total.iteration, total.items, self.ring.add(total.values, ghost))
        return [Send(one.to, more) if isinstance(one, Send) and one.message is total else one for one in effects]
