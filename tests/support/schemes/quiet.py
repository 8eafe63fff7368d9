"""Faults that leave no finding: only the third answer, "not shown", names them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.party.role import THIRD_PARTY, Send
from protocol.schemes.base import Weakness
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedRecommender, MaskedUser
from protocol.wire.fields import Digest
from protocol.wire.messages import MaskedGradient, Welcome
from support.schemes.broken import Broken
from support.schemes.leaky import declared, gradient_in


class _Winker(MaskedUser):
    """Sends a frame that is refused if its first rating is high."""

    def receive(self, sender, message):
        effects, sent = super().receive(sender, message), None
        if self.inputs.ratings[0] >= 4:
            sent = gradient_in(effects)
        if sent is None:
            return effects
        empty = sent.items[:0], sent.values[:0]
        return [*effects, Send(THIRD_PARTY, MaskedGradient(sent.iteration + 7, *empty))]


class RefusedIfLiked(Broken):
    name = "refused-if-liked"
    user = _Winker


class _Loud(MaskedUser):
    def step(self, iteration, factors):
        return 3 * super().step(iteration, factors)


class TripleGradient(Broken):
    """Sends three times the gradients, with the noise of one."""

    name = "triple-gradient"
    user = _Loud


class BoundedReaction(Masked):
    """Declares of its reacting factors more than is true."""

    name = "bounded-reaction"
    known_weaknesses = (*Masked.known_weaknesses[:-1], Weakness("reacting-user-factors", "recommender", most=1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Gossip:  # recommender -> user 3: the masks of user 0
    token: Digest


class _Gossiper(MaskedRecommender):
    def receive(self, sender, message):
        effects = super().receive(sender, message)
        if any(isinstance(effect, Send) and isinstance(effect.message, Welcome) for effect in effects):
            effects = [*effects, Send("user:3", Gossip(self.dealer.key(0)))]
        return effects


class _Friend(MaskedUser):
    def receive(self, sender, message):
        return [] if isinstance(message, Gossip) else super().receive(sender, message)


class TellsAFriend(Broken):
    """No party alone is a fault, and no coalition that has other members than user 3 and the third party."""

    name = "tells-a-friend"
    user, recommender = _Friend, _Gossiper
    messages = (*Masked.messages, Gossip)
    leakage = (*Masked.leakage, *declared("user", Gossip))


class _Miser(MaskedRecommender):
    def in_full(self, user, floors, factors, envelopes):
        return super().in_full(user, floors, factors, envelopes * np.float32(0.5))


class DealsHalfTheEnvelopes(Broken):
    """Tells users half of the envelopes that its tape draws, in the wire form in which they travel."""

    name = "deals-half-the-envelopes"
    recommender = _Miser


class UnknownLength(Masked):
    """The formula does not know of one message in every iteration."""

    name = "unknown-length"

    def formula(self, params, course):
        yield from list(super().formula(params, course))[:-1]
