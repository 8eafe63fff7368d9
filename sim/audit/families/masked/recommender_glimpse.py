"""Collect the words that the recommender holds of a user: φ_j − ψ^i_j, the total less the one mask of that user."""

from __future__ import annotations

import functools

import numpy as np

from protocol.arithmetic.ring import Ring
from protocol.arrays import Floats, Ids, RingArray
from protocol.party.role import RECOMMENDER, FactorizingRecommender, Role, user_index
from protocol.schemes.factorization.masked_sum import MaskDealer
from protocol.wire.messages import Contributors, Join, MaskedTotal
from sim.audit.role_rerun import rerun
from sim.audit.uniformity.indistinguishable import ROUNDS, Glimpse, Words
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits


def recommender_glimpse(case: Case) -> Glimpse:
    """Collect, per user, the first totals less its mask, for items of several contributors; and v_j's movement."""
    exhibits, setting = Exhibits(case, (RECOMMENDER,)), case.card.setting
    tape = exhibits.brought(RECOMMENDER).tape
    dealer = MaskDealer(setting.ring, setting.params.dim, setting.run_id, tape)
    supports: dict[int, Ids] = {}
    totals: list[tuple[MaskedTotal, Ids]] = []
    users: Ids = np.zeros(0, np.uint32)
    for seen in exhibits.received(RECOMMENDER, "Join", "Contributors", "MaskedTotal"):
        if isinstance(seen.message, Join):
            supports[user_index(seen.sender)] = seen.message.items
        elif isinstance(seen.message, Contributors):
            users = seen.message.users
        elif len(totals) < ROUNDS:
            totals.append((seen.message, users))
    if len(totals) < ROUNDS:
        return Glimpse({})
    both = set.intersection(*({int(user) for user in there} for _, there in totals))
    hidden = [_hidden(total, [supports[int(user)] for user in there]) for total, there in totals]
    shared = functools.reduce(np.intersect1d, hidden)
    words: Words = {}
    for user in sorted(both):
        own = supports[user]
        kept = own[np.isin(own, shared)]
        words[user] = (kept, [_less_one_mask(setting.ring, dealer, user, own, kept, total) for total, _ in totals])
    return Glimpse(words, _movement(case))


def _hidden(total: MaskedTotal, supports: list[Ids]) -> Ids:
    """Return the released items with two or more contributors."""
    items, counts = np.unique(np.concatenate(supports), return_counts=True)
    return np.intersect1d(total.items, items[counts >= 2])


def _less_one_mask(ring: Ring, dealer: MaskDealer, user: int, own: Ids, kept: Ids, total: MaskedTotal) -> RingArray:
    """Compute φ_j − ψ^i_j for the `kept` items of the user's `own` ones."""
    masks = dealer.masks(user, total.iteration, own)[np.searchsorted(own, kept)]
    return ring.subtract(total.values[np.searchsorted(total.items, kept)], masks)


def _movement(case: Case) -> Floats:
    """Compute v_j after the first rounds less v_j before them, as the recommender can from its view."""
    before: Floats | None = None
    role: Role | None = None
    for turn in rerun(Exhibits(case, (RECOMMENDER,)), RECOMMENDER):
        role = turn.role
        assert isinstance(role, FactorizingRecommender)
        before = role.item_factors.copy() if before is None else before
        if role.iteration >= ROUNDS:
            break
    assert isinstance(role, FactorizingRecommender) and before is not None
    return np.asarray(role.item_factors - before)
