"""Uniformity of the values that a server receives: planted faults of the masks are found with the stated power."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from protocol.arithmetic.ring import Ring
from sim.api import run
from sim.audit.uniformity import uniformity as statistics
from sim.audit.uniformity.uniformity import (
    LEVEL,
    ByteTally,
    Sample,
    checks_of,
    holm,
    smallest_bias,
    smallest_fraction,
    uniformity,
)
from sim.data.ratings import find
from sim.views.evidence import open_case

SMALL = {"data": "synthetic:30x25:.3", "iterations": 4, "dim": 4, "transport": "inprocess"}


def audited(folder, scheme: str, seed: int = 1, **changes):
    assert run(scheme=scheme, seed=seed, out=folder, **SMALL | changes)["completed"]
    return uniformity(open_case(folder))


def sampled(values: np.ndarray, bits: int = 32) -> Sample:
    """Make a sample of one message with `values` of one coordinate each: only the streams `values` and `items`."""
    sample = Sample(Ring(bits))
    sample.add("user:0", 0, np.arange(len(values), dtype=np.uint32), values[:, None])
    return sample


def is_flagged(sample: Sample) -> bool:
    return min(holm([check.p for check in sample.tests()])) < LEVEL


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "wire"),
    [
        ("masked", "compact"),
        ("masked", "paper"),
        ("dynamic", "compact"),
        ("dynamic", "paper"),
        ("support.schemes.unmasked:Sound", "compact"),  # the code path of the planted faults, without a fault
    ],
)
def test_a_correct_run_is_not_flagged(tmp_path, scheme, wire):
    document, findings = audited(tmp_path / "run", scheme, wire=wire)
    assert {finding.severity for finding in findings} == {"info"}
    assert document["tests"] > 100 and not any(entry["rejected"] for entry in document["fields"])
    seen = {(entry["party"], entry["kind"]) for entry in document["fields"]}
    dynamic = {("third_party", "BlindedShare"), ("recommender", "SealedTotal")}
    assert seen == {("third_party", "MaskedGradient")} | (dynamic if scheme == "dynamic" else set())


@pytest.mark.parametrize(
    ("scheme", "party", "stream"),
    [
        ("Bare", "third_party", "values"),
        ("BareDynamic", "third_party", "values"),
        ("Short", "third_party", "values"),
        ("Reused", "third_party", "iterations"),
        ("Shared", "third_party", "senders"),
        ("PerUser", "third_party", "items"),
        ("PerItem", "third_party", "coordinates"),
        ("Unsealed", "recommender", "values"),
    ],
)
def test_a_fault_of_the_masks_is_found_where_it_is(tmp_path, scheme, party, stream):
    document, findings = audited(tmp_path / "run", f"support.schemes.unmasked:{scheme}")
    (found,) = [finding for finding in findings if finding.severity == "break"]
    assert (found.id, found.coalition) == ("mask-uniformity", (party,))
    assert "views/" in found.evidence and found.measured["smallest_p_corrected"] < 1e-9
    rejected = [row["stream"] for entry in document["fields"] for row in entry["rejected"]]
    assert stream in rejected


def test_a_missing_seal_shows_once_the_recommender_has_taken_out_its_blinds(tmp_path):
    document, _ = audited(tmp_path / "run", "support.schemes.unmasked:Unsealed")
    rejected = {entry["field"] for entry in document["fields"] if entry["rejected"]}
    assert rejected == {"values less blinds"}


def test_a_scheme_that_claims_nothing_uniform_has_nothing_tested(tmp_path):
    document, findings = audited(tmp_path / "run", "direct")
    assert findings == [] and document["tests"] == 0 and "claims of no field" in document["notes"][0]


def test_a_server_without_a_view_is_named(tmp_path):
    document, findings = audited(tmp_path / "run", "masked", views="none")
    assert findings == [] and document["notes"] == ["third_party keeps no view."]


def test_an_audit_repeats_itself(tmp_path):
    folder = tmp_path / "run"
    assert audited(folder, "masked") == uniformity(open_case(folder))


# --- the size and the power of the tests -----------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 24, 64])
def test_p_values_of_uniform_words_are_below_the_level_as_often_as_they_say(bits):
    """Single checks at 1 %, and all together at the corrected level of one in a thousand: 300 samples of 400 values."""
    rng, ring, p_values, flagged = np.random.default_rng(bits), Ring(bits), [], 0
    for _ in range(300):
        sample = sampled(ring.from_bytes(rng.bytes(400 * ring.width), 1)[:, 0], bits)
        p_values.append([check.p for check in sample.tests()])
        flagged += min(holm(p_values[-1])) < LEVEL
    rates = np.mean(np.array(p_values) < 0.01, axis=0)
    assert rates.max() <= stats.binom.isf(1e-6, 300, 0.01) / 300
    assert flagged <= stats.binom.isf(1e-6, 300, LEVEL)


def test_false_alarms_are_as_rare_as_the_level_says():
    """Byte counts of 2000 runs: a Clopper–Pearson interval of 99.9 % does not contradict a rate of at most LEVEL.

    Without the correction for many checks the same interval contradicts it.
    """
    rng, repetitions, corrected, bare = np.random.default_rng(5), 2000, 0, 0
    for _ in range(repetitions):
        counts = rng.multinomial(50_000, np.full(256, 1 / 256), 2)
        p_values = [check.p for check in checks_of("values", counts, 50_000)]
        corrected += min(holm(p_values)) < LEVEL
        bare += min(p_values) < LEVEL
    low = [stats.binomtest(alarms, repetitions).proportion_ci(0.999).low for alarms in (corrected, bare)]
    assert low[0] <= LEVEL < low[1]


def enough(wanted: float, smallest, level: float) -> int:
    """Find the fewest values for which a bias of `wanted` is found with the stated power."""
    low, high = 64, 1 << 27
    while low < high:
        middle = (low + high) // 2
        found = smallest(middle, level)
        low, high = (low, middle) if found is not None and found <= wanted else (middle + 1, high)
    return low


def test_one_value_in_a_thousand_without_a_mask_is_found_at_the_stated_power():
    """At the size for which a power of .9 is stated, the fault is planted 100 times: found at least 85 times, and at
    most one false alarm on uniform values."""
    checks = len(sampled(np.arange(100, dtype=np.uint32)).tests())
    n = enough(0.001, smallest_fraction, LEVEL / checks)
    assert 100_000 < n < 400_000
    rng, found, false = np.random.default_rng(7), 0, 0
    for _ in range(100):
        values = rng.integers(0, 1 << 32, n, np.uint32)
        false += is_flagged(sampled(values))
        bare = rng.random(n) < 0.001
        values[bare] = rng.normal(0, 1 << 16, bare.sum()).astype(np.int64).astype(np.uint32)
        found += is_flagged(sampled(values))
    assert found >= 85 and false <= 1


def biased(n: int, q: float, every: bool, rng: np.random.Generator) -> np.ndarray:
    """Draw byte counts of `n` words in which every bit, or one, is 1 with probability 1/2 + `q`."""
    ones = (np.arange(256)[:, None] >> np.arange(8)) & 1
    chances = np.where(ones, 0.5 + q, 0.5 - q)
    fair = np.full(256, 1 / 256)
    one_bit = np.where(ones[:, 3], 0.5 + q, 0.5 - q) / 128
    tables = [chances.prod(axis=1)] * 4 if every else [fair, one_bit, fair, fair]
    return np.array([rng.multinomial(n, table) for table in tables])


@pytest.mark.parametrize("every", [True, False], ids=["every bit", "one bit"])
def test_bits_that_are_off_by_a_tenth_of_a_per_cent_are_found_at_the_stated_power(every):
    rng, checks = np.random.default_rng(11), 36
    bits = 32 if every else 1
    n = enough(0.001, lambda size, level: smallest_bias(size * bits, level), LEVEL / checks)
    assert n < 10_000_000
    found = sum(
        min(holm([check.p for check in checks_of("values", biased(n, 0.001, every, rng), n)])) < LEVEL
        for _ in range(100)
    )
    assert found >= 85


def test_byte_counts_are_those_of_the_words(monkeypatch):
    """The counts do not depend on how the words are batched: batches of 4, 24 bits."""
    monkeypatch.setattr(statistics, "_BATCH", 4)
    tally, words = ByteTally(Ring(24)), np.array([0x010203, 0x0102FF, 0xFF0203, 5, 5], np.uint32)
    for word in words:
        tally.add(np.array([word], np.uint32))
    counts = tally.counts()
    assert counts.shape == (3, 256) and counts.sum() == 15 and tally.n == 5
    assert (counts[0, 3], counts[0, 255], counts[0, 5], counts[2, 255], counts[2, 0]) == (2, 1, 2, 1, 2)


def test_holm_corrects_the_smallest_most():
    assert holm([0.04, 0.01, 0.5]) == pytest.approx([0.08, 0.03, 0.5])
    assert holm([0.5, 0.4]) == pytest.approx([0.8, 0.8])


def test_too_few_values_are_not_said_to_be_tested_sharply():
    sample = sampled(np.arange(10, dtype=np.uint32))
    assert sample.tests() == []
    assert smallest_fraction(1, 1e-5) is None and smallest_bias(20, 1e-5) is None


# --- real ratings ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k")
def test_sixteen_million_masked_values_of_movielens_are_uniform(tmp_path):
    document, (finding,) = audited(
        tmp_path / "run", "masked", data="ml-100k", dim=10, iterations=20, views="servers", epsilon=8.0
    )
    (entry,) = document["fields"]
    assert entry["values"] == 16_000_000 and finding.severity == "info"
    assert all(row["smallest"] < 0.001 for row in entry["power"])
