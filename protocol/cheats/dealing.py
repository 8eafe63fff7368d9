"""The recommenders that deal envelopes which no honest tape gives: as small as users take, or others for each user."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.arithmetic.tape import exponential
from protocol.arrays import Floats32, Ids
from protocol.party.role import Send, user_index
from protocol.schemes.factorization.honest_reach import least_envelope_sum
from protocol.schemes.factorization.masked_roles import MaskedRecommender
from protocol.wire.messages import Message, Welcome, WelcomeInFull

_ABOVE = 1 + 2.0**-10  # of the least sum, so that rounding does not carry a row below it


class Shrinking(MaskedRecommender):
    """It shrinks every row of envelopes to the least sum that users take, of the objective and the iteration noise."""

    def _envelopes(self, purpose: str, iteration: int) -> Floats32:
        dealt = super()._envelopes(purpose, iteration).astype(np.float64)
        least = least_envelope_sum(self.params.dim, self.params.n_items * (self.params.iterations + 1))
        rows: Floats32 = (dealt * (_ABOVE * least / dealt.sum(axis=1))[:, None]).astype(np.float32)
        return rows


class Separating(MaskedRecommender):
    """It draws a key for each user and item, and deals each user the envelopes of its own keys."""

    def welcome(self) -> list[Send]:
        return [Send(one.to, self._welcome(user_index(one.to), one.message)) for one in super().welcome()]

    def _welcome(self, user: int, message: Any) -> Message:
        if isinstance(message, Welcome):
            return Welcome(message.floors, message.mask_key, self.own_keys(user))
        return WelcomeInFull(message.floors, self._own(user, "eta", 0))

    def in_full(self, user: int, floors: Ids, factors: Floats32, envelopes: Floats32) -> Message:
        return super().in_full(user, floors, factors, self._own(user, "rho", self.iteration))

    def own_keys(self, user: int) -> tuple[bytes, ...]:
        """Return the keys of the items of `user`, which no other user is dealt."""
        return tuple(self.tape.key("own", user, int(item)) for item in self.supports[user])

    def _own(self, user: int, purpose: str, iteration: int) -> Floats32:
        return exponential(self.own_keys(user), self.params.dim, purpose, iteration)
