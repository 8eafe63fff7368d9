"""The difference attack on a coalition's uploads: the choice of users and uploads, and the share of ratings recovered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from protocol.arrays import Ids, Matrix
from protocol.party.role import user_name
from sim.audit import truth
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.difference import FEWEST_ITEMS, Recovered, TwoUploads, recover, round_to
from sim.audit.findings import Finding, Severity
from sim.audit.scoring import Score, generator, score

SAMPLE = 30
ENOUGH_ITEMS = 20
NOISELESS = 0.1  # relative to the scale of the noise: a smaller misfit means that this noise is missing


class RealUpload(NamedTuple):
    """A real-valued upload."""

    iteration: int
    items: Ids
    values: Matrix


def readings(scene: Scene, wanted: int = 2) -> dict[int, list[RealUpload]]:
    """Collect the first `wanted` uploads, readable to the coalition, of every user that made that many."""
    found: dict[int, list[RealUpload]] = {}
    for user, reading in scene.family.uploads(scene):
        first = found.setdefault(user, [])
        if len(first) < wanted:
            first.append(reading)
    return {user: some for user, some in found.items() if len(some) == wanted}


def sampled(
    scene: Scene, found: Iterable[int], sizes: dict[int, int], fewest: int = FEWEST_ITEMS
) -> tuple[list[int], int]:
    """Return (up to 30 users whose views were kept, the fewest items that a user must have).

    The latter is 20, or `fewest` if no user has 20.
    """
    kept = set(truth.known_users(scene.case))
    there = sorted(user for user in found if user_name(user) in kept and user not in scene.users)
    least = ENOUGH_ITEMS if any(sizes[user] >= ENOUGH_ITEMS for user in there) else fewest
    enough = [user for user in there if sizes[user] >= least]
    rng = generator(scene.case, "difference", *scene.members)
    return sorted(rng.permutation(enough)[:SAMPLE].tolist()), least


def recovered(scene: Scene, two: list[RealUpload]) -> Recovered:
    """Recover the ratings from two uploads; the third party knows no factors and takes them as zero."""
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
    return [_finding(scene, result, misfit, noise_of(scene, [found[user][0] for user in users]), least)]


def noise_of(scene: Scene, seen: list[RealUpload]) -> float:
    """Compute the scale of one user's iteration noise: b, or of one share b/√k, at the median of the uploads."""
    if scene.uploads_openly or not scene.has_recommender:
        return float(scene.params.noise_scale)
    floors = [scene.recommender.floors(read.iteration)[read.items] for read in seen]
    return float(scene.params.noise_scale) * float(np.median([np.sqrt((1 / own).mean()) for own in floors]))


def ceiling(chance: float, epsilon: float) -> float:
    """Bound the accuracy of any guess under pure ε, where the odds of a value grow by e^ε at most."""
    return 1.0 if math.isinf(epsilon) else chance / (chance + (1 - chance) * math.exp(-epsilon))


def _finding(scene: Scene, result: Score, misfit: float, noise: float, least: int) -> Finding:
    permitted = ceiling(result.chance, 2 * scene.params.epsilon)
    severity = _severity(scene, result, misfit < NOISELESS * noise, permitted)
    title = (
        f"{scene.together} recovered {result.accuracy:.1%} of the ratings from the difference of two uploads; "
        f"guessing the commonest rating gets {result.chance:.1%}."
    )
    claimed = None if math.isinf(scene.params.epsilon) else f"ε = {scene.params.epsilon:g} per release"
    measured = {
        "accuracy": result.accuracy, "interval": list(result.interval), "ratings": result.targets,
        "users": result.groups, "misfit": misfit, "noise_scale": noise, "permitted": permitted,
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
        "ratings. Misfit: root mean square per coordinate of what the noiseless model leaves of the difference, "
        f"{misfit:.2g}." + _rule(scene, noise, permitted)
    )
    return Finding("difference-attack", title, scene.members, severity, claimed, measured,
                   {"accuracy": result.chance}, result.words, evidence)  # fmt: skip


def _rule(scene: Scene, noise: float, permitted: float) -> str:
    if math.isinf(scene.params.epsilon):
        return ""
    alone = f", or more right guesses than the {permitted:.1%} that two releases permit" * (len(scene.members) == 1)
    return (
        f" A user's iteration noise should have the scale {noise:.2g}. A break: above chance and a misfit of less than "
        f"{NOISELESS:.0%} of that{alone}, "
        f"at a level of {scene.truth.level:.1g}."
    )


def _severity(scene: Scene, result: Score, missing: bool, permitted: float) -> Severity:
    """Grade the attack.

    It is a break if it is above chance because the claimed noise is entirely missing or, for a party alone, if it beats
    what two releases with the claimed ε permit. Against colluding parties there are only shares of the noise.
    """
    if math.isinf(scene.params.epsilon):
        return "weak" if result.above_chance and "difference-attack" in scene.declared else "info"
    level = scene.truth.level
    over = len(scene.members) == 1 and result.beats(permitted, level)
    return "break" if over or (missing and result.beats(result.chance, level)) else "info"
