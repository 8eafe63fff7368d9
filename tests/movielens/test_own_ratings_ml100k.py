"""One canary per item of all real ratings, in one run. Skipped without ml-100k."""

from __future__ import annotations

import numpy as np
import pytest

from sim.audit.families.factorization.own_ratings import measure_own
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


@pytest.mark.parametrize(
    ("dim", "outsider", "recommender"),  # with more dimensions a rating's shift is spread: no direction shows all of it
    [(1, 0.85, 2.5), (10, 0.25, 1.0)],
)
def test_one_release_of_all_ratings(tmp_path, dim, outsider, recommender):
    flags = {"data": "ml-100k", "epsilon": 1.0, "test_fraction": 0.0, "seed": 1, "transport": "inprocess"}
    run(RunConfig(scheme="masked", dim=dim, iterations=1, **flags), out=tmp_path / "run")
    case, shown = open_case(tmp_path / "run"), []
    for number in range(9):
        rows, own = measure_own(case, 2000, bytes([number]) * 32)
        assert own["canaries"] == 1682 and not rows[0].exceeds
        shown.append([row.alone.epsilon for row in rows])
    median = np.median(shown, axis=0)
    assert outsider < median[0] <= 1 and median[1] > recommender
