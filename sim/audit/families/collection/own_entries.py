"""Canaries among the run's own rating vectors: entries that a coin makes the lowest or the highest rating.

The users' roles randomize the real vectors with these entries changed, and the recommender guesses each coin by the
exact law of the mechanism. Every entry is randomized by itself, so entries of one vector may all be canaries.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape, derive
from protocol.party.role import RECOMMENDER, Send, UserInput, user_index
from protocol.schemes.base import Setting
from sim.audit.canary.bound_rows import BoundRow, Statistic, joint_rows
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.chunks import coins
from sim.audit.canary.own_run import OWN, OWN_CONFIDENCE
from sim.audit.families.collection.randomized_entries import Received, Vectors, log_ratio, said_of
from sim.audit.truth import all_ratings
from sim.views.evidence import Case


def measure_own(case: Case, canaries: int, seed: bytes) -> tuple[list[BoundRow], dict[str, Any]]:
    """Play the users with at most `canaries` entries changed; return (rows, the figures)."""
    params, scheme, began = case.card.params, case.card.scheme, time.process_time()
    if not (inputs := all_ratings(case)):
        raise CannotBeMeasured("The views of the users are missing, so no rating of the run is known.")
    owners = np.concatenate([np.full(len(own.items), user_index(party)) for party, own in inputs.items()])
    draw = np.random.default_rng(list(derive(seed, "entries")))
    chosen = np.sort(draw.permutation(len(owners))[:canaries])
    truth = coins(seed, 0, len(chosen))
    values = np.concatenate([own.ratings for own in inputs.values()])
    values[chosen] = np.where(truth, params.rating_max, params.rating_min)
    problem = Vectors(scheme, params, (params.rating_min, params.rating_max))
    setting = Setting(params, derive(seed, "run"), Ring(params.ring_bits))
    said, kind, first = np.full(len(values), np.nan), type(None), 0
    playing = set(owners[chosen].tolist())
    for party, own in inputs.items():
        last = first + len(own.items)
        if user_index(party) not in playing:
            first = last
            continue
        changed = UserInput(own.items, values[first:last])
        sent = scheme.make_role(party, setting, Tape(derive(seed, party)), changed).start()
        messages = [effect.message for effect in sent if isinstance(effect, Send) and effect.to == RECOMMENDER]
        if len(messages) != 1:
            raise CannotBeMeasured(f"{scheme.name} cannot be measured: a user does not begin with its ratings.")
        said[first:last] = said_of(problem, messages[0])[own.items]
        first, kind = last, type(messages[0])
    received = Received(truth, said[chosen], np.full(len(chosen), np.nan), kind, time.process_time() - began)
    ratio = log_ratio(problem, received)
    knows = "the uploads, and that each entry is one of two (likelihood ratio by the exact law)"
    subject = f"one run of these ratings with {len(ratio)} canaries"
    of_entries = Statistic((RECOMMENDER,), knows, "entries", "noise", ratio, ratio=ratio, subject=subject)
    most = float(np.abs(ratio).max())
    document: dict[str, Any] = {
        "canaries": len(ratio),
        "users": len(np.unique(owners[chosen])),
        "items": params.n_items,
        "dim": 1,
        "releases": 1,
        "neighbours": f"entries of users' vectors are {params.rating_min:g} or {params.rating_max:g}, by a coin",
        "confidence": OWN_CONFIDENCE,
        "largest_loss": {"median": most, "most": most},
        "known_law": None,
        "seconds": received.seconds,
    }
    return joint_rows([(OWN, problem, received, of_entries)], OWN_CONFIDENCE), document
