"""Play `hardened` through its roles until the sum of the last round is known: what follows of it reveals no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protocol.arithmetic.reals import Reals
from protocol.arithmetic.ring import Label, Ring
from protocol.arithmetic.tape import Tape
from protocol.arrays import Floats, Ints, RealArray
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Role, Send, UserInput, user_index
from protocol.play import play
from protocol.schemes.base import Scheme, Setting
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.hardened_roles import first_upload
from protocol.schemes.hardened.item_table import ItemTable
from protocol.schemes.hardened.norm_proof.norm_roles import as_added, unmasked_upload
from protocol.schemes.hardened.taste import Taste, second_vector
from protocol.schemes.hardened.unit_vectors import first_vector
from protocol.wire.messages import MaskedPart, OpenTable, OpenTaste, ProvenPart
from sim.audit.canary.canary import CannotBeMeasured


class _Heard(Exception):
    """Raised once the sum of the last round is known."""


class _HeardSums(Reals):
    __slots__ = ("rounds", "totals")
    rounds: int
    totals: list[Floats]

    def computed(self, values: RealArray, label: Label) -> RealArray:
        if label.what == "total":
            self.totals.append(np.array(values, np.float64).reshape(-1))
            if len(self.totals) == self.rounds:
                raise _Heard
        return values


@dataclass(slots=True, eq=False)
class HeardSums:
    """What one run showed, round by round, and what only the parties know of it."""

    setting: Setting
    totals: list[Ints] = field(default_factory=list)  # opened, in integers
    parts: dict[str, list[MaskedPart | ProvenPart]] = field(default_factory=dict)  # what users uploaded
    keys: dict[str, bytes] = field(default_factory=dict)  # of their masks
    told: Any = None  # what opened the second round, if there is one
    third_party: Role | None = None

    @property
    def params(self) -> HardenedParams:
        return HardenedParams.of(self.setting.params)

    def vector(self, own: UserInput, t: int) -> Ints:
        """Make what a user that brings `own` adds in round `t`."""
        return vector_told(self.params, self.setting.run_id, own, self.told if t else None)

    def bare(self, user: str, t: int) -> Ints:
        """Take the mask off an upload: the vector and its share of the noise, as they are added."""
        vector, share = unmasked_upload(self.setting, self.keys[user], self.parts[user][t])
        assert self.third_party is not None
        return vector + as_added(self.third_party, user_index(user), t, share)


def hear(
    scheme: Scheme, params: HardenedParams, run_id: bytes, tapes: Mapping[str, Tape], inputs: Mapping[str, UserInput]
) -> HeardSums:
    """Play all roles; raise `CannotBeMeasured` if the recommender names no total of every round."""
    reals = _HeardSums()
    reals.rounds, reals.totals = params.rounds, []
    found = HeardSums(Setting(params, run_id, Ring(params.ring_bits, params.ring_is_prime), reals))
    roles = {party: scheme.make_role(party, found.setting, tape, inputs.get(party)) for party, tape in tapes.items()}
    found.third_party = roles[THIRD_PARTY]
    try:
        for party, _, _, effects in play(roles):
            for effect in effects:
                message = effect.message if isinstance(effect, Send) else None
                if isinstance(message, (MaskedPart, ProvenPart)):
                    found.parts.setdefault(party, []).append(message)
                elif party == RECOMMENDER and isinstance(message, (OpenTable, OpenTaste)):
                    found.told = message
    except _Heard:
        pass
    found.totals = [np.rint(total * params.whole).astype(np.int64) for total in reals.totals]
    found.keys = {party: getattr(roles[party], "mask_key", b"") for party in found.parts}
    if len(found.totals) < params.rounds or not all(found.keys.values()) or not found.parts:
        raise CannotBeMeasured(f"{scheme.name} cannot be measured: its recommender names no total.")
    return found


def vector_told(params: HardenedParams, run_id: bytes, own: UserInput, told: Any) -> Ints:
    """Make what a user that brings `own` adds: in the first round, or in the one that `told` opened."""
    if told is None:
        return first_upload(params, run_id, own)
    if params.selected:
        return first_vector(params, own.items, own.ratings, told.covered.astype(np.int64))
    columns = (told.qualities, told.popularities, told.frame)
    table = ItemTable(*(rows[:, 0].astype(np.float64) for rows in columns))
    taste = Taste(told.covered.astype(np.int64), told.directions.astype(np.float64).reshape(params.n_items, -1))
    return second_vector(params, table, taste, own.items, own.ratings)
