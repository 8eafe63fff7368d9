"""Disaggregation: ratings of single users from sums of many, over all iterations and whoever took part in each.

One sum hides a user among the others. But users come and go, and every user's direction u_i is its own, so the sums of
a run are many equations in the same unknowns (Lam et al. 2021; So et al. 2021).
"""

from __future__ import annotations

import math

import numpy as np

from protocol.arithmetic.tape import derive, exponential
from protocol.arrays import Flags, Ints, Matrix, Vector
from protocol.schemes.factorization.factorization import MaskedParams
from sim.audit import truth
from sim.audit.attacks.coalition_views import FEWEST_ITERATIONS, Scene
from sim.audit.attacks.difference_guesses import ceiling
from sim.audit.attacks.recomputed import RecommenderStory
from sim.audit.families.masked.sum_regression import Estimate, Population, SumHistory, estimate_ratings
from sim.audit.findings import Finding, Severity
from sim.audit.scoring import Score, generator, score
from sim.console.console import counted

MOST_ANSWERS = 20_000  # of users in iterations: the first ones of a large run
SUREST = 100  # ratings that are guessed
NARROWED = 0.9  # of the population's variance: a rating that is known no better was not seen
FEWEST = 5  # guesses that are worth a score
MOST_PAIRS = 20_000_000  # users times items
_FEW = f"they leave {NARROWED:.0%} of the population's variance or more, of nearly every rating"

Pairs = tuple[Ints, Ints]  # users, and for each an item


def history_of(scene: Scene) -> SumHistory:
    """Collect the sums that the recommender opened, with what it knows of their contributors and their noise."""
    params = MaskedParams.of(scene.params)
    upto = min(params.iterations, max(FEWEST_ITERATIONS, MOST_ANSWERS // params.n_users))
    story = scene.recommender if upto <= scene.iterations else RecommenderStory(scene.exhibits, upto)
    rounds = {t: found for t, found in story.rounds.items() if len(found.items) and t < upto}
    shape, n = (len(rounds), params.n_items, params.dim), (len(rounds), params.n_users)
    sums, factors, noise = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    released, present = np.zeros(shape[:2], np.bool_), np.zeros(n, np.bool_)
    held = np.zeros((params.n_users, params.n_items), np.bool_)
    for user, items in story.supports.items():
        held[user, items] = True
    keys, scale = story.role.item_keys, 2 * params.noise_scale**2
    for at, (t, found) in enumerate(rounds.items()):
        factors[at], sums[at, found.items], released[at, found.items] = found.factors, found.sums, True
        present[at, list(found.contributors)] = True
        shares = held[present[at]].sum(axis=0) / story.floors(t)
        noise[at] = scale * exponential(keys, params.dim, "rho", t) * shares[:, None]
    return SumHistory(factors, sums, released, present, held, scale * _objective(scene, story), noise)


def _objective(scene: Scene, story: RecommenderStory) -> Matrix:
    """Derive the objective envelopes of all items; where none was sealed, no sum was released."""
    keys, dim = story.role.item_keys, scene.params.dim
    if not scene.commits:
        return exponential(keys, dim, "eta", 0).astype(np.float64)
    sealed = [derive(key, "eta", story.sealed_in.get(item, 0)) for item, key in enumerate(keys)]
    return exponential(sealed, dim, "eta").astype(np.float64)


def attack_sums(scene: Scene) -> list[Finding]:
    """Attack as the recommender alone."""
    if scene.params.n_users * scene.params.n_items > MOST_PAIRS:
        return [_nothing(scene, "this run has too many users and items for the regression")]
    history = history_of(scene)
    if not len(history.sums):
        return []
    scale, prior = truth.rating_scale(scene.truth.ratings)  # public
    mean = float(scale @ prior)
    population = Population(mean, max(float((scale - mean) ** 2 @ prior), 1e-6))
    found = estimate_ratings(history, MaskedParams.of(scene.params), population)
    seen = surest(found, history.held, population)
    result = _scored(scene, seen, *guess(found, seen, scale, prior, population))
    return [_nothing(scene, _FEW) if result is None else _finding(scene, history, result)]


def guess(
    found: Estimate, seen: Pairs, scale: Vector, prior: Vector, population: Population
) -> tuple[Vector, Vector]:
    """Guess the most probable rating of each pair, and beside it the one rating that fits the mean of its item.

    The second is what the same sums tell of all raters together: no single user is needed for it.
    """
    mean, variance = found.mean[seen], np.minimum(found.variance[seen], population.variance * (1 - 1e-9))
    told = 1 / variance - 1 / population.variance  # precision of what the sums add to the prior
    centre = (mean / variance - population.mean / population.variance) / told
    logs = -0.5 * (scale - centre[:, None]) ** 2 * told[:, None] + np.log(prior)
    fits = np.abs(found.of_items[seen[1], None] - scale).argmin(axis=1)
    guesses: Vector = scale[logs.argmax(axis=1)]
    return guesses, scale[fits]


def surest(found: Estimate, held: Flags, population: Population) -> Pairs:
    """Choose the pairs (users, items) of which the sums tell most; the choice does not look at any rating."""
    left = np.where(held, found.variance / population.variance, np.inf)
    order = np.argsort(left, axis=None, kind="stable")[:SUREST]
    users, items = np.unravel_index(order[left.flat[order] < NARROWED], left.shape)
    return users, items


def _scored(scene: Scene, seen: Pairs, guesses: Vector, fitting: Vector) -> Score | None:
    """Score the guesses against the better of two blind ones: the commonest rating, and the one that fits the item."""
    by_user: dict[int, list[tuple[bool, bool, bool]]] = {}
    for user, item, guessed, fits in zip(*map(np.ndarray.tolist, (*seen, guesses, fitting)), strict=True):
        if scene.truth.is_kept(user):
            true = scene.truth.rating(user, item)
            by_user.setdefault(user, []).append((guessed == true, scene.truth.commonest == true, fits == true))
    rows = [np.array(own, np.float64) for own in by_user.values()]
    if sum(map(len, rows)) < FEWEST:
        return None
    blind = 1 if sum(own[:, 1].sum() for own in rows) >= sum(own[:, 2].sum() for own in rows) else 2
    hits, lucky = [own[:, 0] for own in rows], [own[:, blind] for own in rows]
    return score(hits, lucky, generator(scene.case, "bootstrap disaggregation", *scene.members))


def _finding(scene: Scene, history: SumHistory, result: Score) -> Finding:
    epsilon, iterations = scene.params.epsilon, len(history.sums)
    permitted = ceiling(result.chance, epsilon * iterations)
    title = (
        f"{scene.together} guessed {result.accuracy:.1%} of {counted(result.targets, 'rating')} right from sums of "
        f"many users over {counted(iterations, 'iteration')}; blind guessing gets {result.chance:.1%}."
    )
    evidence = (
        "A regression of every released sum on the users in it, whose factors are followed by their own public rule; "
        f"of the {SUREST} ratings at most whose variance the sums narrow most. Chance: the most frequent rating, or "
        "for each item the rating that fits its mean in the same regression, whichever is right more often."
        + ("" if math.isinf(epsilon) else f" {iterations} releases with the claimed ε permit {permitted:.1%}.")
        + (f" Iterations 0 to {iterations - 1}." if iterations < scene.params.iterations else "")
    )
    measured = {"accuracy": result.accuracy, "interval": list(result.interval), "ratings": result.targets,
                "users": result.groups, "iterations": iterations, "permitted": permitted,
                "from": "sums over time"}  # fmt: skip
    return Finding("disaggregation", title, scene.members, _severity(scene, result, permitted),
                   "a released sum is an aggregate", measured, {"accuracy": result.chance}, result.words,
                   evidence)  # fmt: skip


def _severity(scene: Scene, result: Score, permitted: float) -> Severity:
    """Grade it: more than all releases with the claimed ε permit is a break."""
    if not math.isinf(scene.params.epsilon) and result.beats(permitted, scene.truth.level):
        return "break"
    return "weak" if result.above_chance else "info"


def _nothing(scene: Scene, why: str) -> Finding:
    title = f"{scene.together} guessed no rating from sums over time: {why}."
    return Finding("disaggregation", title, scene.members, "info", "a released sum is an aggregate", {"ratings": 0})
