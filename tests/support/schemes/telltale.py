"""Schemes that tell a rating, or a hidden number, by something else than a value; each declares all of its fields.

What leaks here is seen by no algebra: lengths, numbers, order, names, digests; and randomness that protects nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from protocol.arithmetic.noise import noise_share
from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Tape
from protocol.errors import Reason
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Send, require, user_index, user_name
from protocol.schemes.factorization.direct import Direct, DirectUser
from protocol.schemes.factorization.masked import Masked, MaskedRecommender, MaskedUser, ThirdParty
from protocol.wire.fields import Count, Counts, Digest, FloatRows, ItemIds
from protocol.wire.messages import MaskedGradient
from support.schemes.broken import Broken
from support.schemes.leaky import declared, gradient_in


@dataclass(frozen=True, slots=True, eq=False)
class Note:  # user -> third party, or a server -> another party
    iteration: Count
    number: Count
    token: Digest
    items: ItemIds
    counts: Counts


@dataclass(frozen=True, slots=True, eq=False)
class Postscript:  # user -> third party
    iteration: Count


@dataclass(frozen=True, slots=True, eq=False)
class Average:  # user -> recommender
    iteration: Count
    values: FloatRows


NOTHING = np.zeros(0, np.uint32)


def note(iteration, number=0, token=bytes(32), items=NOTHING, counts=NOTHING):
    return Note(iteration, number, token, items.astype(np.uint32), counts.astype(np.uint32))


def all_declared(kind):
    return tuple(leak for receiver in (RECOMMENDER, THIRD_PARTY, "user") for leak in declared(receiver, kind))


class Tolerant(ThirdParty):
    def receive(self, sender, message):
        return [] if isinstance(message, (Note, Postscript)) else super().receive(sender, message)


class TolerantRecommender(MaskedRecommender):
    def receive(self, sender, message):
        return [] if isinstance(message, (Note, Average)) else super().receive(sender, message)


class Writer(MaskedUser):
    """Sends more with its masked gradient."""

    number = 0

    def receive(self, sender, message):
        if isinstance(message, Note):
            return self.noted(message)
        effects = super().receive(sender, message)
        sent = gradient_in(effects)
        return effects if sent is None else self.more(sent, list(effects))

    def noted(self, message):
        return []

    def more(self, sent, effects):
        return [*effects, Send(THIRD_PARTY, self.note(sent))]


class Telltale(Broken):
    user, third_party, recommender = Writer, Tolerant, TolerantRecommender
    messages = (*Masked.messages, Note, Postscript, Average)
    leakage = (*Masked.leakage, *(leak for kind in (Note, Postscript, Average) for leak in all_declared(kind)))

    def make_role(self, party, setting, tape, inputs):
        role = super().make_role(party, setting, tape, inputs)
        role.number = user_index(party)
        return role

    def longer_fields(self, params):
        return {"counts": 64, "items": 64}


def telling(name, method):
    """Make a scheme whose users send a note that `method` makes of them and of the iteration."""
    user = type(f"{name.title()}User", (Writer,), {"note": lambda self, sent: method(self, sent)})
    return type(name, (Telltale,), {"name": name.lower(), "user": user})


# --- a rating, in ... -------------------------------------------------------------------------------------------------

InLength = telling("InLength", lambda self, sent: note(sent.iteration, items=_liked(self)))
InItems = telling("InItems", lambda self, sent: note(sent.iteration, items=_best(self)))
InNumber = telling("InNumber", lambda self, sent: note(sent.iteration, number=int(self.inputs.ratings[0])))
InIteration = telling("InIteration", lambda self, sent: note(int(self.inputs.ratings.sum())))
InDigest = telling("InDigest", lambda self, sent: note(sent.iteration, token=_digest(self.inputs.ratings)))
InNumbersOfADigest = telling(
    "InNumbersOfADigest", lambda self, sent: note(sent.iteration, token=self.user_factors.tobytes().ljust(32)[:32])
)
InCounts = telling("InCounts", lambda self, sent: note(sent.iteration, counts=1 + (self.last_errors > 0)))


def _liked(self):
    return self.inputs.items[self.inputs.ratings > 3]


def _best(self):
    return self.inputs.items[[int(self.inputs.ratings.argmax())]]


def _digest(ratings):
    return hashlib.sha256(ratings.tobytes()).digest()


class Talkative(Writer):
    def more(self, sent, effects):
        return [*effects, *[Send(THIRD_PARTY, Postscript(sent.iteration))] * int(self.inputs.ratings[0])]


class InHowMany(Telltale):
    name = "in-how-many"
    user = Talkative


class Reverser(Writer):
    def more(self, sent, effects):
        made = [*effects, Send(THIRD_PARTY, Postscript(sent.iteration))]
        return made[::-1] if self.inputs.ratings[0] > 3 else made


class InOrder(Telltale):
    name = "in-order"
    user = Reverser


class Chooser(Writer):
    def more(self, sent, effects):
        to = RECOMMENDER if self.inputs.ratings[0] > 3 else THIRD_PARTY
        return [*effects, Send(to, note(sent.iteration))]


class InReceiver(Telltale):
    name = "in-receiver"
    user = Chooser


class Asker(TolerantRecommender):
    def open_iteration(self):
        return [*super().open_iteration(), *(Send(user_name(user), note(self.iteration)) for user in self.dealt)]


class Refuser(Writer):
    def noted(self, message):
        require(self.inputs.ratings[0] > 3, Reason.OUT_OF_RANGE)
        return []

    def more(self, sent, effects):
        return effects


class InRefusals(Telltale):
    name = "in-refusals"
    user, recommender = Refuser, Asker


class Averager(Writer):
    def more(self, sent, effects):
        mean = np.full((1, self.params.dim), self.inputs.ratings.mean(), np.float32)
        return [*effects, Send(RECOMMENDER, Average(sent.iteration, mean))]


class InANumber(Telltale):
    name = "in-a-number"
    user = Averager


# --- hidden numbers, in what a server sends --------------------------------------------------------------------------


class SignTeller(TolerantRecommender):
    """Tells users in how many of their items the sum is positive."""

    moved = 0

    def move(self, items, sums):
        self.moved = int((sums > 0).sum())
        super().move(items, sums)

    def open_iteration(self):
        told = [Send(user_name(user), note(self.iteration, self.moved)) for user in self.supports]
        return [*told, *super().open_iteration()]


class SignsOfSums(Telltale):
    name = "signs-of-sums"
    recommender, user = SignTeller, type("Listener", (Writer,), {"more": lambda self, sent, effects: effects})


class LengthTeller(SignTeller):
    def open_iteration(self):
        told = np.ones(self.moved % 5, np.uint32)
        made = MaskedRecommender.open_iteration(self)
        return [*(Send(user_name(user), note(self.iteration, counts=told)) for user in self.supports), *made]


class LengthOfSums(Telltale):
    name = "length-of-sums"
    recommender, user = LengthTeller, SignsOfSums.user


class BitCounter(Tolerant):
    """Tells the recommender how many masked values are odd."""

    def receive(self, sender, message):
        effects = list(super().receive(sender, message))
        if isinstance(message, MaskedGradient):
            odd = int(np.count_nonzero(message.values & 1))
            effects.append(Send(RECOMMENDER, note(message.iteration, odd)))
        return effects


class BitsOfMaskedValues(Telltale):
    name = "bits-of-masked-values"
    third_party, user = BitCounter, SignsOfSums.user


class MaskTeller(Writer):
    def note(self, sent):
        return note(sent.iteration, number=self.mask_key[0])


class MaskInANumber(Telltale):
    name = "mask-in-a-number"
    user = MaskTeller


# --- noise that is there and worthless -------------------------------------------------------------------------------


def noisy(name, normal):
    """Make a scheme whose users draw their noise by `normal`(user, rows, purpose, iteration)."""

    def noise(self, envelope, floors, purpose, iteration):
        drawn = normal(self, len(floors), purpose, iteration)
        share = noise_share(self.params.noise_scale, envelope, floors, drawn)
        return self.fixed.encode(share, self.label(purpose, iteration, floors))

    user = type(f"{name}User", (Writer,), {"_noise": noise, "more": lambda self, sent, effects: effects})
    return type(name, (Telltale,), {"name": name.lower(), "user": user})


def _own(self, rows, *name):
    return self.tape.normal(rows, self.params.dim, *name)


def _seeded(self, seed, rows, *name):
    return Tape(seed).normal(rows, self.params.dim, self.number, *name)


def _alternating(self, rows, *name):
    signs = (-1.0) ** np.arange(rows)
    return np.abs(_own(self, 1, *name)) * signs[:, None] * np.sign(_own(self, 1, *name, "sign"))


def _without(where):
    def normal(self, rows, purpose, iteration):
        drawn = _own(self, rows, purpose, iteration)
        drawn[where(self, iteration, np.arange(rows))] = 0
        return drawn

    return normal


PublicSeed = noisy("PublicSeed", lambda self, *name: _seeded(self, self.setting.run_id, *name))
SeedOfKeys = noisy("SeedOfKeys", lambda self, *name: _seeded(self, self.item_keys[0], *name))
SameForItems = noisy("SameForItems", lambda self, rows, *name: np.repeat(_own(self, 1, *name), rows, axis=0))
SameForCoordinates = noisy("SameForCoordinates", lambda self, rows, *name: _own(self, rows, *name)[:, :1].repeat(2, 1))
Repeated = noisy("Repeated", lambda self, rows, purpose, t: _own(self, rows, purpose, min(t, 1)))
Antithetic = noisy("Antithetic", _alternating)
MissingForAUser = noisy("MissingForAUser", _without(lambda self, t, rows: (rows >= 0) & (self.number == 2)))
MissingForAnItem = noisy("MissingForAnItem", _without(lambda self, t, rows: rows == 0))
MissingOnce = noisy("MissingOnce", _without(lambda self, t, rows: (rows >= 0) & (t == 2)))


class Silent(DirectUser):
    """Draws ρ in even iterations alone."""

    def receive(self, sender, message):
        self.with_rho = getattr(message, "iteration", 0) % 2 == 0
        return super().receive(sender, message)


class EveryOther(Direct):
    name = "every-other"

    def make_role(self, party, setting, tape, inputs):
        role = super().make_role(party, setting, tape, inputs)
        return Silent(setting, tape, inputs) if isinstance(role, DirectUser) else role


# --- numbers that are larger, or called something else ---------------------------------------------------------------


class Shouter(MaskedUser):
    def step(self, iteration, item_factors):
        return 3 * super().step(iteration, item_factors)


class TripleGradients(Broken):
    name = "triple-gradients"
    user = Shouter


class Mislabeller(MaskedUser):
    """Calls its gradient noise."""

    def encode_gradients(self, iteration, factors):
        gradients, items = self.step(iteration, factors), self.inputs.items
        return self.fixed.encode(gradients, Label("rho", iteration, items, np.ones(len(items), np.uint32)))


class CallsItNoise(Broken):
    name = "calls-it-noise"
    user = Mislabeller


