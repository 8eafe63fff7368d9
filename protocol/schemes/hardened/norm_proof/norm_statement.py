"""The statement that is proved of a user's vector, and how its numbers stand in the proof.

The vector has parts, each with a bound on its sum of squares. The user commits to

    the parts | for each part the binary digits of (bound − sum of squares)

and, once it knows the tests, to the digits of the results of the tests, one row of digits each, as told ≥ −2^reach.
All of these are the wires of the proof. They fill a table row by row: a polynomial for each row takes its values at the
powers 1, 2, … of a root of unity, and a blind at power 0.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from protocol.arithmetic.prime_field import (
    ELEMENT_BYTES,
    PRIME,
    add,
    element,
    from_signed,
    multiply,
    uniform_elements,
)
from protocol.arithmetic.tape import keystream
from protocol.arrays import FieldArray, Ints
from protocol.params import require
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.share_law import SCALE_BITS

TESTS = 64  # each lets a vector that wraps pass with probability 1/2 at most
CERTAIN = 60  # an honest vector passes all of them, except with probability 2^-CERTAIN
LEAST_ERROR_BITS = 52  # a vector that breaks its bound is accepted with a probability of 2^-52 at most
LEAST_ORDER, MOST_ORDER = 4, 1 << 16


class ProofMessages(NamedTuple):
    """A user's three messages, or one server's shares of them."""

    committed: FieldArray
    answered: FieldArray
    proof: FieldArray


class Challenges(NamedTuple):
    """The three answers of the servers, each drawn after the message of its place in `ProofMessages`."""

    signs: Ints
    weights: FieldArray
    point: int


@dataclass(frozen=True)
class NormStatement:
    """The sum of squares of part i, of `lengths[i]` integers, is at most `squares[i]`."""

    lengths: tuple[int, ...]
    squares: tuple[int, ...]
    tests: int = TESTS

    def __post_init__(self) -> None:
        digits = max(square.bit_length() for square in self.squares)
        wide = self.length * 4 ** (self.reach + 1) + (1 << digits)
        words = f"The norm of {self.length} numbers of such a size cannot be proved: --epsilon must be larger."
        require(wide < PRIME and min(self.squares) > 0, words)
        sure = self.tests < TESTS or self.error_bits >= LEAST_ERROR_BITS  # tests of the proof itself make fewer
        require(sure, f"{self.length} numbers are too many for a proof of the norm: leave --set proof=norm out.")

    @property
    def length(self) -> int:
        return sum(self.lengths)

    @cached_property
    def slack_digits(self) -> tuple[int, ...]:
        return tuple(square.bit_length() for square in self.squares)

    @property
    def committed(self) -> int:
        """Return the number of elements that are committed to before the tests are known."""
        return self.length + sum(self.slack_digits)

    @cached_property
    def reach(self) -> int:
        """Return h: of an honest user every test is within ±2^h.

        A test is Σ w_j v_j with w_j = (a_j + b_j)/2 for signs a_j and b_j, so it is above t with a probability of at
        most 2 exp(−t²/Σ v_j²).
        """
        nats = CERTAIN * math.log(2) + math.log(2 * max(self.tests, 1))
        return math.ceil(math.log2(math.sqrt(nats * sum(self.squares))))

    @property
    def test_digits(self) -> int:
        return self.reach + 1

    @property
    def answered(self) -> int:
        """Return the number of elements that are committed to once the tests are known."""
        return self.tests * self.test_digits

    @cached_property
    def order(self) -> int:
        """Return N, the order of the root of unity: the power of two that makes the proof shortest."""
        orders = (1 << k for k in range(LEAST_ORDER.bit_length() - 1, MOST_ORDER.bit_length()))
        return min(orders, key=lambda order: self._height(order) + 2 * order)

    def _height(self, order: int) -> int:
        return -(-(self.committed + self.answered) // (order - 1))

    @property
    def height(self) -> int:
        """Return the number of rows of the table, and of blinds."""
        return self._height(self.order)

    @property
    def proof_length(self) -> int:
        """Return the number of elements of a proof: the blinds, and the coefficients of the sum of squared rows."""
        return self.height + 2 * self.order - 1

    @property
    def verifier_length(self) -> int:
        """Return the number of elements that a server tells the other: every row and the sum at a point, a check."""
        return self.height + 2

    @property
    def upload_bytes(self) -> int:
        """Return the bytes of everything that a user sends: two commitments and a proof."""
        return ELEMENT_BYTES * (self.committed + self.answered + self.proof_length)

    @property
    def error_bits(self) -> float:
        """Return b: a vector that breaks a bound is accepted with a probability of at most 2^-b."""
        algebra = (2 * self.order - 2) / (PRIME - self.order) + 2 / PRIME
        return -math.log2(2.0**-self.tests + algebra)

    @property
    def told_lengths(self) -> tuple[int, int, int]:
        return self.committed, self.answered, self.proof_length

    # --- what both servers know ----------------------------------------------------------------------------------

    def signs(self, key: bytes) -> Ints:
        """Draw the tests: 0 with probability 1/2, else 1 or −1, for each number of the vector, a row for each test."""
        count = self.tests * self.length
        bits = np.unpackbits(np.frombuffer(keystream(key, -(-count // 4), "tests"), np.uint8))[: 2 * count]
        drawn = bits[:count].astype(np.int64) - bits[count:].astype(np.int64)
        return drawn.reshape(self.tests, self.length)

    def weights(self, key: bytes) -> FieldArray:
        """Draw the factors of the checks: of the parts, the digits of both kinds, and the tests."""
        digits = sum(self.slack_digits) + self.answered
        return uniform_elements(key, len(self.lengths) + digits + self.tests, "weights")

    def point(self, key: bytes) -> int:
        """Draw a point at which no wire stands, so that the blinds hide all of them."""
        drawn = (int(uniform_elements(key, 1, "point", turn)[0]) for turn in itertools.count())
        return next(point for point in drawn if pow(point, self.order, PRIME) != 1)

    def challenges(self, tests: bytes, weights: bytes, point: bytes) -> Challenges:
        return Challenges(self.signs(tests), self.weights(weights), self.point(point))

    def factors(self, weights: FieldArray) -> FieldArray:
        """Return the factor of every wire: the same for all numbers of a part, its own for each digit."""
        parts, digits = np.split(weights[: len(weights) - self.tests], [len(self.lengths)])
        return np.concatenate([np.repeat(parts, self.lengths), digits])

    def table(self, blinds: FieldArray, wires: FieldArray) -> FieldArray:
        """Lay out the wires in rows, the blind of each row first."""
        room = np.zeros(self.height * (self.order - 1), np.uint64)
        room[: len(wires)] = wires
        return np.concatenate([blinds[:, None], room.reshape(self.height, -1)], axis=1)


def projected(signs: Ints, vector: FieldArray) -> FieldArray:
    """Compute the result of each test mod p, of a vector or of a share of it."""
    high, low = (half.astype(np.int64) for half in (vector >> np.uint64(32), vector & np.uint64(2**32 - 1)))
    return add(multiply(from_signed(signs @ high), element(1 << 32)), from_signed(signs @ low))


def statement_of(params: HardenedParams, iteration: int) -> NormStatement:
    """State the bounds of one round, unit `user`: of each unit vector, and of the noise at all places."""
    whole, length = params.whole**2, params.lengths[iteration]
    parts = params.squares[iteration] // whole
    noise = noise_square(params.scales[iteration], length)
    return NormStatement((length // parts,) * parts + (length,), (whole,) * parts + (noise,))


def noise_square(scale: int, length: int) -> int:
    """Bound the sum of squares of `length` shares, except with probability 2^-CERTAIN.

    That of standard Gaussians is above L + 2√(Lt) + 2t with probability e^-t at most, and rounding adds ½ at a place.
    """
    t, s = CERTAIN * math.log(2), scale / (1 << SCALE_BITS)
    longest = s * math.sqrt(length + 2 * math.sqrt(length * t) + 2 * t) + math.sqrt(length) / 2
    return math.ceil(longest) ** 2


def digits_of(values: Ints, count: int) -> FieldArray:
    """Return the `count` lowest binary digits of each value, the lowest first."""
    return ((values[:, None] >> np.arange(count)) & 1).astype(np.uint64)


def places(count: int) -> FieldArray:
    """Return the value of each of `count` binary digits."""
    return np.uint64(1) << np.arange(count, dtype=np.uint64)
