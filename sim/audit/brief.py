"""The verdict printed at the end of a run: only what can be answered quickly. `keyhole audit` asks all questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.party.view import Broken
from sim.audit.attacks.attack import guess_ratings
from sim.audit.audit import Audit, numbers_of
from sim.audit.verdict import FEW
from sim.views.evidence import Case

MOST_NUMBERS = 40_000  # ratings times iterations: a second or two
MOST_IN_VECTORS = 200_000  # numbers that users send in whole vectors: a few seconds
QUICK = ("inventory", "algebra", "accounting")
NOISY = "noisy-individual"
OF_SERVERS = ("inventory", "accounting")  # questions that the servers' views alone can answer


def brief(summary: dict[str, Any]) -> dict[str, Any] | str:
    """Return the document of the quick questions, or a sentence that says why there is no audit.

    Only the first iterations of a large run are covered.
    """
    run = Path(summary["run"])
    try:
        live = Audit(run)
        whole = all(live.case.path(party).is_file() for party in live.case.parties)
        part = part_of(live.case, summary)
        document = live.ask(only=QUICK if whole else OF_SERVERS, part=part)
        if whole and part != 1:
            _add_guesses(document, live.case, part or summary["iterations"])
        return document
    except (BadInput, Broken) as reason:
        return f"Not audited: {reason}"


def _add_guesses(document: dict[str, Any], case: Case, iterations: int) -> None:
    """Add to the servers' row the share of ratings that can be guessed from one noisy gradient each."""
    for row in document["parties"] or ():
        if row["determines"] == NOISY and set(row["members"]) == set(case.card.scheme.servers):
            for finding in guess_ratings(case, tuple(row["members"]), iterations):
                found, chance = finding.measured, finding.chance
                if isinstance(found, dict) and isinstance(chance, dict) and found.get("ratings", 0) >= FEW:
                    guessed, blind = found["accuracy"], chance["accuracy"]
                    row["measured"] = [f"from one each {guessed:.0%} of ratings are guessed, blindly {blind:.0%}"]


def part_of(case: Case, summary: dict[str, Any]) -> int | None:
    """Return the number of iterations that can be audited quickly; None means all of them."""
    fitting: int = max(1, MOST_NUMBERS // max(1, summary["ratings"]["train"]))
    if fitting < summary["iterations"]:
        return fitting
    return 1 if numbers_of(case) > MOST_IN_VECTORS else None
