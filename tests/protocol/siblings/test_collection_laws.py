"""The mechanisms' exact laws: the likelihood ratio attains e^ε, never exceeds it, and the draws follow the law."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, laplace

from protocol.arithmetic.tape import SEED_BYTES, Tape
from protocol.schemes.collection.grid import Grid
from protocol.schemes.collection.mechanisms import GRAIN, WHOLE, ModifiedLaplace, RandomizedResponse

EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 40.0)
STARS = Grid(1.0, 5.0, 1.0)

getcontext().prec = 60


def tape(number: int) -> Tape:
    return Tape(number.to_bytes(SEED_BYTES, "big"))


def exactly(fraction: Fraction) -> Decimal:
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def worst_of_all(mass, levels: int) -> Fraction:
    """Return the largest likelihood ratio of any two entries over every answer."""
    everything = range(levels + 1)
    return max(Fraction(mass(x, z), mass(y, z)) for x, y, z in itertools.product(everything, repeat=3))


# --- randomized response ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("levels", [2, 5, 10])
def test_the_ratio_of_randomized_response_is_at_most_e_to_the_epsilon_and_attains_it(epsilon, levels):
    """The ratio of whole numbers out of 2^64, as they are drawn, is compared with e^ε to 60 digits."""
    mechanism = RandomizedResponse(epsilon, levels)
    worst, limit = exactly(worst_of_all(mechanism.mass, levels)), Decimal(epsilon).exp()
    assert worst <= limit
    grain = math.exp(epsilon) * (levels + 1) / WHOLE  # one part of 2^64, relative to the smaller chance
    assert float(worst / limit) >= 1 - 1e-12 - grain
    for entry in range(levels + 1):
        assert sum(mechanism.mass(entry, answer) for answer in range(levels + 1)) == WHOLE


def test_a_ratio_that_is_too_large_would_be_found():
    """The same search is run on a mechanism that hardly ever alters missing entries."""
    mechanism = RandomizedResponse(2.0, 5)

    def forgetful(entry: int, answer: int) -> int:
        return (WHOLE - 5 if answer == 0 else 1) if entry == 0 else mechanism.mass(entry, answer)

    assert exactly(worst_of_all(forgetful, 5)) > Decimal(2).exp()


def test_the_law_is_the_papers():
    mechanism = RandomizedResponse(1.0, 5)
    assert mechanism.keep == pytest.approx(math.e / (math.e + 5), rel=1e-12)
    assert mechanism.other == pytest.approx(1 / (math.e + 5), rel=1e-12)
    keep, other = mechanism.weights()
    assert keep / WHOLE == pytest.approx(mechanism.keep, rel=1e-12)
    assert other / WHOLE == pytest.approx(mechanism.other, rel=1e-12)


@pytest.mark.parametrize("entry", range(6))
def test_the_answers_follow_the_law(entry):
    mechanism = RandomizedResponse(1.0, 5)
    answers = mechanism.answer(tape(entry), np.full(60_000, entry, np.uint8))
    found = np.bincount(answers, minlength=6)
    expected = [60_000 * mechanism.mass(entry, answer) / WHOLE for answer in range(6)]
    assert chisquare(found, expected).pvalue > 1e-4
    wrong = [60_000 * RandomizedResponse(1.1, 5).mass(entry, answer) / WHOLE for answer in range(6)]
    assert chisquare(found, wrong).pvalue < 1e-4


def test_the_same_tape_answers_the_same_and_another_one_otherwise():
    mechanism, entries = RandomizedResponse(1.0, 5), np.arange(600).astype(np.uint8) % 6
    assert (mechanism.answer(tape(1), entries) == mechanism.answer(tape(1), entries)).all()
    assert (mechanism.answer(tape(1), entries) != mechanism.answer(tape(2), entries)).any()


def test_without_noise_nothing_is_altered():
    entries = np.arange(600).astype(np.uint8) % 6
    assert (RandomizedResponse(math.inf, 5).answer(tape(1), entries) == entries).all()
    items, scaled = np.array([1, 4], np.uint32), np.array([0.5, -1.0])
    sent, numbers = ModifiedLaplace(math.inf).answer(tape(1), items, scaled, 9)
    assert sent.tolist() == [1, 4] and numbers.tolist() == [0.5, -1.0]


# --- modified Laplace ---------------------------------------------------------------------------------------------

ENTRIES = (None, *np.linspace(-1, 1, 41).tolist())


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_ratio_of_modified_laplace_is_at_most_e_to_the_epsilon_and_attains_it(epsilon):
    """The search covers all pairs of entries, also "?". |x − y| is largest at the ends, where rating against rating
    attains ε; a rating at an end against "?" attains ε too."""
    mechanism = ModifiedLaplace(epsilon)
    ratios = {pair: mechanism.log_ratio(*pair) for pair in itertools.product(ENTRIES, repeat=2)}
    assert max(ratios.values()) <= epsilon * (1 + 1e-12)
    assert ratios[1.0, -1.0] == pytest.approx(epsilon, rel=1e-9)
    assert ratios[1.0, None] == pytest.approx(epsilon, rel=1e-9)
    assert ratios[None, 0.0] == pytest.approx(epsilon / 2, rel=1e-9)
    flip = mechanism.flip_weight()
    assert exactly(Fraction(WHOLE - flip, flip)) <= (Decimal(epsilon) / 2).exp()


def test_no_answer_has_a_larger_ratio_than_the_kinks_have():
    mechanism = ModifiedLaplace(3.0)
    for one, another in itertools.product((None, -1.0, -0.2, 0.7, 1.0), repeat=2):
        grid = [mechanism.log_density(one, z) - mechanism.log_density(another, z) for z in np.linspace(-9, 9, 3001)]
        atom = math.log(mechanism.mass_missing(one) / mechanism.mass_missing(another))
        assert max(*grid, atom) <= mechanism.log_ratio(one, another) + 1e-12


def test_half_of_the_noise_would_be_found():
    class Halved(ModifiedLaplace):
        scale = property(lambda self: 1 / self.epsilon)

    assert Halved(2.0).log_ratio(1.0, -1.0) > 2 * (1 + 1e-9)


def test_atom_and_density_add_up_to_one():
    mechanism = ModifiedLaplace(2.0)
    for entry in (None, -1.0, 0.3):
        z = np.linspace(-40, 40, 400_001)
        density = np.exp([mechanism.log_density(entry, float(at)) for at in z[::40]])
        assert mechanism.mass_missing(entry) + np.trapezoid(density, z[::40]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("rating", [None, 1.0, -0.5])
def test_the_numbers_follow_the_law(rating):
    mechanism, n = ModifiedLaplace(2.0), 40_000
    items = np.zeros(0, np.uint32) if rating is None else np.arange(n, dtype=np.uint32)
    sent, numbers = mechanism.answer(tape(5), items, np.full(len(items), rating or 0.0), n)
    present = 1 - mechanism.mass_missing(rating)
    assert abs(len(sent) - n * present) < 4 * math.sqrt(n * present * (1 - present))
    assert kstest(numbers, laplace(rating or 0.0, 1.0).cdf).pvalue > 1e-4
    assert kstest(numbers, laplace((rating or 0.0) + 0.1, 1.0).cdf).pvalue < 1e-4
    assert np.abs(numbers).max() <= mechanism.reach


def test_what_is_sent_lies_on_one_lattice_whatever_the_entry_was():
    items, scaled = np.arange(0, 500, 2, dtype=np.uint32), np.full(250, 1 / 3)
    _, numbers = ModifiedLaplace(4.0).answer(tape(1), items, scaled, 500)
    small = numbers[np.abs(numbers) < 8].astype(np.float64)
    assert len(small) > 200 and (small / GRAIN == np.rint(small / GRAIN)).all()
