"""The proof of the norm: honest users are accepted, no vector beyond its bound is, and opened numbers tell nothing."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from support.basics import params_with

from protocol.arithmetic.prime_field import (
    PRIME,
    add,
    element,
    from_signed,
    lagrange,
    multiply,
    subtract,
    to_signed,
    uniform_elements,
)
from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape, derive
from protocol.errors import BadInput
from protocol.schemes.hardened.norm_proof.norm_prover import commit, mask_shares, prove, split, told_by
from protocol.schemes.hardened.norm_proof.norm_statement import NormStatement, noise_square, projected, statement_of
from protocol.schemes.hardened.norm_proof.norm_verifier import accepts, turned, verifier_share, well_formed
from protocol.schemes.hardened.share_law import draw_shares
from protocol.schemes.hardened.unit_vectors import unit_vector
from sim.experiments.bench.norm_bench import forced, hostile_vectors, is_accepted, shifted

UNIT, PLACES, SCALE = 1024, 40, 185 << 16
IOTA = pow(7, (PRIME - 1) // 4, PRIME)  # its square is −1


@functools.cache
def statement(tests=64):
    noise = noise_square(SCALE, 2 * PLACES)
    return NormStatement((PLACES, PLACES, 2 * PLACES), (UNIT**2, UNIT**2, noise), tests)


def challenges(number=0, one=None):
    keys = [derive(bytes(32), name, number) for name in ("tests", "weights", "point")]
    return (one or statement()).challenges(*keys)


def parts_of(number, kind="usual"):
    tape = Tape(derive(bytes(32), "user", number))
    values = np.abs(tape.normal(2, PLACES, "vector")) if kind == "usual" else np.zeros((2, PLACES))
    if kind == "one place":
        values[:, 0] = 1
    return [*(unit_vector(row, UNIT) for row in values), draw_shares(tape, SCALE, 2 * PLACES, "share", 0)]


def judged(committed, number=0, one=None):
    one = one or statement()
    asked = challenges(number, one)
    return is_accepted(one, told_by(one, committed, asked, derive(bytes(32), "tape", number)), bytes(32), asked)


def test_honest_users_are_never_refused():
    for number in range(200):
        kind = ("usual", "one place", "nothing")[number % 3]
        assert judged(commit(statement(), parts_of(number, kind)), number)


def test_a_vector_at_its_bound_is_accepted_and_one_beyond_it_is_not():
    whole = np.zeros(PLACES, np.int64)
    whole[0] = UNIT
    _, second, noise = parts_of(1)
    assert judged(commit(statement(), [whole, second, noise]))
    for at, sign in itertools.product((0, 1, PLACES - 1), (1, -1)):
        beyond = whole.copy()
        beyond[at] += sign if at else 1
        assert not judged(commit(statement(), [beyond, second, noise]))
        assert not judged(commit(statement(), [second, beyond, noise]))
    full = np.zeros(2 * PLACES, np.int64)
    full[3] = round(statement().squares[2] ** 0.5)
    assert judged(commit(statement(), [whole, second, full]))
    full[4] = 1
    assert not judged(commit(statement(), [whole, second, full]))


def misread(told, asked, one):
    """Change the digits of the tests to field elements with which every test is what its digits say."""
    answered = told.answered.reshape(one.tests, -1).copy()
    results = add(projected(asked.signs, told.committed[: one.length]), element(1 << one.reach))
    answered[:] = 0
    answered[:, 0] = results
    wires = np.concatenate([told.committed, answered.ravel()])
    blinds = told.proof[: one.height]
    return told._replace(answered=answered.ravel(), proof=prove(one, wires, asked.weights, blinds))


@pytest.mark.parametrize("number", range(3))
def test_hostile_users_are_refused_whatever_they_say(number):
    one, asked = statement(), challenges(number)
    names = []
    for name, vector in hostile_vectors(one, parts_of(number), derive(bytes(32), number)):
        told = told_by(one, forced(one, vector), asked, bytes(32))
        other = misread(told, asked, one)
        for sent in (told, other, shifted(one, told, asked), shifted(one, other, asked)):
            assert not is_accepted(one, sent, bytes(32), asked)
        names.append(name)
    assert len(names) == 7


def test_without_the_tests_squares_that_cancel_mod_p_would_pass():
    """The attack is real: the tests alone stand in its way."""
    blind = statement(tests=0)
    vectors = dict(hostile_vectors(blind, parts_of(0), bytes(32)))
    wraps = [name for name in vectors if "cancel" in name]
    assert len(wraps) == 2
    for name, vector in vectors.items():
        assert judged(forced(blind, vector), one=blind) == (name in wraps)
        assert not judged(forced(statement(), vector))


def test_a_large_number_passes_a_test_with_probability_one_half_at_most():
    """All ways to choose the signs of two large places, and many values: those that p wraps to small multiples too."""
    one = statement()
    bound = 1 << (one.reach + 1)
    values = [bound, bound + 1, PRIME // 2, (PRIME + 1) // 2, PRIME // 3, IOTA, PRIME - bound, 12345 * bound]
    signs = np.array([[a - b, c - d] for a, b, c, d in itertools.product((0, 1), repeat=4)])
    for one_value, other in itertools.product(values, [0, 1, *values]):
        results = to_signed(add(projected(signs, np.array([one_value, other], np.uint64)), element(1 << one.reach)))
        passed = np.count_nonzero((results >= 0) & (results < bound))
        assert passed <= 8, "of 16 equally likely signs"
    assert len(np.unique(challenges().signs[:, 0])) == 3
    drawn = np.bincount(challenges().signs.ravel() + 1) / challenges().signs.size
    assert np.allclose(drawn, [0.25, 0.5, 0.25], atol=0.02)


def test_every_equation_counts():
    """Changing any committed number, digit, answer, blind or coefficient of an honest user is noticed."""
    one, asked = statement(), challenges()
    told = told_by(one, commit(one, parts_of(0)), asked, bytes(32))
    draw = np.random.default_rng(1)
    for name in told._fields:
        values = getattr(told, name)
        for at in {0, len(values) - 1, *draw.integers(len(values), size=20).tolist()}:
            changed = values.copy()
            changed[at : at + 1] = add(changed[at : at + 1], element(1))
            assert not is_accepted(one, told._replace(**{name: changed}), bytes(32), asked), (name, at)


def test_a_proof_for_other_challenges_is_refused():
    one, asked, other = statement(), challenges(0), challenges(1)
    told = told_by(one, commit(one, parts_of(0)), asked, bytes(32))
    assert is_accepted(one, told, bytes(32), asked)
    for name in asked._fields:
        accepted = is_accepted(one, told, bytes(32), asked._replace(**{name: getattr(other, name)}))
        assert accepted == (name == "point"), "the proof does not depend on the point"
    assert not is_accepted(one, told_by(one, told.committed, other, bytes(32)), bytes(32), asked)


def test_what_is_no_message_is_refused():
    one, asked = statement(), challenges()
    told = split(told_by(one, commit(one, parts_of(0)), asked, bytes(32)), bytes(32))
    assert well_formed(one, told)
    for name in told._fields:
        values = getattr(told, name)
        beyond = values.copy()
        beyond[-1] = PRIME
        for bad in (values[:-1], beyond, values.astype(np.int64)):
            assert not well_formed(one, told._replace(**{name: bad}))


def test_opened_numbers_are_the_same_for_every_vector():
    """For each honest vector there are blinds, as likely as any, with which the servers open the same numbers."""
    one, asked = statement(), challenges()
    opened = []
    wanted = uniform_elements(bytes(32), one.height, "wanted")
    share = functools.partial(verifier_share, one, challenges=asked)
    for number, kind in ((0, "usual"), (1, "usual"), (2, "one place"), (3, "nothing")):
        told = told_by(one, commit(one, parts_of(number, kind)), asked, bytes(32))
        rows = share(told, constants=True)[: one.height]
        weight = pow(int(lagrange(one.order, asked.point)[0]), -1, PRIME)
        blinds = add(told.proof[: one.height], multiply(subtract(wanted, rows), element(weight)))
        wires = np.concatenate([told.committed, told.answered])
        told = told._replace(proof=prove(one, wires, asked.weights, blinds))
        own, others = split(told, bytes(32)), mask_shares(one.told_lengths, bytes(32))
        both = share(own, constants=True), share(others, constants=False)
        assert accepts(one, *both)
        opened.append(add(*both).tolist())
    assert opened[0][:-2] == wanted.tolist() and opened[0][-1] == 0
    assert all(each == opened[0] for each in opened)


def test_the_point_is_none_at_which_a_wire_stands(monkeypatch):
    from protocol.schemes.hardened.norm_proof import norm_statement

    drawn = iter([1, pow(7, (PRIME - 1) // statement().order, PRIME), 0, 5])
    monkeypatch.setattr(norm_statement, "uniform_elements", lambda *_: [next(drawn)])
    assert statement().point(bytes(32)) == 0, "0 is no root of unity"


def test_each_share_alone_looks_uniform():
    one, asked = statement(), challenges()
    told = split(told_by(one, commit(one, parts_of(0, "nothing")), asked, bytes(32)), bytes([1]) * 32)
    for values in told:
        high = values >> np.uint64(60)
        assert np.bincount(high.astype(np.int64), minlength=16).max() < 0.2 * len(values)


# --- the noise -------------------------------------------------------------------------------------------------------


FIELD = Ring(64, prime=True)


def turned_column(noise, key):
    return to_signed(turned(FIELD, noise[:, None], key))[:, 0]


def test_noise_is_turned_by_a_signed_permutation_on_shares_as_on_the_whole():
    noise = parts_of(0)[2]
    for number in range(20):
        key = derive(bytes(32), "turn", number)
        whole = turned_column(from_signed(noise), key)
        assert sorted(np.abs(whole)) == sorted(np.abs(noise))
        share = uniform_elements(key, len(noise), "share")
        halves = (turned(FIELD, each[:, None], key) for each in (share, subtract(from_signed(noise), share)))
        assert np.array_equal(to_signed(add(*halves))[:, 0], whole)


def test_aimed_noise_is_spread_over_all_places_with_both_signs():
    aimed, turns = np.zeros(50, np.int64), 4000
    aimed[7] = 1
    found = np.zeros((2, 50), np.int64)  # how often it lands at a place, with either sign
    for turn in range(turns):
        moved = turned_column(from_signed(aimed), derive(bytes(32), turn))
        found += [moved == 1, moved == -1]
    assert found.sum() == turns and found.min() > 12 and found.max() < 75, "40 each, and 6.3 is one deviation"


def test_honest_noise_keeps_its_bound():
    for length in (80, 3364):
        square = noise_square(SCALE, length)
        sizes = [int(np.sum(draw_shares(Tape(bytes([n]) * 32), SCALE, length, "x") ** 2)) for n in range(50)]
        assert max(sizes) < square < 3.5 * np.mean(sizes)


# --- statements ------------------------------------------------------------------------------------------------------


def test_the_statement_of_a_round_follows_from_the_parameters():
    params = params_with("hardened", n_users=12, n_items=9, rounds=2)[0]
    first, second = (statement_of(params, t) for t in (0, 1))
    assert first.lengths == (9, 9, 18) and second.lengths == (72, 72)
    assert first.squares[:2] == (params.whole**2,) * 2 and second.squares[0] == params.whole**2
    assert first.squares[2] == noise_square(params.first_scale, 18)
    assert first.error_bits > 55


def test_numbers_too_large_for_the_field_are_refused_in_words():
    with pytest.raises(BadInput, match="--epsilon must be larger"):
        NormStatement((10**6,), (1 << 44,))
