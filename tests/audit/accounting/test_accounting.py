"""Composition, checked against closed forms, numerical integration and independent reference figures."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from scipy import integrate, stats
from support.basics import params_with, shape_of, small_ratings, small_run

from protocol.arithmetic.tape import Tape
from protocol.schemes import composition
from protocol.schemes.composition import (
    account_envelopes,
    advanced_composition,
    basic_composition,
    envelope_mu,
    gaussian_epsilon,
    inverse_envelope_sums,
    tight_laplace,
)
from protocol.schemes.factorization.factorization import MaskedParams
from sim.api import run
from sim.foreign.plain_text import jsonable

ITEMS = 1682
STARS = (1.0, 5.0)


def params_of(epsilon: float, dim: int, iterations: int, **options: float) -> MaskedParams:
    size = {"n_users": 943, "n_items": ITEMS, "max_raters": 500}
    made, _ = params_with(**size, dim=dim, iterations=iterations, epsilon=epsilon, **options)
    return made


def account(epsilon: float, dim: int, iterations: int, seed: int = 1) -> dict:
    return account_envelopes(params_of(epsilon, dim, iterations), Tape(bytes([seed]) * 32), np.full(ITEMS, 50))


# ---- composition of the claim


def test_basic_and_advanced_composition_at_the_reference_point():
    assert basic_composition(0.1, 100) == pytest.approx(10)
    assert advanced_composition(0.1, 100) == pytest.approx(5.85, abs=0.005)


@pytest.mark.parametrize("epsilon", [8.0, 60.0, 2000.0])
def test_advanced_composition_is_never_worse_than_basic(epsilon):
    assert advanced_composition(epsilon, 20) == 20 * epsilon
    assert advanced_composition(0.1, 1) == 0.1


@pytest.mark.parametrize(("dim", "epsilon"), [(10, 1.2), (50, 0.50)])
def test_the_tight_figure_is_the_reference(dim, epsilon):
    assert tight_laplace(0.1, dim, 100) == pytest.approx(epsilon, rel=0.01)


def test_one_release_of_one_coordinate_is_a_laplace_mechanism():
    """δ(ε') of Laplace(1/ε) is 1 − e^((ε'−ε)/2), so ε' = ε + 2 ln(1 − δ)."""
    assert tight_laplace(1.0, 1, 1, delta=0.1) == pytest.approx(1 + 2 * math.log(0.9), rel=1e-2)


# ---- Gaussian releases


def delta_by_integration(epsilon: float, mu: float) -> float:
    """∫ max(0, p(x) − e^ε q(x)) dx for p = N(μ, 1), q = N(0, 1)."""

    def excess(x: float) -> float:
        return max(0.0, stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x))

    start = epsilon / mu + mu / 2  # p ≥ e^ε q from here on
    return integrate.quad(excess, start, start + 40, epsabs=1e-14)[0]


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.5, 6.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-3, 0.05])
def test_a_gaussian_release_has_the_delta_that_an_integral_gives(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon == 0:
        assert 2 * stats.norm.cdf(mu / 2) - 1 <= delta
    else:
        assert delta_by_integration(epsilon, mu) == pytest.approx(delta, rel=1e-5)


def test_known_values_of_a_gaussian_release():
    """Values of another accountant, and the limits: no change, no noise, and ε = 0 below the total variation."""
    for mu in (0.2, 1.0, 3.0):
        other = GaussianPrivacyLoss(standard_deviation=1 / mu)
        assert other.get_delta_for_epsilon(gaussian_epsilon(mu, 1e-5)) == pytest.approx(1e-5, rel=1e-5)
    assert gaussian_epsilon(0.0) == 0
    assert gaussian_epsilon(math.inf) == math.inf
    assert gaussian_epsilon(1e-5, 1e-5) == 0
    assert gaussian_epsilon(500.0) == pytest.approx(500**2 / 2 + 500 * stats.norm.isf(1e-5), rel=1e-3)


def test_mu_of_an_item_by_hand():
    """Δ = 4, b = 2; 1/H summed is (1, 3): even (1+3)/2 = 2, μ = 8 √(2/2)/2 = 4; worst 3, μ = 8 √1.5 / 2."""
    sums = np.array([[1.0, 3.0]])
    assert envelope_mu(sums, 2.0, 4.0, "even") == pytest.approx([4.0])
    assert envelope_mu(sums, 2.0, 4.0, "worst") == pytest.approx([4 * math.sqrt(1.5)])


# ---- given the envelopes, which the recommender knows


@pytest.mark.parametrize(("claim", "dim", "median"), [(1.0, 10, 1.5), (0.1, 50, 0.06)])
def test_one_release_given_the_envelopes_is_near_the_reference(claim, dim, median):
    """The reference is for a random direction w: μ² = Σ_l (2Δ w_l)² / (2b² H_l). Seeded Monte Carlo over the items."""
    draw = np.random.default_rng(1)
    direction = draw.normal(size=(ITEMS, dim))
    direction /= np.linalg.norm(direction, axis=1)[:, None]
    keys = [Tape(bytes(32)).key("item", item) for item in range(ITEMS)]
    inverse = inverse_envelope_sums(keys, dim, 1)
    scale = 8 * math.sqrt(dim) / claim
    mu = np.sqrt((8 * direction) ** 2 * inverse / (2 * scale**2) @ np.ones(dim))
    assert gaussian_epsilon(float(np.median(mu))) == pytest.approx(median, rel=0.1)
    even = account(claim, dim, 1)["recommender"]
    assert median < even["median"] < 1.2 * median  # a change that is even over the coordinates fares a little worse


@pytest.mark.parametrize(("dim", "median", "p99", "worst"), [(10, 2.6, 11.6, (25, 300)), (50, 1.2, 6.3, (9, 150))])
def test_a_hundred_releases_given_the_envelopes_are_near_the_reference(dim, median, p99, worst):
    """The worst of 1682 items is a draw from a heavy tail: its order of magnitude is all that can be checked."""
    runs = [account(0.1, dim, 100, seed)["recommender"] for seed in (1, 2, 3)]
    assert np.mean([run["median"] for run in runs]) == pytest.approx(median, rel=0.1)
    assert np.mean([run["p99"] for run in runs]) == pytest.approx(p99, rel=0.35)
    for figures in runs:
        assert worst[0] < figures["worst"] < worst[1]
        assert figures["median"] < figures["p99"] < figures["worst"] < figures["direction_worst"]


def test_the_document_has_the_claim_and_all_figures():
    made = account(0.1, 10, 100)
    assert made["epsilon"] == made["recommender"]["worst"]
    assert (made["claimed"], made["releases"], made["delta"], made["items"]) == (0.1, 100, 1e-5, ITEMS)
    assert "1682 released items" in made["method"] and "even" in made["method"] and "worst direction" in made["method"]
    assert json.loads(json.dumps(jsonable(made), allow_nan=False)) == made


def test_the_envelopes_are_those_that_the_recommender_deals():
    card, seats = small_run("masked", wire="paper", iterations=2)
    tape = Tape(next(seat.tape_seed for seat in seats if seat.party == "recommender"))
    role = card.scheme.make_role("recommender", card.setting, tape, None)
    expected = sum(1 / role._envelopes("rho", t).astype(np.float64) for t in range(2))
    keys = [tape.key("item", item) for item in range(card.params.n_items)]
    assert inverse_envelope_sums(keys, card.params.dim, 2) == pytest.approx(expected, rel=1e-12)


def test_only_released_items_are_accounted():
    raters = np.array([0, 1, 3, 4, 9])
    few = params_of(1.0, 2, 3, min_contributors=4)
    assert account_envelopes(few, Tape(bytes(32)), raters)["items"] == 2
    assert account_envelopes(params_of(1.0, 2, 3), Tape(bytes(32)), raters)["items"] == 4
    none = account_envelopes(few, Tape(bytes(32)), np.array([1, 2]))
    assert none["epsilon"] is None and none["recommender"]["worst"] is None


def test_too_much_work_becomes_a_sample_and_says_so(monkeypatch):
    whole = account(0.1, 10, 20)
    monkeypatch.setattr(composition, "MOST_ENVELOPE_VALUES", 800 * 10 * 20)
    sample = account(0.1, 10, 20)
    assert sample["items"] == 800
    assert "random sample of 800" in sample["method"] and "sample" not in whole["method"]
    assert sample == account(0.1, 10, 20)
    assert sample["recommender"]["median"] == pytest.approx(whole["recommender"]["median"], rel=0.15)
    assert sample["recommender"]["worst"] <= whole["recommender"]["worst"]


def test_without_noise_nothing_is_bounded():
    card, _ = small_run("masked", epsilon=math.inf)
    made = card.scheme.account(card.params, Tape(bytes(32)), shape_of(small_ratings(4, 5), 5))
    assert made["epsilon"] == math.inf and "no noise" in made["method"]


# ---- in a run


def test_the_summary_holds_the_account(tmp_path):
    made = run(scheme="masked", data="demo-small", iterations=3, seed=1, transport="inprocess", out=tmp_path / "run")
    accounted = made["privacy"]["accounted"]
    assert accounted["claimed"] == made["privacy"]["claimed_epsilon"] == 8
    assert accounted["basic"] == 24
    assert accounted["tight"] < accounted["advanced"] <= 24
    assert accounted["epsilon"] == accounted["recommender"]["worst"] > accounted["recommender"]["median"] > 0


def test_a_scheme_that_claims_nothing_accounts_nothing(tmp_path):
    made = run(scheme="plain", data="demo-small", iterations=2, seed=1, transport="inprocess", out=tmp_path / "run")
    assert made["privacy"]["accounted"] == {
        "epsilon": None,
        "delta": 1e-5,
        "method": "nothing is claimed, so nothing is accounted",
    }


def test_the_accounted_figure_of_no_noise_is_infinite(tmp_path):
    flags = {"data": "demo-small", "iterations": 2, "seed": 1, "transport": "inprocess", "epsilon": math.inf}
    made = run(scheme="masked", out=tmp_path / "run", **flags)
    assert made["privacy"]["accounted"]["epsilon"] == "inf"


def test_extreme_parameters_are_accounted_in_bounded_memory_and_never_above_the_basic_bound():
    """ε of a million would need a table of 2·10^9 cells, a long run one of 10^8."""
    assert tight_laplace(1e6, 1, 20) == 2e7
    for epsilon, dim, releases in ((8.0, 10, 10_000), (400.0, 10, 100), (0.001, 50, 3)):
        assert 0 < tight_laplace(epsilon, dim, releases) <= epsilon * releases
