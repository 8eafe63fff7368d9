"""The curve of ε without the recommender's view: envelopes follow from the seed, every item is released each time."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.arithmetic.tape import Tape, exponential
from protocol.errors import BadInput
from protocol.party.role import RECOMMENDER
from protocol.schemes.base import DELTA
from protocol.schemes.composition import accounted_items, composed, recommender_epsilons
from protocol.schemes.factorization.factorization import MaskedParams
from sim.audit.accounting.curve_points import EXPECTED, EpsilonCurve, EpsilonPoint, curve_iterations
from sim.plan.plan import make_plan
from sim.views.evidence import Case


def expected_curve(case: Case) -> EpsilonCurve | str:
    """Compute the curve without a view, or say what is missing for it."""
    params = MaskedParams.of(case.card.params)
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
