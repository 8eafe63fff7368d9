"""Arithmetic modulo the prime p = 2^64 − 2^32 + 1, on numpy words of 64 bits.

A product of two words has 128 bits, hi·2^64 + lo, and 2^64 ≡ 2^32 − 1, 2^96 ≡ −1 (mod p). The field has roots of unity
of every order 2^k up to 2^32, so polynomials are multiplied by transforms. Every array has entries below p.
"""

from __future__ import annotations

import functools

import numpy as np

from protocol.arithmetic.tape import Name, keystream
from protocol.arrays import FieldArray, Ints

PRIME = 2**64 - 2**32 + 1
GENERATOR = 7  # of the group of units
MOST_ROOT = 32  # roots of unity of order 2^32 exist
ELEMENT_BYTES = 8

_P = np.uint64(PRIME)
_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)  # 2^64 mod p is 2^32 − 1 too


def from_signed(integers: Ints) -> FieldArray:
    """Reduce integers of at most 63 bits mod p."""
    words = integers.astype(np.uint64)
    return np.where(integers < 0, words - _LOW, words)


def to_signed(elements: FieldArray) -> Ints:
    """Return the residue of each element in (−p/2, p/2)."""
    return np.where(elements > np.uint64(PRIME // 2), elements + _LOW, elements).astype(np.int64)


def fits(elements: FieldArray, shape: tuple[int, ...]) -> bool:
    return elements.shape == shape and elements.dtype == np.uint64 and b"\0" not in (elements < _P).tobytes()


def add(one: FieldArray, other: FieldArray) -> FieldArray:
    total = one + other
    total = np.where(total < one, total + _LOW, total)
    return np.where(total >= _P, total - _P, total)


def subtract(one: FieldArray, other: FieldArray) -> FieldArray:
    difference = one - other
    return np.where(one < other, difference - _LOW, difference)


def multiply(one: FieldArray, other: FieldArray) -> FieldArray:
    a, b, c, d = one >> _HALF, one & _LOW, other >> _HALF, other & _LOW
    low, left, right = b * d, a * d, b * c
    middle = (low >> _HALF) + (left & _LOW) + (right & _LOW)
    high = a * c + (left >> _HALF) + (right >> _HALF) + (middle >> _HALF)
    low = (low & _LOW) | (middle << _HALF)
    top, rest = high >> _HALF, (high & _LOW) * _LOW
    folded = low - top
    folded = np.where(low < top, folded - _LOW, folded)
    total: FieldArray = folded + rest
    total = np.where(total < rest, total + _LOW, total)
    return np.where(total >= _P, total - _P, total)


def sum_of(rows: FieldArray) -> FieldArray:
    """Add up the elements of each row, fewer than 2^32 of them."""
    high, low = np.sum(rows >> _HALF, axis=1), np.sum(rows & _LOW, axis=1)
    return add(multiply(high, element(1 << 32)), low)


def weighed(rows: FieldArray, weights: FieldArray) -> FieldArray:
    """Add up the elements of each row times `weights`."""
    return sum_of(multiply(rows, weights))


def element(value: int) -> FieldArray:
    """Return the integer `value` of any size mod p, as an array of one."""
    return np.array([value % PRIME], np.uint64)


def root_of_unity(order: int) -> int:
    """Return a primitive root of unity of `order`, a power of two."""
    return pow(GENERATOR, (PRIME - 1) // order, PRIME)


@functools.lru_cache(maxsize=64)
def powers(base: int, count: int) -> FieldArray:
    """Return 1, base, base², … mod p."""
    found, power = [], 1
    for _ in range(count):
        found.append(power)
        power = power * base % PRIME
    made = np.array(found, np.uint64)
    made.flags.writeable = False
    return made


def evaluated(rows: FieldArray, root: int) -> FieldArray:
    """Evaluate the polynomial of each row of N coefficients at 1, root, root², …; `root` has the order N."""
    count, order = rows.shape
    if order == 1:
        return rows
    halves = evaluated(np.concatenate([rows[:, 0::2], rows[:, 1::2]]), root * root % PRIME)
    even, odd = halves[:count], multiply(halves[count:], powers(root, order // 2))
    return np.concatenate([add(even, odd), subtract(even, odd)], axis=1)


def interpolated(rows: FieldArray) -> FieldArray:
    """Find the coefficients of the polynomial that has the values of each row at the powers of a root of unity."""
    order = rows.shape[1]
    back = pow(root_of_unity(order), -1, PRIME)
    return multiply(evaluated(rows, back), element(pow(order, -1, PRIME)))


def lagrange(order: int, point: int) -> FieldArray:
    """Return the weights that make, of values at the powers of a root of unity, the value at any other `point`."""
    root, scale = root_of_unity(order), (pow(point, order, PRIME) - 1) * pow(order, -1, PRIME)
    places = [pow(root, at, PRIME) for at in range(order)]
    return np.array([scale * place * pow(point - place, -1, PRIME) % PRIME for place in places], np.uint64)


def uniform_elements(key: bytes, count: int, *name: Name) -> FieldArray:
    """Make elements from a keyed stream, uniform to a party without `key`; words of p and above are left out."""
    found = np.zeros(0, np.uint64)
    turn = 0
    while len(found) < count:
        words = np.frombuffer(keystream(key, ELEMENT_BYTES * (count - len(found)), "field", turn, *name), "<u8")
        found = np.concatenate([found, words[words < _P]]).astype(np.uint64)
        turn += 1
    return found
