"""Items of one run as repetitions of a canary: the same law as a run for each."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats
from support.audit import load_scheme
from support.schemes.noise_faults import Quiet, Reusing

from protocol.schemes import find_scheme
from sim.audit.canary.bound_rows import make_row
from sim.audit.families.factorization import batch, repeat
from sim.audit.families.factorization.arms import PUBLICATION, SUMS
from sim.audit.families.factorization.batch import STILL, can_batch
from sim.audit.families.factorization.repeat import play_chunk

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
    assert together.first_of_run.sum() == 1 and apart.first_of_run.all()
    assert (together.receiver, together.masked) == (apart.receiver, apart.masked)
    pairs = zip(arm.statistics(problem, together), arm.statistics(problem, apart), strict=True)
    for one, other in pairs:
        assert (one.name, one.coalition) == (other.name, other.coalition)
        for which in (True, False):
            values = one.values[together.greatest == which], other.values[apart.greatest == which]
            assert stats.ks_2samp(*values).pvalue > 0.001


def test_noise_of_different_items_is_not_correlated():
    problem = ARMS["release"].problem(find_scheme("masked"), 1.0, None)
    runs = [play_chunk(problem, number.to_bytes(32, "big"), 0, 8) for number in range(300)]
    values = np.array([next(iter(ARMS["release"].statistics(problem, run))).values for run in runs])
    correlated = np.corrcoef(values.T) - np.eye(8)
    assert np.abs(correlated).max() < 0.25  # four standard deviations


def test_factors_published_in_one_run_have_the_law_that_runs_of_their_own_have(monkeypatch):
    problem = PUBLICATION.problem(find_scheme("trusted"), 1.0, None)
    together = play_chunk(problem, SEED, 0, COUNT)
    monkeypatch.setattr(repeat, "can_batch", lambda problem: False)
    apart = play_chunk(problem, OTHER, 0, 200)
    one, other = (next(PUBLICATION.statistics(problem, each)).values for each in (together, apart))
    for which in (True, False):
        assert stats.ks_2samp(one[together.greatest == which], other[apart.greatest == which]).pvalue > 0.001


@pytest.mark.parametrize("fault", [Reusing, Quiet])
def test_a_run_whose_factors_move_shows_noise_that_cancels_in_all_its_items(monkeypatch, fault):
    """What u(1) is follows the coins of all items, so only the one-run theorem is asked; it needs no independence."""
    monkeypatch.setattr(batch, "is_ours", lambda scheme: True)
    problem = ARMS["difference"].problem(fault(), 1.0, None)
    observed = play_chunk(problem, SEED, 0, 2000)
    (statistic,) = ARMS["difference"].statistics(problem, observed)
    row = make_row(("difference", problem, observed, statistic), 2.0, 0.995)
    assert statistic.reacting and row.bound.method == "guesses" and row.exceeds and row.bound.epsilon > 3


def test_where_factors_move_for_long_every_repetition_is_a_run():
    masked = find_scheme("masked")
    assert can_batch(ARMS["difference"].problem(masked, 1.0, None))
    constant = ARMS["constant"].problem(masked, 1.0, None)
    assert constant.params.learning_rate == STILL and can_batch(constant)
    moving = dataclasses.replace(constant, params=dataclasses.replace(constant.params, learning_rate=0.01))
    assert not can_batch(moving)


def test_of_a_scheme_of_somebody_elses_nobody_knows_what_items_share():
    load_scheme("support.schemes.broken:SendsItsMask")
    assert not can_batch(ARMS["release"].problem(find_scheme("support.schemes.broken:SendsItsMask"), 1.0, None))
