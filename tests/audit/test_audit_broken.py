"""Deliberately broken schemes are caught, each by the question that its test names."""

from __future__ import annotations

import pytest
from support.audit import audited

from sim.audit import inventory
from sim.audit.algebra.solve import findings, solve
from tests.audit.algebra.test_algebra import RATINGS


def by_algebra(case):
    return {(one.coalition, one.id, one.severity) for one in findings(case, solve(case))}


@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_algebra_finds_a_user_that_sends_its_mask_along(tmp_path, wire):
    case = audited(tmp_path, RATINGS, "support.schemes.broken:SendsItsMask", wire=wire)
    assert (("third_party",), "unmasking", "break") in by_algebra(case)


def test_algebra_finds_a_third_party_that_forwards_individual_sums(tmp_path):
    case = audited(tmp_path, RATINGS, "support.schemes.broken:ForwardsIndividuals")
    assert (("recommender",), "unmasking", "break") in by_algebra(case)


def test_algebra_finds_a_seed_that_is_used_in_two_iterations(tmp_path):
    case = audited(tmp_path, RATINGS, "support.schemes.broken:ReusesItsSeed")
    assert (("third_party",), "unmasking", "break") in by_algebra(case)


def test_inventory_finds_a_field_that_is_not_declared(tmp_path):
    rows, found = inventory.take(audited(tmp_path, RATINGS, "support.schemes.broken:SaysMore"))
    undeclared = [(row["party"], row["kind"], row["field"]) for row in rows if row["declared"] is False]
    assert undeclared == [("third_party", "WithRatings", "liked")]
    assert [(one.id, one.severity, one.coalition) for one in found] == [("undeclared-field", "break", ("third_party",))]


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_algebra_finds_no_break_in_the_schemes_as_published(tmp_path, scheme):
    assert "break" not in {severity for _, _, severity in by_algebra(audited(tmp_path, RATINGS, scheme))}
