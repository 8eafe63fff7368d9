"""The law of a user's shares of noise, from what the user was told: b √(2H/k) with the envelopes and floors it got."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from protocol.arithmetic.noise import noise_share
from protocol.arithmetic.tape import exponential
from protocol.arrays import Floats32
from protocol.schemes.factorization.factorization import GradientParams
from protocol.wire.messages import (
    Commit,
    CommitInFull,
    ItemFactors,
    ItemFactorsInFull,
    ItemFactorsWithPieces,
    NoiseKeys,
    Welcome,
    WelcomeInFull,
)
from sim.audit.pairs.noise_laws import LawOf, StatedLaw
from sim.audit.pairs.twice import Shift


def told_shares(params: GradientParams, messages: Iterable[Any]) -> LawOf:
    """Read `messages` to one user, and return the law of each noise that it then draws."""
    dim = params.dim
    keys: tuple[bytes, ...] = ()
    told: dict[tuple[str, int], tuple[Callable[[], Floats32], Any]] = {}  # by name and iteration: envelopes, and floors
    for one in messages:
        if isinstance(one, Welcome | NoiseKeys):
            keys = one.item_keys
            if len(one.floors):
                told["eta", 0] = partial(exponential, keys, dim, "eta", 0), one.floors
        elif isinstance(one, WelcomeInFull):
            told["eta", 0] = partial(np.asarray, one.envelopes), one.floors
        elif isinstance(one, Commit):
            told["eta", one.attempt] = partial(exponential, one.item_keys, dim, "eta"), one.counts
        elif isinstance(one, CommitInFull):
            told["eta", one.attempt] = partial(np.asarray, one.envelopes), one.counts
        elif isinstance(one, ItemFactorsInFull | ItemFactorsWithPieces):
            told["rho", one.iteration] = partial(np.asarray, one.envelopes), one.floors
        elif isinstance(one, ItemFactors) and len(one.floors):
            told["rho", one.iteration] = partial(exponential, keys, dim, "rho", one.iteration), one.floors

    def law(shift: Shift) -> StatedLaw | None:
        if (found := told.get((shift.what, shift.iteration))) is None:
            return None
        envelopes, floors = found[0](), found[1]
        if envelopes.shape != (len(shift.items), dim) or len(floors) != len(shift.items):
            return None
        return StatedLaw(noise_share(params.noise_scale, envelopes, floors, np.ones(envelopes.shape)))

    return law
