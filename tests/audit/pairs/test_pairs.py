"""Pairs: the same tapes on neighbouring data, what differs in whose view, and the exact ε of the pair."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from support.audit import audited, made, of
from typer.testing import CliRunner

from protocol.schemes.composition import gaussian_epsilon
from sim.api import pair
from sim.audit.audit import audit
from sim.audit.pairs.change import ends_of
from sim.audit.pairs.exposure import gaussian_mu_squared
from sim.audit.pairs.pairs import ask_pairs
from sim.audit.pairs.second_run import deviations
from sim.audit.pairs.twice import run_twice
from sim.audit.truth import all_ratings
from sim.cli.app import app

RATINGS = [{0: 5, 1: 3, 2: 1}, {0: 4, 1: 2}, {0: 3, 1: 5, 4: 2}, {0: 2, 3: 4}, {0: 1, 2: 5, 4: 3}]
CHURN = {"join": 0.3, "leave": 0.4, "iterations": 5, "options": {"committers": 2}, "seed": 3}
HONEST = {
    "plain": {},
    "direct": {},
    "trusted": {},
    "masked": {"wire": "compact"},
    "masked ": {"wire": "paper", "publish": "rated"},
    "masked  ": {"options": {"dropout_allowance": 0.5, "min_contributors": 2}},
    "dynamic": {"wire": "compact", **CHURN},
    "dynamic ": {"wire": "paper", **CHURN},
    "covariance": {},
    "covariance ": {"options": {"predictor": "knn"}},
    "covariance  ": {"options": {"unit_of": "user", "noise": "laplace"}},
    "covariance-masked": {},
    "covariance-masked ": {"options": {"form": "sparse"}},
    "hybrid": {},
    "hardened": {},
    "laplace-ratings": {},
    "randomized-response": {"options": {"recovery": "means"}},
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_scheme_changes_nothing_but_numbers(tmp_path, name):
    flags = {"epsilon": 1.0, **HONEST[name]}
    if name.strip() == "plain":
        del flags["epsilon"]
    scheme = name.strip()
    if scheme not in ("plain", "direct", "trusted", "masked", "dynamic"):
        flags |= {"dim": None, "iterations": None}
    case = audited(tmp_path, RATINGS, scheme, **flags)
    assert deviations(case, None) == []  # the recorded run is the first run of every pair
    document, findings = ask_pairs(case, 4)
    beyond = [one for one in findings if one.severity == "break" or one.id == "shape"]
    assert not beyond and not document["shape"]["leaks"]
    assert document["shape"]["changed_numbers"] > 0
    assert bool(document["epsilon"]) == (scheme != "plain")


# --- the formula ----------------------------------------------------------------------------------------------------


def test_the_loss_of_a_run_follows_from_the_shifts_given_what_was_released_before():
    """Users answer to released sums. What such answers add to a later sum is no shift: it is known already."""
    answer, step, variance = 0.7, 2.0, 3.0
    # S0 = s + n0, S1 = s + answer · S0 + n1: mean and covariance of (S0, S1)
    mix = np.array([[1.0, 0.0], [answer, 1.0]])
    shift = mix @ np.full(2, step)
    exact = shift @ np.linalg.solve(variance * mix @ mix.T, shift)
    held = gaussian_mu_squared(np.full((2, 1), step), np.full((2, 1), variance), np.zeros(1), np.ones((2, 2)))
    assert held == pytest.approx((exact, exact))
    assert shift @ shift / variance > 1.5 * exact  # the shifts of a second run, in which all answer anew


def test_noise_that_stays_covers_what_stays():
    shift, own, common = np.array([[2.0, 1.0], [2.0, 3.0]]), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 6.0])
    squared, given = gaussian_mu_squared(shift, own, common, np.ones((2, 2)))
    by_hand = 0.0
    for column in range(2):
        covariance = np.diag(own[:, column]) + common[column]
        by_hand += shift[:, column] @ np.linalg.inv(covariance) @ shift[:, column]
    assert squared == pytest.approx(by_hand) and given == pytest.approx((shift**2 / own).sum())
    assert squared < given
    assert gaussian_mu_squared(shift, own, common, 1.0) == pytest.approx((squared, given))


def test_the_loss_to_the_recommender_is_that_of_the_noise_that_the_users_drew(tmp_path):
    """One item with two raters, one iteration: μ² by hand, from the envelopes that its recommender dealt."""
    from protocol.arithmetic.tape import exponential
    from sim.views.exhibits import Exhibits

    case = audited(tmp_path, [{0: 5}, {0: 3}], "masked", epsilon=1.0, iterations=1)
    tape = Exhibits(case, ("recommender",)).brought("recommender").tape
    rho, eta = (exponential([tape.key("item", 0)], 2, name, 0)[0].astype(float) for name in ("rho", "eta"))
    b, mus = case.card.params.noise_scale, []
    for user, own in enumerate(all_ratings(case).values()):
        twice = run_twice(case, ends_of(case.card.params, user, own, 0))
        (shift,) = [one for one in twice.shifts if one.what == "gradient"]
        mus.append(math.sqrt((shift.rows[0] ** 2 / (2 * b**2 * (rho + eta))).sum()))
    document, _ = ask_pairs(case, 2)
    (row,) = [row for row in document["epsilon"] if row["coalition"] == ["recommender"]]
    mu = max(mus)
    assert row["user"] == mus.index(mu) and row["epsilon"] == pytest.approx(gaussian_epsilon(mu))
    assert stats.norm.cdf(mu / 2 - row["epsilon"] / mu) - math.exp(row["epsilon"]) * stats.norm.cdf(
        -mu / 2 - row["epsilon"] / mu
    ) == pytest.approx(1e-5, rel=1e-3)


# --- the known weaknesses, found without being told -----------------------------------------------------------------


def test_user_factors_that_react_to_their_ratings_are_found_by_search(tmp_path):
    document = audit(made(tmp_path / "run", "masked", epsilon=1.0).folder, only=["pairs"])
    found = next(one for one in document["findings"] if one["id"] == "reacting-user-factors")
    assert found["severity"] == "weak" and found["measured"]["largest_release"] >= 1.3
    over = found["measured"]["mean_over_run"]
    assert over > 1 and f"all together by up to {over:.3g} times what composition assumes" in found["title"]
    assert document["pairs"]["shift"]["first_release"] <= 1 and document["verdict"] == "within-claims"


def test_user_factors_that_are_trained_on_the_ratings_are_found_by_search(tmp_path):
    case = made(tmp_path / "run", "trusted", epsilon=1.0)
    found = of(ask_pairs(case, 12)[1], "moving-user-factors")
    assert found.severity == "weak" and found.measured > 1


# --- keyhole pair ---------------------------------------------------------------------------------------------------


def test_one_pair_is_shown_record_by_record(tmp_path):
    case = audited(tmp_path, RATINGS, "masked", epsilon=1.0)
    made = CliRunner().invoke(app, ["pair", str(case.folder), "--user", "user:2", "--item", "1", "--json"])
    document = json.loads(made.stdout)
    assert document["pair"]["user"] == 2 and document["pair"]["other"] == 1.0 and not document["leaks"]
    first = [row for row in document["records"] if row["iteration"] == 0]
    assert {(row["party"], row["kind"], row["rows"]) for row in first} == {
        ("third_party", "MaskedGradient", 1),  # its own upload, in the row of item 1
        ("recommender", "MaskedTotal", 1),
    }
    assert pair(case.folder)["pair"]["item"] is not None
    shown = CliRunner().invoke(app, ["pair", str(case.folder), "--user", "u002"])
    assert shown.exit_code == 0 and "Only values of numbers differ" in shown.stdout
    refused = CliRunner().invoke(app, ["pair", str(case.folder), "--user", "user:3", "--item", "1"])
    assert refused.exit_code == 2
