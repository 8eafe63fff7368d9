"""ε after t iterations, for a few t: to a party without the envelopes, and to the recommender, which knows them.

It is computed with the functions of the audit and the summary, so that the last point is their figure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.tape import Tape, exponential
from protocol.errors import BadInput
from protocol.party.role import RECOMMENDER
from protocol.schemes.base import DELTA
from protocol.schemes.composition import accounted_items, recommender_epsilons
from sim.audit.families.masked.envelope_sums import composed, curve_iterations
from sim.plan.plan import make_plan
from sim.report.reported_run import Document, ReportedRun
from sim.views.evidence import Case

IN_VIEW = "view"
EXPECTED = "expected"
UPLOADS = "uploads"


@dataclass(frozen=True, slots=True)
class EpsilonPoint:
    iterations: int  # that have ended
    releases: int  # sums that hold the rating that is in the most sums
    basic: float
    advanced: float
    tight: float
    median: float | None = None  # to the recommender, over the items
    worst: float | None = None


@dataclass(frozen=True, slots=True)
class EpsilonCurve:
    points: list[EpsilonPoint]
    source: str  # IN_VIEW, EXPECTED or UPLOADS
    items: int = 0  # over which the recommender's figures are


def curve_of(run: ReportedRun) -> EpsilonCurve | str:
    """Compute the curve, or say why there is no curve: nothing is released repeatedly, or nothing bounds it."""
    figures = (run.audit.get("accounting") or {}).get("composed") or {}
    accounted = run.summary["privacy"]["accounted"]
    if isinstance(figures.get("tight"), float) and "basic" in figures:
        if "curve" in run.audit["accounting"]:
            return _from_view(run.audit["accounting"])
        return _of_uploads(run, int(figures["releases"]))
    if isinstance(accounted.get("tight"), float) and "recommender" in accounted:
        return _expected(run.case)
    if isinstance(accounted.get("tight"), float) and "basic" in accounted:
        return _of_uploads(run, int(accounted["releases"]))
    return str(accounted["method"])


def _of_uploads(run: ReportedRun, releases: int) -> EpsilonCurve:
    """Compute the curve to the recommender, which does not know the noise of an upload."""
    params: Any = run.params
    points = [EpsilonPoint(iterations=t, **composed(params, t)) for t in curve_iterations(releases)]
    return EpsilonCurve(points, UPLOADS)


def _from_view(accounting: Document) -> EpsilonCurve:
    """Take the curve from the audit: of the sums that were released, with the contributors that they had."""
    points = [EpsilonPoint(**dict(zip(row, map(_number, row.values()), strict=True))) for row in accounting["curve"]]
    return EpsilonCurve(points, IN_VIEW, accounting["all_releases"]["even"]["items"])


def _number(value: Any) -> Any:
    return math.inf if value == "inf" else value


def _expected(case: Case) -> EpsilonCurve | str:
    """Compute the curve without a view: envelopes follow from the seed, every item counts as released each time."""
    params: Any = case.card.params
    try:
        plan = make_plan(case.config, case.nonce, case.card.simulation)
    except BadInput as error:
        return f"The recommender kept no view, and the data that the run was made from is not at hand. {error}"
    tape = Tape(case.tape_seed(RECOMMENDER))
    items, _ = accounted_items(params, tape, plan.shape.raters)
    keys: list[Any] = [tape.key("item", int(item)) for item in items]
    sums, points, wanted = np.zeros((len(keys), params.dim)), [], curve_iterations(params.iterations)
    for iteration in range(params.iterations):
        sums += 1 / exponential(keys, params.dim, "rho", iteration).astype(np.float64)
        if iteration + 1 in wanted:
            known = recommender_epsilons(params, sums, DELTA)
            figures = composed(params, iteration + 1)
            points.append(EpsilonPoint(iteration + 1, **figures, median=known["median"], worst=known["worst"]))
    return EpsilonCurve(points, EXPECTED, len(keys))
