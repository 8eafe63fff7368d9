"""Schemes whose noise follows its owner's tape and is still not what they state; each is `masked` otherwise."""

from __future__ import annotations

import numpy as np

from protocol.arithmetic.noise import noise_share
from protocol.arithmetic.tape import Tape, derive
from protocol.schemes.factorization.direct import Direct, DirectUser
from protocol.schemes.factorization.masked import MaskedRecommender
from support.schemes.noise_faults import Faulty
from support.schemes.telltale import Telltale, _own, _without, noisy


def _halved(where):
    def normal(self, rows, purpose, t):
        drawn = _own(self, rows, purpose, t)
        drawn[where(self, t, np.arange(rows))] /= 2
        return drawn

    return normal


def _seeded_shortly(self, rows, *name):
    return Tape(derive(self.tape.key("short")[:2].ljust(32), "own")).normal(rows, self.params.dim, *name)


def _two_ago(self, rows, purpose, t):
    return _own(self, rows, purpose, t % 2)


HalfForAUser = noisy("HalfForAUser", _halved(lambda self, t, rows: (rows >= 0) & (self.number == 2)))
HalfForAnItem = noisy("HalfForAnItem", _halved(lambda self, t, rows: self.inputs.items == 1))
HalfOnce = noisy("HalfOnce", _halved(lambda self, t, rows: (rows >= 0) & (t == 2)))
CutOff = noisy("CutOff", lambda self, rows, *name: np.clip(_own(self, rows, *name), -2, 2))
TwoAgo = noisy("TwoAgo", _two_ago)
OneForBoth = noisy("OneForBoth", lambda self, rows, purpose, t: _own(self, rows, "noise", t))
ShortSeed = noisy("ShortSeed", _seeded_shortly)


def _coarse(self, envelope, floors, purpose, iteration):
    share = noise_share(self.params.noise_scale, envelope, floors, _own(self, len(floors), purpose, iteration))
    step = 2.0 ** (3 - self.params.fraction_bits)
    return self.fixed.encode(step * np.rint(share / step), self.label(purpose, iteration, floors))


class Coarse(Telltale):
    name = "coarse"
    user = type("CoarseUser", (ShortSeed.user,), {"_noise": _coarse})


class ShortKeys(MaskedRecommender):
    def __init__(self, setting, tape):
        super().__init__(setting, tape)
        self.item_keys = [derive(key[:2].ljust(32), "item") for key in self.item_keys]


class FewKeys(Faulty):
    """Its recommender makes item keys of 16 bits."""

    name = "few-keys"

    def make_role(self, party, setting, tape, inputs):
        return ShortKeys(setting, tape) if party == "recommender" else super().make_role(party, setting, tape, inputs)


class Whisperer(DirectUser):
    def _answer(self, offer):
        scale = self.params
        if offer.iteration == 2:
            self.params = HalvedScale(scale)
        try:
            return super()._answer(offer)
        finally:
            self.params = scale


class HalvedScale:
    def __init__(self, params):
        self._params = params

    def __getattr__(self, name):
        value = getattr(self._params, name)
        return value / 2 if name == "noise_scale" else value


class DirectHalfOnce(Direct):
    name = "direct-half-once"

    def make_role(self, party, setting, tape, inputs):
        role = super().make_role(party, setting, tape, inputs)
        return Whisperer(setting, tape, inputs) if isinstance(role, DirectUser) else role


class ManyAlone(Faulty):
    """Has roles that end in an error where there are two users."""

    name = "many-alone"

    def make_role(self, party, setting, tape, inputs):
        if setting.params.n_users == 2:
            raise ValueError("two users are too few")
        return super().make_role(party, setting, tape, inputs)


# --- late, or for a few: what the first iterations do not show -------------------------------------------------------

_TENTH = 7  # of ten users

TenthMissing = noisy("TenthMissing", _without(lambda self, t, rows: (rows >= 0) & (self.number % 10 == _TENTH)))
TenthLate = noisy(
    "TenthLate", _without(lambda self, t, rows: (rows >= 0) & (self.number % 10 == _TENTH) & (t >= 3))
)
LateForOne = noisy("LateForOne", _without(lambda self, t, rows: (rows >= 0) & (self.number == 17) & (t == 5)))
LateForAnItem = noisy("LateForAnItem", _without(lambda self, t, rows: (rows == 0) & (self.number == 17) & (t >= 5)))
TenthHalvedLate = noisy(
    "TenthHalvedLate", _halved(lambda self, t, rows: (rows >= 0) & (self.number % 10 == _TENTH) & (t >= 3))
)
