"""`covariance-masked`: both servers together remove the masks from every part, which leaves a share of the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arrays import Floats
from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_index, user_name
from protocol.schemes.covariance.options import MaskedCovarianceParams
from protocol.schemes.covariance.round_noise import round_length, scales_for
from sim.audit import truth
from sim.audit.attacks.coalition_views import Scene
from sim.audit.findings import Finding
from sim.audit.scoring import generator, score
from sim.console.console import counted


def first_parts(scene: Scene) -> Iterator[tuple[int, Floats]]:
    """Yield (user, its part of the first sum with its share of the noise): NaN where it adds nothing."""
    from protocol.schemes.covariance.covariance_masked_roles import masks_of, places_of

    params, setting = scene.params, scene.case.card.setting
    assert isinstance(params, MaskedCovarianceParams)
    tape = scene.exhibits.brought(RECOMMENDER).tape
    fixed = FixedPoint(scene.ring, params.fraction_bits_of(0))
    for seen in scene.exhibits.received(THIRD_PARTY, "MaskedPart"):
        if seen.iteration == 0:
            user, words = user_index(seen.sender), seen.message.values
            words = scene.ring.subtract(words, masks_of(setting, tape.key("mask", user), 0, len(words)))
            numbers = np.full(round_length(params, 1), np.nan)
            numbers[places_of(params, 0, seen.message.items, None)] = fixed.decode(words)[:, 0]
            yield user, numbers


def deviations(params: MaskedCovarianceParams, adding: npt.NDArray[np.int64]) -> Floats:
    """Compute the standard deviation of one share at each item's sum, to which `adding` users add one."""
    rounding = 2.0**-params.first_fraction_bits
    if math.isinf(params.epsilon):
        return np.full(params.n_items, rounding)
    scales = scales_for(params, 1)[2 : 2 + params.n_items] * (1.0 if params.gaussian else math.sqrt(2))
    return np.hypot(scales / np.sqrt(np.maximum(adding, 1)), rounding)


def attack_parts(scene: Scene) -> list[Finding]:
    params = scene.params
    if not isinstance(params, MaskedCovarianceParams) or params.per_user:  # per user, weights are unknown
        return []
    parts = dict(first_parts(scene))
    sums = {user: numbers[2 : 2 + params.n_items] for user, numbers in parts.items()}
    adding = np.sum([~np.isnan(numbers) for numbers in sums.values()], axis=0)
    scale, prior = truth.rating_scale(scene.truth.ratings)  # public
    spread = deviations(params, adding)[:, None]
    hits, lucky = [], []
    for user, numbers in sums.items():
        logs = np.log(prior) - ((numbers[:, None] - (scale - params.middle)) / spread) ** 2 / 2
        guesses = scale[np.argmax(np.nan_to_num(logs), axis=1)]
        own = scene.truth.ratings.get(user_name(user))  # from here on the truth is open
        if own is not None:
            hits.append((guesses[own.items] == own.ratings).astype(np.float64))
            lucky.append((own.ratings == scene.truth.commonest).astype(np.float64))
    if not hits:
        return []
    result = score(hits, lucky, generator(scene.case, "bootstrap parts", *scene.members))
    title = (
        f"The two servers together guess {result.accuracy:.1%} of {counted(result.targets, 'rating')} right from "
        f"unmasked parts; guessing the commonest rating gets {result.chance:.1%}."
    )
    measured = {"accuracy": result.accuracy, "interval": list(result.interval), "ratings": result.targets,
                "users": result.groups, "from": "unmasked parts"}  # fmt: skip
    evidence = (
        "Masks were derived from the tape in the recommender's view and taken from every part of the first sum in the "
        "third party's; the most probable rating given the user's number at an item that it rated, its noise share "
        "taken as normal. Parts of the second sum, which add to this, are not used."
    )
    return [Finding("unmasking", title, scene.members, "weak" if result.above_chance else "info",
                    "no server alone learns a rating", measured, {"accuracy": result.chance}, result.words,
                    evidence)]  # fmt: skip
