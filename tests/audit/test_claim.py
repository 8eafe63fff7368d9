"""Does the published claim hold, and did a run leak beyond what its scheme declares? Two separate questions."""

from __future__ import annotations

import json
import math

import pytest
from support.audit import audited, made
from typer.testing import CliRunner

from sim.audit.audit import audit
from sim.audit.claim import ClaimEvidence, published_claim, unknown
from sim.audit.findings import Finding
from sim.cli.app import app

RATINGS = [{0: 5.0, 1: 3.0, 2: 1.0}, {0: 2.0, 1: 4.0}, {0: 1.0, 2: 5.0}, {1: 2.0, 2: 4.0}]
FAST = ("inventory", "algebra", "accounting")


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return audited(tmp_path_factory.mktemp("masked"), RATINGS, "masked", epsilon=1.0)


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_the_paper_s_claim_is_refuted_exactly_and_nothing_goes_beyond_what_is_declared(tmp_path, scheme):
    case = audited(tmp_path, RATINGS, scheme, epsilon=1.0)
    document = audit(case.folder, only=FAST)
    claim = document["published_claim"]
    assert (claim["status"], claim["claimed"], claim["claim"]) == ("refuted", 1.0, "ε = 1 per release")
    assert claim["shown"] == document["accounting"]["one_release"]["even"]["worst"] > 1.0
    assert claim["confidence"] == "exact, at δ = 1e-05" and "who knows the envelopes" in claim["why"]
    assert document["verdict"] == "within-claims"


def test_a_canary_alone_refutes_it_with_its_confidence(masked):
    document = audit(masked.folder, only=["empirical"], repetitions=8000)
    claim = document["published_claim"]
    row = max((row for row in document["empirical"]["rows"] if row["coalition"] == ["recommender"]),
              key=lambda row: row["lower_bound"])  # fmt: skip
    assert claim["status"] == "refuted" and claim["confidence"] == "99.5 % lower bound"
    assert claim["shown"] >= row["lower_bound"] > 2
    assert "A canary at ε = 1 shows the recommender ε ≥" in claim["why"]


def test_what_was_found_another_time_still_counts(tmp_path):
    folder = audited(tmp_path, RATINGS, "masked", epsilon=1.0).folder
    assert audit(folder, only=["inventory"])["published_claim"]["status"] == "not-tested"
    assert audit(folder, only=["accounting"])["published_claim"]["status"] == "refuted"
    again = audit(folder, only=["inventory"])
    assert again["published_claim"]["status"] == "refuted" and again["accounting"] is None


def test_without_its_questions_it_is_not_tested(masked):
    claim = audit(masked.folder, only=["inventory"], fresh=True)["published_claim"]
    assert claim["status"] == "not-tested" and claim["shown"] is None
    assert claim["why"] == "Nothing contradicts it so far, but neither its accounting nor a canary was asked for."


@pytest.mark.parametrize(("scheme", "flags"), [("plain", {}), ("masked", {"epsilon": math.inf})])
def test_where_nothing_is_claimed_nothing_is_tested(tmp_path, scheme, flags):
    claim = audit(audited(tmp_path, RATINGS, scheme, **flags).folder, only=FAST)["published_claim"]
    assert claim["status"] == "not-tested" and claim["why"].endswith("nothing is claimed.")


def test_an_entry_that_is_randomized_as_published_holds(tmp_path):
    case = made(tmp_path / "run", "randomized-response", epsilon=2.0)
    claim = audit(case.folder, only=["accounting", "empirical"], repetitions=1000)["published_claim"]
    assert (claim["status"], claim["claimed"], claim["shown"]) == ("holds", 2.0, 2.0)
    assert "No canary shows more" in claim["why"]


def test_a_break_refutes_whatever_else_was_found(masked):
    finding = Finding("missing-noise", "There is no noise.", ("recommender",), "break", measured=0.1)
    claim = published_claim(masked, None, None, [finding])
    assert (claim["status"], claim["why"]) == ("refuted", "There is no noise.")


def test_collusion_refutes_no_claim_of_a_party_alone(masked):
    row = {"coalition": ["recommender", "all users but one"], "exceeds": True, "claimed": 1.0, "lower_bound": 9.0}
    empirical = {"confidence": 0.995, "rows": [{**row, "epsilon": 1.0}]}
    assert published_claim(masked, None, empirical, [], ["accounting"])["status"] == "not-tested"
    alone = {"confidence": 0.995, "rows": [{**row, "coalition": [], "epsilon": 1.0}]}
    assert published_claim(masked, None, alone, [], ["accounting"])["status"] == "refuted"


def test_rounding_refutes_nothing():
    assert not ClaimEvidence(8.0 + 1e-12, 8.0, "", "").refutes
    assert ClaimEvidence(8.1, 8.0, "", "").refutes


def test_what_is_unknown_says_why():
    assert unknown("x") | {"why": ""} == {"status": "not-tested", "claimed": None, "claim": "", "shown": None,
                                          "confidence": None, "why": ""}  # fmt: skip


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """Make a run whose values are enough to show whether noise is missing."""
    return made(tmp_path_factory.mktemp("larger") / "run", "masked", epsilon=1.0)


def ask(case, *arguments):
    return CliRunner().invoke(app, ["audit", *arguments, str(case.folder), "--only", "accounting"])


@pytest.mark.parametrize(("strict", "code"), [(["--strict"], 0), (["--strict=claims"], 3), ([], 0)])
def test_strict_fails_on_a_refuted_claim_only_if_asked_to(larger, strict, code):
    assert ask(larger, *strict).exit_code == code


def test_strict_takes_no_other_value(larger):
    found = ask(larger, "--strict=everything")
    assert found.exit_code == 2 and "--strict=claims" in found.output


def test_a_person_reads_both_answers_in_whole_sentences(larger):
    text = " ".join(ask(larger).output.split())
    assert "The published claim ε = 1 per release is refuted: To the recommender, who knows the envelopes," in text
    assert "This run leaked nothing beyond what masked declares (" in text
    assert "declared weaknesses found" in text


def test_the_json_has_the_claim(larger):
    claim = json.loads(ask(larger, "--json").stdout)["published_claim"]
    assert {"status", "claimed", "shown", "confidence", "why"} <= set(claim)
