"""The bounds of honest factors and envelopes: no honest run leaves them, and they do not depend on the clip."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from support.basics import small_ratings, small_run
from support.runs import play

from protocol.arithmetic.noise import noise_scale
from protocol.arithmetic.tape import Tape, exponential
from protocol.party.role import RECOMMENDER, user_index
from protocol.schemes.factorization.honest_reach import HonestReach, least_envelope_sum, plausible_envelopes


def test_the_bound_is_what_one_step_after_another_gives():
    """γ = 1/32, μ = 0: g = 1, so t steps add t γ (2·5 + √d q/k); 2^-9 of it and the roundings come on top."""
    card, _ = small_run("masked", dim=4, epsilon=2.0, iterations=3, item_regularisation=0.0)
    params = card.params
    b = noise_scale(2.0, 4.0, 4)
    lengths = [HonestReach(params).lengths(t, np.array([1, 4])) for t in range(4)]
    draws = params.iterations * params.n_items * params.dim
    q = next(q for q in np.arange(0, 100 * b, b / 1000) if (1 + q / (2 * b)) * math.exp(-q / b) < 2.0**-40 / draws)
    for t, (alone, four) in enumerate(lengths):
        assert alone == pytest.approx(1 + t / 32 * (10 + 2 * q), rel=3e-3)
        assert four == pytest.approx(1 + t / 32 * (10 + 2 * q / 4), rel=3e-3)
    other = dataclasses.replace(params, clip=params.clip / 1000)
    assert HonestReach(other).lengths(3, np.array([1])) == lengths[3][:1], "a gradient's bound is the clip's affair"


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("masked", {"epsilon": 0.01, "dim": 3, "iterations": 40}),
        ("masked", {"epsilon": 0.01, "factor_bits": 16, "iterations": 40, "dropout_allowance": 0.5}),
        ("masked", {"epsilon": math.inf, "iterations": 40, "learning_rate": 0.9}),
        ("dynamic", {"epsilon": 0.01, "wire": "paper", "iterations": 20}),
        ("direct", {"epsilon": 0.01, "iterations": 20}),
        ("masked", {"epsilon": 1.0, "clip": 0.5, "iterations": 40}),
    ],
    ids=str,
)
def test_honest_runs_keep_it_when_noise_moves_factors_far(scheme, settings):
    """No user refuses anything, and no sum is held back; at ε = .01 factors do move far."""
    card, seats = small_run(scheme, n_users=6, n_items=8, ratings=small_ratings(6, 8), **settings)
    run = play(card, seats)
    assert not run.outcome.rejected and not run.parties[RECOMMENDER].role.figures().get("poisoned")
    factors, raters = run.outcome.item_factors, run.parties[RECOMMENDER].role.n_raters
    reach = HonestReach(card.params, card.params.n_users if scheme == "direct" else 1)
    most = reach.lengths(card.params.iterations, np.ones_like(raters) if scheme == "direct" else raters)
    assert (np.linalg.norm(factors, axis=1) <= most).all()
    if settings["epsilon"] == 0.01:
        assert np.linalg.norm(factors, axis=1).max() > 100


def test_a_step_against_the_worst_honest_users_stays_inside():
    """All users hold the same u, rate 5, and the noise is at its reach in every coordinate: nothing is longer."""
    card, _ = small_run("masked", dim=2, iterations=30, epsilon=4.0)
    params, reach = card.params, HonestReach(card.params)
    v, u = np.array([-1.0, 0.0]), np.array([-1.0, 0.0])
    noise = reach.noise / math.sqrt(2) * np.array([1.0, 1.0])
    for t in range(30):
        assert np.linalg.norm(v) <= reach.lengths(t, np.array([3]))[0]
        error = np.clip(5.0 - u @ v, -params.clip, params.clip)
        gradient = 3 * -2 * u * error + noise
        v = v - params.learning_rate * (gradient / 3 + 2 * params.item_regularisation * v)


def test_exp_vectors_are_plausible_and_fainter_ones_are_not():
    for dim in (1, 2, 10, 50):
        rows = 20_000
        dealt = exponential([Tape(bytes(32)).key(item) for item in range(rows)], dim, "rho", 0)
        assert plausible_envelopes(dealt, rows)
        least = least_envelope_sum(dim, rows)
        for scale, fits in ((1.01, True), (0.99, False)):
            assert plausible_envelopes(np.full((1, dim), scale * least / dim, np.float32), rows) is fits
    assert plausible_envelopes(np.zeros((0, 3), np.float32), 5)


def test_users_of_one_scheme_all_apply_it():
    for scheme in ("plain", "direct", "masked", "dynamic"):
        card, seats = small_run(scheme)
        run = play(card, seats)
        users = [party.role for name, party in run.parties.items() if user_index(name) >= 0]
        rows = np.array([len(user.inputs.items) for user in users])
        for user, n in zip(users, rows, strict=True):
            raters = np.ones(n, np.uint32)
            assert user.reach.within(0, np.full((n, 2), math.sqrt(0.5)), raters).all()
            assert not user.reach.within(0, np.full((n, 2), 0.71 * 1.01), raters).any()
