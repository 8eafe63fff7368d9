"""Many repetitions of a canary in one run: an item for each repetition, with its own coin and its own noise.

The law is the same as that of separate runs if nothing is carried from one item to another: in the first iteration (in
one dimension every first user factor is 1 or −1), and while no factor moves. Where factors move, a user's follow all of
its items, so what the items tell is bounded by the one-run theorem alone (`Statistic.reacting`). In Keyhole's own
factorizations the noise, masks and envelopes of an item are its own. For other schemes that is unknown, so their
repetitions are separate runs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.ring import Ring
from protocol.arrays import Flags
from protocol.party.role import UserInput
from protocol.schemes import is_ours
from protocol.schemes.base import Setting
from protocol.schemes.factorization.static_users import JoiningUser
from sim.audit.canary.canary import CANARY, WITNESS, CanaryProblem, Stage, play_canary

STILL = 2.0**-28  # a learning rate at which no factor moves, not even that of a user with thousands of items
MOST_MOVING = 2  # iterations of a run with moving factors: u_i(1) follows the coins so little that it is foreseen

Columns = dict[str, npt.NDArray[np.float64]]


def can_batch(problem: CanaryProblem) -> bool:
    """Tell whether items can serve as repetitions."""
    params = problem.params
    return is_ours(problem.scheme) and (params.iterations <= MOST_MOVING or params.learning_rate <= STILL)


class Batch(Stage):
    """A stage with an item for each repetition; `greatest` says which items have the greatest rating of user 0."""

    def __init__(self, problem: CanaryProblem, run_id: bytes, greatest: Flags) -> None:
        count = len(greatest)
        many = dataclasses.replace(problem.params, n_items=count)
        super().__init__(dataclasses.replace(problem, params=many), run_id)
        self.setting = Setting(self.params, run_id, Ring(self.params.ring_bits))
        self.greatest = greatest
        items, (least, most) = np.arange(count, dtype=np.uint32), problem.ratings
        self._of_canary = UserInput(items, np.where(greatest, most, least))
        self._of_others = UserInput(items, np.full(count, problem.other_rating))

    def inputs(self, party: str, greatest: bool) -> UserInput | None:
        if party in self.scheme.servers:
            return None
        return self._of_canary if party == CANARY else self._of_others

    def numbers(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Read an upload of one coordinate as numbers."""
        self.masked = values.dtype == self.setting.ring.dtype
        if self.masked:
            return np.asarray(self.setting.ring.to_signed(values)[:, 0] * self._scale, np.float64)
        return values[:, 0].astype(np.float64)


def play_batch(batch: Batch, seed: bytes, first: int, dealt: Any) -> Columns:
    """Play one run and read its items as repetitions; `dealt` reads the envelopes from a rater's messages."""
    tapes = batch.tapes(seed, first)
    roles = batch.roles(tapes, False)
    count, iterations = len(batch.greatest), batch.params.iterations
    users = [role for role in roles.values() if isinstance(role, JoiningUser)]
    first_factors = [np.full(count, user.user_factors[0]) for user in users]
    played = play_canary(batch, roles)
    rho, eta = dealt(played.dealt, iterations)
    normals = [tapes[WITNESS].normal(count, 1, "rho", t)[:, 0] for t in range(iterations)] if rho else []
    columns: dict[str, list[npt.NDArray[np.float64]]] = {
        "user_factors": first_factors,
        "item_factors": [rows[:, 0] for rows in played.factors],
        "uploads": [batch.numbers(values) for values in played.uploads],
        "rho_envelopes": rho,
        "eta_envelopes": eta,
        "witness_normals": normals,
    }
    return _by_repetition(columns, count)


def publish_batch(batch: Batch, quiet: CanaryProblem, seed: bytes, first: int) -> Columns:
    """Play the published factors of a run, and their values without noise for either rating of every item."""
    published, count = [], len(batch.greatest)
    whole = [np.full(count, most) for most in (False, True)]
    for each in (batch, *(Batch(quiet, batch.setting.run_id, coins) for coins in whole)):
        played = play_canary(each, each.roles(each.tapes(seed, first), False))
        published.append(played.factors[-1][:, 0])
    return _by_repetition({"item_factors": published[:1], "quiet": published[1:]}, count)


def _by_repetition(columns: dict[str, list[npt.NDArray[np.float64]]], count: int) -> Columns:
    return {name: np.array(values, np.float64).reshape(len(values), count).T for name, values in columns.items()}
