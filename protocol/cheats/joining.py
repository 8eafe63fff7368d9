"""The users that cheat: poison, floods, and users that are not there at all."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats32, Matrix, RingArray
from protocol.party.role import THIRD_PARTY, Effects, Send
from protocol.schemes.factorization.masked_roles import MaskedUser
from protocol.wire.messages import MaskedGradient, Message

TIMES = 200  # a flooding user sends each message so often


class Poisoning(MaskedUser):
    """It adds uniform ring elements to what it sends."""

    def receive(self, sender: str, message: Message) -> Effects:
        effects = super().receive(sender, message)
        return [
            Send(one.to, self._poisoned(one.message))
            if isinstance(one, Send) and isinstance(one.message, MaskedGradient)
            else one
            for one in effects
        ]

    def _poisoned(self, sent: MaskedGradient) -> MaskedGradient:
        ring, (rows, dim) = self.setting.ring, sent.values.shape
        poison = ring.uniform(self.tape.key("poison"), rows, dim, sent.iteration)
        return dataclasses.replace(sent, values=ring.add(sent.values, poison))


class Flooding(MaskedUser):
    """It sends each message to the third party again and again."""

    def receive(self, sender: str, message: Message) -> Effects:
        effects = super().receive(sender, message)
        again = [one for one in effects if isinstance(one, Send) and one.to == THIRD_PARTY]
        return [*effects, *(again * (TIMES - 1))]


class Sybil(MaskedUser):
    """It takes part as any user does, but adds no noise and no gradient, which the recommender knows."""

    def _noise(self, envelope: Floats32, floors: npt.NDArray[np.uint32], purpose: str, iteration: int) -> RingArray:
        return self.setting.ring.zeros(len(floors), self.params.dim)

    def encode_gradients(self, iteration: int, factors: Matrix) -> RingArray:
        return self.setting.ring.zeros(*super().encode_gradients(iteration, factors).shape)
