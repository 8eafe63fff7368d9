"""The lower bound itself, on draws whose ε is known exactly: it comes near the truth and does not exceed it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sim.audit.canary.epsilon_bound import attainable, certifiable, lower_bound
from sim.audit.scoring import lower_limit, upper_limit

TRUE_EPSILON = 1.0


def hypotheses(n: int) -> np.ndarray:
    return np.arange(n) % 2 == 1


def laplace_draws(seed: int, n: int, scale: float = 8.0, shift: float = 8.0) -> tuple[np.ndarray, np.ndarray]:
    greatest = hypotheses(n)
    return np.random.default_rng(seed).laplace(0, scale, n) + shift * greatest, greatest


def test_the_limits_are_those_of_clopper_and_pearson():
    hits = np.array([0, 1, 37, 99, 100])
    low, high = lower_limit(hits, 100, 0.025), upper_limit(hits, 100, 0.025)
    for hit, one, other in zip(hits, low, high, strict=True):
        exact = stats.binomtest(int(hit), 100).proportion_ci(0.95, "exact")
        assert (one, other) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_a_laplace_mechanism_is_measured_just_below_its_epsilon():
    bounds = [lower_bound(*laplace_draws(seed, 20_000)).epsilon for seed in range(40)]
    assert 0.8 < float(np.median(bounds)) < TRUE_EPSILON
    assert sum(bound > TRUE_EPSILON for bound in bounds) <= 2, "at most 5 % of them"


def test_the_bound_holds_as_often_as_is_stated():
    """With few draws, choosing the threshold on the same draws would bias the bound the most."""
    wrong = sum(lower_bound(*laplace_draws(seed, 200), confidence=0.9).epsilon > TRUE_EPSILON for seed in range(400))
    assert wrong <= 40


def test_half_of_the_noise_is_seen():
    assert lower_bound(*laplace_draws(1, 4000, scale=4.0)).epsilon > 1.3


def test_choosing_and_measuring_on_the_same_draws_would_flatter():
    """The threshold is chosen on one half of the draws and measured on the other; here the noise tells nothing."""
    greatest = hypotheses(400)
    draws = np.random.default_rng(3).normal(size=(200, 400))
    apart = [lower_bound(row, greatest, confidence=0.8).epsilon for row in draws]
    same = [lower_bound(np.tile(row[:200], 2), greatest, confidence=0.8).epsilon for row in draws]
    assert np.count_nonzero(apart) <= 5 < 20 < np.count_nonzero(same)


@pytest.mark.parametrize("sign", [1, -1])
def test_both_directions_are_tried(sign):
    """The statistic has a far point mass under one of the two ratings only, the greatest or the other."""
    random, greatest = np.random.default_rng(5), hypotheses(4000)
    betrayed = (greatest if sign > 0 else ~greatest) & (random.uniform(size=4000) < 0.2)
    found = lower_bound(random.normal(size=4000) + 100 * sign * betrayed, greatest)
    assert found.epsilon > 3 and found.event.startswith("statistic ≥" if sign > 0 else "statistic <")


def test_a_constant_tells_nothing():
    found = lower_bound(np.zeros(1000), hypotheses(1000))
    assert found.epsilon == found.at_delta == 0


def test_what_can_be_shown_is_limited_by_the_repetitions_and_a_perfect_statistic_reaches_it():
    greatest = hypotheses(20_000)
    perfect = lower_bound(greatest + 0.0, greatest)
    assert perfect.epsilon == pytest.approx(perfect.certifiable) == pytest.approx(certifiable(5000))
    error = 0.025
    assert certifiable(5000) == pytest.approx(math.log(error ** (1 / 5000) / (1 - error ** (1 / 5000))))
    assert certifiable(500) < certifiable(5000) < 8


def test_delta_is_taken_from_the_rate_that_must_be_large():
    statistic, greatest = laplace_draws(1, 20_000)
    exact, loose = lower_bound(statistic, greatest), lower_bound(statistic, greatest, delta=0.1)
    assert loose.epsilon == exact.epsilon
    assert loose.at_delta == pytest.approx(math.log((exact.true_rate - 0.1) / exact.false_rate))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_what_exactly_the_claimed_epsilon_would_show_is_foretold(epsilon):
    bounds = [lower_bound(*laplace_draws(seed, 20_000, scale=8 / epsilon)).epsilon for seed in range(30)]
    foretold = attainable(epsilon, 5000)
    assert 0 <= foretold < min(epsilon, certifiable(5000))
    assert float(np.median(bounds)) == pytest.approx(foretold, abs=0.15 * max(1.0, epsilon / 2))


def test_nothing_claimed_shows_nothing():
    assert attainable(0.0, 5000) == 0
