"""What a user adds: no profile, and no rating that is added or removed, moves it farther than the noise is made for."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from support.basics import small_run
from support.runs import long

from protocol.schemes.hardened.unit_vectors import first_vector, unit_vector

TRIES = 20_000
ITEMS = 400


def params_of(unit, **changes):
    card, _ = small_run("hardened", n_users=12, unit=unit)
    return dataclasses.replace(card.params, n_items=ITEMS, **changes)


def squared(vector):
    return int(np.sum(vector * vector))


def test_a_unit_vector_points_the_same_way_and_is_never_too_long():
    draw = np.random.default_rng(1)
    longest = 0
    for _ in range(TRIES):
        values = draw.standard_normal(draw.integers(1, 40)) * 10.0 ** draw.integers(-6, 6)
        made = unit_vector(values, 1024)
        longest = max(longest, squared(made))
        assert squared(made) <= 1024**2
        assert made @ values >= 0.99 * np.linalg.norm(made) * np.linalg.norm(values)
    assert longest > 0.999 * 1024**2, "the bound is reached"
    assert not unit_vector(np.zeros(5), 1024).any()
    for hostile in (np.full(4, 1.0), np.full(3, 0.5), np.array([1e300, 1e300]), np.full(1000, 1e-200)):
        assert squared(unit_vector(hostile, 1024)) <= 1024**2


def largest_of_users(tries):
    """Search for the longest vector: every number of equal ratings, then random profiles; return (it, bound)."""
    params, draw = params_of("user"), np.random.default_rng(2)
    (bound,) = params.squares
    found = 0
    for turn in range(tries):
        items, ends = np.arange(1 + turn % ITEMS), [1.0, 5.0]
        ratings = np.full(len(items), ends[turn // ITEMS % 2])
        if turn >= 2 * ITEMS:
            items = np.flatnonzero(draw.random(ITEMS) < draw.uniform(0, 0.15))
            ratings = draw.choice([1.0, 2, 3, 4, 5], len(items), p=draw.dirichlet(np.ones(5)))
            if turn % 2:  # two values, one of them once
                ratings = np.full(len(items), draw.choice(ends))
                ratings[: turn % 3] = draw.uniform(*ends)
        found = max(found, squared(first_vector(params, items, ratings)))
    return found, bound


def largest_of_ratings(rating_range, tries):
    """Search for the largest move by one rating; return (it, bound).

    The worst is known: as many others as move their mean most, all at one end, and the new one at the other. Half of
    the tries are near it, the others at random.
    """
    low, high = rating_range
    params, draw = params_of("rating", rating_min=low, rating_max=high), np.random.default_rng(3)
    (bound,) = params.squares
    span, found = params.span_whole, 0
    worst = max(range(1, ITEMS), key=lambda n: n * (-(-span // (n + 9))) ** 2)
    for turn in range(tries):
        n = max(1, worst + int(draw.integers(-5, 6))) if turn % 2 else int(draw.integers(1, 60))
        ratings, new = draw.uniform(low, high, n), draw.choice([low, high])
        if turn % 2:
            ratings = np.full(n, low + high - new)
            ratings[: turn % 4] = draw.uniform(low, high)
        whole = first_vector(params, np.arange(n + 1), np.append(ratings, new))
        found = max(found, squared(whole - first_vector(params, np.arange(n), ratings)))
    return found, bound


RANGES = [(1.0, 5.0), (0.5, 5.0), (-10.0, 10.0)]


def test_a_user_moves_the_sum_by_at_most_the_bound():
    found, bound = largest_of_users(TRIES // 4)
    assert 0.999 * bound < found <= bound == 2 * params_of("user").whole ** 2
    assert not first_vector(params_of("user"), np.zeros(0, np.int64), np.zeros(0)).any(), "nobody adds nothing"


@pytest.mark.parametrize("rating_range", RANGES)
def test_a_rating_moves_the_sum_by_at_most_the_bound(rating_range):
    found, bound = largest_of_ratings(rating_range, TRIES)
    assert 0.97 < math.sqrt(found / bound) <= 1
    if rating_range == (1.0, 5.0):
        assert math.sqrt(bound) / params_of("rating").whole == pytest.approx(1.923, abs=2e-3)


@pytest.mark.parametrize("rating_range", [(1.0, 5.0), (0.5, 5.0), (-10.0, 10.0)])
def test_another_value_moves_the_sum_by_at_most_the_bound(rating_range):
    low, high = rating_range
    params, draw = params_of("value", rating_min=low, rating_max=high), np.random.default_rng(4)
    (bound,) = params.squares
    found = 0
    for turn in range(TRIES):
        n = int(draw.integers(1, 60))
        others = draw.uniform(low, high, n - 1) if turn % 2 else np.full(n - 1, draw.uniform(low, high))
        values = (low, high) if turn % 3 else draw.uniform(low, high, 2)  # adversarial: from one end to the other
        one, other = (first_vector(params, np.arange(n), np.append(others, value)) for value in values)
        assert len(one) == ITEMS and np.abs(one).max() <= params.whole == params.peak, "no counts are sent"
        found = max(found, squared(one - other))
    assert 0.95 * bound < found <= bound
    if rating_range == (1.0, 5.0):
        assert math.sqrt(bound) / params.whole == pytest.approx(2.123, abs=2e-3)


@long
def test_a_million_neighbours_stay_within_the_bound(record_property):
    for name, (found, bound) in {
        "user": largest_of_users(400_000),
        **{f"rating {ends}": largest_of_ratings(ends, 200_000) for ends in RANGES},
    }.items():
        print(f"\n{name}: {math.sqrt(found / bound):.6f} of the bound", end="")
        record_property(name, math.sqrt(found / bound))
        assert 0.97 < math.sqrt(found / bound) <= 1
