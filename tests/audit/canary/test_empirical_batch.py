"""Items of one run as repetitions of a canary: the same law as a run for each."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats
from support.audit import load_scheme

from protocol.schemes import find_scheme
from sim.audit.canary import repeat
from sim.audit.canary.batch import STILL, can_batch
from sim.audit.canary.repeat import play_chunk
from sim.audit.families.factorization.arms import SUMS

ARMS = {arm.name: arm for arm in SUMS}
COUNT, SEED, OTHER = 400, bytes(32), bytes([1] * 32)


@pytest.mark.parametrize("scheme", ["masked", "dynamic", "direct"])
@pytest.mark.parametrize("name", ["release", "whole", "constant"])
def test_every_statistic_has_the_law_that_runs_of_their_own_have(monkeypatch, scheme, name):
    arm = ARMS[name]
    problem = arm.problem(find_scheme(scheme), 1.0, None)
    assert can_batch(problem)
    together = play_chunk(problem, SEED, 0, COUNT)
    monkeypatch.setattr(repeat, "can_batch", lambda problem: False)
    apart = play_chunk(problem, OTHER, 0, COUNT)
    assert np.array_equal(together.greatest, apart.greatest)
    assert (together.receiver, together.masked) == (apart.receiver, apart.masked)
    pairs = zip(arm.statistics(problem, together), arm.statistics(problem, apart), strict=True)
    for one, other in pairs:
        assert (one.name, one.coalition) == (other.name, other.coalition)
        for which in (together.greatest, ~together.greatest):
            assert stats.ks_2samp(one.values[which], other.values[which]).pvalue > 0.001


def test_noise_of_different_items_is_not_correlated():
    problem = ARMS["release"].problem(find_scheme("masked"), 1.0, None)
    runs = [play_chunk(problem, number.to_bytes(32, "big"), 0, 8) for number in range(300)]
    values = np.array([next(iter(ARMS["release"].statistics(problem, run))).values for run in runs])
    correlated = np.corrcoef(values.T) - np.eye(8)
    assert np.abs(correlated).max() < 0.25  # four standard deviations


def test_where_factors_move_every_repetition_is_a_run():
    masked = find_scheme("masked")
    assert not can_batch(ARMS["difference"].problem(masked, 1.0, None))
    constant = ARMS["constant"].problem(masked, 1.0, None)
    assert constant.params.learning_rate == STILL and can_batch(constant)
    moving = dataclasses.replace(constant, params=dataclasses.replace(constant.params, learning_rate=0.01))
    assert not can_batch(moving)


def test_of_a_scheme_of_somebody_elses_nobody_knows_what_items_share():
    load_scheme("support.schemes.broken:SendsItsMask")
    assert not can_batch(ARMS["release"].problem(find_scheme("support.schemes.broken:SendsItsMask"), 1.0, None))
