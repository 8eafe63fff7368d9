"""The worked example of a person's own protocol: it runs, costs what its formula says, and is audited."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.api import audit, bandwidth, run, verify
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan

SIZES = {"data": "demo-small", "dim": 1, "iterations": 1, "test_fraction": 0.0}
FLAGS = {"scheme": "example_shares:Shares", "seed": 1, **SIZES}
EXAMPLE = Path(__file__).parents[2] / "example_shares.py"


def test_the_example_runs_and_is_audited(tmp_path):
    summary = run(out=tmp_path / "run", users_per_process=20, **FLAGS)
    assert summary["completed"] and summary["processes"] == {"third_party": 1, "recommender": 1, "user": 2}
    assert verify(tmp_path / "run")["verified"]
    total = bandwidth(tmp_path / "run")["total"]
    assert total["wire_bytes"] == total["predicted_bytes"] > 0
    document = audit(tmp_path / "run", coalitions=["third_party+user:0"])
    found = {tuple(row["members"]): row for row in document["coalitions"]}
    assert found[("recommender",)]["determines"] == "aggregate" and found[("recommender",)]["items"] > 0
    assert found[("third_party",)]["determines"] == found[("third_party", "user:0")]["determines"] == "nothing"
    assert found[("recommender", "third_party")]["determines"] == "exact-individual"
    assert document["verdict"] == "within-claims", [f for f in document["findings"] if f["severity"] != "info"]


def test_what_the_example_opens_is_the_total_of_every_item(tmp_path):
    flags = {**FLAGS, "transport": "inprocess"}
    run(out=tmp_path / "run", **flags)
    totals = np.zeros(60)
    for user in make_plan(RunConfig(**flags)).data:
        totals[user.items] += user.values
    assert np.load(tmp_path / "run" / "model" / "item_factors.npy")[:, 0].tolist() == totals.tolist()


def test_the_example_is_short():
    assert len(EXAMPLE.read_text().splitlines()) <= 140
