"""Arithmetic in Z_P on machine words, checked against Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.basics import steadily

from protocol.arithmetic.ring import Ring

ALL_BITS = (8, 16, 24, 32, 40, 48, 56, 64)

every_ring = pytest.mark.parametrize("bits", ALL_BITS)


def words(ring: Ring, rows: list[list[int]], dim: int) -> np.ndarray:
    return np.array(rows, ring.dtype).reshape(len(rows), dim)


def elements(bits: int) -> st.SearchStrategy[int]:
    """Draw residues, those at which a carry or a sign may go wrong more often than by chance."""
    modulus = 1 << bits
    edges = [0, 1, modulus // 2 - 1, modulus // 2, modulus // 2 + 1, modulus - 2, modulus - 1]
    return st.one_of(st.sampled_from(edges), st.integers(0, modulus - 1))


def rows_of(bits: int, rows: int, dim: int) -> st.SearchStrategy[list[list[int]]]:
    row = st.lists(elements(bits), min_size=dim, max_size=dim)
    return st.lists(row, min_size=rows, max_size=rows)


def test_a_sum_wraps_in_eight_bits():
    ring = Ring(8)
    first, second = words(ring, [[200, 255]], 2), words(ring, [[100, 1]], 2)
    assert ring.add(first, second).tolist() == [[44, 0]]  # 300 - 256, 256 - 256
    assert ring.subtract(second, first).tolist() == [[156, 2]]  # -100 + 256, -254 + 256


@every_ring
@steadily(40)
@given(data=st.data())
def test_addition_and_subtraction_are_those_of_integers_mod_p(bits, data):
    ring, modulus = Ring(bits), 1 << bits
    rows, dim = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 3))
    terms = data.draw(st.lists(rows_of(bits, rows, dim), min_size=2, max_size=6))
    arrays = [words(ring, term, dim) for term in terms]

    added = ring.add(*arrays)
    assert added.dtype == ring.dtype and added.shape == (rows, dim)
    assert added.tolist() == [[sum(term[r][c] for term in terms) % modulus for c in range(dim)] for r in range(rows)]

    less = ring.subtract(arrays[0], arrays[1])
    assert less.dtype == ring.dtype
    assert less.tolist() == [[(terms[0][r][c] - terms[1][r][c]) % modulus for c in range(dim)] for r in range(rows)]

    assert [array.tolist() for array in arrays] == terms  # no argument was changed


@every_ring
@steadily(40)
@given(data=st.data())
def test_sums_by_item_are_those_of_integers_mod_p(bits, data):
    ring, modulus, dim = Ring(bits), 1 << bits, 2
    items = sorted(data.draw(st.sets(st.integers(0, 40), min_size=1, max_size=6)))
    supports = data.draw(st.lists(st.sets(st.sampled_from(items)), max_size=6))
    parts = [(sorted(support), data.draw(rows_of(bits, len(support), dim))) for support in supports]

    expected = {item: [0] * dim for item in items}
    for ids, rows in parts:
        for item, row in zip(ids, rows, strict=True):
            expected[item] = [(old + new) % modulus for old, new in zip(expected[item], row, strict=True)]

    arrays = [(np.array(ids, np.uint32), words(ring, rows, dim)) for ids, rows in parts]
    found = ring.sum_by_item(arrays, np.array(items, np.uint32), dim)
    assert found.dtype == ring.dtype
    assert found.tolist() == [expected[item] for item in items]


@every_ring
def test_a_thousand_of_the_largest_element_wrap_a_thousand_times(bits):
    ring = Ring(bits)
    part = (np.array([7], np.uint32), words(ring, [[ring.largest]], 1))
    found = ring.sum_by_item([part] * 1000, np.array([3, 7], np.uint32), 1)
    assert found.tolist() == [[0], [(1 << bits) - 1000 if bits > 8 else 24]]  # -1000 = 24 - 4 * 256


def test_a_sum_of_no_items_is_empty():
    none = np.zeros(0, np.uint32)
    ring = Ring(32)
    assert ring.sum_by_item([], none, 2).shape == (0, 2)
    assert ring.sum_by_item([(none, ring.zeros(0, 2))], np.array([5], np.uint32), 2).tolist() == [[0, 0]]


@every_ring
@steadily(40)
@given(data=st.data())
def test_an_element_takes_exactly_width_bytes_little_endian(bits, data):
    ring, dim = Ring(bits), data.draw(st.integers(1, 3))
    rows = data.draw(rows_of(bits, data.draw(st.integers(0, 4)), dim))
    array = words(ring, rows, dim)
    packed = ring.to_bytes(array)
    assert packed == b"".join(x.to_bytes(bits // 8, "little") for row in rows for x in row)
    back = ring.from_bytes(packed, dim)
    assert back.dtype == ring.dtype and back.shape == array.shape and back.tolist() == rows
    assert ring.from_bytes(memoryview(packed), dim).tolist() == rows


@every_ring
def test_rows_that_are_not_contiguous_keep_their_order_as_bytes(bits):
    ring = Ring(bits)
    array = words(ring, [[1, 2], [3, 4], [5, 6]], 2)[::2]
    assert ring.to_bytes(array) == b"".join(x.to_bytes(bits // 8, "little") for x in (1, 2, 5, 6))


@pytest.mark.parametrize("bits", [8, 16])
def test_every_byte_string_is_another_element(bits):
    """Uniform bytes therefore give uniform elements: no residue is left out, and none occurs twice."""
    width = bits // 8
    data = b"".join(x.to_bytes(width, "little") for x in range(1 << bits))
    assert sorted(Ring(bits).from_bytes(data, 1)[:, 0].tolist()) == list(range(1 << bits))


def whole_floats() -> st.SearchStrategy[float]:
    edges = [
        float(sign * (1 << power) + offset)
        for power in (31, 32, 53, 62, 63, 64, 65, 80)
        for sign in (-1, 1)
        for offset in (-2048, -1024, -1, 0, 1, 1024, 2048)
    ]
    return st.one_of(st.sampled_from(edges), st.floats(-(2.0**80), 2.0**80).map(lambda x: float(int(x))))


@every_ring
@steadily(100)
@given(floats=st.lists(whole_floats(), min_size=1, max_size=4))
def test_integral_floats_are_reduced_without_rounding(bits, floats):
    found = Ring(bits).from_integers(np.array([floats]))
    assert found.dtype == Ring(bits).dtype
    assert found.tolist() == [[int(x) % (1 << bits) for x in floats]]


@every_ring
@steadily(40)
@given(data=st.data())
def test_signed_residues_lie_in_the_half_open_interval(bits, data):
    values = data.draw(st.lists(elements(bits), min_size=1, max_size=5))
    half = 1 << (bits - 1)
    found = Ring(bits).to_signed(words(Ring(bits), [values], len(values)))
    assert found.tolist() == [[(x + half) % (1 << bits) - half for x in values]]


@every_ring
def test_the_ends_of_the_signed_interval(bits):
    half = 1 << (bits - 1)
    ring = Ring(bits)
    ends = words(ring, [[0, half - 1, half, 2 * half - 1]], 4)
    assert ring.to_signed(ends).tolist() == [[0, half - 1, -half, -1]]


@every_ring
def test_only_elements_of_the_ring_in_the_right_shape_fit(bits):
    ring = Ring(bits)
    good = words(ring, [[0, ring.largest]], 2)
    assert ring.fits(good, (1, 2))
    assert not ring.fits(good, (2, 1))
    assert not ring.fits(good.reshape(2), (1, 2))
    assert not ring.fits(good.astype(np.int64), (1, 2))
    other = np.uint64 if ring.dtype == np.uint32 else np.uint32
    assert not ring.fits(np.zeros((1, 2), other), (1, 2))


@pytest.mark.parametrize("bits", [8, 16, 24, 40, 48, 56])
def test_a_word_above_the_modulus_does_not_fit(bits):
    ring = Ring(bits)
    assert not ring.fits(words(ring, [[0, 1 << bits]], 2), (1, 2))


@pytest.mark.parametrize("bits", [0, 4, 7, 12, 33, 72, -8])
def test_other_widths_are_refused(bits):
    with pytest.raises(ValueError, match=f"not {bits}"):
        Ring(bits)
