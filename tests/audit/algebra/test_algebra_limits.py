"""What the algebra once gave up on: redundant rows, the best of several readings, forms that it cannot follow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from support.audit import audited

from protocol.arithmetic.ring import Label
from sim.audit.algebra import grade as grading
from sim.audit.algebra.eliminate import independent, left_kernel, reduce
from sim.audit.algebra.knowledge import FormTable
from sim.audit.algebra.linear_forms import NOISE, VALUE, Arena, Forms
from sim.audit.algebra.noise_left import least_noise
from sim.audit.algebra.symbolic import SymbolicRing
from sim.audit.audit import audit

RATINGS = [{0: 5.0, 1: 3.0, 2: 1.0}, {0: 2.0, 1: 4.0}, {0: 1.0, 2: 5.0}, {1: 2.0, 2: 4.0}]


def table_of(rows, kinds, owners, items=None, weights=None):
    """Make the table of these rows, without an arena."""
    table = object.__new__(FormTable)
    n = rows.shape[1]
    table.rows, table.kind = rows, np.array(kinds, np.int8)
    table.owner = np.array(owners, np.int32)
    table.item = np.zeros(n, np.int32) if items is None else np.array(items, np.int32)
    table.iteration, table.what = np.zeros(n, np.int32), np.zeros(n, np.int16)
    table.weight = np.ones(n) if weights is None else np.array(weights)
    table.owners, table.words = [f"user:{user}" for user in range(n)], ["rho"]
    return table


def test_rows_that_follow_from_others_are_dropped_before_the_algebra_gives_up():
    """450 sums of 100 users: the first 100 isolate everybody, the others add nothing."""
    draw = np.random.default_rng(1)
    base = csr_array(np.tril(np.ones((100, 100), np.int64)))  # sums of the first 1, 2, … users, mixed below
    mixed = csr_array(draw.integers(1, 5, (450, 100)).astype(np.int64)) @ base
    found = grading.separate(mixed, table_of(mixed, [VALUE] * 100, range(100)), 32)
    assert found.undecided == 0 and mixed.shape[0] > grading.MOST_ENTANGLED
    alone = np.repeat(found.owners == 1, np.diff(found.rows.indptr))
    assert set(found.rows.indices[alone].tolist()) == set(range(100))


@pytest.mark.parametrize("bits", [8, 32])
def test_independent_rows_span_the_same_with_even_coefficients_too(bits):
    draw = np.random.default_rng(bits)
    for _ in range(20):
        rows = csr_array(draw.integers(-4, 5, (12, 4)).astype(np.int64))
        few = independent(rows, bits)
        for one, other in ((rows, few), (few, rows)):  # each row of one is a combination of the other
            for at in range(one.shape[0]):
                stacked = csr_array(np.vstack([other.toarray(), one[[at]].toarray()]))
                marked = csr_array(np.hstack([stacked.toarray(), np.eye(stacked.shape[0], dtype=np.int64)[:, -1:]]))
                left = left_kernel(reduce(marked, bits), np.arange(5) < 4, bits, np.ones(5, np.bool_)).rows
                assert (left.toarray()[:, -1] & 1).any()


def test_noise_is_what_the_best_combination_of_readings_leaves():
    """One gradient, sent four times with fresh noise: the mean of the readings has a quarter of it."""
    rows = csr_array(np.hstack([np.ones((4, 1), np.int64), np.eye(4, dtype=np.int64)]))
    table = table_of(rows, [VALUE] + [NOISE] * 4, range(5))
    assert least_noise(rows, np.ones(4, np.bool_), table, 32)["rho"] == pytest.approx(1 / 4)
    table.weight = np.array([1, 1.0, 0.5, 0.25, 0.25])  # weights by precision: 1 / (1 + 2 + 4 + 4)
    assert least_noise(rows, np.ones(4, np.bool_), table, 32)["rho"] == pytest.approx(1 / 11)
    antithetic = csr_array(np.array([[1, 1], [1, -1]], np.int64))
    table = table_of(antithetic, [VALUE, NOISE], range(2))
    assert least_noise(antithetic, np.ones(2, np.bool_), table, 32) == {}


def readings(tmp_path, scheme, **flags):
    return audit(audited(tmp_path, RATINGS, scheme, epsilon=1.0, **flags).folder, only=["algebra"])


def test_numbers_of_unknown_form_are_named_by_message_and_the_rest_is_followed(tmp_path):
    document = readings(tmp_path, "support.schemes.unmasked:Short")
    (row,) = [row for row in document["not_shown"] if row["coalition"] == ["third_party"]]
    assert "MaskedGradient.values of the user cannot be followed, in 12 messages" in row["reason"]
    assert document["unanswered"] == {} and document["coalitions"]


def test_products_with_public_factors_are_followed_and_others_are_not():
    arena = Arena()
    ring = SymbolicRing(32, arena, "user:0")
    one = ring.from_integers(np.array([[3.0, 4.0], [5.0, 6.0]]), Label("gradient", 0, np.arange(2, dtype=np.uint32)))
    scaled = ring.subtract(ring.multiply(one, np.array([[2], [7]], np.uint32)), ring.add(one, one))
    product = ring.multiply(one, one)
    assert scaled.values.tolist() == [[0, 0], [25, 30]] and product.values.tolist() == [[9, 16], [25, 36]]
    forms = Forms(arena)
    rows = forms.of(scaled.nodes)
    assert rows[[0]].toarray().any() == 0 and rows[[1]].sum() == 5
    assert not forms.has_unfollowed(scaled.nodes) and forms.has_unfollowed(product.nodes)


def test_two_parties_who_together_learn_more_than_is_declared_are_found(tmp_path):
    """User 3 is told the masks of user 0 and the third party has what they hide: no default coalition has both."""
    document = readings(tmp_path, "support.schemes.quiet:TellsAFriend")
    assert document["party_pairs"] == {"tried": 15, "of": 15}
    assert ["third_party", "user:3"] in [row["members"] for row in document["coalitions"]]
    found = [row for row in document["findings"] if row["coalition"] == ["third_party", "user:3"]]
    assert "unmasking" in {row["id"] for row in found if row["beyond"]} and document["verdict"] == "beyond-claims"


@pytest.mark.parametrize("name", ["DerivedKey", "KeyOfAKey", "PublicKeys", "ShortMaskKeys"])
def test_who_holds_a_key_holds_all_that_is_derived_from_it(tmp_path, name):
    """The third party is told what mask keys follow from, or can try all that it may be."""
    document = readings(tmp_path, f"support.schemes.derived:{name}")
    found = {row["id"] for row in document["findings"] if row["beyond"] and row["coalition"] == ["third_party"]}
    assert found == {"unmasking"} and document["verdict"] == "beyond-claims"


def test_half_of_what_a_key_follows_from_is_not_the_key(tmp_path):
    document = readings(tmp_path, "support.schemes.derived:HalfOfAKey")
    assert document["verdict"] == "within-claims" and document["not_shown"] == []


def test_keys_of_unknown_origin_are_named(tmp_path):
    (row,) = readings(tmp_path, "support.schemes.derived:StrangeKeys")["not_shown"]
    assert row["question"] == "algebra" and row["reason"].startswith("4 keys of masks follow from no tape")


def test_opened_sums_that_travel_on_as_floats_are_followed(tmp_path):
    document = readings(tmp_path, "support.schemes.derived:SumsAsFloats")
    (answer,) = [row for row in document["coalitions"] if row["members"] == ["third_party"]]
    assert answer["determines"] == "aggregate" and document["not_shown"] == []
    (found,) = [row for row in document["findings"] if row["beyond"]]
    assert found["id"] == "unmasking" and found["coalition"] == ["third_party"]


def test_floats_of_a_server_that_are_no_sums_are_named(tmp_path):
    (row,) = readings(tmp_path, "support.schemes.derived:SquaresOfSums")["not_shown"]
    assert row["coalition"] == ["third_party"]
    assert "FloatSums.values of the recommender cannot be followed, in 3 messages" in row["reason"]


@pytest.mark.parametrize("scheme", ["masked", "dynamic", "direct", "trusted", "plain"])
def test_envelopes_and_factors_of_correct_schemes_are_no_floats_of_unknown_form(tmp_path, scheme):
    flags = {"wire": "paper"} if scheme in ("masked", "dynamic") else {}
    case = audited(tmp_path, RATINGS, scheme, publish="rated", **flags)
    assert audit(case.folder, only=["algebra"])["not_shown"] == []
