"""The prime field on machine words, against Python's integers."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protocol.arithmetic import prime_field as field
from protocol.arithmetic.prime_field import PRIME

HALF = PRIME // 2
EDGES = [0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**63, HALF, HALF + 1, PRIME - 2, PRIME - 1]
elements = st.one_of(st.sampled_from(EDGES), st.integers(0, PRIME - 1))


def words(values):
    return np.array(values, np.uint64)


@given(st.lists(st.tuples(elements, elements), min_size=1, max_size=20))
def test_sums_differences_and_products_are_those_of_integers(pairs):
    one, other = (words(side) for side in zip(*pairs, strict=True))
    assert field.add(one, other).tolist() == [(a + b) % PRIME for a, b in pairs]
    assert field.subtract(one, other).tolist() == [(a - b) % PRIME for a, b in pairs]
    assert field.multiply(one, other).tolist() == [a * b % PRIME for a, b in pairs]
    assert field.sum_of(one[None]).tolist() == [sum(a for a, _ in pairs) % PRIME]
    assert field.weighed(one[None], other).tolist() == [sum(a * b for a, b in pairs) % PRIME]


def test_all_pairs_of_edges():
    one, other = (words(side) for side in zip(*((a, b) for a in EDGES for b in EDGES), strict=True))
    assert field.multiply(one, other).tolist() == [a * b % PRIME for a in EDGES for b in EDGES]
    assert field.sum_of(words([[PRIME - 1] * 5000])).tolist() == [5000 * (PRIME - 1) % PRIME]


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1))
def test_signed_integers_go_in_and_out(integers):
    inside = field.from_signed(np.array(integers))
    assert inside.tolist() == [value % PRIME for value in integers]
    assert field.to_signed(inside).tolist() == integers


def test_only_elements_fit():
    assert field.fits(words([0, PRIME - 1]), (2,))
    assert not field.fits(words([0, PRIME]), (2,)) and not field.fits(words([0]), (2,))
    assert not field.fits(np.zeros(2, np.int64), (2,))


def test_transforms_are_values_of_polynomials():
    draw = random.Random(1)
    for order in (1, 2, 8, 64):
        root = field.root_of_unity(order)
        assert pow(root, order, PRIME) == 1 and (order == 1 or pow(root, order // 2, PRIME) == PRIME - 1)
        rows = [[draw.randrange(PRIME) for _ in range(order)] for _ in range(3)]
        points = [pow(root, at, PRIME) for at in range(order)]
        values = [[sum(c * pow(x, k, PRIME) for k, c in enumerate(row)) % PRIME for x in points] for row in rows]
        assert field.evaluated(words(rows), root).tolist() == values
        assert field.interpolated(words(values)).tolist() == rows
        point = draw.randrange(PRIME)
        at_point = [sum(c * pow(point, k, PRIME) for k, c in enumerate(row)) % PRIME for row in rows]
        assert field.weighed(words(values), field.lagrange(order, point)).tolist() == at_point


def test_uniform_elements_repeat_and_leave_out_what_is_no_element(monkeypatch):
    key = bytes(32)
    drawn = field.uniform_elements(key, 1000, "name")
    assert np.array_equal(drawn, field.uniform_elements(key, 1000, "name")) and len(np.unique(drawn)) == 1000
    assert not np.array_equal(drawn, field.uniform_elements(key, 1000, "other"))
    assert abs(float(np.mean(drawn / PRIME)) - 0.5) < 0.05
    above, fine = (value.to_bytes(8, "little") for value in (PRIME, 5))
    streams = {0: above + fine + above, 1: fine + above, 2: fine}
    monkeypatch.setattr(field, "keystream", lambda key, length, what, turn, *name: streams[turn][:length])
    assert field.uniform_elements(key, 3, "name").tolist() == [5, 5, 5]
