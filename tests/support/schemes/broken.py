"""Schemes with a fault that an audit must find: `--scheme support.schemes.broken:SendsItsMask` and so on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocol.party.role import RECOMMENDER, THIRD_PARTY, Done, Send, role_of, user_index
from protocol.schemes import Leak
from protocol.schemes.factorization.direct import Direct, DirectUser
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedRecommender, MaskedUser, ThirdParty
from protocol.schemes.factorization.masked_sum import MaskDealer
from protocol.schemes.factorization.trusted import Trusted, TrustedRecommender, TrustingUser
from protocol.wire.fields import Count, FactorRows, FloatRows, ItemIds, RingRows, UserIds
from protocol.wire.framing import Frames
from protocol.wire.messages import SETUP, Hello, MaskedGradient, Publication, RatingsHandover


@dataclass(frozen=True, slots=True, eq=False)
class WithMask:  # user -> third party
    iteration: Count
    items: ItemIds
    values: RingRows
    mask: RingRows


@dataclass(frozen=True, slots=True, eq=False)
class Individual:  # third party -> recommender
    iteration: Count
    users: UserIds
    items: ItemIds
    values: RingRows


@dataclass(frozen=True, slots=True, eq=False)
class WithRatings:  # user -> third party: which items it rated highly, "for statistics"
    iteration: Count
    items: ItemIds
    values: RingRows
    liked: ItemIds


class Broken(Masked):
    """`masked` with other roles."""

    user: ClassVar[type] = MaskedUser
    recommender: ClassVar[type] = MaskedRecommender
    third_party: ClassVar[type] = ThirdParty

    def make_role(self, party, setting, tape, inputs):
        role = role_of(party)
        if role == RECOMMENDER:
            return self.recommender(setting, tape)
        return self.third_party(setting) if role == THIRD_PARTY else self.user(setting, tape, inputs)

    def max_frame(self, params):
        return 3 * super().max_frame(params)


class MaskSender(MaskedUser):
    def receive(self, sender, message):
        effects = super().receive(sender, message)
        if not effects or not isinstance(effects[0], Send) or not isinstance(effects[0].message, MaskedGradient):
            return effects
        sent = effects[0].message
        mask, _ = self._dealt(message)
        return [Send(THIRD_PARTY, WithMask(sent.iteration, sent.items, sent.values, mask))]


class TakesMore(ThirdParty):
    """Uses only the fields that it needs of a longer message."""

    def receive(self, sender, message):
        if isinstance(message, (WithMask, WithRatings)):
            message = MaskedGradient(message.iteration, message.items, message.values)
        return super().receive(sender, message)


class SendsItsMask(Broken):
    """The leak is declared, so only the algebra and the statistics can find it."""

    name = "sends-its-mask"
    user, third_party = MaskSender, TakesMore
    messages = tuple(WithMask if kind is MaskedGradient else kind for kind in Masked.messages)
    leakage = (
        *(leak for leak in Masked.leakage if leak.kind != "MaskedGradient"),
        *(Leak("third_party", "WithMask", field.name, "as declared") for field in dataclasses.fields(WithMask)),
    )


class Forwarder(ThirdParty):
    def receive(self, sender, message):
        effects = super().receive(sender, message)
        if not isinstance(message, MaskedGradient):
            return effects
        user = np.array([int(sender.partition(":")[2])], np.uint32)
        return [Send(RECOMMENDER, Individual(message.iteration, user, message.items, message.values)), *effects]


class Curious(MaskedRecommender):
    def receive(self, sender, message):
        return [] if isinstance(message, Individual) else super().receive(sender, message)


class ForwardsIndividuals(Broken):
    name = "forwards-individuals"
    third_party, recommender = Forwarder, Curious
    messages = (*Masked.messages, Individual)
    leakage = (
        *Masked.leakage,
        *(Leak("recommender", "Individual", field.name, "as declared") for field in dataclasses.fields(Individual)),
    )


class SameMaskDealer(MaskDealer):
    def masks(self, user, iteration, items):
        return super().masks(user, 0, items)


class SameMaskRecommender(MaskedRecommender):
    def __init__(self, setting, tape):
        super().__init__(setting, tape)
        self.dealer = SameMaskDealer(setting.ring, self.params.dim, setting.run_id, tape)


class SameMaskUser(MaskedUser):
    def _dealt(self, offer):
        _, envelope = super()._dealt(offer)
        masks, _ = super()._dealt(dataclasses.replace(offer, iteration=0))
        return masks, envelope


class ReusesItsSeed(Broken):
    name = "reuses-its-seed"
    user, recommender = SameMaskUser, SameMaskRecommender


class Teller(MaskedUser):
    def receive(self, sender, message):
        effects = super().receive(sender, message)
        if not effects or not isinstance(effects[0], Send) or not isinstance(effects[0].message, MaskedGradient):
            return effects
        sent, liked = effects[0].message, self.inputs.items[self.inputs.ratings >= 4]
        return [Send(THIRD_PARTY, WithRatings(sent.iteration, sent.items, sent.values, liked))]


class SaysMore(Broken):
    """Sends a field that the leakage policy does not declare."""

    name = "says-more"
    user, third_party = Teller, TakesMore
    messages = tuple(WithRatings if kind is MaskedGradient else kind for kind in Masked.messages)
    leakage = (
        *(leak for leak in Masked.leakage if leak.kind != "MaskedGradient"),
        *(Leak("third_party", "WithRatings", name, "as declared") for name in ("iteration", "items", "values")),
    )


# --- a trusted recommender that tells each user the u_i that it trained ------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class WithProfile:  # recommender -> user: as `trusted` once published
    user_factors: FloatRows  # one row: u_i, trained without noise on the ratings of all users
    factors: FactorRows  # the noisy v_j, of the user's items


class ProfileTeller(TrustedRecommender):
    def _publish(self):
        *sends, done = super()._publish()
        told = []
        for send in sends:
            user, factors = user_index(send.to), send.message.factors
            profile = self.profiles[user : user + 1].astype(np.float32)
            own = factors if self.params.publish == "rated" else factors[self.handed[user].items]
            told.append(Send(send.to, WithProfile(profile, own)))
        return [*told, done]


class ProfileTaker(TrustingUser):
    def receive(self, sender, message):
        self.user_factors = message.user_factors[0].astype(np.float64)
        self.iteration = self.params.iterations
        return [Done()]


class TellsProfiles(Trusted):
    """The leak is declared, so only a data pair can find it."""

    name = "tells-profiles"
    messages = (Hello, RatingsHandover, WithProfile)
    leakage = (
        *(leak for leak in Trusted.leakage if leak.kind != Publication.__name__),
        *(Leak("user", "WithProfile", field.name, "as declared") for field in dataclasses.fields(WithProfile)),
    )

    def make_role(self, party, setting, tape, inputs):
        return ProfileTeller(setting, tape) if party == RECOMMENDER else ProfileTaker(setting, inputs)

    def formula(self, params, course):
        yield from (flow for flow in super().formula(params, course) if flow.kind != Publication.__name__)
        frames, way, n = Frames(params), ("recommender", "user"), course.supports
        yield frames.flow(SETUP, way, WithProfile, course.users, 1, user_factors=1, factors=n)


class _ForgetfulUser(DirectUser):
    def __init__(self, setting, tape, inputs):
        super().__init__(setting, tape, inputs)
        self.with_rho = False


class Forgetful(Direct):
    """A scheme whose users leave ρ out, although the parameters promise it."""

    name = "forgetful"

    def make_role(self, party, setting, tape, inputs):
        if party == "recommender":
            return super().make_role(party, setting, tape, inputs)
        return _ForgetfulUser(setting, tape, inputs)
