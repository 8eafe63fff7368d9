"""Re-identify a user among the supports that a server sees, from a few items that the user is known to have rated.

Each user is a row of items to the server, whatever name it goes by. Somebody who knows a few items of a person (from a
public profile, or by having watched films together) looks for the row that holds them, rare items weighing more
(Narayanan and Shmatikov 2008). All other items of that row are then those of the person.
"""

from __future__ import annotations

import numpy as np

from protocol.arrays import Ids, Vector
from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_index
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.support import supports_seen
from sim.audit.findings import Finding
from sim.audit.scoring import Score, generator, score
from sim.console.console import counted

KNOWN = (1, 2, 4, 8)  # items that are known of a user
HEADLINE = 4
MOST_TARGETS = 500  # users that are looked for


def attack_identity(scene: Scene) -> list[Finding]:
    servers = (server for server in (RECOMMENDER, THIRD_PARTY) if server in scene.members)
    return [finding for server in servers for finding in _attack(scene, server)]


def identify(known: Ids, raters: dict[int, Ids], n_users: int) -> Vector:
    """Return the probability with which each user is named as the one who rated the `known` items."""
    scores = np.zeros(n_users)
    for item in map(int, known):
        users = raters.get(item)
        if users is not None:
            scores[users] += 1 / np.log1p(len(users))
    best = scores >= scores.max() * (1 - 1e-9)
    named: Vector = best / best.sum()
    return named


def raters_seen(scene: Scene, server: str) -> dict[int, Ids]:
    """Map each item to the users that named it to `server`."""
    found: dict[int, list[int]] = {}
    for user, items in supports_seen(scene, server).items():
        for item in items:
            found.setdefault(item, []).append(user)
    return {item: np.array(users, np.uint32) for item, users in found.items()}


def _attack(scene: Scene, server: str) -> list[Finding]:
    raters, n_users = raters_seen(scene, server), scene.params.n_users
    if not raters:
        return []
    tries = {known: found for known in KNOWN if (found := _tried(scene, server, known, raters, n_users))}
    if not tries:
        return []
    headline = HEADLINE if HEADLINE in tries else max(tries)
    best = tries[headline]
    title = (
        f"{counted(headline, 'item')} known of a user single it out among the {n_users} supports that "
        f"the {server.replace('_', ' ')} sees: {best.accuracy:.1%} are named rightly, {best.chance:.1%} by chance."
    )
    measured = {"accuracy": best.accuracy, "interval": list(best.interval), "users": best.targets,
                "by_known_items": {str(known): each.accuracy for known, each in tries.items()}}  # fmt: skip
    evidence = (
        f"For each of {counted(best.targets, 'user')} with more items than that, {headline} of them, drawn by the run "
        f"id, against the supports in {scene.case.file(server)}: the row with the greatest Σ 1/ln(1 + raters) over the "
        "known items is named, and of several equal ones each with the same probability."
    )
    return [Finding("support", title, scene.members, "weak" if best.above_chance else "info",
                    "declared: which items each user rated", measured, {"accuracy": best.chance}, best.words,
                    evidence)]  # fmt: skip


def _tried(scene: Scene, server: str, known: int, raters: dict[int, Ids], n_users: int) -> Score | None:
    """Look for users of whom `known` of their items are known, one draw each; None if nobody has more than these."""
    rng = generator(scene.case, "identity", server, str(known))
    own = {user_index(name): given.items for name, given in sorted(scene.truth.ratings.items())}
    enough = sorted(user for user, items in own.items() if len(items) > known)
    chosen = sorted(rng.permutation(enough)[:MOST_TARGETS].tolist())
    if not chosen:
        return None
    named = [identify(rng.choice(own[user], known, replace=False), raters, n_users)[user] for user in chosen]
    hits, lucky = [np.array([each]) for each in named], [np.array([1 / n_users])] * len(named)
    return score(hits, lucky, generator(scene.case, "bootstrap identity", server, str(known)))
