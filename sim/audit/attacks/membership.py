"""Participation in an iteration, and in a sum: certain to servers; to users, what counts tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.arrays import Floats
from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_index
from sim.audit import truth
from sim.audit.attacks.coalition_views import Scene
from sim.audit.attacks.isolating import learned
from sim.audit.findings import Finding, Severity
from sim.audit.scoring import Score, clopper_pearson, generator, score

_KINDS = {RECOMMENDER: ("Contributors", "NoisyGradient", "Gradient"), THIRD_PARTY: ("MaskedGradient",)}


def seen_taking_part(scene: Scene, server: str) -> set[tuple[int, int]]:
    """Collect the pairs (user, iteration) that `server` was told or saw."""
    found: set[tuple[int, int]] = set()
    for seen in scene.received(server, *_KINDS[server]):
        users = getattr(seen.message, "users", [user_index(seen.sender)])
        found |= {(int(user), seen.iteration) for user in users}
    return found


def attack_presence(scene: Scene) -> list[Finding]:
    """Attack as a server; its certainty is declared, so it is only information."""
    server = RECOMMENDER if scene.has_recommender else THIRD_PARTY
    guessed = seen_taking_part(scene, server)
    pairs = [(user_index(name), t) for name in truth.known_users(scene.case) for t in range(scene.iterations)]
    if not pairs or not guessed:
        return []
    true = np.array([scene.truth.took_part(*pair) for pair in pairs])
    hits = np.array([pair in guessed for pair in pairs]) == true
    share = float(true.mean())
    interval = clopper_pearson(int(hits.sum()), len(hits))
    title = f"The {server.replace('_', ' ')} knows who took part in which iteration ({hits.mean():.1%} right)."
    measured = {"accuracy": float(hits.mean()), "pairs": len(hits)}
    sent = {kind.__name__ for kind in scene.case.card.scheme.messages}
    kinds = " and ".join(kind for kind in _KINDS[server] if kind in sent)
    evidence = f"{kinds} in {scene.case.file(server)} against what users sent." + scene.extent
    return [Finding("membership", title, scene.members, "info", "declared: who contributed", measured,
                    {"accuracy": max(share, 1 - share)},
                    f"95 % Clopper–Pearson {interval[0]:.4f} to {interval[1]:.4f}", evidence)]  # fmt: skip


def attack_counts(scene: Scene) -> list[Finding]:
    """Attack as users, from the counts for their own items; they are not told which users are counted."""
    if not scene.truth.is_whole:
        return []
    rated, present = _rated(scene), _present(scene)
    if rated is None:
        return []
    declared = any(leak.receiver == "user" and leak.field == "floors" for leak in scene.case.card.scheme.leakage)
    above = rated.above_chance or (present is not None and present.above_chance)
    measured: dict[str, Any] = {"rated": rated.accuracy, "rated_pairs": rated.targets}
    chance, words = {"rated": rated.chance}, f"rated, {rated.words}"
    title = (
        f"Told only counts, {scene.together} guessed who else rated the same items: {rated.accuracy:.1%} right, "
        f"{rated.chance:.1%} by the base rate."
    )
    if present is not None:
        measured |= {"present": present.accuracy, "present_pairs": present.targets}
        chance["present"] = present.chance
        words += f"; present, {present.words}"
        title = (
            f"Told only counts, {scene.together} guessed whether a known rater of an item took part in an iteration: "
            f"{present.accuracy:.1%} right, {present.chance:.1%} by the base rate."
        )
    evidence = (
        "A count above half of all users says 'rated'; one above half of all raters says 'present'. Chance: the "
        "more frequent answer, always. Groups are items." + scene.extent
    )
    severity: Severity = "weak" if above and not declared else "info"
    claimed = "declared: how many contributors each item needs" if declared else None
    return [Finding("membership", title, scene.members, severity, claimed, measured, chance, words, evidence)]


def _rated(scene: Scene) -> Score | None:
    """Guess whether user X rated item j, for every other user and every item of a member."""
    hits: list[Floats] = []
    lucky: list[Floats] = []
    known, others = learned(scene), [user for user in range(scene.params.n_users) if user not in scene.users]
    answers = {item: np.isin(others, scene.truth.raters[item]) for item, found in known.items() if found.raters}
    if not answers or not others:
        return None
    usual = np.concatenate(list(answers.values())).mean() > 0.5
    for item, true in answers.items():
        inside = len(scene.truth.raters[item]) - int(true.sum())  # members know their own items
        said = (known[item].raters - inside) / len(others) > 0.5
        hits.append((true == said).astype(np.float64))
        lucky.append((true == usual).astype(np.float64))
    return score(hits, lucky, generator(scene.case, "rated", *scene.members))


def _present(scene: Scene) -> Score | None:
    """Guess whether user X, a rater of j, was in the sum of j at t; None if every rater always was."""
    answers: dict[int, tuple[list[bool], list[bool]]] = {}
    for item, found in learned(scene).items():
        others = [user for user in scene.truth.raters[item] if user not in scene.users]
        for t, floor in found.floors.items():
            if t >= scene.iterations or not others:
                continue
            inside = sum(own.iteration == t and item in own.items for user in scene.users
                         for own in scene.stories[user].contributions)  # fmt: skip
            said = (floor - inside) / len(others) > 0.5  # k_j is public, and members know their own items
            true = [scene.truth.took_part(user, t) for user in others]
            kept = answers.setdefault(item, ([], []))
            kept[0].extend([said] * len(true))
            kept[1].extend(true)
    everything = [answer for _, true in answers.values() for answer in true]
    if not everything or all(everything):
        return None
    usual = np.mean(everything) > 0.5
    hits = [np.array([a == b for a, b in zip(said, true, strict=True)], np.float64) for said, true in answers.values()]
    lucky = [np.array([usual == b for b in true], np.float64) for _, true in answers.values()]
    return score(hits, lucky, generator(scene.case, "present", *scene.members))
