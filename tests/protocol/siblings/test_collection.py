"""The parts of the two rating collections: grid, forms on the wire, counts, ρ, Theorem 3, debiased means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.arithmetic.tape import SEED_BYTES, Tape
from protocol.errors import BadInput, Bug, Reason, Rejected
from protocol.schemes.collection.counts import laplace_bytes, laplace_counts, response_bytes, response_counts
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.means import laplace_means, own_mean, response_means, shrunk_means
from protocol.schemes.collection.mechanisms import ModifiedLaplace, RandomizedResponse
from protocol.schemes.collection.radius import (
    laplace_bound,
    laplace_radius,
    laplace_ratings,
    response_bound,
    response_radius,
    response_ratings,
)
from protocol.wire.level_vectors import (
    digits_bytes,
    pack_digits,
    unpack_digits,
)

STARS = Grid(1.0, 5.0, 1.0)


def tape(number: int) -> Tape:
    return Tape(number.to_bytes(SEED_BYTES, "big"))


# --- grid ---------------------------------------------------------------------------------------------------------


def rating_of(scaled):
    """Convert `scaled` from [−1, 1] to ratings."""
    return STARS.middle + STARS.half * scaled


def test_stars_are_five_levels_around_three():
    assert (STARS.levels, STARS.middle, STARS.half) == (5, 3.0, 2.0)
    assert STARS.offsets().tolist() == [-2, -1, 0, 1, 2]
    vector = STARS.vector(np.array([1, 3], np.uint32), np.array([5.0, 1.0]), 5)
    assert vector.tolist() == [0, 5, 0, 1, 0]
    assert STARS.scaled(np.array([1.0, 4.0, 5.0])).tolist() == [-1, 0.5, 1]
    assert STARS.scaled(np.array([1.0, 4.0])).tolist() == [-1, 0.5]


def test_half_stars_are_ten_levels_and_what_lies_between_is_told():
    half = Grid(0.5, 5.0, 0.5)
    assert half.levels == 10 and half.middle == 2.75
    assert half.holds(np.array([0.5, 3.5, 3.7])).tolist() == [True, True, False]
    assert half.level_of(np.array([0.5, 3.5, 5.0])).tolist() == [1, 7, 10]


@pytest.mark.parametrize(("low", "high", "step"), [(1, 5, 0), (1, 5, 0.3), (5, 1, 1), (0, 1000, 1), (1, 5, 8)])
def test_a_grid_that_is_none_is_refused(low, high, step):
    with pytest.raises(BadInput, match="step must"):
        Grid(low, high, step)


# --- forms on the wire --------------------------------------------------------------------------------------------


def test_a_vector_of_1682_ratings_takes_544_bytes():
    """1682 log2 6 = 4347.9 bits: 543.5 bytes."""
    assert digits_bytes(1682, 6) == math.ceil(1682 * math.log2(6) / 8) == 544
    assert response_bytes(1682, 5) == 544


def test_digits_are_one_number_lowest_first():
    """4 + 1·6 + 5·36 = 190; three digits in base 6 go up to 215, one byte."""
    assert pack_digits(np.array([4, 1, 5], np.uint8), 6) == bytes([190])
    assert unpack_digits(bytes([190]), 3, 6).tolist() == [4, 1, 5]


@given(st.integers(2, 255), st.integers(1, 300), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_packing_is_reversible_and_its_size_is_the_formula(base, count, seed):
    digits = np.random.default_rng(seed).integers(0, base, count).astype(np.uint8)
    packed = pack_digits(digits, base)
    assert len(packed) == digits_bytes(count, base)
    assert unpack_digits(packed, count, base).tolist() == digits.tolist()
    assert int.from_bytes(packed, "little") == sum(int(digit) * base**place for place, digit in enumerate(digits))


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", Reason.WRONG_LENGTH), (bytes(2), Reason.WRONG_LENGTH), (bytes([216]), Reason.OUT_OF_RANGE)],
)
def test_what_is_no_packed_vector_is_refused(data, reason):
    with pytest.raises(Rejected, match=reason.name):
        unpack_digits(data, 3, 6)
    assert unpack_digits(bytes([215]), 3, 6).tolist() == [5, 5, 5]


def test_a_digit_beyond_the_base_is_a_bug():
    with pytest.raises(Bug):
        pack_digits(np.array([6], np.uint8), 6)


# --- counts -------------------------------------------------------------------------------------------------------

REFERENCE = {  # 100,000 ratings of 943 users and 1682 items
    0.1: ((51_250, 724_490, 3501), (18_102, 65_518, 1_217_104)),
    1.0: ((62_246, 561_073, 2854), (35_219, 51_825, 962_731)),
    4.0: ((88_080, 177_151, 1335), (91_610, 6_712, 124_679)),
    8.0: ((98_201, 26_730, 740), (99_833, 134, 2_489)),
}


@pytest.mark.parametrize("epsilon", REFERENCE)
def test_the_counts_are_those_of_the_reference(epsilon):
    (kept, created, size), (exact, altered, invented) = REFERENCE[epsilon]
    ours = laplace_counts(ModifiedLaplace(epsilon), 100_000, 943 * 1682)
    assert (round(ours.exact), round(ours.created)) == (kept, created)
    # the reference has 1682 bits as 210.25 bytes; a vector has 211
    assert round(laplace_bytes(ours.present / 943, 1682) - 0.75) == size
    theirs = response_counts(RandomizedResponse(epsilon, 5), 100_000, 943 * 1682)
    assert theirs.exact == pytest.approx(exact, abs=1) and theirs.altered == pytest.approx(altered, abs=1)
    assert theirs.created == pytest.approx(invented, abs=1)


# --- ρ and Theorem 3 ----------------------------------------------------------------------------------------------


def made(seed: int, users: int, items: int, density: float) -> tuple[np.ndarray, np.ndarray]:
    """Make (Θ of rank 3, which cells are rated); Θ has products of unit vectors, uniform on [−1, 1]."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(users, 3)), rng.normal(size=(items, 3))
    left /= np.linalg.norm(left, axis=1)[:, None]
    right /= np.linalg.norm(right, axis=1)[:, None]
    return left @ right.T, rng.random((users, items)) < density


def noisy_ratings(seed: int, truth: np.ndarray, spread: float) -> np.ndarray:
    return np.clip(truth + spread * np.random.default_rng(seed + 1).normal(size=truth.shape), -1, 1)


def laplace_distance(seed: int, epsilon: float) -> tuple[float, float, float]:
    """Compute (‖P_Ω(Θ − Z)‖, its expectation by the formula, the bound (6)) with the true ρ0, s and mean Θ²."""
    truth, rated = made(seed, 30, 40, 0.3)
    ratings, mechanism, square, arrived = noisy_ratings(seed, truth, 0.2), ModifiedLaplace(epsilon), 0.0, 0
    for user in range(30):
        items = np.flatnonzero(rated[user]).astype(np.uint32)
        sent, numbers = mechanism.answer(tape(100 * seed + user), items, ratings[user, items], 40)
        square += float(((truth[user, sent] - numbers) ** 2).sum())
        arrived += len(sent)
    s, near = int(rated.sum()), float(np.sqrt(((ratings - truth)[rated] ** 2).mean()))
    mean = float((truth[~rated] ** 2).mean())
    return math.sqrt(square), laplace_radius(mechanism, s, 1200, near, mean), laplace_bound(mechanism, s, 1200, near)


def response_distance(seed: int, epsilon: float) -> tuple[float, float, float]:
    truth, rated = made(seed, 30, 40, 0.3)
    true = rating_of(truth)
    levels = STARS.level_of(rating_of(noisy_ratings(seed, truth, 0.2)))
    mechanism, square = RandomizedResponse(epsilon, 5), 0.0
    for user in range(30):
        sent = mechanism.answer(tape(100 * seed + user), np.where(rated[user], levels[user], 0).astype(np.uint8))
        square += float(((true[user] - sent)[sent > 0] ** 2).sum())
    s, near = int(rated.sum()), float(np.sqrt((((levels - true) / 2)[rated] ** 2).mean()))
    mean = float((truth**2).mean())
    radius = response_radius(mechanism, STARS, s, 1200, near, mean)
    return math.sqrt(square), radius, response_bound(mechanism, STARS, s, 1200, near)


@pytest.mark.parametrize("distance", [laplace_distance, response_distance])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_theorem_3_holds_in_200_runs_and_the_expected_square_is_the_formula(distance, epsilon):
    """γ = .05, so the bound holds in 190 of 200 runs or more. It is loose by a factor of 3 to 80 on average."""
    runs = [distance(seed, epsilon) for seed in range(200)]
    held = sum(found <= bound for found, _, bound in runs)
    assert held >= 0.95 * len(runs)
    looseness = np.mean([bound / found for found, _, bound in runs])
    assert 3 < looseness < 80
    assert sum(found <= bound / 80 for found, _, bound in runs) < 0.95 * len(runs)
    squares, expected = (np.array([run[place] ** 2 for run in runs]) for place in (0, 1))
    error = (squares - expected).std() / math.sqrt(len(runs))
    assert abs((squares - expected).mean()) < 4 * error  # 4 standard errors of the mean of 200


def test_the_number_of_ratings_is_estimated_without_bias():
    """From the number of cells that arrives on average, the estimate is the true number of ratings."""
    for epsilon in (0.5, 3.0):
        one, other = ModifiedLaplace(epsilon), RandomizedResponse(epsilon, 5)
        arrived = laplace_counts(one, 700, 10_000).present
        assert laplace_ratings(one, arrived, 10_000) == pytest.approx(700)
        arrived = response_counts(other, 700, 10_000).present
        assert response_ratings(other, arrived, 10_000) == pytest.approx(700)
    assert laplace_ratings(ModifiedLaplace(0.5), 0, 10_000) == 0


# --- debiased means -----------------------------------------------------------------------------------------------


def test_without_noise_the_means_are_the_shrunk_means():
    """Item 0 has 5, 4 and item 1 has 1: S = 3, −2, G = 3 + 1/3; 3 + (3 + 15/3)/(2 + 15), 3 + (−2 + 15/3)/(1 + 15)."""
    answers = np.array([[5, 1], [4, 0], [0, 0]], np.uint8)
    expected = [3 + 8 / 17, 3 + 3 / 16]
    assert response_means(RandomizedResponse(math.inf, 5), STARS, answers) == pytest.approx(expected)
    sums, arrived = np.array([1.5, -1.0]), np.array([2.0, 1.0])
    assert laplace_means(ModifiedLaplace(math.inf), STARS, sums, arrived, 3) == pytest.approx(expected)


def test_means_stay_in_the_range_and_a_negative_count_does_no_harm():
    means = shrunk_means(STARS, np.array([900.0, -900.0, 3.0]), np.array([-40.0, -2.0, 1.0]), 1.0)
    assert means.min() >= 1 and means.max() <= 5


@pytest.mark.parametrize("kind", ["response", "laplace"])
def test_the_estimates_of_sum_and_count_are_unbiased(kind, monkeypatch):
    """4000 users, 1000 of whom rate the only item, 700 with 5 and 300 with 2: S = 1100 and n = 1000 within 4 sd."""
    seen = {}
    monkeypatch.setattr(
        "protocol.schemes.collection.means.shrunk_means",
        lambda grid, sums, raters, noise: seen.update(S=sums, n=raters),
    )
    ratings = np.concatenate([np.full(700, 5.0), np.full(300, 2.0)])
    none, item, epsilon, m = np.zeros(0, np.uint32), np.zeros(1, np.uint32), 2.0, 4000
    held = [(item, ratings[user : user + 1]) if user < 1000 else (none, np.zeros(0)) for user in range(m)]
    if kind == "response":
        mechanism = RandomizedResponse(epsilon, 5)
        sent = [mechanism.answer(tape(user), STARS.vector(*held[user], 1)) for user in range(m)]
        response_means(mechanism, STARS, np.stack(sent))
        spread = math.sqrt(m * 2) / (mechanism.keep - mechanism.other)  # an answer's variance: at most 2², on average 2
    else:
        mechanism = ModifiedLaplace(epsilon)
        sent = [mechanism.answer(tape(user), held[user][0], STARS.scaled(held[user][1]), 1) for user in range(m)]
        numbers = np.concatenate([values for _, values in sent]).astype(np.float64)
        laplace_means(mechanism, STARS, np.array([numbers.sum()]), np.array([float(len(numbers))]), m)
        spread = 2 * math.sqrt(m * (mechanism.variance + 1)) / mechanism.keep
    assert abs(seen["S"][0] - 1100) < 4 * spread
    assert abs(seen["n"][0] - 1000) < 4 * math.sqrt(m / 4) / (1 / 3)


def test_a_user_adds_the_shrunk_mean_of_its_own_errors():
    """The errors 1 and 2 give (1 + 2)/(2 + 20)."""
    assert own_mean(np.array([4.0, 5.0]), np.array([3.0, 3.0])) == pytest.approx(3 / 22)
