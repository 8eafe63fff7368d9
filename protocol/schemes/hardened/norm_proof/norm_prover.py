"""The user's three messages. Each is split in two: what the mask key gives to the recommender, and the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protocol.arithmetic.prime_field import (
    evaluated,
    from_signed,
    interpolated,
    multiply,
    root_of_unity,
    subtract,
    sum_of,
    to_signed,
    uniform_elements,
)
from protocol.arrays import FieldArray, Ints
from protocol.schemes.hardened.norm_proof.norm_statement import (
    Challenges,
    NormStatement,
    ProofMessages,
    digits_of,
    projected,
)


def commit(statement: NormStatement, parts: Sequence[Ints]) -> FieldArray:
    """Return the parts, and the digits of what each of them leaves of its bound."""
    slacks = []
    for part, square, count in zip(parts, statement.squares, statement.slack_digits, strict=True):
        left = np.array([square - int(np.sum(part * part))])
        slacks.append(digits_of(left, count).ravel())
    return np.concatenate([*map(from_signed, parts), *slacks])


def answer(statement: NormStatement, committed: FieldArray, signs: Ints) -> FieldArray:
    """Return the digits of the results of the tests, counted from the least that is accepted."""
    results = to_signed(projected(signs, committed[: statement.length]))
    return digits_of(results + (1 << statement.reach), statement.test_digits).ravel()


def prove(statement: NormStatement, wires: FieldArray, weights: FieldArray, blinds: FieldArray) -> FieldArray:
    """Return the blinds, and the coefficients of the sum of the squares of the polynomials of all rows."""
    table = statement.table(blinds, multiply(wires, statement.factors(weights)))
    coefficients = interpolated(table)
    twice = np.concatenate([coefficients, np.zeros_like(coefficients)], axis=1)
    values = evaluated(twice, root_of_unity(2 * statement.order))
    squares = sum_of(multiply(values, values).T)
    return np.concatenate([blinds, interpolated(squares[None, :])[0, :-1]])


def told_by(statement: NormStatement, committed: FieldArray, challenges: Challenges, key: bytes) -> ProofMessages:
    """Make all messages of a user that `committed`; the blinds follow from its secret `key`."""
    answered = answer(statement, committed, challenges.signs)
    blinds = uniform_elements(key, statement.height, "blinds")
    wires = np.concatenate([committed, answered])
    return ProofMessages(committed, answered, prove(statement, wires, challenges.weights, blinds))


def split(told: ProofMessages, mask_key: bytes) -> ProofMessages:
    """Return the third party's shares of what a user sends."""
    others = mask_shares([len(each) for each in told], mask_key)
    return ProofMessages(*(subtract(each, other) for each, other in zip(told, others, strict=True)))


def mask_shares(lengths: Sequence[int], mask_key: bytes) -> ProofMessages:
    """Return the recommender's shares, which it makes itself."""
    made = zip(lengths, ProofMessages._fields, strict=True)
    return ProofMessages(*(uniform_elements(mask_key, length, "norm", name) for length, name in made))
