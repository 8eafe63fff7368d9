"""The bounds as functions: sharp where the law is known, right as often as they say, and the same when written anew."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from support import bounds as straight

from protocol.schemes.composition import gaussian_epsilon
from sim.audit.canary.gaussian_run import many_runs_mu, one_run_mu, refutes_mu
from sim.audit.canary.guesses import expected_guesses, guess, laplace_ratio, sure_of
from sim.audit.canary.known_law import measured_mu, shown_share
from sim.audit.canary.one_run import one_run_epsilon, one_run_p_value
from sim.experiments.grid.audit_bounds import (
    DIMENSIONS,
    attainable,
    laplace_draws,
    markdown,
    ratio_law,
    rows,
    shown_in,
    shown_of_gaussian,
    shown_of_laplace,
)

DELTA, MECHANISMS = 1e-5, 4000
MOST_ALARMS = 246  # of 4,000 at 5 %: exceeded once in 1,000 times
COUNTS = [(40, 20, 17), (500, 365, 267), (500, 50, 50), (1682, 841, 640), (1682, 300, 151)]


def coins(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.random(shape) < 0.5


def errors(above: np.ndarray, truth: np.ndarray) -> tuple[int, int, int, int]:
    """Count (missed, positives, false alarms, negatives)."""
    return int((~above & truth).sum()), int(truth.sum()), int((above & ~truth).sum()), int((~truth).sum())


# ---- sharpness


@pytest.mark.parametrize(
    ("epsilon", "least"),  # for 500, 1,682 and 8,000 canaries
    [
        (0.5, (0.28, 0.38, 0.44)),
        (1, (0.75, 0.86, 0.93)),
        (2, (1.56, 1.80, 1.88)),
        (4, (3.1, 3.5, 3.74)),
        (8, (4.4, 5.4, 6.7)),
    ],
)
def test_one_run_shows_most_of_a_laplace_epsilon(epsilon, least):
    random = np.random.default_rng(1)
    for number, at_least in zip((500, 1682, 8000), least, strict=True):
        shown = [shown_of_laplace(random, epsilon, number) for _ in range(15)]
        assert at_least < float(np.median(shown)) < epsilon
        told = expected_guesses(epsilon, number)
        assert one_run_epsilon(number, told.number, told.right, 0.95) == pytest.approx(np.median(shown), rel=0.16)


@pytest.mark.parametrize(
    ("mu", "least"),  # for 1,682: one run at δ, one run of a Gaussian law, many runs, measured and known law
    [(0.5, (0.66, 0.87, 1.0, 1.5, 1.5)), (1, (1.7, 2.3, 3.2, 3.75, 3.75)), (2, (3.4, 5.0, 8.5, 9.3, 9.3))],
)
def test_gaussian_noise_shows_more_the_more_its_law_is_known(mu, least):
    random, number, shown = np.random.default_rng(2), 1682, []
    for _ in range(31):
        truth = coins(random, number)
        values = random.normal(size=number) + mu * truth
        mus = many_runs_mu(*errors(values > mu / 2, truth), 0.95), measured_mu(values, truth, 0.95)
        at_delta, one_run, known = shown_of_gaussian(random, mu, number)
        shown.append((at_delta, one_run, *(gaussian_epsilon(one, DELTA) for one in mus), known))
    medians = np.median(shown, axis=0)
    assert np.all(medians > least) and np.all(medians < gaussian_epsilon(mu, DELTA))


def test_eight_thousand_repetitions_show_nine_tenths_of_epsilon_one_and_more_of_a_known_law():
    random, pure, known = np.random.default_rng(3), [], []
    for _ in range(21):
        places, truth = laplace_draws(random, 1.0, 8000)
        made = guess(laplace_ratio(places, 1.0), truth, 0.05)
        pure.append(one_run_epsilon(8000, made.number, made.right, 0.95))
        ratios = random.normal(size=8000) + truth - 0.5
        known.append(gaussian_epsilon(shown_share(ratios, np.ones(8000), truth, 0.95), DELTA))
    assert np.median(pure) >= 0.9
    assert np.median(known) >= 0.93 * gaussian_epsilon(1.0, DELTA), "a μ of 1 is an ε of 4.38"


def test_the_table_of_bounds_is_near_its_references():
    found = rows(draws=25)
    assert [row["law"] for row in found] == 5 * ["Laplace"] + 3 * ["Gaussian"] + 4 * ["dim"]
    for row in found:
        assert len(row["shown"]) == 3
        for shown, reference in zip(row["shown"], row["reference"], strict=True):
            assert reference - max(0.12, 0.15 * reference) < shown < row["epsilon"]
    page = markdown(found)
    known = next(row for row in found if row["law"] == "Gaussian" and row["parameter"] == 2)
    assert f"{known['shown'][2]:.2f} (9.48)" in page and "| 2 (ε 10.00) |" in page and page.count("|---|") == 6


@pytest.mark.parametrize("dim", DIMENSIONS)
def test_the_law_of_the_ratio_is_that_of_draws(dim):
    random, epsilon = np.random.default_rng(16), 1.0
    sizes, law = ratio_law(dim, epsilon)
    noise = random.laplace(0, dim / epsilon, (200_000, dim))
    drawn = np.abs(laplace_ratio(noise, epsilon / dim).sum(axis=1))
    assert law.sum() == pytest.approx(1) and law.min() >= 0
    for size in (0.15, 0.45, 0.9, 0.999):
        assert law[sizes >= size].sum() == pytest.approx(np.mean(drawn >= size), abs=0.01)
    assert law[sizes > epsilon * (1 - 1e-9)].sum() == pytest.approx((1 + math.exp(-epsilon)) / 2**dim)


def test_no_guesser_shows_more_of_ten_dimensions_and_ours_shows_as_much():
    expected = expected_guesses(1.0, 1682)
    assert attainable(1, 1.0, 1682) == pytest.approx(
        one_run_epsilon(1682, expected.number, expected.right, 0.95), abs=0.005
    )
    assert [attainable(dim, 1.0, 1682) for dim in DIMENSIONS] == pytest.approx([0.89, 0.85, 0.63, 0.38], abs=0.01)
    random = np.random.default_rng(17)
    ours = np.median([shown_in(random, 10, 1.0, 8000) for _ in range(61)])
    assert ours == pytest.approx(attainable(10, 1.0, 8000), abs=0.05)


# ---- false alarms, over 4,000 correct mechanisms each


def test_one_run_rarely_shows_more_than_is_true():
    random = np.random.default_rng(4)
    for epsilon, number in ((1.0, 100), (0.1, 60), (4.0, 60)):
        places, truth = laplace_draws(random, epsilon, MECHANISMS, number)
        ratios = laplace_ratio(places, epsilon)
        made = [guess(row, coin, 0.05) for row, coin in zip(ratios, truth, strict=True)]
        wrong = sum(one_run_p_value(number, one.number, one.right, epsilon, 0.0) < 0.05 for one in made)
        assert wrong <= MOST_ALARMS


def test_a_statistic_that_is_no_ratio_at_all_costs_nothing_but_sharpness():
    random = np.random.default_rng(5)
    places, truth = laplace_draws(random, 1.0, 800, 100)
    for ratios in (10 * places, -places, np.round(places), random.normal(size=places.shape)):
        made = [guess(row, coin, 0.05) for row, coin in zip(ratios, truth, strict=True)]
        assert sum(one_run_p_value(100, one.number, one.right, 1.0, 0.0) < 0.05 for one in made) <= 61


def test_one_run_holds_where_a_canary_moves_all_others():
    """One output reveals the exclusive or of all coins as far as ε allows: no guess may profit twice."""
    random, epsilon, number = np.random.default_rng(6), 1.0, 60
    truth = coins(random, MECHANISMS, number)
    told = truth.sum(axis=1) * 2 > number  # a majority, by randomized response of ε
    lies = random.random(MECHANISMS) > math.exp(epsilon) / (1 + math.exp(epsilon))
    right = ((told ^ lies)[:, None] == truth).sum(axis=1)
    wrong = sum(one_run_p_value(number, number, int(one), epsilon, 0.0) < 0.05 for one in right)
    assert wrong <= MOST_ALARMS


def test_bounds_of_gaussian_noise_rarely_show_more_than_is_true():
    random, number, mu = np.random.default_rng(7), 60, 1.0
    truth = coins(random, MECHANISMS, number)
    values = random.normal(size=truth.shape) + mu * truth
    above, ratios = values > mu / 2, mu * (values - mu / 2)
    many, one_run = functools.cache(many_runs_mu), functools.cache(refutes_mu)
    alarms = np.zeros(4)
    for row in range(MECHANISMS):
        coin, own = truth[row], values[row]
        surest = np.argsort(-np.abs(ratios[row]))[:12]
        alarms += (
            (measured_mu(own, coin, 0.95) or 0.0) > mu,
            shown_share(ratios[row], np.full(number, mu), coin, 0.95) > 1,
            many(*errors(above[row], coin), 0.95) > mu,
            one_run(number, 12, int((above[row] == coin)[surest].sum()), mu, 0.05) > 0,
        )  # fmt: skip
    assert np.all(alarms <= MOST_ALARMS)
    assert alarms[0] > 150 and alarms[1] > 150, "these two are exact: one in twenty"


# ---- what missing noise does to each


def test_missing_noise_shows_where_the_noise_is_measured_and_not_where_it_is_taken_for_granted():
    random = np.random.default_rng(9)
    truth = coins(random, 4000)
    values = random.normal(size=4000) / 2 + truth
    share = shown_share(values - 0.5, np.ones(4000), truth, 0.995)
    assert (measured_mu(values, truth, 0.995) or 0) > 1.8 > 1.1 > share > 0.9
    assert measured_mu(truth * 1.0, truth, 0.95) is None, "no noise at all: there is no scale to measure"
    assert measured_mu(-values, truth, 0.95) == 0


def test_nine_tenths_of_the_noise_is_found_by_many_canaries():
    random = np.random.default_rng(10)
    for number, confidence, least in ((8000, 0.95, 90), (100_000, 0.99999, 100)):  # 96.7 % expected at 8,000
        found = 0
        for _ in range(100):
            truth = coins(random, number)
            made = guess(laplace_ratio(random.laplace(0, 0.9, number) + truth, 1.0), truth, 1 - confidence)
            found += one_run_epsilon(number, made.number, made.right, confidence) > 1
        assert found >= least


def test_a_share_of_the_shift_is_measured_with_a_noise_for_each_item():
    random = np.random.default_rng(11)
    truth, mus = coins(random, 3000), 1 / np.sqrt(2 * random.exponential(size=3000))
    for share in (0.0, 0.5, 1.0):
        z = random.normal(size=3000) + np.where(truth, 0.5, -0.5) * share * mus
        assert share - 0.07 < shown_share(mus * z, mus, truth, 0.999) <= share
    assert shown_share(np.zeros(5), np.zeros(5), truth[:5], 0.95) == 0


# ---- the choice of the guesses


def test_of_laplace_noise_exactly_the_saturated_tails_are_guessed():
    places, truth = laplace_draws(np.random.default_rng(12), 1.0, 8000)
    sure = sure_of(laplace_ratio(places, 1.0), 0.05)
    assert np.array_equal(sure, (places <= 0) | (places >= 1))
    made = guess(laplace_ratio(places, 1.0), truth, 0.05)
    assert (
        made.number == sure.sum()
        and made.right == (places >= 1)[truth & sure].sum() + (places <= 0)[~truth & sure].sum()
    )


def test_nothing_is_guessed_from_nothing():
    truth = coins(np.random.default_rng(13), 100)
    made = guess(np.zeros(100), truth, 0.05)
    assert (made.number, made.right) == (0, 0) and one_run_epsilon(100, 0, 0, 0.95) == 0
    assert one_run_mu(100, 0, 0, 0.95) == 0


# ---- the same, written anew


@pytest.mark.parametrize(("canaries", "guesses", "right"), COUNTS)
def test_the_bounds_agree_with_sums_and_bisection(canaries, guesses, right):
    for confidence, delta in ((0.95, 0.0), (0.999, 0.0), *(((0.95, 1e-5),) if canaries < 1000 else ())):
        ours = one_run_epsilon(canaries, guesses, right, confidence, delta)
        assert ours == pytest.approx(straight.one_run(canaries, guesses, right, confidence, delta), abs=1e-6)
    assert one_run_mu(canaries, guesses, right, 0.95) == pytest.approx(
        straight.one_run_gaussian(canaries, guesses, right, 0.95), abs=1e-6
    )
    wrong = guesses - right
    assert many_runs_mu(wrong, guesses, wrong, canaries, 0.95) == pytest.approx(
        straight.many_runs(wrong, guesses, wrong, canaries, 0.95), abs=1e-6
    )


def test_the_known_law_agrees_with_least_squares():
    random = np.random.default_rng(14)
    truth, mus = coins(random, 200), random.uniform(0.5, 2, 200)
    values = random.normal(size=200) + np.where(truth, mus, -mus) / 2
    assert shown_share(mus * values, mus, truth, 0.95) == pytest.approx(
        straight.share(values.tolist(), truth.tolist(), mus.tolist(), 0.95), abs=1e-6
    )


@pytest.mark.parametrize(("canaries", "guesses", "right"), COUNTS)
def test_the_bounds_agree_with_a_published_implementation(canaries, guesses, right):
    auditing = pytest.importorskip("jax_privacy.auditing", reason="compared only where it is installed")
    unguessed = np.zeros((canaries - guesses) // 2)
    scores = np.append(unguessed, np.ones(right)), np.append(unguessed, np.ones(guesses - right))
    published = auditing.CanaryScoreAuditor(*scores)
    canaries = guesses + 2 * len(unguessed)
    at = auditing.Explicit(threshold=0.5)
    for delta in (1e-5, 1e-300):
        theirs = published.epsilon_one_run(0.05, delta, threshold_strategy=at)
        assert one_run_epsilon(canaries, guesses, right, 0.95, delta) == pytest.approx(theirs, abs=1e-6)
    theirs = published.epsilon_one_run_fdp(0.05, DELTA, threshold_strategy=at)
    assert gaussian_epsilon(one_run_mu(canaries, guesses, right, 0.95), DELTA) == pytest.approx(theirs, abs=1e-6)


def test_the_limits_are_those_of_many_thresholds_in_a_published_implementation():
    auditing = pytest.importorskip("jax_privacy.auditing", reason="compared only where it is installed")
    random = np.random.default_rng(15)
    truth = coins(random, 4000)
    above = random.normal(size=4000) + truth > 0.5
    published = auditing.CanaryScoreAuditor(above[truth] * 1.0, above[~truth] * 1.0)
    thresholds = 3  # none, the only one, and all; each gets its part of the error
    theirs = published.epsilon_from_gdp(0.05, DELTA)
    ours = gaussian_epsilon(many_runs_mu(*errors(above, truth), 1 - 0.05 / thresholds), DELTA)
    assert ours == pytest.approx(theirs, abs=1e-6)
