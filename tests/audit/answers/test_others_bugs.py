"""Flaws of others, rebuilt from their descriptions: the audit finds each, by the question named, and not its repair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sim.api import audit, bandwidth, run
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan

TESTS = Path(__file__).parents[2]
FLAGS = {"data": "demo-small", "dim": 1, "iterations": 1, "test_fraction": 0.0, "seed": 1, "transport": "inprocess"}


@pytest.mark.parametrize(
    ("flawed", "repaired", "id_", "determines"),
    [
        ("example_sparse_sum:SparseSum", "example_sparse_sum:SumOfThree", "single-contributor", "aggregate"),
        ("example_zero_shares:ZeroShares", "example_zero_shares:FreshZeroShares", "unmasking", "exact-individual"),
    ],
)
def test_the_algebra_finds_the_flaw_and_no_other_question_is_needed(tmp_path, flawed, repaired, id_, determines):
    for scheme in (flawed, repaired):
        folder = tmp_path / scheme.partition(":")[2]
        assert run(scheme=scheme, out=folder, **FLAGS)["completed"]
        assert bandwidth(folder)["match"] is True
        document = audit(folder)
        found = {(row["id"], tuple(row["coalition"]), row["question"]) for row in document["findings"] if row["beyond"]}
        level = next(row["determines"] for row in document["coalitions"] if row["members"] == ["recommender"])
        assert document["not_shown"] == []
        if scheme == flawed:
            assert (id_, ("recommender",), "algebra") in found and level == determines
            assert document["verdict"] == "beyond-claims"
        else:
            assert document["verdict"] == "within-claims" and level == "aggregate"


def test_both_still_open_what_they_should(tmp_path):
    for scheme, least, mean in (("sparse_sum:SparseSum", 1, False), ("sparse_sum:SumOfThree", 3, False),
                                ("zero_shares:ZeroShares", 1, True)):  # fmt: skip
        flags = {**FLAGS, "scheme": f"example_{scheme}"}
        run(out=tmp_path / scheme, **flags)
        totals, raters = np.zeros(60), np.zeros(60)
        for user in make_plan(RunConfig(**flags)).data:
            totals[user.items] += user.values
            raters[user.items] += 1
        expected = np.where(raters >= least, totals / np.maximum(raters, 1) if mean else totals, 0)
        opened = np.load(tmp_path / scheme / "model" / "item_factors.npy")[:, 0]
        assert opened == pytest.approx(expected, rel=1e-6) and (raters == 1).any()


@pytest.mark.parametrize("name", ["example_sparse_sum.py", "example_zero_shares.py"])
def test_an_example_is_short(name):
    assert len((TESTS / name).read_text().splitlines()) <= 150
