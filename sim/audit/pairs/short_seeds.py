"""Keys and noise that come from few values: among many tapes some would be equal, as birthdays are.

Of n tapes two share a seed of s bits with a probability of 1 − exp(−n²/2^(s+1)); `tapes_for` solves that for n. The
set-up is played with so many tapes in the smallest run of the scheme, whose roles are the same code, and one user of
the run draws its first noise with so many. Values that are that long never meet by chance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from protocol.arithmetic.tape import Tape
from protocol.params import Params
from protocol.party.role import RECOMMENDER, Send, UserInput
from protocol.play import play
from protocol.wire.fields import DigestField, KeysField, field_kinds
from sim.audit.accounting.data_pair import FreshNoise
from sim.audit.canary.canary import CANARY, Stage, make_problem
from sim.audit.findings import Finding
from sim.audit.pairs.noise_laws import FINE
from sim.audit.pairs.twice import before
from sim.audit.role_rerun import fraction_bits, inputs_of, turns
from sim.views.evidence import Case
from sim.views.exhibits import Brought, Exhibits

SEED_BITS = 16
POWER = 0.99
LONG = 48  # bits of a value: two of 777 are equal by chance with a probability of 1e-9


def tapes_for(bits: int, power: float) -> int:
    """Count the tapes among which two have the same seed of `bits` with a probability of `power`."""
    return math.ceil(math.sqrt(-(2.0 ** (bits + 1)) * math.log1p(-power)))


def chosen_user(params: Params, ratings: Mapping[str, UserInput]) -> str:
    """Choose the user with the fewest ratings whose noise is long enough, or the one with the most ratings."""
    sizes = {name: len(own.items) for name, own in ratings.items()}
    long = [name for name, size in sizes.items() if size * params.dim * math.log2(FINE) >= LONG]
    return min(long, key=sizes.__getitem__) if long else max(sizes, key=sizes.__getitem__)


def audit_seeds(case: Case, user: str, vanish: bool) -> tuple[dict[str, Any], list[Finding]]:
    """Draw keys, and the first noise of `user`, with many tapes; equal ones come from few values."""
    tapes = tapes_for(SEED_BITS, POWER)
    met, unplayed = list[Meeting](), ""
    try:
        met = _meetings(dealt_keys(case, tapes))
    except Exception as fault:  # the roles are the scheme's own code, and may not do in so small a run
        unplayed = f"the smallest run of the scheme ended with {type(fault).__name__}: {fault}"
    if not vanish:  # a share that is 0 is equal to others
        met += _meetings(first_noise(case, user, tapes))
    found = [one for one in met if 1 < one.different < one.of]
    figures = {"tapes": tapes, "bits": SEED_BITS, "streams": len(met), "few": [one.words for one in found]}
    figures["unplayed"] = unplayed or None
    return figures, [_finding(one) for one in found[:1]]


class Meeting(NamedTuple):
    """How many of the values of one stream are different."""

    party: str
    words: str
    different: int
    of: int

    @property
    def bits(self) -> float:
        """Estimate the bits that they come from: of n values, n²/2^(s+1) pairs are expected to meet."""
        return math.log2(self.of**2 / 2 / (self.of - self.different))


def _meetings(streams: dict[tuple[str, str], list[bytes]]) -> list[Meeting]:
    return [Meeting(party, words, len(set(drawn)), len(drawn)) for (party, words), drawn in streams.items()]


def dealt_keys(case: Case, tapes: int) -> dict[tuple[str, str], list[bytes]]:
    """List by (sender, field) the keys that servers deal in the set-up of the smallest run, once for each tape."""
    scheme, params = case.card.scheme, case.card.params
    found: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    if not scheme.factorizes:
        return found
    settings: dict[str, Any] = {"dim": params.dim, "iterations": 1, "epsilon": params.epsilon}
    stage = Stage(make_problem(scheme, (params.rating_min, params.rating_max), (), **settings), case.card.run_id)
    for number in range(tapes):
        for key, value in _keys_of(stage, stage.tapes(case.card.run_id.ljust(32)[:32], number)):
            found[key].append(value)
    return found


def _keys_of(stage: Stage, tapes: dict[str, Tape]) -> Iterator[tuple[tuple[str, str], bytes]]:
    """Play the set-up, and yield the keys that the first user is dealt, each under its sender and its field."""
    for _, sender, given, effects in play(stage.roles(tapes, greatest=False), stage.events):
        if sender == CANARY and getattr(given, "iteration", -1) >= 0:
            return
        for effect in effects:
            if not isinstance(effect, Send) or effect.to != CANARY:
                continue
            for name, kind in field_kinds(effect.message.__class__):
                value = getattr(effect.message, name)
                if kind is DigestField or (kind is KeysField and value):
                    where = f"{type(effect.message).__name__}.{name}"
                    yield (RECOMMENDER, where), value if kind is DigestField else value[0]


def first_noise(case: Case, user: str, tapes: int) -> dict[tuple[str, str], list[bytes]]:
    """List by (user, name) the noise that the user draws up to its first gradient, once for each tape."""
    exhibits, params = Exhibits(case, (user,)), case.card.params
    brought, given = exhibits.brought(user), before(inputs_of(exhibits, user), 1)
    found: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for number in range(tapes):
        tape = FreshNoise(brought.tape, 1.0, "seeds", number)
        for turn in turns(case.card, user, Brought(tape, brought.inputs), given):
            for label, values in turn.passed.entered:
                fine = FINE * 2.0 ** -fraction_bits(params, label.iteration)
                long = values.size * math.log2(FINE) >= LONG and np.median(np.abs(values)) >= fine
                if label.shares is not None and long:
                    found[user, f"{label.what} of iteration {label.iteration}"].append(values.tobytes())
    return found


def _finding(met: Meeting) -> Finding:
    return Finding(
        "own-randomness",
        f"{met.words} of {met.party} comes from few values: of {met.of} tapes {met.different} gave different ones, as "
        f"seeds of {met.bits:.0f} bits do.",
        ("recommender",),
        "break",
        claimed=met.of,
        measured=met.different,
        confidence=f"values of {LONG} bits or more are never equal by chance",
        evidence=f"seeds of {SEED_BITS} bits show with a probability of {POWER:.0%}",
    )
