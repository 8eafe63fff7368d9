"""Named streams: repeatable, different from each other, and with the law that is asked for."""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats
from support.basics import FALSE_ALARM

from protocol.arithmetic.tape import Tape, _unit_interval, derive, exponential, keystream

SEED, OTHER_SEED = bytes(range(32)), bytes(range(1, 33))

# Names that would be equal if their parts were joined or their types were ignored.
NAMES = [
    ("ab", "c"),
    ("a", "bc"),
    ("abc",),
    ("a", "b", "c"),
    ("abc", ""),
    (1, 23),
    (12, 3),
    (123,),
    ("123",),
    (b"123",),
    ("1", "23"),
    (b"ab", b"c"),
    (b"a", b"bc"),
    (),
    (0,),
    ("",),
]

item_keys = [hashlib.sha256(b"item %d" % item).digest() for item in range(1000)]


# ---- names


def test_the_stream_is_shake_256_of_key_and_packed_name():
    """Another language can therefore repeat a recorded run: ("a", 1) packs to 92 a1 61 01."""
    expected = hashlib.shake_256(SEED + b"\x92\xa1\x61\x01").digest(50)
    assert keystream(SEED, 50, "a", 1) == expected


def words_of(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]


def test_normal_draws_are_quantiles_of_their_own_stream():
    """("normal", "x") packs to 92 a6 … a1 78; each 64-bit word is a place in (0, 1)."""
    words = words_of(hashlib.shake_256(SEED + b"\x92\xa6normal\xa1x").digest(48))
    expected = [statistics.NormalDist().inv_cdf(word / 2**64) for word in words]
    assert Tape(SEED).normal(2, 3, "x").ravel().tolist() == pytest.approx(expected, rel=1e-9)


def test_envelopes_are_quantiles_of_their_own_stream():
    """("exponential", "x") packs to 92 ab … a1 78; each 64-bit word is a place in (0, 1)."""
    words = words_of(hashlib.shake_256(SEED + b"\x92\xabexponential\xa1x").digest(24))
    expected = [-math.log(word / 2**64) for word in words]
    assert exponential([SEED], 3, "x").tolist() == [pytest.approx(expected, rel=1e-6)]


def test_the_same_name_gives_the_same_values():
    assert keystream(SEED, 40, "x", 3) == keystream(SEED, 40, "x", 3)
    assert Tape(SEED).key("x", 3) == Tape(SEED).key("x", 3)
    assert Tape(SEED).normal(3, 2, "x", 3).tolist() == Tape(SEED).normal(3, 2, "x", 3).tolist()
    assert exponential(item_keys[:3], 2, "x", 3).tolist() == exponential(item_keys[:3], 2, "x", 3).tolist()


def test_asking_again_does_not_move_the_tape():
    tape = Tape(SEED)
    first = tape.normal(2, 2, "rho", 0)
    tape.normal(5, 5, "something else")
    tape.key("a key")
    assert tape.normal(2, 2, "rho", 0).tolist() == first.tolist()


STREAMS = {
    "keystream": lambda seed, name: keystream(seed, 32, *name),
    "derive": lambda seed, name: derive(seed, *name),
    "key": lambda seed, name: Tape(seed).key(*name),
    "normal": lambda seed, name: Tape(seed).normal(2, 2, *name).tobytes(),
    "exponential": lambda seed, name: exponential([seed], 4, *name).tobytes(),
}


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS.keys())
def test_names_do_not_run_together_and_seeds_differ(make):
    streams = [make(seed, name) for seed in (SEED, OTHER_SEED) for name in NAMES]
    assert len(set(streams)) == 2 * len(NAMES)


def test_keys_and_numbers_of_one_name_come_from_different_streams():
    """With one stream for both, a party that learns the numbers would learn the key."""
    purposes = ([], ["derive"], ["key"], ["normal"], ["exponential"])
    streams = [Tape(SEED).key("x"), *(keystream(SEED, 32, *purpose, "x") for purpose in purposes)]
    assert len(set(streams)) == len(streams)


def test_a_seed_of_another_length_is_refused():
    for length in (0, 16, 31, 33, 64):
        with pytest.raises(ValueError, match=f"not {length}"):
            Tape(bytes(length))


def test_the_seed_does_not_show():
    tape = Tape(SEED)
    for text in (repr(tape), str(tape), f"{tape}"):
        assert text == "Tape(redacted)"


# ---- laws: a test of size 1e-6, on fixed seeds; beside each, the same test finds a small planted error


def normal_p(values: np.ndarray) -> float:
    return float(stats.kstest(values.ravel(), stats.norm.cdf).pvalue)


def exponential_p(values: np.ndarray) -> float:
    return float(stats.kstest(values.ravel().astype(np.float64), stats.expon.cdf).pvalue)


@pytest.mark.parametrize("iteration", [0, 1, 2])
def test_normal_draws_have_the_standard_normal_law(iteration):
    values = Tape(SEED).normal(10_000, 5, "rho", iteration)
    assert values.shape == (10_000, 5) and values.dtype == np.float64
    assert normal_p(values) > FALSE_ALARM


def test_the_normal_test_finds_five_per_cent_more_spread_and_a_shift():
    values = Tape(SEED).normal(10_000, 5, "rho", 0)
    assert normal_p(1.05 * values) < FALSE_ALARM
    assert normal_p(values + 0.05) < FALSE_ALARM


@pytest.mark.parametrize("iteration", [0, 1, 2])
def test_envelopes_have_the_exponential_law(iteration):
    values = exponential(item_keys, 50, "rho", iteration)
    assert values.shape == (1000, 50) and values.dtype == np.float32
    assert exponential_p(values) > FALSE_ALARM


def test_the_exponential_test_finds_five_per_cent_more_scale():
    assert exponential_p(1.05 * exponential(item_keys, 50, "rho", 0)) < FALSE_ALARM


def test_neighbouring_draws_are_uncorrelated():
    """Rank correlation of 50,000 pairs: along a row, from row to row, from iteration to iteration."""
    first, second = (Tape(SEED).normal(5000, 10, "rho", iteration) for iteration in (0, 1))
    pairs = [(first[:, :-1], first[:, 1:]), (first[:-1], first[1:]), (first, second)]
    for left, right in pairs:
        assert stats.spearmanr(left.ravel(), right.ravel()).pvalue > FALSE_ALARM
    assert stats.spearmanr(first.ravel(), (second + 0.1 * first).ravel()).pvalue < FALSE_ALARM


def test_every_word_becomes_a_number_strictly_between_0_and_1():
    """At 1 a normal draw is infinite, which would end the run; an envelope is 0, which leaves a sum without noise."""
    words = np.array([0, 2**11 - 1, 2**63, 2**64 - 2**12, 2**64 - 2**11, 2**64 - 1], np.uint64)
    uniform = _unit_interval(words)
    assert (uniform > 0).all() and (uniform < 1).all()
    assert (np.diff(uniform) >= 0).all()


# ---- rows depend on their key only


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 10, 16, 50])
def test_a_user_with_few_keys_derives_the_rows_of_the_recommender_with_all(dim):
    """The rows are equal bit for bit at many lengths and places: vector instructions handle array ends differently."""
    everything = exponential(item_keys, dim, b"run", "rho", 4)
    chosen = [range(length) for length in range(1, 20)]
    chosen += [range(start, start + 3) for start in range(0, 1000 - 3, 37)]
    chosen += [range(1000 - length, 1000) for length in (1, 2, 5, 17)]
    chosen += [range(start, 1000, step) for start, step in itertools.product((0, 1, 5), (2, 3, 7, 63))]
    for places in chosen:
        rows = exponential([item_keys[place] for place in places], dim, b"run", "rho", 4)
        assert rows.tobytes() == everything[list(places)].tobytes()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100])
def test_the_logarithm_does_not_depend_on_place_length_or_alignment(length):
    """The test above relies on this; here no rounding to float32 can hide a different last bit."""
    uniform = _unit_interval(np.frombuffer(keystream(SEED, 8 * 4096, "uniform"), "<u8"))
    everything = np.log(uniform)
    for start in range(0, 4096 - length, 101):
        for shift in range(0, 64, 8):  # bytes past a fresh allocation
            room = np.empty(shift + 8 * length, np.uint8)
            part = room[shift:].view(np.float64)
            part[:] = uniform[start : start + length]
            assert np.log(part).tobytes() == everything[start : start + length].tobytes()


def test_no_keys_give_no_rows():
    assert exponential([], 3, "rho").shape == (0, 3)
    assert Tape(SEED).normal(0, 3, "rho").shape == (0, 3)
