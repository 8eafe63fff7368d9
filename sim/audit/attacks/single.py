"""Sums of one contributor: the recommender releases them like any other, and each is one user's noisy gradient."""

from __future__ import annotations

import numpy as np

from protocol.arrays import Counts, Ids
from protocol.party.role import RECOMMENDER, user_index
from sim.audit.attacks.coalition_views import Scene
from sim.audit.findings import Finding


def contributor_counts(scene: Scene) -> list[tuple[Ids, Counts]]:
    """Count, from the recommender's view, the contributors to each released item, in every iteration."""
    supports: dict[int, Ids] = {}
    contributors: dict[int, Ids] = {}
    released: dict[int, Ids] = {}
    answered: dict[int, set[int]] = {}
    for seen in scene.exhibits.received(RECOMMENDER):
        kind, message = type(seen.message).__name__, seen.message
        if kind == "Join":
            supports[user_index(seen.sender)] = message.items
        elif kind == "Contributors":
            contributors[seen.iteration] = message.users
        elif kind == "MaskedTotal":
            released[seen.iteration] = message.items
        elif kind in ("NoisyGradient", "Gradient"):
            answered.setdefault(seen.iteration, set()).add(user_index(seen.sender))
    contributors |= {t: np.array(sorted(users), np.uint32) for t, users in answered.items()}
    found = []
    for t, users in sorted(contributors.items()):
        named = [supports.get(int(user), np.zeros(0, np.uint32)) for user in users]
        counts = np.bincount(np.concatenate([np.zeros(0, np.uint32), *named]), minlength=scene.params.n_items)
        moved = np.flatnonzero(counts).astype(np.uint32)
        items = moved if t in answered else released.get(t, moved[:0])
        found.append((items, counts[items]))
    return found


def attack_single(scene: Scene) -> list[Finding]:
    rounds = contributor_counts(scene)
    sums = sum(len(items) for items, _ in rounds)
    if not sums:
        return []
    alone = [items[counts == 1] for items, counts in rounds]
    single, items = sum(map(len, alone)), len(np.unique(np.concatenate(alone)))
    measured = {"items": items, "sums": single, "fraction_of_sums": single / sums}
    learned = f"that user's {scene.noisy}gradient, not an aggregate"
    if single:
        title = f"{single} of {sums} released sums ({single / sums:.1%}) have one contributor: each is {learned}."
    else:
        title = f"None of {sums} released sums has a single contributor."
    evidence = (
        f"Counted in the recommender's view over all {len(rounds)} iterations: who joined with which items, who "
        f"contributed, which items were released (min_contributors is {scene.params.min_contributors})."
    )
    return [Finding("single-contributor", title, scene.members, "weak" if single else "info",
                    "a released sum is an aggregate", measured, None, "exact", evidence)]  # fmt: skip
