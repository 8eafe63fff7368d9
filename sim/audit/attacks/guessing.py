"""The difference attack on a coalition's uploads: which two, of which users, and how many ratings it gets right."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from protocol.factors import Matrix
from protocol.fixedpoint import FixedPoint
from protocol.ring import Ids
from protocol.roles import RECOMMENDER, user_index, user_name
from sim.audit import truth
from sim.audit.attacks.difference import FEWEST_ITEMS, Recovered, TwoUploads, recover, round_to
from sim.audit.attacks.scene import Scene
from sim.audit.attacks.scoring import Score, generator, score
from sim.audit.attacks.unmasking import Upload, unmasked, uploads
from sim.audit.findings import Finding, Severity

SAMPLE = 30
ENOUGH_ITEMS = 20
NOISELESS = 0.1  # of the claimed scale b: a difference that the model explains better has no noise of that scale
STRICT = 1.0  # an ε at which any success above chance is more than a reader of the claim expects


class Reading(NamedTuple):
    """A real-valued upload."""

    iteration: int
    items: Ids
    values: Matrix


def readings(scene: Scene) -> dict[int, list[Reading]]:
    """The first two uploads of every user, as far as the coalition can read them."""
    found: dict[int, list[Reading]] = {}
    for user, reading in _all_readings(scene):
        first = found.setdefault(user, [])
        if len(first) < 2:
            first.append(reading)
    return {user: two for user, two in found.items() if len(two) == 2}


def _all_readings(scene: Scene) -> Iterable[tuple[int, Reading]]:
    if scene.uploads_openly:
        supports = scene.recommender.supports
        for seen in scene.received(RECOMMENDER, "NoisyGradient", "Gradient"):
            user = user_index(seen.sender)
            yield user, Reading(seen.iteration, supports[user], seen.message.values.astype(np.float64))
        return
    fixed = FixedPoint(scene.ring, scene.params.fraction_bits)
    words: Iterable[Upload] = unmasked(scene) if scene.has_recommender else uploads(scene)
    for upload in words:
        yield upload.user, Reading(upload.iteration, upload.items, fixed.decode(upload.words))


def sampled(scene: Scene, found: Iterable[int], sizes: dict[int, int]) -> tuple[list[int], int]:
    """(up to 30 users whose views were kept, the fewest items that one must have): 20, or 4 where nobody has 20."""
    kept = set(truth.known_users(scene.case))
    there = sorted(user for user in found if user_name(user) in kept and user not in scene.users)
    least = ENOUGH_ITEMS if any(sizes[user] >= ENOUGH_ITEMS for user in there) else FEWEST_ITEMS
    enough = [user for user in there if sizes[user] >= least]
    rng = generator(scene.case, "difference", *scene.members)
    return sorted(rng.permutation(enough)[:SAMPLE].tolist()), least


def recovered(scene: Scene, two: list[Reading]) -> Recovered:
    """The third party knows no factors: it takes them as zero."""
    one, other = two
    known = scene.has_recommender
    none = np.zeros(one.values.shape)
    factors = [scene.recommender.rounds[read.iteration].factors[read.items] if known else none for read in two]
    return recover(TwoUploads(one.values, other.values, factors[0], factors[1]), scene.params)


def attack_difference(scene: Scene) -> list[Finding]:
    if scene.params.dim < 2 or scene.params.iterations < 2:
        return []
    found = readings(scene)
    users, least = sampled(scene, found, {user: len(two[0].items) for user, two in found.items()})
    if not users:
        return []
    guesses = {user: recovered(scene, found[user]) for user in users}
    scale, _ = truth.rating_scale(scene.truth.ratings)  # public
    hits, lucky = [], []
    for user, guess in guesses.items():  # from here on the truth is open
        true = scene.truth.ratings[user_name(user)].ratings
        hits.append((round_to(guess.ratings, scale) == true).astype(np.float64))
        lucky.append((true == scene.truth.commonest).astype(np.float64))
    result = score(hits, lucky, generator(scene.case, "bootstrap", *scene.members))
    misfit = float(np.median([guess.misfit for guess in guesses.values()]))
    return [_finding(scene, result, misfit, least)]


def _finding(scene: Scene, result: Score, misfit: float, least: int) -> Finding:
    severity = _severity(scene, result, misfit)
    title = (
        f"{scene.together} recovered {result.accuracy:.1%} of the ratings from the difference of two uploads; "
        f"guessing the commonest rating gets {result.chance:.1%}."
    )
    claimed = None if math.isinf(scene.params.epsilon) else f"ε = {scene.params.epsilon:g} per release"
    measured = {
        "accuracy": result.accuracy, "interval": list(result.interval), "ratings": result.targets,
        "users": result.groups, "misfit": misfit, "noise_scale": scene.params.noise_scale,
    }  # fmt: skip
    sources = {True: "uploads in the recommender's view", False: "masked uploads, decoded as they are"}
    source = sources[scene.uploads_openly]
    if not scene.uploads_openly and scene.has_recommender:
        source = "uploads in the third party's view, unmasked with the recommender's tape"
    elif not scene.uploads_openly:
        source += ", with factors of zero (the third party is sent none)"
    evidence = (
        f"The first two {source}, of {result.groups} users drawn by the run id among those with at least {least} "
        f"ratings. Chance: always the most frequent rating of the population ({scene.truth.commonest:g}), on the same "
        "ratings. Misfit: root mean square per coordinate of what the noiseless model leaves of the difference."
    )
    return Finding("difference-attack", title, scene.members, severity, claimed, measured,
                   {"accuracy": result.chance}, result.words, evidence)  # fmt: skip


def _severity(scene: Scene, result: Score, misfit: float) -> Severity:
    """A break: above chance although ε ≤ 1 is claimed, or because the noise of the claimed scale is not there at all.
    Above chance through the noise of a large ε is what that ε permits; without any ε nothing is claimed."""
    if math.isinf(scene.params.epsilon) or not result.above_chance:
        return "weak" if result.above_chance and "difference-attack" in scene.declared else "info"
    missing = misfit < NOISELESS * scene.params.noise_scale
    return "break" if missing or scene.params.epsilon <= STRICT else "info"
