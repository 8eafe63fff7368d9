"""Counts over time: what a user learns of another from counts that change together as that one comes or goes.

In a scheme for users who come and go, each user is told, in every iteration, by how many the noise of its items is
shared. When somebody comes, the counts of all items that this one rated rise by one. A party that knows when a person
took part (it saw the person's activity elsewhere) infers from the counts that changed with it which items the person
rated: it needs no server and no sum. Calandrino et al. 2011 infer purchases in the same way, from public lists that
change soon after.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from protocol.arrays import Flags, Ints, Matrix, Vector
from protocol.party.role import user_index, user_name
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.isolating import learned
from sim.audit.findings import Finding
from sim.audit.scoring import Score, generator, score
from sim.console.console import counted

_LEAST = 0.05  # variance of a count that hardly changes
_SURE = 0.01  # least share of raters that is taken for possible


class ToldCounts(NamedTuple):
    """The counts that members were told, iterations × items, less the members themselves; NaN where they were not."""

    items: Ints
    counts: Matrix


def told_counts(scene: Scene) -> ToldCounts:
    known = {item: found.floors for item, found in sorted(learned(scene).items()) if found.floors}
    places = {item: column for column, item in enumerate(known)}
    counts = np.full((scene.iterations, len(known)), np.nan)
    for item, floors in known.items():
        for t, floor in floors.items():
            if t < scene.iterations:
                counts[t, places[item]] = floor
    for story in scene.stories.values():  # members know when they were there themselves
        for own in story.contributions:
            counts[own.iteration, [places[item] for item in map(int, own.items) if item in places]] -= 1
    return ToldCounts(np.array(list(known), np.int64), counts)


def likely(told: ToldCounts, present: Matrix, n_others: int) -> tuple[Flags, Flags]:
    """Guess for each user, a row of `present`, and each item whether it is rated: (from the changes, without them).

    A change of one comes with the user's own if it rated the item, and else not; all other changes are noise of the
    variance that the count has. Without the changes there is the largest count, the item's popularity.
    """
    steps, own = np.diff(told.counts, axis=0), np.diff(present, axis=1)
    there = ~np.isnan(steps)
    changes = np.where(there, steps, 0)
    number = np.maximum(there.sum(axis=0), 1)
    drift = changes.sum(axis=0) / number
    variance = ((changes - drift) ** 2 * there).sum(axis=0) / number + _LEAST
    told_by_changes = own @ ((changes - drift) * there / variance) - 0.5 * own**2 @ (there / variance)
    share = np.clip(np.nanmax(told.counts, axis=0) / n_others, _SURE, 1 - _SURE)
    popular: Vector = np.log(share / (1 - share))
    return told_by_changes + popular > 0, np.broadcast_to(popular > 0, told_by_changes.shape)


def attack_changes(scene: Scene) -> list[Finding]:
    """Attack as users, who are told counts, and are given when each other user took part."""
    told = told_counts(scene)
    told = ToldCounts(told.items[(columns := ~np.isnan(told.counts).all(axis=0))], told.counts[:, columns])
    if not len(told.items):
        return []
    if not (np.nan_to_num(np.diff(told.counts, axis=0)) != 0).any():
        return [_nothing(scene)]
    others = [user for user in sorted(map(user_index, scene.truth.ratings)) if user not in scene.users]
    took_part = [[scene.truth.took_part(user, t) for t in range(scene.iterations)] for user in others]
    present = np.array(took_part, np.float64)
    moved = np.flatnonzero((np.diff(present, axis=1) != 0).any(axis=1))
    if not len(moved):
        return [_nothing(scene)]
    guesses, popular = likely(told, present[moved], scene.params.n_users - len(scene.users))
    result = _scored(scene, told, [others[row] for row in moved], guesses, popular)
    return [_finding(scene, result)]


def _scored(scene: Scene, told: ToldCounts, users: list[int], guesses: Flags, popular: Flags) -> Score:
    """Score the guesses beside those from popularity alone, or the more frequent answer, if it is right more often."""
    rated = {user: np.isin(told.items, scene.truth.ratings[user_name(user)].items) for user in users}
    hits = [(guesses[row] == rated[user]).astype(np.float64) for row, user in enumerate(users)]
    blind = [(popular[row] == rated[user]).astype(np.float64) for row, user in enumerate(users)]
    usual = np.mean(list(rated.values())) > 0.5
    constant = [(rated[user] == usual).astype(np.float64) for user in users]
    lucky = max(blind, constant, key=lambda each: sum(map(np.sum, each)))
    return score(hits, lucky, generator(scene.case, "counts over time", *scene.members))


def _finding(scene: Scene, result: Score) -> Finding:
    title = (
        f"From counts that change as others come and go, {scene.together} guessed which items they rated: "
        f"{result.accuracy:.1%} of {counted(result.targets, 'pair')} right, {result.chance:.1%} by popularity alone."
    )
    evidence = (
        "Each change of a count for an item of a member against the times at which a user came and went, which the "
        f"members are given ({counted(result.groups, 'user')} who did), with the item's popularity as prior. Chance: "
        "popularity alone, or the more frequent answer, whichever is right more often." + scene.extent
    )
    measured = {"accuracy": result.accuracy, "interval": list(result.interval), "pairs": result.targets,
                "users": result.groups}  # fmt: skip
    return Finding("counts-over-time", title, scene.members, "weak" if result.above_chance else "info",
                   "declared: how many contributors each item needs", measured, {"accuracy": result.chance},
                   result.words, evidence)  # fmt: skip


def _nothing(scene: Scene) -> Finding:
    title = f"No count that {scene.together} was told changed with anybody's coming or going."
    return Finding("counts-over-time", title, scene.members, "info", None, {"pairs": 0}, None, "exact",
                   f"Looked for in the counts of its items.{scene.extent}")  # fmt: skip
