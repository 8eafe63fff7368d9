"""The recommenders that cheat: different factors, chosen factors, one user at a time, faint envelopes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from protocol.arithmetic.tape import Tape, derive, exponential
from protocol.arrays import Counts, Ids, Matrix, Vector
from protocol.party.role import THIRD_PARTY, Send, user_index, user_name
from protocol.schemes.factorization.dynamic_recommender import DynamicRecommender
from protocol.schemes.factorization.masked_roles import MaskedRecommender

KEYS_TRIED = 64  # for each item
_INSIDE = 1 - 2.0**-10  # of the bound, so that rounding does not carry a row over it


class Equivocating(MaskedRecommender):
    """It sends one user of each iteration factors as long as users take, in one direction, for all its items."""

    def victim(self) -> int:
        users = sorted(self.dealt)
        return users[self.iteration % len(users)] if users else -1

    def open_iteration(self) -> list[Send]:
        sends = super().open_iteration()
        name = user_name(self.victim())
        return [Send(one.to, self._lengthened(one.message)) if one.to == name else one for one in sends]

    def _lengthened(self, offer: Any) -> Any:
        direction = self.tape.start(1, self.params.dim, "equivocate", self.iteration)[0]
        lengths = _INSIDE * self.reach.lengths(self.iteration, offer.floors)
        rows = lengths[:, None] * direction / np.sqrt((direction**2).sum())
        return dataclasses.replace(offer, factors=rows.astype(np.float32))


class Crafting(MaskedRecommender):
    """It turns the u_i of each victim to an axis of its own, and those of all others to the last axis.

    A user that is sent v_j = w for all its items, |w| = 1, moves u_i to w in some twenty iterations. Then its gradients
    are −2 (r_ij − 1) w, and those of users on other axes have no part along w.
    """

    def open_iteration(self) -> list[Send]:
        sends = super().open_iteration()
        axes = self.axes()
        return [one if one.to == THIRD_PARTY else self._on_axis(one, axes) for one in sends]

    def axes(self) -> dict[int, int]:
        """Return the axis of each victim: the first users that joined, one for each axis but the last."""
        return {user: axis for axis, user in enumerate(sorted(self.supports)[: self.params.dim - 1])}

    def _on_axis(self, send: Send, axes: dict[int, int]) -> Send:
        offer: Any = send.message
        rows = np.zeros_like(offer.factors)
        rows[:, axes.get(user_index(send.to), self.params.dim - 1)] = 1
        return Send(send.to, dataclasses.replace(offer, factors=rows))


class Isolating(MaskedRecommender):
    """It invites one user per iteration; users are told the usual floors, and the third party a floor of one."""

    def open_sum(self, dealt: Mapping[int, Ids], raters: Counts) -> list[Send]:
        sends = super().open_sum(dealt, raters)
        assert self.current.opened is not None
        if not dealt:
            return sends
        users = sorted(dealt)
        victim = users[self.iteration % len(users)]
        floors = np.ones_like(self.current.opened.floors)
        opening = dataclasses.replace(self.current.opened, users=np.array([victim], np.uint32), floors=floors)
        self.current.opened = opening
        if self.params.wire == "compact":  # in the paper's form it must still add the pieces that the others lack
            self.current.dealt = {victim: dealt[victim]}
        return [Send(THIRD_PARTY, opening), *(one for one in sends if one.to == user_name(victim))]


class Narrowing(MaskedRecommender):
    """It invites everybody to the sums of one user's items alone; a message with any other item is refused whole."""

    def open_sum(self, dealt: Mapping[int, Ids], raters: Counts) -> list[Send]:
        sends = super().open_sum(dealt, raters)
        assert self.current.opened is not None
        if not dealt:
            return sends
        users = sorted(dealt)
        items = dealt[users[self.iteration % len(users)]]
        opening = dataclasses.replace(self.current.opened, items=items, floors=np.ones(len(items), np.uint32))
        self.current.opened = opening
        return [Send(THIRD_PARTY, opening) if one.to == THIRD_PARTY else one for one in sends]


class Fainting(MaskedRecommender):
    """It tries keys for each item and deals the one whose objective envelope is the smallest."""

    def prepare(self, tape: Tape) -> None:
        self.item_keys = [self._faintest(tape, item) for item in range(self.params.n_items)]

    def _faintest(self, tape: Tape, item: int) -> bytes:
        keys = [tape.key("faint", item, number) for number in range(KEYS_TRIED)]
        sums: Vector = objective_envelopes(self, keys).sum(axis=1)
        return keys[int(sums.argmin())]


def objective_envelopes(role: MaskedRecommender, keys: list[bytes]) -> Matrix:
    """Draw the objective envelopes that users derive from the `keys` of items, in `dynamic` for the first attempt."""
    if isinstance(role, DynamicRecommender):
        dealt = exponential([derive(key, "eta", 0) for key in keys], role.params.dim, "eta")
    else:
        dealt = exponential(keys, role.params.dim, "eta", 0)
    return dealt.astype(np.float64)
