"""A declared weakness has a party, a bound and a first iteration; what lies outside them is beyond the claims."""

from __future__ import annotations

import numpy as np
import pytest
from support.audit import audited
from support.basics import small_run

from protocol.arithmetic.tape import Tape
from protocol.party.role import UserInput
from protocol.schemes import SCHEMES
from protocol.schemes.base import Weakness
from protocol.schemes.factorization.masked import Masked
from sim.audit.audit import audit
from sim.audit.findings import Finding, goes_beyond

RATINGS = [{0: 5.0, 1: 3.0, 2: 1.0}, {0: 2.0, 1: 4.0}, {0: 1.0, 2: 5.0}, {1: 2.0, 2: 4.0}]


@pytest.mark.parametrize(
    ("id_", "coalition", "scheme", "beyond"),
    [
        ("single-contributor", ["recommender"], "masked", False),
        ("single-contributor", ["third_party"], "masked", True),
        ("single-contributor", ["user:3"], "masked", True),
        ("single-contributor", ["user:3"], "dynamic", False),
        ("released-sums", ["third_party", "user:3"], "masked", False),
        ("released-sums", ["third_party"], "masked", True),
        ("unmasking", ["recommender", "third_party", "user:1"], "masked", False),
        ("unmasking", ["third_party", "user:1"], "masked", True),
        ("known-shares", ["recommender", "all users but one"], "covariance-masked", False),
        ("diluted-sum", ["recommender"], "masked", True),
    ],
)
def test_it_is_declared_for_its_party_and_for_larger_coalitions(id_, coalition, scheme, beyond):
    finding = Finding(id_, "A title.", tuple(coalition), "weak")
    assert goes_beyond(finding, SCHEMES[scheme].known_weaknesses) == beyond


def test_a_bound_and_a_first_iteration_limit_it_and_a_plain_id_limits_nothing():
    known = (Weakness("support", "recommender", most=0.5, since=2), "composition")
    found = [
        Finding("support", "A title.", ("recommender",), "weak", amount=amount, iteration=iteration)
        for amount, iteration in ((0.5, 2), (0.6, 2), (0.5, 1), (None, None))
    ]
    assert [goes_beyond(one, known) for one in found] == [False, True, True, False]
    assert not goes_beyond(Finding("composition", "A title.", ("user:1",), "weak", amount=1e9), known)
    assert goes_beyond(Finding("composition", "A title.", ("user:1",), "break"), known)
    assert known[0].document() == {"id": "support", "parties": ["recommender"], "most": 0.5, "since": 2}


@pytest.mark.parametrize(
    ("scheme", "beyond"),
    [
        ("masked", []),
        ("support.schemes.quiet:TripleGradient", [0]),  # in the first iteration, where nothing has reacted
        ("support.schemes.quiet:BoundedReaction", [1]),
    ],
)
def test_the_accounting_finds_gradients_that_move_earlier_or_further_than_declared(tmp_path, scheme, beyond):
    folder = audited(tmp_path, RATINGS, scheme, epsilon=8.0, iterations=8).folder
    document = audit(folder, only=["accounting"])
    found = [row for row in document["findings"] if row["id"] == "reacting-user-factors" and row["beyond"]]
    assert [row["iteration"] for row in found] == beyond
    assert (document["verdict"] == "beyond-claims") == bool(beyond)


def test_even_the_gradient_of_the_flipped_item_may_move_beyond_lemma_1_later():
    """Bounds the declaration from below: with u_i = .875 and .625 and v_j = 20, the gradients are 28.9 and 9.4."""
    card, _ = small_run("masked", n_items=1, dim=1, epsilon=1.0, ratings=[{0: 1.0}] * 3)
    setting = card.setting
    gradients = []
    for rating in (1.0, 5.0):
        inputs = UserInput(np.zeros(1, np.uint32), np.array([rating]))
        user = Masked().make_role("user:0", setting, Tape(bytes(32)), inputs)
        user.user_factors[:] = 1.0
        gradients.append([user.step(t, np.array([[v]], np.float32))[0, 0] for t, v in enumerate((-1.0, 20.0))])
    first, later = np.abs(np.subtract(*gradients)) / (2 * card.params.rating_span)
    assert first == pytest.approx(1.0) and later == pytest.approx(2.4375, rel=1e-3)
