"""Averaging: all readings of one user's gradient, weighted by what the coalition knows of the noise of each.

Noise that is drawn anew in every iteration averages out. A party that knows the envelope H of an iteration gives its
reading the weight 1/H, and the noise that is left is that of the harmonic mean, and whatever is constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sim.audit import truth
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.difference_guesses import ceiling
from sim.audit.attacks.inference import Target, all_targets, guess, score_guesses
from sim.audit.findings import Finding, Severity
from sim.audit.scoring import Score, generator
from sim.console.console import counted


def pooled(readings: Sequence[Target]) -> Target:
    """Average the `readings` of one rating with weights 1/variance of what is fresh in each, coordinate by coordinate.

    v_j is averaged likewise, and what is constant stays whole. Averages of one known user share its u_i,
    which is taken as constant: where noise is small, the first reading alone is better.
    """
    values = np.array([one.value for one in readings])
    weights = np.array([1 / (one.fresh + one.rounding) for one in readings])
    weights /= weights.sum(axis=0)
    fresh, rounding = (
        (weights**2 * np.array(rows)).sum(axis=0)
        for rows in ([one.fresh for one in readings], [one.rounding for one in readings])
    )
    value = (weights * values).sum(axis=0)
    factors = weights.mean(axis=1) @ np.array([one.factors for one in readings])
    constant = np.mean([one.constant for one in readings], axis=0)
    first, when = readings[0], readings[0].iteration if readings[0].user is None else 0
    return Target(first.user, first.item, when, value, constant, fresh, rounding, factors)


def pools(scene: Scene) -> tuple[list[Target], int]:
    """Return (an average for each rating, the most readings of one of them)."""
    found: dict[tuple[int | None, int], list[Target]] = {}
    for target in all_targets(scene):
        found.setdefault((target.user, target.item), []).append(target)
    return [pooled(readings) for readings in found.values()], max(map(len, found.values()), default=0)


def attack_average(scene: Scene) -> list[Finding]:
    """Guess ratings from averages; without noise one reading is as good."""
    if math.isinf(scene.params.epsilon) or (not scene.has_recommender and scene.params.dropout_allowance > 0):
        return []
    aims, most = pools(scene)
    if most < 2:
        return []
    scale, prior = truth.rating_scale(scene.truth.ratings)  # public
    guesses = guess(aims, scale, prior, False, generator(scene.case, "average", *scene.members))
    result = score_guesses(scene, aims, guesses)
    return [] if result is None else [_finding(scene, result, most, float(prior.max()))]


def _finding(scene: Scene, result: Score, most: int, frequency: float) -> Finding:
    epsilon = scene.params.epsilon
    permitted = ceiling(max(result.chance, frequency), epsilon * most)
    over = len(scene.members) == 1 and result.beats(permitted, scene.truth.level)
    one = ceiling(max(result.chance, frequency), epsilon)
    title = (
        f"{scene.together} guessed {result.accuracy:.1%} of {counted(result.targets, 'rating')} right from the mean of "
        f"up to {most} {scene.noisy}gradients of each that one user alone made; guessing the commonest rating gets "
        f"{result.chance:.1%}."
    )
    evidence = (
        "Readings of one rating weighted by 1 over the variance of their fresh noise, which is 1/H for a party that "
        "knows the envelopes; then Bayes with the population's ratings as prior, those of one user together. Chance: "
        f"the most frequent rating ({scene.truth.commonest:g}), on the same ratings. One release with the claimed ε "
        f"permits {one:.1%}, {most} of them {permitted:.1%}: more than that is a violation by a party alone."
        + scene.extent
    )
    measured = {"accuracy": result.accuracy, "interval": list(result.interval), "ratings": result.targets,
                "users": result.groups, "readings": most, "permitted": permitted, "one_release_permits": one,
                "from": "all gradients of a rating"}  # fmt: skip
    id_ = _id(scene)
    return Finding(id_, title, scene.members, _severity(scene, result, over, id_), f"ε = {epsilon:g} per release",
                   measured, {"accuracy": result.chance}, result.words, evidence)  # fmt: skip


def _id(scene: Scene) -> str:
    """Choose the id: several releases are `composition`, unless other parties' secrets were needed to read them."""
    if scene.masks and scene.has_third_party:
        return "unmasking"
    return "composition" if len(scene.members) == 1 and scene.has_recommender else "known-shares"


def _severity(scene: Scene, result: Score, over: bool, id_: str) -> Severity:
    """Grade the guesses; a break is more than the claims of all releases permit a party alone."""
    if over:
        return "break"
    return "weak" if result.above_chance and id_ in scene.declared else "info"
