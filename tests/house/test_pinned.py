"""Three runs whose digests must not change when code is moved: of the roles' results, and of what identifies a run."""

from __future__ import annotations

import pytest

from sim.folder.folder import read_run
from sim.plan.config import RunConfig
from sim.run.run import run

# scheme -> (sha256 of the item factors, the run's id, the anchor over all views)
PINNED = {
    "masked": (
        "2ddaa7249133fbd17d13b032f52fbe7cfbf870c2bb44c8c3957eacdc22bd3a62",
        "a7c31595a7fe78e92bc7a78b7c2fc2fb2c9cf4ab48804eaad70c7823c517cac1",
        "6a1d964ea34c4c45a316dd71eb2640b0818fa1c65587d47357a876bc524e594d",
    ),
    "dynamic": (
        "dfb46d9460204ad8bdfc63f40963f8874d426876e3518c9dc5cb10f6b4599051",
        "8a3267652cbc15bfb5feb20257f89c6e424d7005a85bbe5877755f3128bd73e1",
        "6073baecba8eed5ec08cbd96253d5978fdf40f10c71f01a36f6694d9fb0e5652",
    ),
    "covariance-masked": (
        "f26845d56f049245648ab46e08a9fd01158ed66eb8eee3704ac248394381c0c1",
        "94f215d0299c52c57fc785f0eaa14d8db4667a5f497ca7e617a2b2afbaee05e2",
        "0997468a555c74da5d0c610b56f9ac9c6f5989b0d0da385b98912fad69c7832b",
    ),
}


@pytest.mark.parametrize("scheme", PINNED)
def test_a_run_is_bit_for_bit_what_it_was(scheme, tmp_path):
    iterations = None if scheme.startswith("covariance") else 5  # where the scheme has a fixed number
    config = RunConfig(scheme=scheme, data="demo-small", iterations=iterations, seed=1, transport="inprocess")
    summary = run(config, out=tmp_path / "run")
    _, card = read_run(tmp_path / "run")
    assert summary["completed"]
    assert (summary["item_factors_sha256"], card.run_id.hex(), summary["anchor"]) == PINNED[scheme]
