"""An example protocol: the total rating of every item by additive shares, with two servers that do not collude.

    user -> third_party   Share     s, uniform
    user -> recommender   Share     enc(rating) − s, uniform too
    third_party -> recommender      Total     Σ s
    the recommender opens  Σ (enc(rating) − s) + Σ s

From this folder: keyhole run --scheme example_shares:Shares --dim 1 --iterations 1 --out runs/shares
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
    ItemIds,
    Label,
    Leak,
    Reason,
    RingRows,
    Role,
    Scheme,
    Send,
    expect,
    require,
    user_index,
)


@dataclass(frozen=True, slots=True, eq=False)
class Share:  # user -> either server
    items: ItemIds
    values: RingRows


@dataclass(frozen=True, slots=True, eq=False)
class Total:  # third party -> recommender
    values: RingRows  # one row for every item


class Sharer(Role):
    def __init__(self, setting, tape, inputs):
        self.setting, self.tape, self.inputs = setting, tape, inputs

    def start(self):
        ring, items = self.setting.ring, self.inputs.items
        label = Label("rating", 0, items)  # tells the audit what the number is; ring draws are uniform to it
        ratings = FixedPoint(ring, self.setting.params.fraction_bits).encode(self.inputs.ratings[:, None], label)
        share = ring.uniform(self.tape.key("share"), len(items), 1, "share")
        rest = Share(items, ring.subtract(ratings, share))
        return [Send(THIRD_PARTY, Share(items, share)), Send(RECOMMENDER, rest), Done()]

    def receive(self, sender, message):
        return expect(message)  # nothing is ever sent to a user


class Adder(Role):
    def __init__(self, setting):
        self.setting = setting
        self.parts = {}

    def receive(self, sender, message):
        items, values = expect(message, Share).items, message.values
        require(user_index(sender) >= 0 and sender not in self.parts, Reason.UNKNOWN_SENDER)
        require(len(items) and items[-1] < self.setting.params.n_items, Reason.UNKNOWN_ITEM)
        require(self.setting.ring.fits(values, (len(items), 1)), Reason.OUT_OF_RANGE)
        self.parts[sender] = (items, values)
        return self.added() if len(self.parts) == self.setting.params.n_users else []

    def total(self):
        items = np.arange(self.setting.params.n_items, dtype=np.uint32)
        return self.setting.ring.sum_by_item(list(self.parts.values()), items, 1)

    def added(self):
        return [Send(RECOMMENDER, Total(self.total())), Done()]


class Opener(Adder):
    other = None  # the total of the other server

    def receive(self, sender, message):
        if not isinstance(message, Total):
            return super().receive(sender, message)
        require(sender == THIRD_PARTY and self.other is None, Reason.UNKNOWN_SENDER)
        require(self.setting.ring.fits(message.values, (self.setting.params.n_items, 1)), Reason.OUT_OF_RANGE)
        self.other = message.values
        return self.added() if len(self.parts) == self.setting.params.n_users else []

    def added(self):
        if self.other is None:
            return []
        fixed = FixedPoint(self.setting.ring, self.setting.params.fraction_bits)
        self.iteration = 1  # there is only one
        return [Done(fixed.decode(self.setting.ring.add(self.total(), self.other)))]


class Shares(Scheme):
    name, title, source = "shares", "Item totals by additive shares", "an example"
    unit, known_weaknesses = "nothing is perturbed", ("unmasking", "known-shares", "support", "single-contributor")
    claims = "No server alone learns a rating; the recommender learns the exact total of every item."
    permits: ClassVar = {"recommender": "aggregate", "third_party": "nothing", "user": "nothing"}
    leakage = (
        *(Leak(server, "Share", "items", "which items each user rated") for server in Scheme.servers),
        *(Leak(server, "Share", "values", "uniform ring elements", uniform=True) for server in Scheme.servers),
        Leak(RECOMMENDER, "Total", "values", "the total rating of each item, once added"),
    )
    messages = (Hello, Share, Total)
    servers = (THIRD_PARTY, RECOMMENDER)  # the server that speaks first connects to the other, and is listed first

    def make_role(self, party, setting, tape, inputs):
        roles = {RECOMMENDER: Opener, THIRD_PARTY: Adder}
        return roles[party](setting) if party in roles else Sharer(setting, tape, inputs)

    def formula(self, params, course):
        frames, users, n = Frames(params), course.users, course.supports
        for server in self.servers:
            yield frames.hello(("user", server), users)
            yield frames.flow(SETUP, ("user", server), Share, users, 1, items=n, values=n)
        yield frames.hello((THIRD_PARTY, RECOMMENDER), 1)
        yield frames.flow(SETUP, (THIRD_PARTY, RECOMMENDER), Total, 1, 1, values=params.n_items)
