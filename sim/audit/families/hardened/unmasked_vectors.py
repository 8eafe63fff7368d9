"""`hardened`: both servers together take the masks off every upload, which leaves one share of noise on each vector."""

from __future__ import annotations

import numpy as np

from protocol.arrays import Ints
from protocol.party.role import RECOMMENDER, THIRD_PARTY, UserInput, user_index
from protocol.schemes.hardened.budget import VALUE
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.norm_proof.norm_roles import unmasked_upload
from sim.audit.attacks.coalition_views import Scene
from sim.audit.families.hardened.hardened_account import summed_items
from sim.audit.findings import Finding
from sim.audit.scoring import generator, score
from sim.console.console import counted


def attack_vectors(scene: Scene) -> list[Finding]:
    """Guess, of one item that a user rated and one that it did not, which is which: the one with the larger count.

    With the unit `value`, where it is public who rated what: of one that it rated higher, and one lower.
    """
    params, setting = scene.params, scene.case.card.setting
    assert isinstance(params, HardenedParams)
    tape, counts, t = scene.exhibits.brought(RECOMMENDER).tape, {}, params.table_round
    for seen in scene.exhibits.received(THIRD_PARTY, params.upload_kind):
        if seen.iteration == t:
            bare, _ = unmasked_upload(setting, tape.key("mask", user_index(seen.sender)), seen.message)
            counts[seen.sender] = bare[: params.lengths[t] // (1 if params.unit_of == VALUE else 2)]
    summed = summed_items(scene.case)
    hits, lucky, draw = [], [], generator(scene.case, "pairs", *scene.members)
    for user, own in scene.truth.ratings.items():  # from here on the truth is open
        places, others = _two_kinds(params, summed, own)
        if user in counts and len(others) and len(places):
            beside = draw.choice(others, len(places))
            hits.append((counts[user][places] > counts[user][beside]).astype(np.float64))
            lucky.append(np.full(len(places), 0.5))
    if not hits:
        return []
    result = score(hits, lucky, generator(scene.case, "bootstrap vectors", *scene.members))
    title = (
        f"The two servers together tell {result.accuracy:.1%} of {counted(result.targets, 'rated item')} from one that "
        f"the user {'rated lower' if params.unit_of == VALUE else 'did not rate'}, by its unmasked vector; a coin "
        "tells 50 %."
    )
    measured = {"accuracy": result.accuracy, "interval": list(result.interval), "ratings": result.targets,
                "users": result.groups, "from": "unmasked vectors"}  # fmt: skip
    evidence = (
        "Masks were derived from the tape in the recommender's view and taken from every upload in the third party's; "
        "of a rated item and a random other, the one with the larger number in the first half of the vector."
    )
    return [Finding("unmasking", title, scene.members, "weak" if result.above_chance else "info",
                    "no server alone learns it", measured, {"accuracy": 0.5}, result.words,
                    evidence)]  # fmt: skip


def _two_kinds(params: HardenedParams, summed: Ints, own: UserInput) -> tuple[Ints, Ints]:
    """Return the places of rated and of other items, or with the unit `value` those rated above and below the mean."""
    rated = np.isin(summed, own.items)
    if params.unit_of != VALUE:
        return np.flatnonzero(rated), np.flatnonzero(~rated)
    middle = own.ratings.mean() if len(own.ratings) else 0.0
    return own.items[own.ratings > middle].astype(np.int64), own.items[own.ratings < middle].astype(np.int64)
