"""Which floats noise can lead to, under either rating: float64 tells them apart, float32 as it travels does not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri

from protocol.arithmetic.noise import laplace
from protocol.arithmetic.tape import Tape
from protocol.schemes import Shape, find_scheme
from protocol.schemes.covariance.averages import averages_of
from sim.audit.canary.chunks import coins
from sim.audit.canary.one_run import one_run_epsilon

SEED, MANY, NEAR = bytes(range(32)), 4000, 40
CELLS = 2.0**52  # draws of a tape are midpoints of so many cells


def noise_of(cells, unit, scale):
    """Compute Laplace noise from cells as `laplace` does, so that every value that it can have can be tried."""
    normal = ndtri((cells + 0.5) / CELLS)
    return np.copysign(-unit * (log_ndtr(-np.abs(normal)) + np.log(2.0)), normal) * scale


def reachable(values, centre, unit, scale, dtype):
    """Tell for each value whether some draw leads to it from `centre`: the cells near the only ones that may."""
    apart = values.astype(np.float64) - centre
    tail = np.exp(-np.abs(apart) / (unit * scale)) / 2
    near = np.floor(np.where(apart < 0, tail, 1 - tail) * CELLS)
    found = np.zeros(len(values), np.bool_)
    for step in range(-NEAR, NEAR + 1):
        cells = np.clip(near + step, 0, CELLS - 1)
        found |= (centre + noise_of(cells, unit, scale)).astype(dtype) == values
    return found


def told_apart(values, truth, centres, unit, scale, dtype):
    """Return (how many values can come from one centre alone, the ε that they show)."""
    least, most = (reachable(values, centre, unit, scale, dtype) for centre in centres)
    assert np.all(np.where(truth, most, least)), "the draws of a tape are among those that are tried"
    alone = least != most
    return int(alone.sum()), one_run_epsilon(MANY, int(alone.sum()), int((most == truth)[alone].sum()), 0.95)


@pytest.mark.parametrize(("dtype", "distinguishes"), [(np.float64, True), (np.float32, False)])
def test_a_noisy_gradient_is_reached_from_either_rating_once_it_is_rounded_to_float32(dtype, distinguishes):
    truth, scale, centres = coins(SEED, 0, MANY), 16.0, (-1.26, -9.26)
    noise = laplace(Tape(SEED), scale, MANY, 1, "rho", 0)[:, 0]
    values = (np.where(truth, centres[1], centres[0]) + noise).astype(dtype)
    number, epsilon = told_apart(values, truth, centres, scale, 1.0, dtype)
    assert (number > MANY / 2 and epsilon > 6) if distinguishes else number == 0, "ε is .5"


@pytest.mark.parametrize("ratings", [18, 1000])
def test_the_shrinkage_that_hybrid_publishes_does_not_tell_the_number_of_ratings(ratings):
    """As a float64 it told it in 28 % of runs with 18 ratings, and in .6 % of runs with 1,000."""
    users, truth, centres = 3, coins(SEED, 0, MANY), (ratings - 1.0, float(ratings))
    shape = Shape(users, 4, (1.0, 5.0), (4,) * users, np.full(4, users, np.int64), 1.0)
    params, _ = find_scheme("hybrid").make_params(shape, epsilon=1.0)
    scale = 3.0
    counts = np.where(truth, centres[1], centres[0]) + laplace(Tape(SEED), 1.0, MANY, 1, "count")[:, 0] * scale
    wide = told_apart(counts, truth, centres, 1.0, scale, np.float64)[0]
    assert wide > (0.2 if ratings < 100 else 0.002) * MANY
    noisy = np.zeros(2 * 4 + 2)
    for count in counts[counts > 1][:200]:
        noisy[1] = count
        published = averages_of(params, noisy).user_shrink
        assert published == float(np.float32(published)) == pytest.approx(count / users)  # compared as float64
    rounded = counts.astype(np.float32)  # division by the number of users only renames the floats
    assert told_apart(rounded, truth, centres, 1.0, scale, np.float32)[0] == 0
