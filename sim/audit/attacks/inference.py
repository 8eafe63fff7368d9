"""Rating inference: the noisy gradients that a coalition can attribute to single users, and the ratings they reveal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from protocol.arithmetic.tape import derive, exponential
from protocol.arrays import Ids, Matrix, Vector
from protocol.party.role import RECOMMENDER, user_name
from protocol.wire.messages import SETUP
from sim.audit import truth
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.difference_guesses import ceiling, readings, sampled
from sim.audit.attacks.isolating import Rest, outsiders_of, rests_of_recommender, rests_of_users
from sim.audit.attacks.posterior import SharedGradients, posterior
from sim.audit.findings import Finding, Severity
from sim.audit.scoring import Score, generator, score
from sim.console.console import counted


class Target(NamedTuple):
    user: int | None  # None: the coalition does not know the user
    item: int
    iteration: int
    value: Vector  # y
    constant: Vector  # variance of the noise that is the same in all iterations, given what the coalition knows
    fresh: Vector  # variance of the noise of this iteration, given the same
    rounding: Vector  # variance that rounding alone causes
    factors: Vector  # v_j

    @property
    def variance(self) -> Vector:
        every: Vector = self.constant + self.fresh + self.rounding
        return every


Noise = tuple[Vector, Vector]  # variances of the constant part and of that of one iteration


def guess(targets: list[Target], scale: Vector, prior: Vector, doubting: bool, rng: np.random.Generator) -> Vector:
    """Guess the most probable rating of each target; `doubting` assumes that rounding is the only noise."""
    together: dict[tuple[int, int], list[int]] = {}
    for place, target in enumerate(targets):  # gradients of one user in one iteration share u
        owner = target.user if target.user is not None else -1 - place
        together.setdefault((owner, target.iteration), []).append(place)
    guesses = np.zeros(len(targets))
    for places in together.values():
        own = [targets[place] for place in places]
        variance = np.array([one.rounding if doubting else one.variance for one in own])
        rows = SharedGradients(np.array([one.value for one in own]), variance, np.array([one.factors for one in own]))
        guesses[places] = scale[posterior(rows, scale, prior, rng).argmax(axis=1)]
    return guesses


# --- gradients that a coalition holds --------------------------------------------------------------------------------


def targets(scene: Scene) -> list[Target]:
    """Choose for each rating the first gradient of a single user that the coalition holds."""
    first: dict[tuple[int | None, int], Target] = {}
    for target in all_targets(scene, first=True):
        first.setdefault((target.user, target.item), target)
    return list(first.values())


def all_targets(scene: Scene, first: bool = False) -> Iterator[Target]:
    """Yield the gradients of single users that the coalition holds, in order; of uploads only the `first` if so."""
    if scene.has_recommender and (scene.uploads_openly or scene.has_third_party):
        yield from _uploaded(scene, first)
    elif scene.has_recommender:
        for rest in rests_of_recommender(scene, 1):
            contributors = scene.recommender.rounds[rest.iteration].contributors
            others = (user for user in contributors if user not in scene.users and rest.item in contributors[user])
            yield _target(next(others), rest, *_known_variance(scene, rest))
    elif scene.users and not scene.has_third_party:
        for rest in rests_of_users(scene):
            if rest.outsiders == 1:
                yield _target(None, rest, *_mean_variance(scene, rest))


def _target(user: int | None, rest: Rest, noise: Noise, rounding: float) -> Target:
    floor = np.full(len(rest.value), rounding)
    return Target(user, rest.item, rest.iteration, rest.value, *noise, floor, rest.factors)


def _uploaded(scene: Scene, first: bool) -> Iterator[Target]:
    """Yield the uploads of a sample of users: in the open, or unmasked by both servers."""
    found, params = readings(scene, 1), scene.params
    users, _ = sampled(scene, found, {user: len(one[0].items) for user, one in found.items()}, fewest=1)
    uploads = [(user, found[user][0]) for user in users]
    if not first:
        wanted = frozenset(users)
        uploads = [(user, upload) for user, upload in scene.family.uploads(scene) if user in wanted]
    for user, upload in uploads:
        t, items = upload.iteration, upload.items
        size = (np.abs(upload.values).max() * 2.0**-23) ** 2 if scene.uploads_openly else 4.0**-params.fraction_bits
        rounding, (constant, fresh) = np.full(params.dim, size), _upload_variance(scene, t, items)
        factors = scene.recommender.rounds[t].factors[items]
        for at, item in enumerate(map(int, items)):
            yield Target(user, item, t, upload.values[at], constant[at], fresh[at], rounding, factors[at])


def _upload_variance(scene: Scene, t: int, items: Ids) -> tuple[Matrix, Matrix]:
    """Compute the noise variances of one user's upload, given the envelopes that the recommender dealt."""
    params, tape = scene.params, scene.exhibits.brought(RECOMMENDER).tape
    keys = [tape.key("item", int(item)) for item in items]
    floors = scene.recommender.floors(t)[items].astype(np.float64)[:, None]
    constant, fresh = np.zeros((len(items), params.dim)), np.zeros((len(items), params.dim))
    if not scene.commits:
        constant += exponential(keys, params.dim, "eta", 0) / floors
    fresh += scene.family.iteration_noise(params, keys, floors, t)
    return 2 * params.noise_scale**2 * constant, 2 * params.noise_scale**2 * fresh


def _known_variance(scene: Scene, rest: Rest) -> tuple[Noise, float]:
    """Return the variances (of the two noises, of the rounding).

    The recommender knows both envelopes; the members' shares are already subtracted.
    """
    params, key = scene.params, scene.recommender.role.item_keys[rest.item]
    if scene.commits:
        sealed = derive(key, "eta", scene.recommender.sealed_in[rest.item])
        part = 1 - scene.own_noise(rest.item)[0] / scene.recommender.role.params.committers
        objective = exponential([sealed], params.dim, "eta")[0] * part
    else:
        objective = exponential([key], params.dim, "eta", 0)[0] / rest.floor
    iteration = exponential([key], params.dim, "rho", rest.iteration)[0] / rest.floor
    scale = 2 * params.noise_scale**2
    return (scale * objective.astype(np.float64), scale * iteration.astype(np.float64)), 4.0**-params.fraction_bits


def _mean_variance(scene: Scene, rest: Rest) -> tuple[Noise, float]:
    """Return the same variances for users, which take envelopes at their mean, 1, and get float32 factors."""
    params = scene.params
    objective = 1.0 if scene.commits else 1 / rest.floor
    rounding = (rest.floor / params.learning_rate * max(float(np.abs(rest.factors).max()), 1.0) * 2.0**-22) ** 2
    scale, ones = 2 * params.noise_scale**2, np.ones(params.dim)
    return (scale * objective * ones, scale / rest.floor * ones), rounding


# --- the attack ------------------------------------------------------------------------------------------------------


def attack_inference(scene: Scene) -> list[Finding]:
    if not scene.has_recommender and scene.params.dropout_allowance > 0:
        return []  # users cannot tell how many others are in a sum
    aims = targets(scene)
    if not aims:
        return [_nothing(scene)]
    scale, prior = truth.rating_scale(scene.truth.ratings)  # public
    rng = generator(scene.case, "inference", *scene.members)
    believing, doubting = (guess(aims, scale, prior, doubts, rng) for doubts in (False, True))
    result, other = score_guesses(scene, aims, believing), score_guesses(scene, aims, doubting)
    if result is None or other is None:
        return [_nothing(scene)]
    return [_finding(scene, result, other, float(prior.max()))]


def score_guesses(scene: Scene, aims: list[Target], guesses: Vector) -> Score | None:
    """Score the guesses against the truth; None if no view of these users was kept."""
    by_user: dict[int, list[tuple[float, float]]] = {}
    for aim, guessed in zip(aims, guesses, strict=True):
        user = aim.user if aim.user is not None else _whose(scene, aim)
        if user is not None and user_name(user) in scene.truth.ratings:
            true = scene.truth.rating(user, aim.item)
            by_user.setdefault(user, []).append((float(guessed == true), float(scene.truth.commonest == true)))
    pairs = [np.array(rows) for rows in by_user.values()]
    hits, lucky = [rows[:, 0] for rows in pairs], [rows[:, 1] for rows in pairs]
    return score(hits, lucky, generator(scene.case, "bootstrap inference", *scene.members)) if pairs else None


def _whose(scene: Scene, aim: Target) -> int | None:
    rest = Rest(aim.item, aim.iteration, 1, 0, 0, aim.factors, aim.value, None)
    others = outsiders_of(scene, rest)
    return others[0] if len(others) == 1 else None


def _finding(scene: Scene, believing: Score, doubting: Score, frequency: float) -> Finding:
    tries = {"with the claimed noise": believing, "as if there were none": doubting}
    name, best = max(tries.items(), key=lambda pair: pair[1].interval[0])
    epsilon = scene.params.epsilon
    permitted = ceiling(max(best.chance, frequency), epsilon)
    together = scene.masks and scene.has_third_party
    over = best.beats(permitted, scene.truth.level)
    id_ = _id(scene, over)
    title = (
        f"{scene.together} guessed {best.accuracy:.1%} of {counted(best.targets, 'rating')} right, from "
        f"{'unmasked uploads' if together else f'{scene.noisy}gradients that one user alone made'}; guessing the "
        f"commonest rating gets {best.chance:.1%}."
    )
    evidence = (
        f"Bayes with the population's ratings as prior, on the first {scene.noisy}gradient of each rating that it "
        f"can tell from others, those of one user together; the better of two tries ({name}). Chance: the most "
        f"frequent rating ({scene.truth.commonest:g}), on the same ratings.{_rule(scene, permitted)} Later iterations "
        "are used by the averaging attack." + scene.extent
    )
    measured = {"accuracy": best.accuracy, "interval": list(best.interval), "ratings": best.targets,
                "users": best.groups, "permitted": permitted,
                "tries": {words: each.accuracy for words, each in tries.items()}}  # fmt: skip
    claimed = None if math.isinf(epsilon) else f"ε = {epsilon:g} per release"
    return Finding(id_, title, scene.members, _severity(scene, best, over, id_), claimed, measured,
                   {"accuracy": best.chance}, best.words, evidence)  # fmt: skip


def _rule(scene: Scene, permitted: float) -> str:
    if math.isinf(scene.params.epsilon):
        return ""
    return (
        f" One release with the claimed ε permits {permitted:.1%}: less above chance is no violation of it, more is "
        f"(by a party alone, exact binomial test at a level of {scene.truth.level:.1g})."
    )


def _id(scene: Scene, over: bool) -> str:
    """Choose the id: `unmasking` for both servers, `known-shares` for other coalitions that beat ε."""
    if scene.masks and scene.has_third_party:
        return "unmasking"
    return "known-shares" if over and len(scene.members) > 1 else "rating-inference"


def _severity(scene: Scene, best: Score, over: bool, id_: str) -> Severity:
    """Grade the guesses; a break is more than the claim permits a party alone."""
    if over:
        return "break" if len(scene.members) == 1 else "weak"
    return "weak" if best.above_chance and id_ in scene.declared else "info"


def _nothing(scene: Scene) -> Finding:
    title = f"{scene.together} could isolate no gradient that one user alone made, so no single rating was guessed."
    evidence = f"Looked for in the sums of iterations {SETUP + 1} to {scene.iterations - 1}."
    return Finding("rating-inference", title, scene.members, "info", None, {"ratings": 0}, None, "exact", evidence)
