"""Honest runs on all real ratings stay inside the bounds of factors and envelopes. Skipped without ml-100k."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.party.role import RECOMMENDER
from sim.data.ratings import find
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k"
    ),
]


@pytest.mark.parametrize(("epsilon", "first"), [(0.1, 0.28), (1.0, 0.64), (8.0, 0.75)])
def test_honest_factors_stay_far_inside_the_bound(epsilon, first):
    """They come nearest in the first iteration: from then on the bound grows faster than they do."""
    given = {"scheme": "masked", "data": "ml-100k", "epsilon": epsilon, "iterations": 4, "seed": 1}
    plan = make_plan(RunConfig(**given, transport="inprocess", views="none"))
    driver = InProcess(plan.card, plan.seats())
    role, shares = driver.parties[RECOMMENDER].role, []
    move = role.move

    def moved(items, sums):
        move(items, sums)
        lengths = np.linalg.norm(role.item_factors, axis=1)
        shares.append(float((lengths / role.reach.lengths(role.iteration + 1, role.reach_raters())).max()))

    role.move = moved
    outcome = driver.run()
    assert outcome.abort is None and not outcome.rejected and not outcome.figures.get("struck")
    assert len(shares) == 4 and max(shares) == shares[0] < first
