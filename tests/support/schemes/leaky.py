"""More schemes with a fault, for the algebra: what leaks here leaks through keys, low bits, reuse, or another user."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from protocol.party.role import RECOMMENDER, THIRD_PARTY, Send, role_of, user_index, user_name
from protocol.schemes import Leak
from protocol.schemes.factorization.dynamic import Dynamic, DynamicThirdParty
from protocol.schemes.factorization.machines.commitment import SealHolder
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedRecommender, MaskedUser, ThirdParty
from protocol.schemes.factorization.masked_sum import MaskDealer, mask_rows
from protocol.wire.fields import Count, Digest, FactorRows, ItemIds, RingRows, UserIds
from protocol.wire.messages import MaskedGradient, MaskedTotal
from support.schemes.broken import Broken


def declared(receiver: str, kind: type) -> tuple[Leak, ...]:
    return tuple(Leak(receiver, kind.__name__, field.name, "as declared") for field in dataclasses.fields(kind))


def gradient_in(effects):
    """Find the masked gradient among what a user sends, or None."""
    return next((e.message for e in effects if isinstance(e, Send) and isinstance(e.message, MaskedGradient)), None)


# --- the key of the masks, in a field of 32 bytes --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprint:  # user -> third party
    iteration: Count
    token: Digest


class KeySender(MaskedUser):
    def receive(self, sender, message):
        effects = super().receive(sender, message)
        sent = gradient_in(effects)
        return effects if sent is None else [*effects, Send(THIRD_PARTY, Fingerprint(sent.iteration, self.mask_key))]


class Deaf(ThirdParty):
    """Ignores messages that it did not ask for."""

    ignored: tuple[type, ...] = (Fingerprint,)

    def receive(self, sender, message):
        return [] if isinstance(message, self.ignored) else super().receive(sender, message)


class SendsItsKey(Broken):
    name = "sends-its-key"
    user, third_party = KeySender, Deaf
    messages = (*Masked.messages, Fingerprint)
    leakage = (*Masked.leakage, *declared("third_party", Fingerprint))


# --- twice the mask: the low bit of every value is bare --------------------------------------------------------------


class TwiceDealer(MaskDealer):
    def masks(self, user, iteration, items):
        rows = super().masks(user, iteration, items)
        return self._ring.add(rows, rows)


class TwiceRecommender(MaskedRecommender):
    def __init__(self, setting, tape):
        super().__init__(setting, tape)
        self.dealer = TwiceDealer(setting.ring, self.params.dim, setting.run_id, tape)


class TwiceUser(MaskedUser):
    def _dealt(self, offer):
        masks, envelope = super()._dealt(offer)
        return self.setting.ring.add(masks, masks), envelope


class TwiceTheMask(Broken):
    name = "twice-the-mask"
    user, recommender = TwiceUser, TwiceRecommender


# --- one mask key for all users --------------------------------------------------------------------------------------


class OneKeyDealer(MaskDealer):
    def key(self, user):
        return self._tape.key("mask")

    def masks(self, user, iteration, items):
        return mask_rows(self._ring, self.key(user), self._run_id + bytes([user]), iteration, len(items), self._dim)


class OneKeyRecommender(MaskedRecommender):
    def __init__(self, setting, tape):
        super().__init__(setting, tape)
        self.dealer = OneKeyDealer(setting.ring, self.params.dim, setting.run_id, tape)


class OneKeyUser(MaskedUser):
    """The streams differ by user, so the third party alone sees nothing; the key is the same for all."""

    number = 0

    def _dealt(self, offer):
        _, envelope = super()._dealt(offer)
        run_id = self.setting.run_id + bytes([self.number])
        rows = len(self.inputs.items)
        return mask_rows(self.setting.ring, self.mask_key, run_id, offer.iteration, rows, self.params.dim), envelope


class OneKeyForAll(Broken):
    name = "one-key-for-all"
    user, recommender = OneKeyUser, OneKeyRecommender

    def make_role(self, party, setting, tape, inputs):
        role = super().make_role(party, setting, tape, inputs)
        if isinstance(role, OneKeyUser):
            role.number = user_index(party)
        return role


# --- a share of noise told to another user, and a masked gradient handed to one --------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Whisper:  # user -> recommender -> user:0
    iteration: Count
    values: RingRows


class Whisperer(MaskedUser):
    """Tells its share of η and ρ, and user 0 hears it."""

    def _noise(self, envelope, floors, purpose, iteration):
        share = super()._noise(envelope, floors, purpose, iteration)
        self.shares = {**getattr(self, "shares", {}), (purpose, iteration): share}
        return share

    def receive(self, sender, message):
        if isinstance(message, Whisper):
            return []
        effects = super().receive(sender, message)
        sent = gradient_in(effects)
        if sent is None or self.number == 0:
            return effects
        told = [self.shares["eta", 0], self.shares["rho", sent.iteration]]
        return [*effects, *(Send(user_name(0), Whisper(sent.iteration, share)) for share in told)]


class TellsItsNoise(Broken):
    name = "tells-its-noise"
    user = Whisperer
    messages = (*Masked.messages, Whisper)
    leakage = (*Masked.leakage, *declared("user", Whisper))

    def make_role(self, party, setting, tape, inputs):
        role = super().make_role(party, setting, tape, inputs)
        if isinstance(role, Whisperer):
            role.number = user_index(party)
        return role


class Relayer(MaskedUser):
    """Sends its masked gradient to user 0 as well."""

    def receive(self, sender, message):
        if isinstance(message, Whisper):
            return []
        effects = super().receive(sender, message)
        sent = gradient_in(effects)
        if sent is None or self.number == 0:
            return effects
        return [*effects, Send(user_name(0), Whisper(sent.iteration, sent.values))]


class RelaysToAUser(TellsItsNoise):
    name = "relays-to-a-user"
    user = Relayer

    def make_role(self, party, setting, tape, inputs):
        role = Broken.make_role(self, party, setting, tape, inputs)
        if isinstance(role, Relayer):
            role.number = user_index(party)
        return role


# --- a total without one of its contributors -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PartTotal:  # third party -> recommender
    iteration: Count
    users: UserIds
    items: ItemIds
    values: RingRows


class Dropper(ThirdParty):
    """Before the total it sends the sum of all but the last `dropped` contributors."""

    dropped = 1

    def receive(self, sender, message):
        parts = dict(self.holder._parts)
        effects = super().receive(sender, message)
        if not any(isinstance(e, Send) and isinstance(e.message, MaskedTotal) for e in effects):
            return effects
        users = sorted(parts)[: -self.dropped]
        items = np.unique(np.concatenate([parts[user][0] for user in users])).astype(np.uint32)
        values = self.holder._ring.sum_by_item([parts[user] for user in users], items, self.params.dim)
        part = PartTotal(self.iteration - 1, np.array(users, np.uint32), items, values)
        return [Send(RECOMMENDER, part), *effects]


class Indifferent(MaskedRecommender):
    def receive(self, sender, message):
        return [] if isinstance(message, PartTotal) else super().receive(sender, message)


class AllButOne(Broken):
    name = "all-but-one"
    third_party, recommender = Dropper, Indifferent
    messages = (*Masked.messages, PartTotal)
    leakage = (*Masked.leakage, *declared("recommender", PartTotal))


# --- the factors of all items, for the third party -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Model:  # recommender -> anyone: v_j(t) of all items
    iteration: Count
    factors: FactorRows


class Publisher(MaskedRecommender):
    def open_iteration(self):
        everything = Model(self.iteration, self.outgoing_factors())
        return [*super().open_iteration(), Send(THIRD_PARTY, everything)]


class Reader(Deaf):
    ignored = (Model,)


class TellsTheModel(Broken):
    name = "tells-the-model"
    recommender, third_party = Publisher, Reader
    messages = (*Masked.messages, Model)
    leakage = (*Masked.leakage, *declared("third_party", Model))


# --- the same α for every attempt ------------------------------------------------------------------------------------


class OneSeal(SealHolder):
    """Draws the same α for every attempt."""

    def _draw(self, rows):
        return self._ring.uniform(self._tape.key("alpha"), rows, self._dim, 0)


@dataclass(frozen=True, slots=True, eq=False)
class PartSeal:  # third party -> recommender
    attempt: Count
    items: ItemIds
    values: RingRows


class SealsAgain(DynamicThirdParty):
    def __init__(self, setting, tape):
        super().__init__(setting, tape)
        params = setting.params
        self.seal = OneSeal(setting.ring, params.dim, params.n_users, params.n_items, tape)

    def _seal(self):
        """Send also α + Σ of the users that committed, for every item and every attempt, even if it failed."""
        opened, parts = self.seal.opening, list(self.seal._parts.values())
        sums = self.ring.sum_by_item(parts, opened.items, self.params.dim)
        alpha = self.seal._draw(self.params.n_items)[opened.items]
        part = PartSeal(self.seal.attempt, opened.items, self.ring.add(alpha, sums))
        return [Send(RECOMMENDER, part), *super()._seal()]


class ReusesAlpha(Dynamic):
    name = "reuses-alpha"
    messages = (*Dynamic.messages, PartSeal)
    leakage = (*Dynamic.leakage, *declared("recommender", PartSeal))

    def make_role(self, party, setting, tape, inputs):
        if role_of(party) == THIRD_PARTY:
            return SealsAgain(setting, tape)
        role = super().make_role(party, setting, tape, inputs)
        if role_of(party) == RECOMMENDER:
            inner = role.receive
            role.receive = lambda sender, message: [] if isinstance(message, PartSeal) else inner(sender, message)
        return role


# --- one user whose noise is always zero -----------------------------------------------------------------------------


class WithoutNoise(MaskedUser):
    def _noise(self, envelope, floors, purpose, iteration):
        return super()._noise(0 * envelope, floors, purpose, iteration)


class OneWithoutNoise(Broken):
    name = "one-without-noise"

    def make_role(self, party, setting, tape, inputs):
        if party == user_name(0):
            return WithoutNoise(setting, tape, inputs)
        return super().make_role(party, setting, tape, inputs)


# --- opened sums as ring values, for the users, who can also compute them from the factors ---------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Sums:  # recommender -> user
    iteration: Count
    items: ItemIds
    values: RingRows


class Open(MaskedRecommender):
    def complete(self, words, items):
        self.sums = Sums(self.iteration, items, words)
        return words

    def receive(self, sender, message):
        self.sums = None
        effects = super().receive(sender, message)
        return effects if self.sums is None else [*(Send(user_name(user), self.sums) for user in self.dealt), *effects]


class Told(MaskedUser):
    def receive(self, sender, message):
        return [] if isinstance(message, Sums) else super().receive(sender, message)


class TellsTheSums(Broken):
    name = "tells-the-sums"
    user, recommender = Told, Open
    messages = (*Masked.messages, Sums)
    leakage = (*Masked.leakage, *declared("user", Sums))
