"""An empirical lower bound on ε, from thousands of repetitions of a canary through the roles of a scheme.

A bound above the claim shows that the claim does not hold for that party. A bound below it shows nothing more than
itself: each row says what its repetitions would show of a mechanism that keeps exactly its claim (`attainable`), and of
a mechanism that hides nothing (`certifiable`). It is looked at several times, and ends early where the verdict is known
(`looks.py`).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from typing import Any

from protocol.errors import BadInput
from protocol.params import Params
from protocol.schemes.base import DELTA, Scheme
from sim.audit.canary.bound_rows import ALONE, CONFIDENCE, Asked, BoundRow, findings_of, is_beyond
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.canary.looks import Look, look_until, looks_document, looks_of
from sim.audit.families.registry import family_of
from sim.audit.findings import Finding
from sim.console.progress import Tell
from sim.views.evidence import Case

__all__ = ["CONFIDENCE", "findings_of", "measure"]

REPETITIONS = 20_000
LEAST_REPETITIONS = 400  # of the largest arm: fewer could not show any fault of interest


def measure(
    case: Case | None,
    scheme: Scheme,
    params: Params | None = None,
    *,
    epsilon: float | None = None,
    repetitions: int = REPETITIONS,
    seed: bytes | None = None,
    workers: int | None = None,
    confidence: float = CONFIDENCE,
    tell: Tell = lambda done, total: None,
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the `empirical` part of an audit and its findings; ε, options and seed default to those of the run."""
    if repetitions < LEAST_REPETITIONS:
        raise BadInput(f"An empirical bound needs {LEAST_REPETITIONS} repetitions or more, not {repetitions}.")
    params = case.card.params if case is not None and params is None else params
    claim = epsilon if epsilon is not None else (math.inf if params is None else params.epsilon)
    if "epsilon" not in scheme.flags or math.isinf(claim):
        return _nothing("Nothing is claimed (no ε), so nothing is measured.")
    looks, played, problem = looks_of(repetitions), dict[Any, Any](), dict[str, Any]()
    seed = seed or hashlib.sha256(case.card.run_id if case is not None else scheme.name.encode()).digest()
    began = time.perf_counter()

    def rows_at(look: Look) -> list[BoundRow]:
        levels = look.confidence(confidence), look.confidence(ALONE)
        asked = Asked(scheme, params, claim, look.repetitions, seed, workers, levels[0], tell, levels[1], played)
        rows, about = family_of(scheme).measure(asked)
        problem.update(about)
        return rows

    try:
        rows, made, refuted = look_until(looks, rows_at, lambda rows: any(is_beyond(row, scheme) for row in rows))
    except CannotBeMeasured as refusal:
        return _nothing(str(refusal))
    document = _document(rows, problem, claim, repetitions, confidence, time.perf_counter() - began)
    document["looks"] = looks_document(made, looks, confidence, refuted)
    return document, findings_of(rows, confidence)


def _nothing(note: str) -> tuple[dict[str, Any], list[Finding]]:
    return {"problem": None, "claimed": None, "repetitions": 0, "rows": [], "looks": None, "note": note}, []


def _document(
    rows: Sequence[BoundRow], problem: dict[str, Any], claim: float, repetitions: int, confidence: float, seconds: float
) -> dict[str, Any]:
    played = {id(row.observed): row.observed for row in rows}.values()  # several rows may share repetitions
    total = sum(len(observed) for observed in played)
    processor = sum(observed.seconds for observed in played)
    return {
        "problem": problem | {"epsilons": sorted({row.problem.params.epsilon for row in rows})},
        "claimed": claim,
        "repetitions": repetitions,
        "repetitions_in_all": total,
        "repetitions_per_second": total / seconds,
        "repetitions_per_processor_second": total / processor,
        "seconds": seconds,
        "confidence": confidence,
        "method": "jointly over all rows and looks (Bonferroni). Where the claimed law is known: the one-run theorem "
        "for guesses of what the likelihood ratio is surest of, or, where Gaussian noise is claimed, the noncentral t "
        "of the means; a tenth of the error goes to a line. Else the line alone: Clopper–Pearson limits of both rates, "
        "the line chosen on the other half of the repetitions, or 0 where Gaussian noise is claimed",
        "delta": DELTA,
        "certifiable": max(row.bound.certifiable for row in rows),
        "rows": [row.document() for row in rows],
    }
