"""Schemes with a planted fault in the masks: `scheme="support.schemes.unmasked:Bare"` runs one."""

from __future__ import annotations

import numpy as np

from protocol.party.role import Send, role_of
from protocol.schemes.factorization.dynamic import Dynamic, DynamicUser
from protocol.schemes.factorization.machines.commitment import SealHolder
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedRecommender, MaskedUser, ThirdParty
from protocol.schemes.factorization.masked_sum import MaskDealer, mask_rows
from protocol.wire.messages import MaskedGradient, MaskedTotal


class FaultyDealer(MaskDealer):
    """Deals what the faulty users use, so that the run goes on as if nothing were wrong."""

    def __init__(self, sound: MaskDealer, mask) -> None:
        super().__init__(sound._ring, sound._dim, sound._run_id, sound._tape)
        self._mask = mask

    def masks(self, user, iteration, items):
        return self._mask(self._ring, self.key(user), self._run_id, iteration, len(items), self._dim)


class FaultyUser(MaskedUser):
    mask = None

    def _dealt(self, offer):
        masks, envelope = super()._dealt(offer)
        return self.mask(self.setting.ring, self.mask_key, self.setting.run_id, offer.iteration, *masks.shape), envelope


class FaultyDynamicUser(FaultyUser, DynamicUser):
    pass


def faulty_role(scheme, sound, mask):
    """Give the role this mask in place of ψ; leave the third party as it is."""
    if isinstance(sound, MaskedRecommender):
        sound.dealer = FaultyDealer(sound.dealer, mask)
    elif isinstance(sound, MaskedUser):
        kind = FaultyDynamicUser if isinstance(sound, DynamicUser) else FaultyUser
        sound = kind(sound.setting, sound.tape, sound.inputs)
        sound.mask = mask
    return sound


class Faulty(Masked):
    mask = staticmethod(mask_rows)  # a sound mask, unless a subclass replaces it

    def make_role(self, party, setting, tape, inputs):
        return faulty_role(self, super().make_role(party, setting, tape, inputs), self.mask)


def no_mask(ring, key, run_id, iteration, rows, dim):
    return ring.zeros(rows, dim)


def first_mask_again(ring, key, run_id, iteration, rows, dim):
    return mask_rows(ring, key, run_id, 0, rows, dim)


def mask_of_everybody(ring, key, run_id, iteration, rows, dim):
    return mask_rows(ring, bytes(32), run_id, iteration, rows, dim)


def mask_of_all_items(ring, key, run_id, iteration, rows, dim):
    return np.repeat(mask_rows(ring, key, run_id, iteration, 1, dim), rows, axis=0)


def mask_of_all_coordinates(ring, key, run_id, iteration, rows, dim):
    return np.repeat(mask_rows(ring, key, run_id, iteration, rows, 1), dim, axis=1)


def mask_without_its_highest_bit(ring, key, run_id, iteration, rows, dim):
    return mask_rows(ring, key, run_id, iteration, rows, dim) & ring.dtype.type(ring.largest >> 1)


class Bare(Faulty):
    name = "bare"
    mask = staticmethod(no_mask)


class Reused(Faulty):
    name = "reused"
    mask = staticmethod(first_mask_again)


class Shared(Faulty):
    name = "shared"
    mask = staticmethod(mask_of_everybody)


class PerUser(Faulty):
    name = "per-user"
    mask = staticmethod(mask_of_all_items)


class PerItem(Faulty):
    name = "per-item"
    mask = staticmethod(mask_of_all_coordinates)


class Short(Faulty):
    name = "short"
    mask = staticmethod(mask_without_its_highest_bit)


class Sound(Faulty):
    name = "sound"  # the same roles, with the true masks


class BareDynamic(Dynamic):
    name = "bare-dynamic"

    def make_role(self, party, setting, tape, inputs):
        return faulty_role(self, super().make_role(party, setting, tape, inputs), no_mask)


class Unsealed(Dynamic):
    name = "unsealed"  # α is always 0

    def make_role(self, party, setting, tape, inputs):
        role = super().make_role(party, setting, tape, inputs)
        if role_of(party) == "third_party":
            params = setting.params
            role.seal = OpenHolder(setting.ring, params.dim, params.n_users, params.n_items, tape)
        return role


class OpenHolder(SealHolder):
    def _draw(self, rows):
        return self._ring.zeros(rows, self._dim)


class Forwarder(ThirdParty):
    """Releases for each item the values of its last contributor in place of the sum."""

    def __init__(self, setting) -> None:
        super().__init__(setting)
        self._rows = setting.ring.zeros(setting.params.n_items, setting.params.dim)

    def receive(self, sender, message):
        effects = super().receive(sender, message)
        if isinstance(message, MaskedGradient):
            self._rows[message.items] = message.values
        return [self._forward(effect) for effect in effects]

    def _forward(self, effect):
        if not isinstance(effect, Send) or not isinstance(effect.message, MaskedTotal):
            return effect
        total = effect.message
        return Send(effect.to, MaskedTotal(total.iteration, total.items, self._rows[total.items]))


class Forwarding(Masked):
    name = "forwarding"

    def make_role(self, party, setting, tape, inputs):
        return (
            Forwarder(setting) if role_of(party) == "third_party" else super().make_role(party, setting, tape, inputs)
        )
