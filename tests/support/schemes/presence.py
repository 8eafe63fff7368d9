"""`hardened` with users that tell which items they rated, or add more than the noise is made for."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from protocol.party.role import RECOMMENDER, Send, role_of
from protocol.schemes.hardened.hardened import Hardened
from protocol.schemes.hardened.hardened_roles import HardenedRecommender, HardenedUser
from protocol.wire.messages import Join


class Patient(HardenedRecommender):
    def receive(self, sender, message):
        return super().receive(sender, Join(message.items[:0]) if isinstance(message, Join) else message)


class Present(Hardened):
    user: ClassVar[Any] = HardenedUser

    def make_role(self, party, setting, tape, inputs):
        if role_of(party) == RECOMMENDER:
            return Patient(setting, tape)
        if role_of(party) == "user":
            return self.user(setting, tape, inputs)
        return super().make_role(party, setting, tape, inputs)


class _Namer(HardenedUser):
    def start(self):
        return [Send(RECOMMENDER, Join(self.inputs.items))]


class JoinsWithItems(Present):
    name = "joins-with-items"
    user = _Namer


class _Counter(HardenedUser):
    def start(self):
        return [Send(RECOMMENDER, Join(np.arange(len(self.inputs.items), dtype=np.uint32)))]


class JoinsWithACount(Present):
    name = "joins-with-a-count"
    user = _Counter


class _LoudCounts(HardenedUser):
    """Adds three times the counts: no changed rating moves them."""

    def _upload(self, iteration, vector):
        made = vector.copy()
        if iteration == 0:
            made[: self.params.n_items] *= 3
        return super()._upload(iteration, made)


class LoudCounts(Present):
    name = "loud-counts"
    user = _LoudCounts


class _LoudLater(HardenedUser):
    def _upload(self, iteration, vector):
        return super()._upload(iteration, 3 * vector if iteration == 1 else vector)


class LoudSecondRound(Present):
    """Needs two rounds."""

    name = "loud-second-round"
    user = _LoudLater
