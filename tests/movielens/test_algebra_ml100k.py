"""The algebra on all real ratings: what each coalition can work out. Skipped without ml-100k."""

from __future__ import annotations

import pytest

from sim.audit.algebra.solve import findings, solve
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


def solved(folder, scheme, *extra, **flags):
    config = {"data": "ml-100k", "epsilon": 1.0, "test_fraction": 0.0, "seed": 1, "transport": "inprocess", **flags}
    run(RunConfig(scheme=scheme, **config), out=folder)
    case = open_case(folder)
    answers = solve(case, extra)
    assert {finding.severity for finding in findings(case, answers)} == {"weak"}
    return {one.members: one for one in answers}


def test_masked_on_all_ratings(tmp_path):
    found = solved(tmp_path / "run", "masked", iterations=3)
    recommender = found[("recommender",)].answer
    assert (recommender.determines, recommender.smallest_group) == ("aggregate", 2)
    assert (recommender.single_items, recommender.single_contributor_sums) == (141, 3 * 141)
    assert found[("third_party",)].answer.determines == "nothing"
    both = found[("recommender", "third_party")].answer
    assert (both.determines, both.individuals) == ("noisy-individual", 943)
    # 65 users share an item with one other rater and so isolate that user; the others hold sums of two or more users
    users = [one for members, one in found.items() if len(members) == 1 and members[0].startswith("user:")]
    alone = {one.answer.determines: one.stands_for for one in users}
    assert alone["aggregate"] == 878 and alone["noisy-individual"] == 65
    three = next(one.answer for members, one in found.items() if members[0] == "recommender" and len(members) == 4)
    assert three.determines == "noisy-individual" and three.noise_left == pytest.approx({"eta": 0.25, "rho": 0.25})


def test_dynamic_on_all_ratings(tmp_path):
    found = solved(tmp_path / "run", "dynamic", iterations=5)
    recommender, both = found[("recommender",)].answer, found[("recommender", "third_party")].answer
    assert (recommender.determines, recommender.smallest_group) == ("aggregate", 2)
    assert recommender.noise_left == pytest.approx({"eta": 1.0, "rho": 1.0})
    assert found[("third_party",)].answer.determines == "nothing"
    assert both.determines == "noisy-individual" and "eta" not in both.noise_left
