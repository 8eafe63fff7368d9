"""Fixed point by hand, and the rule that no sum which the parameters allow can wrap."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import reference as reference
from support.basics import steadily

from protocol.arithmetic.fixedpoint import (
    LEAST_FRACTION_BITS,
    MOST_FRACTION_BITS,
    FixedPoint,
    choose_ring,
    most_fraction_bits,
    noise_reach,
)
from protocol.arithmetic.noise import default_clip, noise_scale
from protocol.arithmetic.ring import Ring
from protocol.errors import BadInput, Bug

RING_BITS = (16, 24, 32, 40, 48, 56, 64)


def row(*reals: float) -> np.ndarray:
    return np.array([reals])


# ---- enc and dec


def test_quarters_in_eight_bits():
    fixed = FixedPoint(Ring(8), 2)
    assert fixed.encode(row(1.5, -1.5, 0.0, 31.75, -32.0)).tolist() == [[6, 250, 0, 127, 128]]
    assert fixed.decode(np.array([[6, 250, 0, 127, 128]], np.uint32)).tolist() == [[1.5, -1.5, 0.0, 31.75, -32.0]]


def test_halves_are_rounded_to_the_even_neighbour():
    fixed = FixedPoint(Ring(8), 2)
    assert fixed.encode(row(0.125, 0.375, 0.625, -0.125, -0.375)).tolist() == [[0, 2, 2, 0, 254]]


def test_what_does_not_fit_wraps():
    fixed = FixedPoint(Ring(8), 2)
    assert fixed.decode(fixed.encode(row(40.0))).tolist() == [[-24.0]]  # 160 - 256 = -96 quarters


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_encoded(value):
    with pytest.raises(Bug, match="not finite"):
        FixedPoint(Ring(32), 11).encode(row(0.0, value))


@pytest.mark.parametrize("bits", RING_BITS)
@steadily(60)
@given(fraction_bits=st.integers(0, 24), reals=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=4))
def test_encoding_is_that_of_the_reference(bits, fraction_bits, reals):
    fixed = FixedPoint(Ring(bits), fraction_bits)
    residues = [reference.encode(x, fraction_bits, 1 << bits) for x in reals]
    encoded = fixed.encode(row(*reals))
    assert encoded.tolist() == [residues]
    assert fixed.decode(encoded).tolist() == [[reference.decode(x, fraction_bits, 1 << bits) for x in residues]]


@pytest.mark.parametrize("bits", RING_BITS)
@steadily(60)
@given(data=st.data(), fraction_bits=st.integers(0, 12))
def test_what_fits_comes_back_to_half_a_unit(bits, data, fraction_bits):
    half = 2.0 ** (bits - 1 - fraction_bits)
    largest = min(half - 1, math.nextafter(half, 0))  # in a wide ring, half - 1 as a float is half
    x = data.draw(st.floats(-largest, largest))
    fixed = FixedPoint(Ring(bits), fraction_bits)
    back = float(fixed.decode(fixed.encode(row(x)))[0, 0])
    # for wide rings a unit is finer than float64 itself, whose relative error is 2^-53 per conversion
    assert abs(back - x) <= 2.0 ** -(fraction_bits + 1) + abs(x) * 2.0**-52


# ---- how many fraction bits


def printed_formula(bits: int, clip: float, max_raters: int, reach: float) -> int:
    """Compute floor(log2(2^(bits-1) / (2 C k + q))): no room for the end of the interval, nor for roundings."""
    return math.floor(math.log2(2.0 ** (bits - 1) / (2 * clip * max_raters + reach)))


def extreme_sum(bits: int, fraction_bits: int, clip: float, k: int) -> float:
    """Sum in the ring the gradients -2 u e = (2C, 0) of `k` users with u = (1, 0) and e = -C, without noise."""
    ring = Ring(bits)
    fixed = FixedPoint(ring, fraction_bits)
    one = fixed.encode(row(2 * clip, 0.0))
    total = ring.sum_by_item([(np.array([0], np.uint32), one)] * k, np.array([0], np.uint32), 2)
    assert float(fixed.decode(total)[0, 1]) == 0.0
    return float(fixed.decode(total)[0, 0])


# 2 C k is a power of two in each case, so the printed formula gives a sum of exactly 2^(bits-1) units
POWERS_OF_TWO = [
    (16, 4.0, 4),
    (16, 32.0, 2),
    (24, 2.0, 16),
    (32, 16.0, 4),
    (32, 64.0, 512),
    (40, 2.0**12, 16),
    (56, 2.0**26, 32),
    (64, 2.0**30, 256),
]


@pytest.mark.parametrize(("bits", "clip", "k"), POWERS_OF_TWO)
def test_the_formula_without_small_terms_lets_a_sum_wrap(bits, clip, k):
    fraction_bits = printed_formula(bits, clip, k, reach=0.0)
    assert extreme_sum(bits, fraction_bits, clip, k) == -2 * clip * k  # the sign has turned: the sum is 2 C k


@pytest.mark.parametrize(("bits", "clip", "k"), POWERS_OF_TWO)
def test_the_fraction_bits_in_use_do_not(bits, clip, k):
    fraction_bits = most_fraction_bits(bits, clip, k, reach=0.0)
    assert fraction_bits == printed_formula(bits, clip, k, reach=0.0) - 1
    assert extreme_sum(bits, fraction_bits, clip, k) == 2 * clip * k


def test_three_half_units_per_user_are_allowed_for():
    """16 bits, 1000 users, 2 C k + q = 32767 - 1499: at f = 0 the sum fits, but not with 1500 units of roundings."""
    clip, k, reach = 15.625, 1000, 18.0
    assert 2 * clip * k + reach == 32767 - 1499
    assert most_fraction_bits(16, clip, k, reach) == -1
    assert most_fraction_bits(16, clip, k, reach - 2) == 0


def test_the_upper_end_of_the_interval_is_excluded():
    """16 bits, one user: 32765 + 1.5 is at most 2^15 - 1, and 32766 + 1.5 is not."""
    assert most_fraction_bits(16, 50.0, 1, 32665.0) == 0
    assert most_fraction_bits(16, 50.0, 1, 32666.0) == -1


ranges = {
    "bits": st.sampled_from(RING_BITS),
    "clip": st.one_of(st.floats(0.01, 1e6), st.integers(-6, 20).map(lambda power: 2.0**power)),
    "k": st.one_of(st.integers(1, 10_000), st.integers(0, 20).map(lambda power: 2**power)),
    "reach": st.one_of(st.just(0.0), st.floats(1e-3, 1e7)),
}


@steadily(500)
@given(**ranges)
def test_the_extreme_of_what_is_accepted_stays_below_half_the_modulus(bits, clip, k, reach):
    """In exact arithmetic: every gradient at 2C, the noise at its reach, and 3k roundings in the same direction."""
    fraction_bits = most_fraction_bits(bits, clip, k, reach)
    assume(fraction_bits >= 0)
    largest = (2 * Fraction(clip) * k + Fraction(reach)) * 2**fraction_bits + Fraction(3 * k, 2)
    assert largest <= 2 ** (bits - 1) - 1


@steadily(500)
@given(**ranges)
def test_one_fraction_bit_more_could_wrap_or_is_more_than_anyone_needs(bits, clip, k, reach):
    """The formula is tight: with f + 1 the bound does not hold (up to its margin of 2^-40 for |u| ≤ 1)."""
    fraction_bits = most_fraction_bits(bits, clip, k, reach)
    assume(0 <= fraction_bits < MOST_FRACTION_BITS)
    margin = 1 + Fraction(1, 2**39)
    largest = (2 * Fraction(clip) * k + Fraction(reach)) * margin * 2 ** (fraction_bits + 1) + Fraction(3 * k, 2)
    assert largest > 2 ** (bits - 1) - 1


@steadily(150)
@given(**{**ranges, "k": st.integers(1, 40)}, sign=st.sampled_from([1, -1]))
def test_an_extreme_sum_keeps_its_sign_and_size_in_the_ring(bits, clip, k, reach, sign):
    """The extreme sum through `encode`, `sum_by_item` and `decode`: three terms per user, the noise shared evenly."""
    fraction_bits = most_fraction_bits(bits, clip, k, reach)
    assume(fraction_bits >= 0)
    ring = Ring(bits)
    fixed = FixedPoint(ring, fraction_bits)
    share = fixed.encode(row(sign * reach / (2 * k)))
    contribution = ring.add(fixed.encode(row(sign * 2 * clip)), share, share)
    item = np.array([0], np.uint32)
    found = float(fixed.decode(ring.sum_by_item([(item, contribution)] * k, item, 1))[0, 0])
    size = 2 * clip * k + reach
    assert found * sign == pytest.approx(size, rel=1e-12, abs=1.5 * k * 2.0**-fraction_bits)


def test_a_ring_without_room_for_the_roundings_has_no_fraction_bits():
    assert most_fraction_bits(16, 1e-9, 30_000, 0.0) < 0  # 1.5 * 30000 > 2^15


# ---- the reach of the noise


@pytest.mark.parametrize("scale", [0.5, 1.0, 25.298])
@pytest.mark.parametrize("draws", [1, 1000, 100 * 1682 * 10, 10**12])
def test_the_reach_solves_its_equation(scale, draws):
    ratio = noise_reach(scale, draws) / scale
    assert (1 + ratio / 2) * math.exp(-ratio) == pytest.approx(2.0**-40 / draws, rel=1e-9)


def test_the_reach_on_movielens_is_about_47_scales():
    """x = 40 ln 2 + ln(T m d) + ln(1 + x/2): 27.73 + 15.95 + 3.20 for dim 50, 27.73 + 14.34 + 3.16 for dim 10."""
    assert noise_reach(1.0, 100 * 1682 * 50) == pytest.approx(46.87, abs=0.02)
    assert noise_reach(1.0, 100 * 1682 * 10) == pytest.approx(45.22, abs=0.02)


def test_no_noise_reaches_nowhere():
    assert noise_reach(0.0, 10**9) == 0.0


# ---- the choice of a ring


def movielens(epsilon: float, dim: int) -> tuple[float, int, float]:
    """Return clip, most raters and reach on ML-100k: 1682 items, one with 583 raters, 100 iterations."""
    scale = noise_scale(epsilon, 4.0, dim)
    return default_clip(scale, 4.0), 583, noise_reach(scale, 100 * 1682 * dim)


def test_dim_10_at_epsilon_1_has_11_fraction_bits_in_32():
    """b = 25.3, C = 821.5, 2 C k + q = 959,000; 2^31 over it is 2239, between 2^11 and 2^12."""
    assert choose_ring(None, *movielens(1.0, 10)) == (32, 11, None)


def test_dim_50_at_epsilon_a_tenth_moves_to_64_bits_and_says_so():
    """b = 565.7, C = 18114, 2 C k + q = 21.1 million; 2^31 over it is 101, so only 6 fraction bits."""
    clip, raters, reach = movielens(0.1, 50)
    assert most_fraction_bits(32, clip, raters, reach) == 6
    bits, fraction_bits, note = choose_ring(None, clip, raters, reach)
    assert (bits, fraction_bits) == (64, 24)
    assert "wrap mod 2^32" in note and "64 ring bits" in note


def test_a_ring_that_was_asked_for_is_never_widened():
    assert choose_ring(64, *movielens(1.0, 10)) == (64, 24, None)
    assert choose_ring(40, *movielens(1.0, 10)) == (40, 19, None)
    with pytest.raises(BadInput, match=r"wrap mod 2\^32 with 8 fraction bits: raise epsilon, lower the clip"):
        choose_ring(32, *movielens(0.1, 50))
    with pytest.raises(BadInput, match=r"sum of 583 users could wrap mod 2\^24"):
        choose_ring(24, *movielens(1.0, 10))


def test_too_few_fraction_bits_in_the_widest_ring_are_refused():
    with pytest.raises(BadInput, match=r"wrap mod 2\^64"):
        choose_ring(None, *movielens(1e-14, 10))


def test_eight_fraction_bits_are_enough_and_seven_are_not():
    """16 bits, one user: (2 C) 256 + 1.5 ≤ 32767 for C = 63, and not for C = 64."""
    assert LEAST_FRACTION_BITS == 8
    assert choose_ring(16, 63.0, 1, 0.0) == (16, 8, None)
    with pytest.raises(BadInput, match="16"):
        choose_ring(16, 64.0, 1, 0.0)


def test_no_ring_has_more_than_24_fraction_bits():
    assert most_fraction_bits(64, 1.0, 1, 0.0) == 24
