"""Flip one rating of a user in `direct`, `masked` and `dynamic`: u_i(t) follows the user's own ratings.

The user's role runs with either rating on the same arriving factors. The figure is the L1 change of all its gradients
of one iteration, against 2Δ√d, the bound of Lemma 1 (the noise of that iteration covers ε for a change of that length).
The figure of a flip is the mean over the iterations; the largest iteration is given too. The change of the flipped item
alone stays below the bound.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.errors import Rejected
from protocol.party.role import RECOMMENDER, UserInput, user_index
from protocol.schemes.factorization.static_users import JoiningUser
from protocol.wire.messages import Publication
from sim.audit.accounting.neighbours import FLIPS, flipped, interval, spread
from sim.audit.findings import Audited, Finding
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

ROUNDING = 1e-9


def gradients_moved(case: Case, sample: int | None, draw: np.random.Generator) -> Audited:
    kept = [party for party in case.parties if user_index(party) >= 0 and case.path(party).is_file()]
    changes = reacting_changes(case, kept, FLIPS if sample is None else sample, draw)
    if not len(changes):
        return {}, []
    mean, largest, first = (
        spread(np.array([pick(flip) for flip in changes])) for pick in (np.mean, np.max, lambda flip: flip[0])
    )
    document: dict[str, Any] = {"unit": "2Δ√d", "mean": mean, "largest_iteration": largest, "first_iteration": first}
    finding = Finding(
        "reacting-user-factors",
        f"One flipped rating moves the user's gradients of all its items: {mean['median']:.3g} times the bound of "
        f"Lemma 1 per iteration (median flip), at most {mean['largest']:.3g} on average over a run.",
        (RECOMMENDER,),
        "weak" if mean["above"] > 0 else "info",
        claimed=1.0,
        measured={name: document[name] for name in ("mean", "largest_iteration")},
        chance=first["largest"],
        confidence=f"{mean['flips']} flips; interval of the median at {mean['level']:.1%} {interval(mean)} "
        "(order statistics)",
        evidence="L1 of the change of all gradients in an iteration, over 2Δ√d: mean and maximum over the iterations "
        "of a flip; the factors that arrive are those of the user's view; chance is the first iteration, before u_i "
        "reacts",
        amount=mean["largest"],
        iteration=1,
    )
    return document, [finding, *_at_once(first)]


def _at_once(first: dict[str, Any]) -> list[Finding]:
    """Report gradients that move beyond the bound in the first iteration, when u_i has not reacted to anything."""
    if first["largest"] <= 1 + ROUNDING:
        return []
    return [
        Finding(
            "reacting-user-factors",
            f"One flipped rating moves the user's gradients {first['largest']:.3g} times the bound of Lemma 1 in the "
            "first iteration, before its factors can have reacted: the gradients are larger than noise is made for.",
            (RECOMMENDER,),
            "weak",
            claimed=1.0,
            measured={"first_iteration": first},
            confidence="exact, for the flip with the largest change",
            evidence=f"{first['flips']} flips; the user's own role, run again with one rating flipped",
            amount=first["largest"],
            iteration=0,
        )
    ]


def reacting_changes(case: Case, parties: list[str], sample: int, draw: np.random.Generator) -> list[Floats]:
    """Compute, for each flip and iteration, the L1 change of the user's gradients over 2Δ√d."""
    made = []
    for place in draw.permutation(len(parties))[:sample].tolist():
        change = _change(case, parties[place], draw)
        if change is not None and len(change):
            made.append(change)
    return made


def _change(case: Case, party: str, draw: np.random.Generator) -> Floats | None:
    exhibits, card = Exhibits(case, (party,)), case.card
    brought = exhibits.brought(party)
    own, params = brought.inputs, card.params
    assert own is not None
    ratings, place = own.ratings.copy(), int(draw.integers(len(own.ratings)))
    ratings[place] = flipped(float(ratings[place]), params, draw)
    one, other = (
        card.make_role(party, card.setting, brought.tape, inputs)
        for inputs in (own, UserInput(own.items, ratings))
    )
    if not isinstance(one, JoiningUser) or not isinstance(other, JoiningUser):
        return None
    changes = []
    for seen in exhibits.received(party):
        if isinstance(seen.message, Publication) or not hasattr(seen.message, "factors"):  # not part of an iteration
            continue
        try:
            floors = seen.message.floors if len(seen.message.floors) else None  # `plain` and `direct` tell none
            factors = one.check_factors(seen.iteration, seen.message.factors, floors)
        except Rejected:  # the role did not answer this record
            continue
        before, after = one.step(seen.iteration, factors), other.step(seen.iteration, factors)
        changes.append(float(np.abs(after - before).sum()))
    return np.array(changes) / (2 * params.rating_span * math.sqrt(params.dim))
