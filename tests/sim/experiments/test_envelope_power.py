"""The power of a user's check of its envelopes: it finds faint ones, and never what has the right law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from sim.experiments.grid.envelope_power import DEALINGS, ITEMS, markdown, power, rows, statistic


def test_the_statistic_is_that_of_kolmogorov_and_smirnov():
    values = np.random.default_rng(1).exponential(size=(5, 40))
    assert statistic(values) == pytest.approx([kstest(row, "expon").statistic for row in values])


def test_what_is_dealt_leaves_as_much_noise_as_the_table_says():
    draw = np.random.default_rng(2)
    dealt = {one.what: np.stack([one.deal(draw, 1) for _ in range(400)]) for one in DEALINGS}
    assert all(values.shape == (400, 2, ITEMS, 10) for values in dealt.values())
    left = {what: float(np.sqrt(values[:, 0].mean())) for what, values in dealt.items()}
    for what, share in {
        "every H times .5": 0.71,
        "objective noise of the least of 4 keys": 0.83,
        "objective noise of the least of 64 keys": 0.65,
    }.items():
        assert left[what] == pytest.approx(share, abs=0.01)
    least = dealt["honest numbers, sorted within each iteration"][:, 0, 0, 0]
    assert np.sqrt(least.mean()) == pytest.approx(0.07, abs=0.01)
    assert np.sqrt(dealt["one item of 20, H times .1"][:, 0, 0].mean()) == pytest.approx(0.32, abs=0.01)


def test_honest_envelopes_are_rejected_at_the_level_and_faint_ones_surely():
    found = {one.what: power(one, 1, 400) for one in DEALINGS}
    honest = [share for what, share in found.items() if "honest" in what]
    assert len(honest) == 3 and all(0.02 <= share <= 0.08 for share in honest), "these it can never find"
    assert found["every H times .5"] == 1.0 and found["objective noise of the least of 64 keys"] > 0.9
    assert 0.2 < found["every H times .9"] < 0.6


def test_the_table_has_a_row_for_each_dealing():
    lines = markdown(rows(iterations=(0,), repetitions=20)).splitlines()
    assert len(lines) == 2 + len(DEALINGS) and lines[2].startswith("| honest: fresh Exp(1) | all of it | ")
