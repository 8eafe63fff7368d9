"""The profiles of all users, solved at once, are those that each user fits on its device."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.party.profile import RIDGES, fit_profile
from sim.data.ratings import Column
from sim.run.all_profiles import choose_profiles, solve_profiles

STARS = (1.0, 5.0)


def ratings(counts: list[int], n_items: int, seed: int) -> Column:
    draw = np.random.default_rng(seed)
    items = [np.sort(draw.choice(n_items, count, replace=False)) for count in counts]
    starts = np.concatenate([[0], np.cumsum(counts)])
    values = draw.integers(1, 6, int(starts[-1])).astype(np.float64)
    return Column(starts, np.concatenate(items).astype(np.uint32), values)


@pytest.mark.parametrize("dim", [1, 4, 12])
@pytest.mark.parametrize("scale", [0.05, 1.0, 3.0])
def test_everybody_is_solved_as_on_its_device(dim, scale):
    """Users have fewer ratings than dimensions, as many, or more; one user has none."""
    train = ratings([1, 2, 3, 4, 5, 12, 13, 30, 30, 30, 0, 7], 40, seed=dim)
    factors = scale * np.random.default_rng(9).normal(size=(40, dim))
    chosen, printed = choose_profiles(factors, train, STARS), solve_profiles(factors, train)
    for user, count in enumerate(train.counts.tolist()):
        if not count:
            assert not chosen[user].any() and not printed[user].any()
            continue
        items, values = train.of(user)
        fitted = fit_profile(factors[items], values, STARS)
        assert chosen[user] == pytest.approx(fitted.factors, rel=1e-7, abs=1e-9)
        assert printed[user] == pytest.approx(fitted.as_printed, rel=1e-6, abs=1e-8)


def test_users_do_choose_differently():
    train = ratings([20] * 60, 40, seed=3)
    factors = np.random.default_rng(4).normal(size=(40, 6))
    chosen = choose_profiles(factors, train, STARS)
    fixed = np.array([solve_profiles(factors, train, ridge) for ridge in RIDGES])
    taken = {int(np.abs(fixed[:, user] - chosen[user]).sum(axis=1).argmin()) for user in range(60)}
    assert len(taken) > 2
