"""Run every attack that a coalition can try on its own views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from protocol.errors import BadInput
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from sim.audit import truth
from sim.audit.attacks.coalition_views import Scene, Truth, iterations_attacked
from sim.audit.attacks.difference_guesses import attack_difference
from sim.audit.attacks.inference import attack_inference
from sim.audit.attacks.isolating import attack_by_users, attack_with_recommender
from sim.audit.attacks.membership import attack_counts, attack_presence
from sim.audit.attacks.randomized.perturbed import attack_perturbed
from sim.audit.attacks.single import attack_single
from sim.audit.attacks.support import attack_support
from sim.audit.attacks.unmasked_parts import attack_parts
from sim.audit.attacks.unmasking import attack_alone, attack_together, attack_totals
from sim.audit.findings import Finding
from sim.folder.folder import view_name
from sim.views.evidence import Case

Attack = Callable[[Scene], list[Finding]]


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
    return [finding for run in _applicable(scene, apart) for finding in run(scene)]


def _applicable(scene: Scene, apart: frozenset[str]) -> Iterator[Attack]:
    """Yield the attacks that apply to the coalition.

    Attacks of one server alone are left to that server, unless it is in `apart`, the members that are not asked alone.
    """
    both = scene.has_recommender and scene.has_third_party
    if {RECOMMENDER, THIRD_PARTY} & apart and not scene.invents:
        yield attack_support
    if RECOMMENDER in apart and scene.randomizes:
        yield attack_perturbed
    if both:
        yield attack_parts
    if not (scene.masks or scene.uploads_openly):  # in `trusted` the recommender gets all ratings: see inventory
        return
    if RECOMMENDER in apart:
        yield attack_single
    if scene.members == (RECOMMENDER,) and scene.masks:
        yield attack_totals
    if {RECOMMENDER, THIRD_PARTY} & apart:
        yield attack_presence
    if both or RECOMMENDER in apart or (scene.users and not scene.has_third_party):
        yield attack_inference
    if both and scene.masks:
        yield attack_together
        yield attack_difference
    elif (scene.masks and THIRD_PARTY in apart) or (scene.uploads_openly and RECOMMENDER in apart):
        yield attack_difference
    if scene.masks and THIRD_PARTY in apart and not both:
        yield attack_alone
    if not scene.truth.is_whole or not scene.users or scene.has_third_party:
        return
    if scene.has_recommender and scene.masks:
        yield attack_with_recommender
    elif not scene.has_recommender:
        yield attack_by_users
        yield attack_counts
