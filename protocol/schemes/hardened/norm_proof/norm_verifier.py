"""One server's side: what it computes of its shares, and the decision about the sums of both servers' numbers."""

from __future__ import annotations

import numpy as np

from protocol.arithmetic.prime_field import (
    ELEMENT_BYTES,
    add,
    element,
    fits,
    lagrange,
    multiply,
    powers,
    subtract,
    sum_of,
    weighed,
)
from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import keystream
from protocol.arrays import FieldArray, RingArray
from protocol.schemes.hardened.norm_proof.norm_statement import (
    Challenges,
    NormStatement,
    ProofMessages,
    places,
    projected,
)


def well_formed(statement: NormStatement, shares: ProofMessages) -> bool:
    return all(fits(each, (length,)) for each, length in zip(shares, statement.told_lengths, strict=True))


def verifier_share(
    statement: NormStatement, shares: ProofMessages, challenges: Challenges, constants: bool
) -> FieldArray:
    """Compute, of one server's shares, the rows and the sum of squares at the point, and the check of all equations.

    One of the two servers adds the `constants`.
    """
    blinds, squares = np.split(shares.proof, [statement.height])
    wires = np.concatenate([shares.committed, shares.answered])
    table = statement.table(blinds, multiply(wires, statement.factors(challenges.weights)))
    rows = weighed(table, lagrange(statement.order, challenges.point))
    at_point = weighed(squares[None, :], powers(challenges.point, len(squares)))
    off = subtract(_all_squares(statement, squares), _claimed(statement, shares, challenges.weights, constants))
    off = add(off, _misread_tests(statement, shares, challenges, constants))
    return np.concatenate([rows, at_point, off])


def accepts(statement: NormStatement, one: FieldArray, other: FieldArray) -> bool:
    """Decide about a user, from the numbers that the two servers tell each other."""
    rows, at_point, off = np.split(add(one, other), [statement.height, statement.height + 1])
    whole = sum_of(multiply(rows, rows)[None, :])
    return bool(whole[0] == at_point[0] and off[0] == 0)


def turned(ring: Ring, noise: RingArray, key: bytes) -> RingArray:
    """Permute the rows of `noise`, or of a share of it, and change signs, as `key` says, which no user knows."""
    count = len(noise)
    words = np.frombuffer(keystream(key, ELEMENT_BYTES * count, "turn"), "<u8")
    signs = np.unpackbits(np.frombuffer(keystream(key, -(-count // 8), "sign"), np.uint8))[:count]
    moved, flipped = noise[np.argsort(words, kind="stable")], np.flatnonzero(signs)
    moved[flipped] = ring.subtract(ring.zeros(len(flipped), 1), moved[flipped])
    return moved


def _all_squares(statement: NormStatement, squares: FieldArray) -> FieldArray:
    """Add up the sum of squares at all powers of the root but 0, where the blinds are."""
    order = statement.order
    at_all = multiply(element(order), add(squares[:1], squares[order : order + 1]))
    return subtract(at_all, sum_of(squares[None, :]))


def _claimed(statement: NormStatement, shares: ProofMessages, weights: FieldArray, constants: bool) -> FieldArray:
    """Return what the squares of all wires must add up to: bound − slack of each part, and every digit itself."""
    parts, squared = len(statement.lengths), multiply(weights, weights)
    digits = np.concatenate([shares.committed[statement.length :], shares.answered])
    total = weighed(digits[None, :], squared[parts : parts + len(digits)])
    at = 0
    for square, count, factor in zip(statement.squares, statement.slack_digits, squared[:parts], strict=True):
        left = subtract(element(square * constants), weighed(digits[None, at : at + count], places(count)))
        total = add(total, multiply(left, factor[None]))
        at += count
    return total


def _misread_tests(
    statement: NormStatement, shares: ProofMessages, challenges: Challenges, constants: bool
) -> FieldArray:
    """Return the weighted sum of the differences between the tests and their digits."""
    if not statement.tests:
        return element(0)
    told = weighed(shares.answered.reshape(statement.tests, -1), places(statement.test_digits))
    results = projected(challenges.signs, shares.committed[: statement.length])
    above = subtract(add(results, element(constants << statement.reach)), told)
    return weighed(above[None, :], challenges.weights[-statement.tests :])
