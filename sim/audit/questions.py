"""The seven questions of an audit: what is asked of the views to answer each, imported when it is first asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.audit import inventory, scoring
from sim.audit.accounting import account, data_pair, neighbours, noise_test
from sim.audit.algebra import solve as algebra
from sim.audit.algebra.knowledge import Library
from sim.audit.answers import not_shown
from sim.audit.attacks.attack import attack
from sim.audit.canary import empirical
from sim.audit.canary.canary_cache import cached_canary
from sim.audit.canary.own_run import OWN_CONFIDENCE, add_own
from sim.audit.families.registry import family_of
from sim.audit.pairs import pairs, tapes
from sim.audit.uniformity import indistinguishable, uniformity
from sim.audit.victims import known_of_users
from sim.console.console import counted
from sim.views.evidence import Case

if TYPE_CHECKING:
    from sim.audit.audit import Audit

FLIPS_IN_PASSING = 20  # ratings flipped in users' roles by a quick audit, to measure their sensitivity
MOST_IN_PASSING = 500_000  # of them, at the end of a run: some seconds
MOST_NUMBERS = 2_000_000  # numbers in whole vectors that the algebra follows: a minute or two
# upper bounds on the probability of calling a correct run beyond its claims; exact answers never err
FALSE_ALARMS = {
    "attacks": scoring.LEVEL,
    "accounting": 2 * noise_test.FALSE_ALARM,  # two tests: sums' noise, and users' randomized ratings
    "pairs": tapes.FALSE_ALARM,
    "empirical": (1 - empirical.CONFIDENCE) + (1 - OWN_CONFIDENCE),
    "statistics": uniformity.LEVEL + indistinguishable.LEVEL,
}


def _ask_algebra(live: Audit) -> list[dict[str, Any]] | None:
    kept, case = live.kept, live.case
    if live.part and (first := family_of(case.card.scheme).numbers_at_first(case)) > MOST_IN_PASSING:
        words = f"Users sent {first} numbers in the first round: keyhole audit may follow them, a run's end does not."
        kept.unanswered["algebra"] = words
        return None
    if live.part:
        kept.solved = (
            algebra.solve_servers(case, until=1)
            if live.part == 1
            else algebra.solve(case, (), live.colluders, live.tell, algebra.library_of(case, live.part))
        )
        live.add((None, algebra.findings(case, kept.solved)))
        return [algebra.row(one) for one in kept.solved]
    if (numbers := numbers_of(case)) > MOST_NUMBERS and family_of(case.card.scheme).sample(case) is None:
        kept.unanswered["algebra"] = (
            f"Users of this run sent {numbers} numbers, and the algebra follows {MOST_NUMBERS} at most: run it with "
            "fewer users or items to have it answered."
        )
        return None
    if kept.solved:
        library = live.library
        new = [algebra.solve_one(case, library, members, extra=True) for members in live.new_coalitions]
    else:
        kept.drop("attacks")  # the coalitions chosen here decide which attacks are tried
        extra = [*kept.extra, *live.new_coalitions]
        library = live.library
        new = algebra.solve(case, extra, live.colluders, live.tell, library)
        pairs, kept.party_pairs = algebra.solve_pairs(case, library, new)
        new += pairs
        kept.unshown["algebra"] = _unfollowed(library)
    kept.solved += new
    live.add((None, algebra.findings(case, new)))
    return [algebra.row(one) | known_of_users(one, live.names) for one in kept.solved]


def _unfollowed(library: Library) -> list[dict[str, Any]]:
    """Name every field with numbers whose form the algebra does not know, and keys of unknown origin."""
    keys = len(library.keys.unexplained)
    words = f"{counted(keys, 'key')} of masks follow from no tape in a way that can be followed: whoever else can make "
    rows = [not_shown.row("algebra", f"{words}them is not known.")] if keys else []
    return rows + [
        not_shown.row(
            "algebra",
            f"{one.kind}.{one.field} of the {one.sender.replace('_', ' ')} cannot be followed, in "
            f"{counted(one.messages, 'message')}: its numbers were made by other means than the ring, or are products.",
            [one.receiver],
        )
        for one in library.hearing.unfollowed
    ]


def numbers_of(case: Case) -> int:
    """Count the numbers that users send in whole vectors; 0 in schemes that send only a few per rating."""
    return family_of(case.card.scheme).numbers_of(case)


def _ask_inventory(live: Audit) -> Any:
    servers = live.case.card.scheme.servers
    rows = live.add(inventory.take(live.case, servers if live.part == 1 else None))
    live.kept.unshown["inventory"] = not_shown.disturbances(live.case, live.part, rows)
    return rows


def _ask_attacks(live: Audit) -> Any:
    """Attack with every coalition of the algebra; without it, with those that need no algebra to be chosen."""
    kept, known = live.kept, "attacks" in live.kept.seconds
    default = [*live.without_algebra(), *kept.extra]
    everyone = list(dict.fromkeys([*([one.members for one in kept.solved] or default), *live.new_coalitions]))
    new = [members for members in everyone if not known or members in live.new_coalitions]
    live.add((None, attack(live.case, everyone, new, live.truth(everyone))))
    found = kept.findings.get("attacks", [])
    if not found:
        kept.idle["attacks"] = "No attack that is known applies to this scheme."
    return [{"id": finding.id, "coalition": list(finding.coalition)} for finding in found]


def _ask_accounting(live: Audit) -> Any:
    document = _with_curve(live, live.add(account.account(live.case)))
    moved = live.add(neighbours.sensitivity(live.case, FLIPS_IN_PASSING if live.part else None))
    if "composed" not in document and not moved:
        live.kept.idle["accounting"] = str(document.get("method", "Nothing is claimed."))
    pair = None if live.part else live.add(data_pair.data_pair(live.case))
    return {**document, "sensitivity": moved, "data_pair": pair}


def _with_curve(live: Audit, document: dict[str, Any]) -> dict[str, Any]:
    """Complete the points of the curve by what they are to a party without the envelopes; a quick audit has none."""
    if "curve" not in document:
        return document
    points = [] if live.part else document["curve"]
    family, params = family_of(live.case.card.scheme), live.case.card.params
    curve = [point | family.composed(params, point["releases"]) for point in points]
    return {**document, "curve": curve}


def _ask_pairs(live: Audit) -> Any:
    if "accounting" not in live.kept.seconds:  # else it has asked for the data pair already
        live.add(data_pair.data_pair(live.case))
    return live.add(pairs.ask_pairs(live.case, live.pairs))


def _ask_empirical(live: Audit) -> Any:
    document, found = cached_canary(live.case, live.repetitions, live.fresh, live.tell)
    document = live.add(add_own(live.case, live.canaries, document, found))
    if not document["rows"]:
        live.kept.idle["empirical"] = document["note"]
    return document


def _ask_statistics(live: Audit) -> Any:
    uniform = live.add(uniformity.uniformity(live.case))
    compared = live.add(indistinguishable.compare(live.case))
    if not uniform["tests"] and not compared["comparisons"]:
        live.kept.idle["statistics"] = " ".join(dict.fromkeys([*uniform["notes"], *compared["notes"]]))
    return {"uniformity": uniform, "ideal_against_real": compared}


ASK: dict[str, Callable[[Audit], Any]] = {
    "inventory": _ask_inventory,
    "algebra": _ask_algebra,
    "attacks": _ask_attacks,
    "accounting": _ask_accounting,
    "pairs": _ask_pairs,
    "empirical": _ask_empirical,
    "statistics": _ask_statistics,
}
