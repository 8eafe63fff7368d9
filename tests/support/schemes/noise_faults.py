"""Schemes with one fault each, for tests of the noise: each is `masked` except for what its name says."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from protocol.arithmetic.noise import noise_share
from protocol.party.role import role_of
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedUser
from protocol.wire.messages import ItemFactors


class HalfNoiseUser(MaskedUser):
    def _noise(self, envelope, floors, purpose, iteration):
        normal = self.tape.normal(len(floors), self.params.dim, purpose, iteration)
        return self.fixed.encode(noise_share(self.params.noise_scale / 2, envelope, floors, normal))


class ReusingUser(MaskedUser):
    """Draws ρ once."""

    def _noise(self, envelope, floors, purpose, iteration):
        return super()._noise(self._derive_envelope(purpose, 0), floors, purpose, 0)


class RedrawingUser(MaskedUser):
    """Draws η anew in every iteration."""

    def receive(self, sender, message):
        if isinstance(message, ItemFactors):
            envelope = self._derive_envelope("eta", message.iteration)
            self.objective_share = self._noise(envelope, message.floors, "eta", message.iteration)
        return super().receive(sender, message)


class QuietUser(MaskedUser):
    """Forgets ρ."""

    def _noise(self, envelope, floors, purpose, iteration):
        share = super()._noise(envelope, floors, purpose, iteration)
        return np.zeros_like(share) if purpose == "rho" else share


class UnmaskedUser(MaskedUser):
    """Sends its sum without a mask, which no other party is told."""

    def _dealt(self, offer):
        masks, envelope = super()._dealt(offer)
        return np.zeros_like(masks), envelope


class Faulty(Masked):
    user: ClassVar[Any] = MaskedUser

    def make_role(self, party, setting, tape, inputs):
        if role_of(party) == "user":
            return self.user(setting, tape, inputs)
        return super().make_role(party, setting, tape, inputs)


class HalfNoise(Faulty):
    name = "half-noise"
    user = HalfNoiseUser


class Reusing(Faulty):
    name = "reusing"
    user = ReusingUser


class Redrawing(Faulty):
    name = "redrawing"
    user = RedrawingUser


class Quiet(Faulty):
    name = "quiet"
    user = QuietUser


class Unmasked(Faulty):
    name = "unmasked"
    user = UnmaskedUser
