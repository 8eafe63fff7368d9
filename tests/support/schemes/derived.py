"""Keys that follow from others, and opened sums in another form; each is `masked` otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.arithmetic.tape import Tape, derive
from protocol.party.role import THIRD_PARTY, Send
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedRecommender
from protocol.schemes.factorization.masked_sum import MaskDealer
from protocol.wire.fields import Count, FloatRows, ItemIds
from protocol.wire.messages import Welcome
from support.schemes.broken import Broken
from support.schemes.leaky import Deaf, declared
from support.schemes.quiet import Gossip
from support.schemes.telltale import noisy, note, telling


def dealing(name, key):
    """Make a scheme whose mask keys are `key`(tape, run id, user)."""
    dealer = type(f"{name}Dealer", (MaskDealer,), {"key": lambda self, user: key(self._tape, self._run_id, user)})

    class Recommender(MaskedRecommender):
        def __init__(self, setting, tape):
            super().__init__(setting, tape)
            self.dealer = dealer(setting.ring, self.params.dim, setting.run_id, tape)

    return type(name, (Broken,), {"name": name.lower(), "recommender": Recommender})


class Deafer(Deaf):
    ignored = (Gossip,)


def telling_a_key(name, key, told):
    """Make such a scheme whose recommender tells the third party `told`(tape, user of the last welcome)."""
    base = dealing(name, key)

    class Teller(base.recommender):
        def receive(self, sender, message):
            effects = super().receive(sender, message)
            welcomed = [one for one in effects if isinstance(one, Send) and isinstance(one.message, Welcome)]
            return [*effects, Send(THIRD_PARTY, Gossip(told(self.tape)))] if welcomed else effects

    leaks = (*Masked.leakage, *declared("third_party", Gossip))
    held = {"recommender": Teller, "third_party": Deafer, "messages": (*Masked.messages, Gossip), "leakage": leaks}
    return type(name, (base,), held)


def _grandchild(tape, run_id, user):
    return derive(derive(tape.key("base"), "level"), user)


def _of_two(tape, run_id, user):
    return derive(tape.key("base"), tape.key("other"), user)


DerivedKey = telling_a_key("DerivedKey", lambda tape, _, user: derive(tape.key("base"), user), lambda t: t.key("base"))
KeyOfAKey = telling_a_key("KeyOfAKey", _grandchild, lambda tape: tape.key("base"))
HalfOfAKey = telling_a_key("HalfOfAKey", _of_two, lambda tape: tape.key("base"))
PublicKeys = dealing("PublicKeys", lambda tape, run_id, user: derive(run_id, "mask", user))
ShortMaskKeys = dealing("ShortMaskKeys", lambda tape, _, user: derive(tape.key("mask", user)[:2].ljust(32), "mask"))
StrangeKeys = dealing("StrangeKeys", lambda tape, _, user: derive(tape.key("mask", user)[::-1], "mask"))


# --- a rating as a key, and as a seed --------------------------------------------------------------------------------


def _from_ratings(self, rows, *name):
    seed = derive(bytes(32), int(self.inputs.ratings.sum()))
    return Tape(seed).normal(rows, self.params.dim, self.number, *name)


RatingSeed = noisy("RatingSeed", _from_ratings)
RatingKey = telling(
    "RatingKey",
    lambda self, sent: note(sent.iteration, token=derive(self.setting.run_id, int(self.inputs.ratings[0]))),
)


# --- sums as floats --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FloatSums:  # recommender -> third party
    iteration: Count
    items: ItemIds
    values: FloatRows


class _Opener(MaskedRecommender):
    told = None

    def made(self, sums):
        return sums

    def move(self, items, sums):
        self.told = FloatSums(self.iteration, items, self.made(np.asarray(sums)).astype(np.float32))
        super().move(items, sums)

    def receive(self, sender, message):
        self.told = None
        effects = super().receive(sender, message)
        return effects if self.told is None else [Send(THIRD_PARTY, self.told), *effects]


class _Squarer(_Opener):
    def made(self, sums):
        return sums**2


class _DeafToSums(Deaf):
    ignored = (FloatSums,)


class SumsAsFloats(Broken):
    name = "sums-as-floats"
    recommender, third_party = _Opener, _DeafToSums
    messages = (*Masked.messages, FloatSums)
    leakage = (*Masked.leakage, *declared("third_party", FloatSums))


class SquaresOfSums(SumsAsFloats):
    """No linear form: only the third answer names it."""

    name = "squares-of-sums"
    recommender = _Squarer
