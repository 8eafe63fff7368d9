"""Ratings that users randomize once and send: the accuracy of guessing the most probable rating given the answer.

The receiver knows the law, the frequency of each rating and the number of rated entries; it guesses, and only then is
the truth opened. On `hybrid` it also counts what needs no probability: answers that rule ratings out for certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from protocol.arrays import Floats, Ids
from protocol.party.role import RECOMMENDER, user_index
from sim.audit import truth
from sim.audit.attacks.channels import RandomizedChannel, UniformNoise
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.difference_guesses import ceiling
from sim.audit.findings import Finding, Severity
from sim.audit.scoring import clopper_pearson, generator

TRIES = ("with the law", "at face value")
FRESH = 10  # submissions to simulate
MOST_VALUES = 256  # size of the rating scale
MOST_SIMULATED = 200_000  # ratings to simulate submissions of


class Sent(NamedTuple):
    """The message of one user: the items that it names and its answers, or an answer for every item."""

    user: int
    items: Ids
    answers: Floats


def sent_by_users(scene: Scene) -> Iterator[Sent]:
    """Yield the messages in the recommender's view; a 0 of randomized response is an answer like any other."""
    for seen in scene.exhibits.received(RECOMMENDER, "PerturbedRatings", "RandomizedLevels"):
        message, user = seen.message, user_index(seen.sender)
        if hasattr(message, "levels"):
            answers = np.asarray(message.levels, np.float64).reshape(-1)
            yield Sent(user, np.arange(len(answers), dtype=np.uint32), answers)
        else:
            yield Sent(user, message.items, message.values.astype(np.float64).reshape(-1))


class GuessTally:
    """Counts of right guesses: of ratings, and of whether there is one."""

    def __init__(self) -> None:
        self.ratings = self.right = self.lucky = 0
        self.entries = self.rated = self.said = self.both = self.agreed = 0

    def add_ratings(self, true: Floats, guessed: Floats, commonest: float) -> None:
        self.ratings += len(true)
        self.right += int(np.count_nonzero(true == guessed))
        self.lucky += int(np.count_nonzero(true == commonest))

    def add_presence(self, true: Any, guessed: Any) -> None:
        self.entries += len(true)
        self.rated += int(true.sum())
        self.said += int(guessed.sum())
        self.both += int((true & guessed).sum())
        self.agreed += int((true == guessed).sum())


def attack_perturbed(scene: Scene) -> list[Finding]:
    scale, prior = truth.rating_scale(scene.truth.ratings)  # public
    channel = scene.family.channel(scene.params, scale)
    if channel is None:
        return []
    if len(scale) > MOST_VALUES:
        return [_too_many(scene, len(scale))]
    whole = len(scene.truth.ratings) * scene.params.n_items
    base_rate = sum(len(own.items) for own in scene.truth.ratings.values()) / whole  # public
    uploads, tries = {sent.user: sent for sent in sent_by_users(scene)}, {words: GuessTally() for words in TRIES}
    for name, own in scene.truth.ratings.items():
        if (sent := uploads.get(user_index(name))) is None:
            continue
        answers = np.full(scene.params.n_items, np.nan)
        answers[sent.items] = sent.answers
        believing = channel.is_rated(answers, prior, base_rate), channel.best_rating(answers, prior)
        rated = np.zeros(len(answers), np.bool_)  # from here on the truth is open
        rated[own.items] = True
        for tally, (there, guesses) in zip(tries.values(), (believing, channel.at_face_value(answers)), strict=True):
            tally.add_ratings(own.ratings, guesses[own.items], scene.truth.commonest)
            tally.add_presence(rated, there)
    if not tries[TRIES[0]].ratings:
        return []
    if isinstance(channel, UniformNoise):
        return [_uniform(scene, channel, prior, list(uploads.values()), tries[TRIES[0]])]
    return [_inference(scene, channel, prior, tries), _presence(scene, channel, prior, base_rate, tries)]


def _too_many(scene: Scene, values: int) -> Finding:
    title = f"Ratings take {values} different values, more than {MOST_VALUES}: single ones were not guessed."
    evidence = "Guesses are of one value of the rating scale; the algebra and the accounting say what else is known."
    return Finding("rating-inference", title, scene.members, "info", None, {"ratings": 0}, None, "exact", evidence)


# --- laplace-ratings, randomized-response ----------------------------------------------------------------------------


def _inference(scene: Scene, channel: RandomizedChannel, prior: Floats, tries: dict[str, GuessTally]) -> Finding:
    name, tally = max(tries.items(), key=lambda pair: pair[1].right)
    n, accuracy, chance = tally.ratings, tally.right / tally.ratings, tally.lucky / tally.ratings
    permitted, most = channel.rating_rate(prior), ceiling(float(prior.max()), scene.params.epsilon)
    low, high = clopper_pearson(tally.right, n)
    over = bool(stats.binom.sf(tally.right - 1, n, permitted) < scene.truth.level)
    title = (
        f"The recommender guesses {accuracy:.1%} of {n} ratings from what was sent, given that there is one; the "
        f"mechanism lets the best guess be right {permitted:.1%} of the time, and the commonest rating gets "
        f"{chance:.1%}."
    )
    measured = {"accuracy": accuracy, "interval": [low, high], "ratings": n, "permitted": permitted,
                "any_mechanism_with_this_epsilon": most, "from": "one upload each"}  # fmt: skip
    return Finding(
        "rating-inference",
        title,
        scene.members,
        _severity(scene, over, low > chance, "rating-inference"),
        f"ε = {scene.params.epsilon:g} per {scene.case.card.scheme.unit}",
        measured,
        {"accuracy": chance},
        f"95 % Clopper–Pearson: {low:.3f} to {high:.3f}; beyond the mechanism if an exact binomial test says so at a "
        f"level of {scene.truth.level:.1g}",
        "The most probable rating given the answer, by the mechanism's law and the frequency of each rating, or the "
        f"answer at its face value, whichever is right more often (here {name}); of every rating that users brought, "
        "also of those that were dropped. The rate that the law permits is an integral over all answers; any mechanism "
        "of this ε lets the odds of a value grow by e^ε at most.",
    )


def _presence(
    scene: Scene, channel: RandomizedChannel, prior: Floats, base_rate: float, tries: dict[str, GuessTally]
) -> Finding:
    name, tally = max(tries.items(), key=lambda pair: pair[1].agreed)
    n, accuracy = tally.entries, tally.agreed / tally.entries
    chance, permitted = max(base_rate, 1 - base_rate), channel.presence_rate(prior, base_rate)
    low, high = clopper_pearson(tally.agreed, n)
    over = bool(stats.binom.sf(tally.agreed - 1, n, permitted) < scene.truth.level)
    precision = tally.both / tally.said if tally.said else None
    recall = tally.both / tally.rated
    title = (
        f"Who rated what is randomized: the best guess is right for {accuracy:.1%} of {n} entries ({recall:.1%} of the "
        f"rated ones found); the mechanism lets it be {permitted:.1%}, and always the likelier answer gets "
        f"{chance:.1%}."
    )
    measured = {"accuracy": accuracy, "interval": [low, high], "entries": n, "permitted": permitted,
                "precision": precision, "recall": recall}  # fmt: skip
    return Finding(
        "support",
        title,
        scene.members,
        _severity(scene, over, low > chance, "support"),
        f"ε = {scene.params.epsilon:g} per {scene.case.card.scheme.unit}",
        measured,
        {"accuracy": chance, "precision": base_rate},
        f"95 % Clopper–Pearson: {low:.4f} to {high:.4f}",
        "Posterior of rated against missing by the mechanism's law, the frequency of each rating and the fraction of "
        f"entries that are rated, entry by entry, or the answer at its face value, whichever is right more often (here "
        f"{name}); the truth is what users brought.",
    )


def _severity(scene: Scene, over: bool, above: bool, id_: str) -> Severity:
    """Grade: more than the mechanism permits is a break; less is a weakness if the scheme declares it."""
    return "break" if over else "weak" if above and id_ in scene.declared else "info"


# --- hybrid ----------------------------------------------------------------------------------------------------------


def _uniform(scene: Scene, channel: UniformNoise, prior: Floats, uploads: list[Sent], tally: GuessTally) -> Finding:
    answers = np.concatenate([sent.answers for sent in uploads])
    left = channel.possible(answers, answers).sum(axis=1)
    determined, excluding = int((left <= 1).sum()), int((left < len(channel.scale)).sum())
    n, accuracy, chance = tally.ratings, tally.right / tally.ratings, tally.lucky / tally.ratings
    low, high = clopper_pearson(tally.right, n)
    again = simulate_fresh(scene, channel, prior)
    title = (
        f"Uniform noise of ±{channel.gamma:g} has no finite ε: {excluding} of {len(answers)} uploads rule out at least "
        f"one rating for certain and {determined} determine it. The most probable rating is right for {accuracy:.1%} "
        f"({chance:.1%} without the view), after {FRESH} fresh submissions for {again['accuracy']:.1%} (simulated)."
    )
    measured = {
        "uploads": len(answers), "excluding": excluding, "determined": determined, "accuracy": accuracy,
        "interval": [low, high], "ratings": n, "expected": channel.rating_rate(prior), "fresh": again,
        "from": "one upload each",
    }  # fmt: skip
    return Finding(
        "uniform-noise",
        title,
        scene.members,
        "break" if determined == len(answers) and len(channel.scale) > 1 else "weak",
        "a perturbed rating hides the rating",
        measured,
        {"accuracy": chance},
        f"what is ruled out or determined is exact; 95 % Clopper–Pearson: accuracy {low:.3f} to {high:.3f}, simulated "
        f"{again['interval'][0]:.3f} to {again['interval'][1]:.3f}",
        f"Ratings r with |r' − r| ≤ γ are possible, no others: two ratings more than 2γ apart share no r'. Of the "
        f"possible ones the most frequent is guessed. Simulated: {again['ratings']} of the run's ratings, each sent "
        f"{FRESH} times with fresh noise from the audit's own generator. Which items are rated is sent in the clear.",
    )


def simulate_fresh(scene: Scene, channel: UniformNoise, prior: Floats) -> dict[str, Any]:
    """Simulate the same guess if users sent each rating `FRESH` times, which no protocol of this run does."""
    rng = generator(scene.case, "fresh submissions")
    true = np.concatenate([own.ratings for own in scene.truth.ratings.values()])
    if len(true) > MOST_SIMULATED:
        true = rng.permutation(true)[:MOST_SIMULATED]
    return fresh_submissions(channel, prior, true, FRESH, rng)


def fresh_submissions(
    channel: UniformNoise, prior: Floats, true: Floats, times: int, rng: np.random.Generator
) -> dict[str, Any]:
    least = most = true + rng.uniform(-channel.gamma, channel.gamma, len(true))
    for _ in range(times - 1):
        drawn = true + rng.uniform(-channel.gamma, channel.gamma, len(true))
        least, most = np.minimum(least, drawn), np.maximum(most, drawn)
    guesses = channel.scale[np.argmax(channel.possible(least, most) * prior, axis=1)]
    right = int((guesses == true).sum())
    return {
        "submissions": times,
        "simulated": True,
        "ratings": len(true),
        "accuracy": right / len(true),
        "interval": list(clopper_pearson(right, len(true))),
    }
