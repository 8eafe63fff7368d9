"""Ideal against real: the view of a correct server does not help a classifier; with more than is permitted it does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from protocol.arithmetic.ring import Ring
from sim.api import run
from sim.audit.families.masked.recommender_glimpse import recommender_glimpse
from sim.audit.uniformity import classifier
from sim.audit.uniformity.classifier import Pairs, RocCurve
from sim.audit.uniformity.indistinguishable import compare, truth_of
from sim.data.ratings import find
from sim.views.evidence import open_case
from sim.views.exhibits import Exhibits

SMALL = {"data": "synthetic:60x40:.25", "iterations": 3, "dim": 4, "transport": "inprocess"}
SPARSE = {"data": "synthetic:200x300:.01", "epsilon": math.inf, "test_fraction": 0.0}  # three raters of an item


def audited(folder, scheme: str, seed: int = 1, **changes):
    assert run(scheme=scheme, seed=seed, out=folder, **SMALL | changes)["completed"]
    return compare(open_case(folder))


@pytest.mark.parametrize(
    ("scheme", "flags"),
    [
        ("masked", {}),
        ("masked", {"wire": "paper"}),
        ("masked", SPARSE),
        ("dynamic", {"join": 0.0, "leave": 0.0}),
        ("support.schemes.unmasked:Sound", {}),
    ],
    ids=["masked", "paper", "no noise", "dynamic", "the detour of the planted faults"],
)
def test_the_view_of_a_server_alone_does_not_help(tmp_path, scheme, flags):
    document, findings = audited(tmp_path / "run", scheme, **flags)
    assert document["notes"] == []
    assert [(row["party"], row["secret"], row["helps"]) for row in document["comparisons"]] == [
        (party, secret, False) for party in ("recommender", "third_party") for secret in ("rating", "gradient sign")
    ]
    assert {(finding.id, finding.severity) for finding in findings} == {("unmasking", "info")}
    assert all(row["smallest_gain"] < 0.35 and row["pairs"] > 300 for row in document["comparisons"])


@pytest.mark.parametrize(
    ("scheme", "flags", "found"),
    [
        ("Bare", {}, {("third_party", "rating"), ("third_party", "gradient sign")}),
        ("BareDynamic", {"join": 0.0, "leave": 0.0}, {("third_party", "rating"), ("third_party", "gradient sign")}),
        ("Shared", {}, {("third_party", "gradient sign")}),
        ("Forwarding", SPARSE, {("recommender", "gradient sign")}),
    ],
)
def test_a_server_that_is_shown_more_is_found(tmp_path, scheme, flags, found):
    """Faults: no masks, one mask for all users, and a third party that forwards a message in place of the sum."""
    document, findings = audited(tmp_path / "run", f"support.schemes.unmasked:{scheme}", seed=3, **flags)
    assert {(row["party"], row["secret"]) for row in document["comparisons"] if row["helps"]} == found
    broken = [finding for finding in findings if finding.severity == "break"]
    assert {finding.coalition for finding in broken} == {(party,) for party, _ in found}
    assert all(finding.measured["gain"] > 0.1 and "views/" in finding.evidence for finding in broken)


def test_where_nothing_is_masked_there_is_nothing_to_compare(tmp_path):
    document, findings = audited(tmp_path / "run", "direct")
    assert findings == [] and document["comparisons"] == [] and "nothing to compare" in document["notes"][0]


def test_too_few_users_are_told(tmp_path):
    document, findings = audited(tmp_path / "run", "masked", data="synthetic:6x9:.5")
    assert findings == [] and document["comparisons"] == []
    assert document["notes"][0] == "recommender: 6 users are too few to compare; 10 are needed."


def test_one_iteration_has_no_differences_and_is_not_compared(tmp_path):
    document, findings = audited(tmp_path / "run", "masked", iterations=1)
    assert findings == [] and [note.split(":")[0] for note in document["notes"]] == ["recommender", "third_party"]


def test_an_audit_repeats_itself(tmp_path):
    folder = tmp_path / "run"
    assert audited(folder, "masked") == compare(open_case(folder))


def test_the_truth_is_that_of_the_users_own_view(tmp_path):
    """The sign of the first coordinate of −2 u e, from factors and errors that the user itself had."""
    assert run(scheme="plain", seed=2, out=tmp_path / "run", **SMALL)["completed"]
    case = open_case(tmp_path / "run")
    truth = truth_of(case, 3)
    gradients = Exhibits(case, ("recommender",)).received("recommender", "Gradient")
    sent = next(seen.message for seen in gradients if seen.sender == "user:3")
    assert np.array_equal(truth.signs, np.sign(sent.values[:, 0]))
    assert set(np.unique(truth.ratings)) <= {1.0, 2.0, 3.0, 4.0, 5.0}


def test_sums_of_one_contributor_are_left_to_the_finding_of_their_own(tmp_path):
    assert run(scheme="masked", seed=3, out=tmp_path / "run", **SMALL | SPARSE)["completed"]
    case = open_case(tmp_path / "run")
    glimpse = recommender_glimpse(case)
    truths = {user: truth_of(case, user) for user in range(200)}
    raters = np.bincount(np.concatenate([truth.items for truth in truths.values()]), minlength=300)
    assert (raters == 1).any()
    held = np.concatenate([items for items, _ in glimpse.words.values()])
    assert sorted(set(held.tolist())) == np.flatnonzero(raters >= 2).tolist()


# --- the classifier --------------------------------------------------------------------------------------------------


def test_the_area_counts_pairs_of_true_and_false():
    """3 of the 2 × 2 pairs are right and one is a tie; weight 2 on the first value is the same as repeating it."""
    values, secret = np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False])
    assert RocCurve(values, secret).area(np.ones(4)) == pytest.approx(3.5 / 4)
    assert RocCurve(values, secret).area(np.array([2.0, 1, 1, 1])) == pytest.approx(5.5 / 6)
    assert RocCurve(values, secret).area(np.array([1.0, 1, 0, 0])) == 0.5


def drawn_pairs(rng: np.random.Generator, users: int, items: int) -> Pairs:
    user = np.repeat(np.arange(users), items)
    item = np.concatenate([rng.permutation(2 * items)[:items] for _ in range(users)])
    rounds = tuple(rng.integers(0, 1 << 32, (len(user), 2), np.uint32) for _ in range(2))
    return Pairs(user, item, rng.normal(size=(len(user), 1)), rounds)


@pytest.mark.parametrize("whole", [True, False], ids=["one secret per user", "one secret per pair"])
def test_uniform_words_are_said_to_help_as_often_as_the_level_says(monkeypatch, whole):
    """At 5 %, 100 times, 12 users: 99.9 % Clopper–Pearson interval holds the level (a bootstrap of users does not)."""
    monkeypatch.setattr(classifier, "RESAMPLES", 2)
    monkeypatch.setattr(classifier, "SIMULATIONS", 12)
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(100):
        pairs = drawn_pairs(rng, users=12, items=8)
        secret = (rng.permutation(12) < 6)[pairs.user] if whole else rng.random(len(pairs.user)) < 0.5
        alarms += classifier.compare(Ring(32), pairs, secret, 0.05, rng)["helps"]
    interval = stats.binomtest(alarms, 100).proportion_ci(0.999)
    assert interval.low <= 0.05 <= interval.high


def test_a_gain_of_the_stated_size_is_found():
    """A third of the words is small and has the sign of the secret."""
    rng = np.random.default_rng(4)
    pairs = drawn_pairs(rng, users=40, items=12)
    secret = rng.random(len(pairs.user)) < 0.5
    bare = rng.random(len(secret)) < 1 / 3
    signed = np.where(secret, 1, -1) * rng.integers(1, 1 << 16, len(secret))
    pairs.rounds[0][bare, 0] = signed[bare].astype(np.int64).astype(np.uint32)
    row = classifier.compare(Ring(32), pairs, secret, 0.001, rng)
    assert row["helps"] and row["gain"] > row["smallest_gain"] > 0 and row["gain_95"][0] > 0


# --- real ratings ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k")
def test_no_server_alone_learns_more_of_movielens_than_it_may(tmp_path):
    document, _ = audited(tmp_path / "run", "masked", data="ml-100k", dim=10, iterations=2)
    assert len(document["comparisons"]) == 4 and not any(row["helps"] for row in document["comparisons"])
    assert all(row["smallest_gain"] < 0.1 for row in document["comparisons"])
    rating = [row["auc_permitted"] for row in document["comparisons"] if row["secret"] == "rating"]
    assert min(rating) > 0.6  # the permitted view already helps, so the comparison is not with chance
