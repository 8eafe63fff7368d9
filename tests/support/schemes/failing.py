"""Schemes with a programming mistake: `--scheme support.schemes.failing:FailsInReceive` and so on."""

from __future__ import annotations

import os
from typing import ClassVar

from protocol.party.role import RECOMMENDER, THIRD_PARTY, role_of
from protocol.schemes.factorization.masked import Masked
from protocol.schemes.factorization.masked_roles import MaskedRecommender, MaskedUser, ThirdParty

SECRET = bytes(range(32))


class Failing(Masked):
    user: ClassVar[type] = MaskedUser
    recommender: ClassVar[type] = MaskedRecommender

    def make_role(self, party, setting, tape, inputs):
        role = role_of(party)
        if role == RECOMMENDER:
            return self.recommender(setting, tape)
        return ThirdParty(setting) if role == THIRD_PARTY else self.user(setting, tape, inputs)


class DividesByZero(MaskedUser):
    def receive(self, sender, message):
        if getattr(message, "iteration", None) == 1:
            return 1 // (message.iteration - 1)
        return super().receive(sender, message)


class FailsInReceive(Failing):
    name, user = "fails-in-receive", DividesByZero


class FailsAtStart(Failing):
    class recommender(MaskedRecommender):
        def start(self):
            raise KeyError(f"key {SECRET!r} {SECRET.hex()} is missing")

    name = "fails-at-start"


class FailsInTick(Failing):
    class recommender(MaskedRecommender):
        def tick(self, event):
            return [].pop()

    name = "fails-in-tick"


class ForgetsToReturn(Failing):
    class user(MaskedUser):
        def receive(self, sender, message):
            super().receive(sender, message)

    name = "forgets-to-return"


class Exits(Failing):
    class user(MaskedUser):
        def start(self):
            raise SystemExit(0)

    name = "exits"


class NeverEnds(Failing):
    class user(MaskedUser):
        def receive(self, sender, message):
            return []

    name = "never-ends"


class FailsToMakeARole(Failing):
    name = "fails-to-make-a-role"

    def make_role(self, party, setting, tape, inputs):
        return super().make_role(party, setting, tape, inputs.nothing if party == "user:1" else inputs)


class FailsInItsFormula(Failing):
    name = "fails-in-its-formula"

    def predict(self, params, course):
        raise LookupError("no such flow")


class FailsInParams(Failing):
    name = "fails-in-params"

    def make_params(self, shape, **settings):
        return super().make_params(shape.rows, **settings)


class FailsInPredictions(Failing):
    class user(MaskedUser):
        @property
        def last_errors(self):
            raise OSError("gone")

        @last_errors.setter
        def last_errors(self, value):
            pass

    name = "fails-when-measured"


class FailsLater(Failing):
    """It runs, but fails when the run is read later, as if its file had been changed since."""

    class user(MaskedUser):
        def receive(self, sender, message):
            if os.environ.get("FAILS_LATER"):
                raise RuntimeError("changed since")
            return super().receive(sender, message)

    name = "fails-later"
