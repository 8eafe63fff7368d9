"""The envelopes of ρ that contributors were told, where they are not those that the recommender's tape deals.

A recommender whose code deals others (too small, or different ones to different users) is accounted by what it dealt: a
sum has the noise that its contributors' shares add up to, Σ H_i/floor_i, each with the envelope of its own frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from protocol.arithmetic.tape import exponential
from protocol.arrays import Floats, Ids, Matrix
from protocol.party.role import RECOMMENDER
from protocol.schemes.factorization.masked_roles import MaskedRecommender
from protocol.wire.messages import ItemFactorsInFull, ItemFactorsWithPieces, Message, Welcome
from sim.audit.accounting.noise_test import FALSE_ALARM
from sim.audit.findings import Finding


class DealtEnvelopes:
    def __init__(self, role: MaskedRecommender) -> None:
        self._role = role
        self._apart: dict[int, Any] = {}  # user -> keys or rows that are not those of the tape
        self._drawn: tuple[int, Matrix] = (-1, np.zeros((0, 0)))

    def note(self, user: int, message: Message) -> None:
        """Compare what `message` deals to `user` with the tape."""
        role = self._role
        if isinstance(message, Welcome):
            self._compare(user, message.item_keys, [role.item_keys[item] for item in role.supports[user]])
        elif isinstance(message, ItemFactorsInFull | ItemFactorsWithPieces):
            self._compare(user, message.envelopes, self._every(message.iteration)[role.supports[user]])

    def _compare(self, user: int, dealt: Any, own: Any) -> None:
        self._apart.pop(user, None)
        if len(dealt) and not np.array_equal(dealt, own):
            self._apart[user] = dealt

    def _every(self, iteration: int) -> Matrix:
        """Draw the envelopes of all items as the tape deals them."""
        if self._drawn[0] != iteration:
            rows = exponential(self._role.item_keys, self._role.params.dim, "rho", iteration)
            self._drawn = iteration, rows.astype(np.float64)  # exact: they travel as float32
        return self._drawn[1]

    def of_sums(self, iteration: int, agreed: Mapping[int, Ids], told: Mapping[int, Floats]) -> Matrix | None:
        """Return the envelope that each item's sum really has, by what was `told`; None if the tape dealt them all."""
        if self._apart.keys().isdisjoint(agreed):
            return None
        every, dim = self._every(iteration), self._role.params.dim
        total, parts = np.zeros_like(every), np.zeros((len(every), 1))
        for user, own in agreed.items():
            dealt = self._apart.get(user, every[own])
            rows = exponential(dealt, dim, "rho", iteration) if isinstance(dealt, tuple) else dealt
            total[own] += told[user][:, None] * rows
            parts[own] += told[user][:, None]
        made: Matrix = total / np.maximum(parts, np.finfo(np.float64).tiny)
        return made


def dealt_too_small(envelopes: list[Matrix]) -> list[Finding]:
    """Report envelopes, dealt in place of those of the tape, whose sum is too small for Exp(1)."""
    values = np.concatenate([np.zeros(0), *(rows.ravel() for rows in envelopes)])
    p = float(stats.gamma.cdf(values.sum(), len(values))) if len(values) else 1.0
    if p >= FALSE_ALARM:
        return []
    return [
        Finding(
            "missing-noise",
            f"Users were told envelopes of mean {values.mean():.3g}, where Exp(1) has 1: their noise is too small.",
            (RECOMMENDER,),
            "break",
            claimed=1.0,
            measured=float(values.mean()),
            chance=1.0,
            confidence=f"p = {p:.2g}: the sum of {len(values)} Exp(1) values has a Gamma law",
            evidence="the envelopes of ρ in the frames that the recommender sent, weighted by the contributors' shares",
        )
    ]
