"""Run every attack that a coalition can try on its own views."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import BadInput
from sim.audit import truth
from sim.audit.attacks.coalition_views import Scene, Truth, iterations_attacked
from sim.audit.attacks.inference import attack_inference
from sim.audit.findings import Finding
from sim.folder.folder import view_name
from sim.views.evidence import Case


def attack(
    case: Case,
    coalitions: Sequence[tuple[str, ...]],
    now: Sequence[tuple[str, ...]] | None = None,
    shared: Truth | None = None,
) -> list[Finding]:
    """Collect the findings of each coalition in turn; raise `BadInput` if a member is no party or kept no view.

    `now` are the coalitions that attack now (None: all); the others have done so before. `shared` is the truth that
    they are scored against.
    """
    alone = sum(len(members) == 1 for members in coalitions)
    shared = shared or Truth(case, iterations_attacked(case.card.params), alone)
    if not truth.known_users(case):
        raise BadInput(f"{case.folder} has no view of a user to score attacks against: run it with --views full.")
    findings = []
    for members in coalitions if now is None else now:
        for member in members:
            if member not in case.party_set:
                raise BadInput(f"{case.folder} has no party {member}: the names are in {case.folder}/views.")
            view_name(case.folder, member)
        scene = Scene(case, tuple(members), shared)
        apart = members if len(members) == 1 else [name for name in members if (name,) not in coalitions]
        findings += attack_by(scene, frozenset(apart))
    return findings


def guess_ratings(case: Case, members: tuple[str, ...], iterations: int) -> list[Finding]:
    """Guess ratings from one gradient each, of the first `iterations`: the only attack of a quick audit."""
    scene = Scene(case, members, Truth(case, min(iterations, iterations_attacked(case.card.params))))
    return attack_inference(scene) if scene.masks or scene.uploads_openly else []


def attack_by(scene: Scene, apart: frozenset[str]) -> list[Finding]:
    """Attack by one coalition; `apart` are its members that are not asked alone, so that it makes their attacks."""
    return [finding for run in scene.family.attacks(scene, apart) for finding in run(scene)]
