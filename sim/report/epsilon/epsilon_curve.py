"""ε after t iterations, for a few t: to a party without the envelopes, and to the recommender, which knows them.

It is computed with the functions of the audit and the summary, so that the last point is their figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.tape import Tape, exponential
from protocol.errors import BadInput
from protocol.party.role import RECOMMENDER
from protocol.schemes.base import DELTA
from protocol.schemes.composition import (
    accounted_items,
    advanced_composition,
    basic_composition,
    recommender_epsilons,
    tight_laplace,
)
from protocol.schemes.factorization.masked import MaskedRecommender
from sim.audit.accounting.account import seeded
from sim.audit.accounting.envelope_sums import EnvelopeSums
from sim.audit.accounting.releases import RecommenderReading
from sim.plan.plan import make_plan
from sim.report.reported_run import ReportedRun
from sim.views.evidence import Case

POINTS = 9  # the tight figure takes up to half a second each

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
    composed = (run.audit.get("accounting") or {}).get("composed") or {}
    accounted = run.summary["privacy"]["accounted"]
    if isinstance(composed.get("tight"), float) and "basic" in composed:
        if "all_releases" in run.audit["accounting"]:
            return _from_view(run.case)
        return _of_uploads(run, int(composed["releases"]))
    if isinstance(accounted.get("tight"), float) and "recommender" in accounted:
        return _expected(run.case)
    if isinstance(accounted.get("tight"), float) and "basic" in accounted:
        return _of_uploads(run, int(accounted["releases"]))
    return str(accounted["method"])


def chosen(iterations: int, most: int = POINTS) -> list[int]:
    """Choose at most `most` of 1 … T = `iterations`, evenly by their logarithms; all of them if they are few."""
    if iterations <= most:
        return list(range(1, iterations + 1))
    return sorted({round(float(t)) for t in np.geomspace(1, iterations, most)})


def _of_uploads(run: ReportedRun, releases: int) -> EpsilonCurve:
    """Compute the curve to the recommender, which does not know the noise of an upload."""
    params = run.params
    return EpsilonCurve([_without(params.epsilon, params.dim, t, t) for t in chosen(releases)], UPLOADS)


def _without(claim: float, dim: int, iterations: int, releases: int, **known: float | None) -> EpsilonPoint:
    """Compute a point to a party without the envelopes; `known` are the figures to the recommender."""
    basic, advanced = basic_composition(claim, releases), advanced_composition(claim, releases, DELTA)
    tight = tight_laplace(claim, dim, releases, DELTA) if releases else 0.0
    return EpsilonPoint(iterations, releases, basic, advanced, tight, **known)


def _from_view(case: Case) -> EpsilonCurve:
    """Compute the curve from the sums that were released, with the contributors that they had."""
    reading, params = RecommenderReading(case), case.card.params
    role, wanted = reading.role, set(chosen(params.iterations))
    assert isinstance(role, MaskedRecommender)
    ledger, points, ended = None, [], 0
    for release in reading.releases():
        ledger = ledger or EnvelopeSums(params, role.supports, seeded(case, "accounting"))
        mine, places = ledger.pick(release)
        keys = [role.item_keys[item] for item in release.items[mine]]
        envelope = exponential(keys, params.dim, "rho", release.iteration).astype(np.float64)
        ledger.add(release, mine, places, envelope)
        ended = release.iteration + 1
        if ended in wanted:
            points.append(_ledger_point(ledger, ended))
    assert ledger is not None, "the audit has accounted releases"
    if not points or points[-1].iterations != ended:  # the run stopped between two of them
        points.append(_ledger_point(ledger, ended))
    return EpsilonCurve(points, IN_VIEW, int(ledger.inverse.any(axis=1).sum()))


def _ledger_point(ledger: EnvelopeSums, ended: int) -> EpsilonPoint:
    composed, even = ledger.composed(), ledger.directions_of(ledger.inverse).get("even", {})
    known = {name: even.get(name) for name in ("median", "worst")}
    return EpsilonPoint(
        ended, composed["releases"], *(composed[name] for name in ("basic", "advanced", "tight")), **known
    )


def _expected(case: Case) -> EpsilonCurve | str:
    """Compute the curve without a view: envelopes follow from the seed, every item counts as released each time."""
    params = case.card.params
    try:
        plan = make_plan(case.config, case.nonce, case.card.simulation)
    except BadInput as error:
        return f"The recommender kept no view, and the data that the run was made from is not at hand. {error}"
    tape = Tape(case.tape_seed(RECOMMENDER))
    items, _ = accounted_items(params, tape, plan.shape.raters)
    keys: list[Any] = [tape.key("item", int(item)) for item in items]
    sums, points, wanted = np.zeros((len(keys), params.dim)), [], set(chosen(params.iterations))
    for iteration in range(params.iterations):
        sums += 1 / exponential(keys, params.dim, "rho", iteration).astype(np.float64)
        if iteration + 1 in wanted:
            known = recommender_epsilons(params, sums, DELTA)
            picked = {name: known[name] for name in ("median", "worst")}
            points.append(_without(params.epsilon, params.dim, iteration + 1, iteration + 1, **picked))
    return EpsilonCurve(points, EXPECTED, len(keys))
