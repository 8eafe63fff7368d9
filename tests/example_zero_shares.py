"""A flaw of the kind that MPCGuard reports (IEEE S&P 2025), rebuilt: a share of zero that is used for two openings.

    third_party -> user        PairKeys   its own key, and that of the next user
    user -> recommender        Masked     its ratings, and which items it rated, each plus its share of zero
    the recommender adds; the shares of all users sum to zero, and totals and counts of every item are left

A share of zero is PRG(own key) − PRG(key of the next user). It hides a user's vector as a one-time pad does, once.
`ZeroShares` draws the same share for ratings and for counts, as an implementation does whose generator is not advanced:
each vector is uniform to the recommender, every test of uniformity passes, and their difference is bare.
`keyhole audit` works that out from the forms. `FreshZeroShares` names the sum in the stream, which is the repair.

From this folder: keyhole run --scheme example_zero_shares:ZeroShares --data demo-small --dim 1 --iterations 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocol import (
    RECOMMENDER,
    SETUP,
    THIRD_PARTY,
    Done,
    FixedPoint,
    Frames,
    Hello,
    Label,
    Leak,
    Reason,
    RingRows,
    Role,
    Scheme,
    Send,
    Weakness,
    expect,
    require,
    user_index,
    user_name,
)
from protocol.wire.fields import Digest


@dataclass(frozen=True, slots=True, eq=False)
class PairKeys:  # third party -> user
    own: Digest
    following: Digest


@dataclass(frozen=True, slots=True, eq=False)
class Masked:  # user -> recommender: one row for every item
    ratings: RingRows
    counts: RingRows


class Dealer(Role):
    def __init__(self, setting, tape):
        self.keys = [tape.key("zero", user) for user in range(setting.params.n_users)]

    def start(self):
        pairs = zip(self.keys, [*self.keys[1:], self.keys[0]], strict=True)
        return [*(Send(user_name(user), PairKeys(*pair)) for user, pair in enumerate(pairs)), Done()]

    def receive(self, sender, message):
        return expect(message)  # nothing is ever sent to it


class Client(Role):
    def __init__(self, setting, inputs, fresh):
        self.setting, self.inputs, self.fresh = setting, inputs, fresh

    def receive(self, sender, message):
        keys = expect(message, PairKeys)
        require(sender == THIRD_PARTY, Reason.UNKNOWN_SENDER)
        ratings, counts = np.zeros((2, self.setting.params.n_items, 1))
        ratings[self.inputs.items, 0], counts[self.inputs.items, 0] = self.inputs.ratings, 1
        hidden = (self.hidden(numbers, what, keys) for numbers, what in ((ratings, "rating"), (counts, "count")))
        return [Send(RECOMMENDER, Masked(*hidden)), Done()]

    def hidden(self, numbers, what, keys):
        ring, params = self.setting.ring, self.setting.params
        label = Label(what, 0, np.arange(params.n_items, dtype=np.uint32))
        vector = FixedPoint(ring, params.fraction_bits).encode(numbers, label)
        stream = ("zero", what) if self.fresh else ("zero",)
        own, following = (ring.uniform(key, params.n_items, 1, *stream) for key in (keys.own, keys.following))
        return ring.subtract(ring.add(vector, own), following)


class Opener(Role):
    def __init__(self, setting):
        self.setting, self.parts = setting, {}

    def receive(self, sender, message):
        ring, params = self.setting.ring, self.setting.params
        require(user_index(sender) >= 0 and sender not in self.parts, Reason.UNKNOWN_SENDER)
        for values in (expect(message, Masked).ratings, message.counts):
            require(ring.fits(values, (params.n_items, 1)), Reason.OUT_OF_RANGE)
        self.parts[sender] = message
        if len(self.parts) < params.n_users:
            return []
        fixed = FixedPoint(ring, params.fraction_bits)
        totals = fixed.decode(ring.add(*(part.ratings for part in self.parts.values())))
        counts = fixed.decode(ring.add(*(part.counts for part in self.parts.values())))
        self.iteration = 1  # there is only one
        return [Done(totals / np.maximum(counts, 1))]


class ZeroShares(Scheme):
    name, title, source = "zero-shares", "Item means by shares of zero", "an example, after MPCGuard"
    unit = "nothing is perturbed"
    claims = "The recommender learns the total and the number of ratings of every item, and nothing of a single user."
    known_weaknesses = (Weakness("unmasking", "recommender+third_party"), Weakness("known-shares", "recommender+user"))
    permits: ClassVar = {"recommender": "aggregate", "third_party": "nothing", "user": "nothing"}
    leakage = (
        Leak("user", "PairKeys", "own", "its own masks"),
        Leak("user", "PairKeys", "following", "half of the masks of the next user"),
        Leak("recommender", "Masked", "ratings", "uniform ring elements", uniform=True),
        Leak("recommender", "Masked", "counts", "uniform ring elements", uniform=True),
    )
    messages = (Hello, PairKeys, Masked)
    servers = (THIRD_PARTY, RECOMMENDER)
    fresh = False

    def make_role(self, party, setting, tape, inputs):
        if party == THIRD_PARTY:
            return Dealer(setting, tape)
        return Opener(setting) if party == RECOMMENDER else Client(setting, inputs, self.fresh)

    def formula(self, params, course):
        frames, users, n = Frames(params), course.users, params.n_items
        yield frames.hello((THIRD_PARTY, "user"), users)
        yield frames.hello(("user", RECOMMENDER), users)
        yield frames.flow(SETUP, (THIRD_PARTY, "user"), PairKeys, users, 1, own=1, following=1)
        yield frames.flow(SETUP, ("user", RECOMMENDER), Masked, users, 1, ratings=n, counts=n)


class FreshZeroShares(ZeroShares):
    name, fresh = "fresh-zero-shares", True
