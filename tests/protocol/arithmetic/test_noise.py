"""The noise of Lemma 1 and its shares.

Statistical tests have size 1e-6 (one seed in a million would raise a false alarm) and run on fixed seeds. Beside
each, the same test finds a planted error.
"""

from __future__ import annotations

import functools
import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support.basics import FALSE_ALARM

from protocol.arithmetic.noise import floor_of, noise_scale, noise_share
from protocol.arithmetic.tape import Tape, exponential

SAMPLES = 40_000
SCALE = 3.0
CASES = [(1, 1), (2, 2), (3, 3), (10, 10), (40, 40)]  # contributors, floor


@functools.cache
def envelope() -> np.ndarray:
    keys = [hashlib.sha256(b"item %d" % item).digest() for item in range(SAMPLES // 4)]
    return exponential(keys, 4, "eta", 0)


@functools.cache
def normal(user: int) -> np.ndarray:
    return Tape(hashlib.sha256(b"user %d" % user).digest()).normal(SAMPLES // 4, 4, "eta", 0)


def noise_sum(contributors: int, floor: int, *, stretch: float = 1.0, h: np.ndarray | None = None) -> np.ndarray:
    """Sum the shares of `contributors` users, one sample per item and coordinate. `stretch` plants an error."""
    floors = np.full(SAMPLES // 4, floor, np.uint32)
    given = envelope() if h is None else h
    return sum(noise_share(SCALE, given, floors, stretch * normal(user)) for user in range(contributors))


def laplace_p(samples: np.ndarray) -> float:
    return float(stats.kstest(samples.ravel(), stats.laplace(0, SCALE).cdf).pvalue)


def tails_p(samples: np.ndarray) -> float:
    """Compute p of a chi-square test on cells that are mostly tail; P(|x| > y) = e^(-y/b) gives the expected counts."""
    outside = [0.0005, 0.005, 0.02, 0.1, 0.5]  # both tails together, from the outermost
    edges = [-SCALE * math.log(p) for p in outside]
    cuts = np.array([-edge for edge in edges] + edges[::-1])
    masses = np.diff([0.0] + [p / 2 for p in outside] + [1 - p / 2 for p in outside[::-1]] + [1.0])
    counts = np.bincount(np.searchsorted(cuts, samples.ravel()), minlength=len(masses))
    return float(stats.chisquare(counts, masses * samples.size).pvalue)


# ---- the law of the sum


@pytest.mark.parametrize(("contributors", "floor"), CASES)
def test_the_sum_of_all_shares_is_laplace(contributors, floor):
    samples = noise_sum(contributors, floor)
    assert laplace_p(samples) > FALSE_ALARM
    assert tails_p(samples) > FALSE_ALARM


@pytest.mark.parametrize(("contributors", "floor"), CASES[1:])
def test_shares_of_variance_one_over_k_squared_are_found(contributors, floor):
    samples = noise_sum(contributors, floor, stretch=1 / math.sqrt(contributors))
    assert laplace_p(samples) < FALSE_ALARM
    assert tails_p(samples) < FALSE_ALARM


@pytest.mark.parametrize("stretch", [0.5, 0.9, 1.1, math.sqrt(2)])
def test_another_scale_is_found(stretch):
    assert laplace_p(noise_sum(3, 3, stretch=stretch)) < FALSE_ALARM
    assert tails_p(noise_sum(3, 3, stretch=stretch)) < FALSE_ALARM


def test_normal_noise_of_the_same_variance_is_found():
    """Without the envelope (H = 1) the variance is the same 2 b^2, but the law is not Laplace."""
    samples = noise_sum(3, 3, h=np.ones((SAMPLES // 4, 4), np.float32))
    assert samples.var() == pytest.approx(2 * SCALE**2, rel=0.02)
    assert laplace_p(samples) < FALSE_ALARM
    assert tails_p(samples) < FALSE_ALARM


@pytest.mark.parametrize(("contributors", "floor"), [(2, 1), (5, 4), (10, 8), (40, 10)])
def test_more_contributors_than_the_floor_give_more_noise(contributors, floor):
    """Given H the sum is normal with standard deviation b sqrt(2H) sqrt(k'/k), and never less than Lemma 1 asks."""
    given_h = noise_sum(contributors, floor) / (SCALE * np.sqrt(2 * envelope().astype(np.float64)))
    expected = math.sqrt(contributors / floor)
    assert stats.kstest(given_h.ravel(), stats.norm(0, expected).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(given_h.ravel(), stats.norm(0, 1).cdf).pvalue < FALSE_ALARM  # so the test tells them apart


def test_the_unconditional_law_with_more_contributors_is_a_wider_laplace():
    samples = noise_sum(10, 8)
    assert laplace_p(samples / math.sqrt(10 / 8)) > FALSE_ALARM
    assert laplace_p(samples) < FALSE_ALARM


# ---- by hand


def test_one_share_by_hand():
    """b = 3: H = 2 and floor 4 give 3 sqrt(4) / 2 = 3 times the draw; H = .5 and floor 1 give 3 times it."""
    share = noise_share(
        3.0,
        np.array([[2.0, 0.5], [0.5, 8.0]], np.float32),
        np.array([4, 1], np.uint32),
        np.array([[1.0, -1.0], [0.25, 0.5]]),
    )
    assert share.tolist() == [[3.0, -1.5], [0.75, 6.0]]


def test_scale_0_is_no_noise():
    share = noise_share(0.0, np.ones((1, 2), np.float32), np.ones(1, np.uint32), np.array([[5.0, -7.0]]))
    assert (share == 0).all()


def test_the_scale_of_lemma_1():
    assert noise_scale(1.0, 4.0, 4) == 16.0  # 2 * 4 * 2 / 1
    assert noise_scale(0.5, 4.0, 9) == 48.0  # 2 * 4 * 3 / .5
    assert noise_scale(8.0, 1.0, 1) == 0.25
    assert noise_scale(math.inf, 4.0, 10) == 0.0


# ---- floors


def test_floors_by_hand():
    invited = np.array([0, 1, 2, 3, 10, 100])
    assert floor_of(invited, 0.0, 1).tolist() == [1, 1, 2, 3, 10, 100]
    assert floor_of(invited, 0.5, 1).tolist() == [1, 1, 1, 2, 5, 50]
    assert floor_of(invited, 0.5, 3).tolist() == [3, 3, 3, 3, 5, 50]
    assert floor_of(invited, 0.0, 200).tolist() == [200] * 6


def test_ten_invited_with_a_tenth_allowed_to_drop_out_need_nine():
    assert math.ceil(10 * (1 - 0.7)) == 4  # floating point gives 4, but the exact value is 3
    assert floor_of(np.array([10]), 0.1, 1).tolist() == [9]
    assert floor_of(np.array([10]), 0.7, 1).tolist() == [3]


def test_floors_are_exact_for_every_percentage():
    invited = np.arange(1, 1000)
    for percent in range(100):
        kept = 1 - Fraction(percent, 100)
        expected = [max(1, math.ceil(int(n) * kept)) for n in invited]
        assert floor_of(invited, percent / 100, 1).tolist() == expected


def test_floors_are_counts_for_the_wire():
    assert floor_of(np.array([3]), 0.0, 1).dtype == np.uint32
