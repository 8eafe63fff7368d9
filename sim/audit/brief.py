"""The verdict at the end of a run: what can be said in a moment. `keyhole audit` asks all questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.view import Broken
from sim.audit.audit import audit, numbers_of
from sim.evidence import open_case

MOST_NUMBERS = 60_000  # ratings times iterations: a second or two
MOST_IN_VECTORS = 200_000  # that users send, where they send whole vectors: a few seconds
QUICK = ("inventory", "algebra")


def brief(summary: dict[str, Any]) -> dict[str, Any] | str:
    """The document of the two quick questions, or a sentence that says why there is none."""
    run = summary["run"]
    too_large = f"This run is too large to be audited in passing: keyhole audit {run}"
    if summary["ratings"]["train"] * summary["iterations"] > MOST_NUMBERS:
        return too_large
    try:
        if numbers_of(open_case(Path(run))) > MOST_IN_VECTORS:
            return too_large
        return audit(Path(run), only=QUICK)
    except (BadInput, Broken) as reason:
        return f"Not audited: {reason}"
