"""The worst of all pairs of `masked` on all real ratings, beside what is accounted. Skipped without ml-100k."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from protocol.party.role import RECOMMENDER
from protocol.schemes.composition import gaussian_epsilon
from sim.audit.families.registry import family_of
from sim.audit.pairs.twice import run_twice
from sim.audit.truth import all_ratings
from sim.data.ratings import find
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.views.evidence import open_case

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k"
    ),
]


def test_pairs_are_near_the_accounting_where_factors_stay_and_far_above_it_where_they_react(tmp_path):
    flags = {"data": "ml-100k", "epsilon": 1.0, "test_fraction": 0.0, "seed": 1, "transport": "inprocess"}
    run(RunConfig(scheme="masked", dim=10, iterations=20, **flags), out=tmp_path / "run")
    case = open_case(tmp_path / "run")
    exposure, ratings, recommender = family_of(case.card.scheme).exposure(case), all_ratings(case), (RECOMMENDER,)

    item = exposure.accounted_order(recommender)[0]
    worst = exposure.worst(recommender, ratings, item)
    upper = exposure.accounted(recommender, worst.change)["accounted_counted_worst_direction"]
    assert worst.complete and upper / 2 < gaussian_epsilon(worst.mu) < upper

    of_all = exposure.worst(recommender, ratings)
    assert of_all.complete and of_all.pairs == 100_000 and of_all.tried < 5_000
    roles = exposure.loss(recommender, run_twice(case, of_all.change))
    assert roles.mu == pytest.approx(of_all.mu, rel=1e-3)
    for course in exposure.every.courses.values():  # any other two ratings of the scale
        left = np.flatnonzero(course.bounds > of_all.mu)
        for two in itertools.combinations((1.0, 2.0, 3.0, 4.0, 5.0), 2) if len(left) else ():
            assert course.losses(left, two).max() <= of_all.mu * (1 + 1e-9)
    assert roles.epsilon > 10 * exposure.accounted(recommender, of_all.change)["accounted_counted_worst_direction"]
