"""Canaries through the roles: a correct mechanism keeps its claim, known weaknesses show, and every fault is found."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import numpy as np
import pytest
from support.schemes.noise_faults import HalfNoise, Quiet, Redrawing, Reusing, Unmasked

from protocol.arithmetic.factors import item_gradients, prediction_errors, step_user
from protocol.arithmetic.tape import derive
from protocol.errors import BadInput
from protocol.schemes import LISTED, Shape, find_scheme
from protocol.schemes.factorization.masked import Masked
from sim.api import run
from sim.audit.canary import canary, chunks
from sim.audit.canary.bound_rows import Asked, make_row
from sim.audit.canary.canary import Stage, make_problem, play_canary
from sim.audit.canary.chunks import coins
from sim.audit.canary.empirical import CONFIDENCE, findings_of, measure
from sim.audit.families.factorization import repeat as repeat_module
from sim.audit.families.factorization.adversary_statistics import centred_sums, gradients
from sim.audit.families.factorization.arms import PUBLICATION, RELEASE, SUMS
from sim.audit.families.factorization.factorization_family import MEASURABLE, arms_of, measure_arms
from sim.audit.families.factorization.repeat import play_chunk, play_once, repeat
from sim.audit.findings import verdict
from sim.foreign.plain_text import jsonable
from sim.views.evidence import open_case

STARS = (1.0, 5.0)
SEED = bytes(range(32))
UNMEASURED = {"plain", "hardened"}  # no ε, or no canary of its family
ARMS = {arm.name: arm for arm in SUMS}


class Careful(Masked):
    """`masked` with a minimum of three contributors."""

    name = "careful"

    def make_params(self, shape, **settings):
        return super().make_params(shape, **{"min_contributors": 3, **settings})


def rows_of(scheme, *names, repetitions=4000, epsilon=1.0, params=None, confidence=CONFIDENCE):
    arms = [(ARMS[name], epsilon) for name in names]
    return measure_arms(Asked(scheme, params, epsilon, repetitions, SEED, 1, confidence), arms)


def found_in(rows, kind, coalition=()):
    (row,) = [row for row in rows if (row.statistic.kind, row.statistic.coalition) == (kind, coalition)]
    return row


def severities(rows):
    return {(finding.id, finding.severity) for finding in findings_of(rows)}


# ---- the canary is a real run, and the adversary's arithmetic is that of the users


@pytest.mark.parametrize("name", ["masked", "dynamic", "direct"])
@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_without_noise_the_adversary_foretells_every_sum(monkeypatch, name, wire):
    scheme = find_scheme(name)
    settings = {"wire": wire} if "wire" in scheme.flags else {}
    problem = make_problem(scheme, STARS, iterations=3, epsilon=math.inf, **settings)
    monkeypatch.setattr(repeat_module, "can_batch", lambda problem: False)  # one run foresees u(1) only on average
    observed = play_chunk(problem, SEED, 0, 40)
    centred, shift = centred_sums(problem, observed)
    expected = np.where(observed.greatest[:, None], shift, 0)
    assert np.allclose(centred, expected, atol=1e-3) and np.all(shift[:, 0] == 8)
    assert {tuple(row) for row in observed.user_factors.tolist()} == {(a, b) for a in (-1, 1) for b in (-1, 1)}


def test_the_gradients_of_all_repetitions_at_once_are_those_of_the_protocol():
    params = make_problem(Masked(), STARS, iterations=3, epsilon=1.0).params
    random = np.random.default_rng(1)
    first, factors = random.uniform(-1, 1, 20), random.normal(size=(20, 4))
    found = gradients(params, first, factors, 5.0, 3.0, np.arange(20))
    for row in range(20):
        own, ratings = first[row : row + 1], np.array([5.0])
        for iteration in range(3):
            sent = factors[row, iteration].astype(np.float32).astype(np.float64).reshape(1, 1)
            errors = prediction_errors(ratings, own, sent)
            assert found[row, iteration] == pytest.approx(item_gradients(errors, own)[0, 0])
            own = step_user(own, sent, errors, params.learning_rate, params.user_regularisation)


@pytest.mark.parametrize("name", ["masked", "dynamic"])
def test_a_rater_is_dealt_the_same_envelopes_in_both_wire_forms(name):
    found = {}
    for wire in ("compact", "paper"):
        problem = make_problem(find_scheme(name), STARS, iterations=2, epsilon=1.0, wire=wire)
        observed = play_chunk(problem, SEED, 0, 20)
        found[wire] = np.hstack([observed.rho_envelopes, observed.eta_envelopes])
        assert found[wire].shape == (20, 3) and len(np.unique(found[wire])) == 60
    assert np.array_equal(found["compact"], found["paper"])


def test_silent_noise_is_zero_and_nothing_else_is():
    kept = {}
    for silent in ((), ("eta",), ("rho",), ("eta", "rho")):
        problem = make_problem(Masked(), STARS, silent, iterations=1, epsilon=1.0)
        observed = play_chunk(problem, SEED, 0, 30)
        centred, shift = centred_sums(problem, observed)
        kept[silent] = (centred - shift * observed.greatest[:, None])[:, 0] * np.sign(observed.user_factors[:, 0])
    assert np.allclose(kept[("eta", "rho")], 0, atol=1e-3)
    assert np.allclose(kept[("eta",)] + kept[("rho",)], kept[()], atol=1e-3)
    assert min(np.abs(kept[("eta",)]).min(), np.abs(kept[("rho",)]).min()) > 1e-3


def test_every_repetition_has_fresh_tapes():
    observed = play_chunk(make_problem(Masked(), STARS, iterations=1, epsilon=1.0), SEED, 0, 50)
    for column in (observed.rho_envelopes, observed.eta_envelopes, observed.uploads, observed.item_factors[:, 1]):
        assert len(np.unique(column)) == 50
    assert 10 < observed.greatest.sum() < 40 and np.array_equal(observed.greatest, coins(SEED, 0, 50))
    assert not np.array_equal(observed.greatest, coins(SEED, 50, 50))


def test_a_repetition_is_the_run_that_frames_would_make():
    from sim.experiments.bench.audit_bench import play_framed

    problem = make_problem(Masked(), STARS, ("eta",), iterations=1, epsilon=1.0)
    problem = canary.CanaryProblem(problem.scheme, problem.params)  # its seats have tapes that draw all noise
    stage, seed = Stage(problem, bytes(32)), derive(SEED, 7)
    tapes = {name: canary.Tape(derive(seed, name)) for name in stage.parties}
    played = play_canary(stage, stage.roles(tapes, greatest=False))
    assert np.array_equal(played.factors[-1], play_framed(problem, seed))


def test_the_repetitions_do_not_depend_on_the_number_of_workers(monkeypatch):
    monkeypatch.setattr(chunks, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(chunks, "CHUNK", 16)
    work = [(make_problem(Masked(), STARS, iterations=t, epsilon=1.0), SEED, 50) for t in (1, 2)]
    for one, two in zip(repeat(work, workers=1), repeat(work, workers=2), strict=True):
        assert len(one) == 50
        for field in fields(one):
            if field.name != "seconds":
                assert np.array_equal(getattr(one, field.name), getattr(two, field.name)), field.name


# ---- a correct mechanism, and what is known to be weak in it


@pytest.fixture(scope="module")
def correct():
    return rows_of(Masked(), *ARMS, repetitions=2400)


def test_a_correct_mechanism_keeps_its_claim_and_is_nearly_tight(correct):
    noise = [row for row in correct if row.statistic.kind in ("noise", "mask")]
    assert len(noise) == 5 and not any(row.exceeds for row in noise)
    release = next(row for row in noise if row.arm == "release" and row.statistic.kind == "noise")
    assert 0.5 < release.bound.epsilon <= 1
    assert found_in(correct, "mask", ("third_party",)).claimed == 0


def test_the_recommender_and_a_rater_learn_more_than_is_claimed(correct):
    envelopes = [row for row in correct if row.statistic.kind == "envelope" and row.arm == "release"]
    assert envelopes[0].exceeds and envelopes[0].bound.epsilon > 1.2
    assert found_in(correct, "shares", ("user",)).bound.epsilon > 1.2
    found = findings_of(correct)
    assert {(finding.id, finding.severity) for finding in found} == {
        ("missing-noise", "info"),
        ("mask-uniformity", "info"),
        ("known-envelope", "weak"),
        ("known-shares", "weak"),
    }
    assert verdict(found, Masked.known_weaknesses) == "within-claims"


@pytest.mark.parametrize("name", ["masked", "direct"])
def test_a_correct_mechanism_is_flagged_for_hardly_any_seed(name):
    """The confidence of a bound does not depend on the number of repetitions; more would only make it tighter."""
    scheme, bounds = find_scheme(name), []
    problem = RELEASE.problem(scheme, 1.0, None)
    work = [(problem, bytes([seed]) * 32, 2000) for seed in range(20)]
    for observed in repeat(work, workers=1):
        statistics = [one for one in RELEASE.statistics(problem, observed) if one.kind == "noise"]
        bounds.append([make_row(("release", problem, observed, one), 1.0, 0.95).bound.epsilon for one in statistics])
    tightest = np.max(np.array(bounds), axis=1)
    assert np.count_nonzero(tightest > 1) <= 4, "more than that of twenty seeds happens once in 400 times"
    assert np.median(tightest) > 0.85


@pytest.mark.parametrize("scheme", sorted(set(LISTED) - UNMEASURED))
def test_no_honest_scheme_shows_more_than_it_declares(scheme):
    scheme = find_scheme(scheme)
    document, found = measure(None, scheme, epsilon=1.0, repetitions=500, workers=1)
    assert document["rows"] and verdict(found, scheme.known_weaknesses) == "within-claims"
    declared = {"known-envelope", "known-shares", "support", "uniform-noise"} & set(scheme.known_weaknesses)
    assert {finding.id for finding in found if finding.severity != "info"} <= declared
    plain = [row for row in document["rows"] if len(row["coalition"]) < 2 and "given" not in row["statistic"]]
    assert not any(row["exceeds"] for row in plain if row["statistic"] != "number of raters")


# ---- every fault is found, by the statistic meant for it


FAULTS = [
    (HalfNoise, "release", 2000),
    (Quiet, "release", 800),
    (Quiet, "difference", 2400),
    (Reusing, "difference", 2400),
    (Redrawing, "constant", 1600),
]


@pytest.mark.parametrize(("fault", "arm", "repetitions"), FAULTS)
def test_a_fault_of_the_noise_is_found(fault, arm, repetitions):
    row = found_in(rows_of(fault(), arm, repetitions=repetitions), "noise")
    assert row.exceeds and row.statistic.coalition == ()
    assert ("missing-noise", "break") in {(finding.id, finding.severity) for finding in findings_of([row])}
    assert verdict(findings_of([row]), Masked.known_weaknesses) == "beyond-claims"


def test_noise_that_is_redrawn_or_reused_is_seen_by_no_single_release():
    """This is why the arms `difference` and `constant` are needed."""
    for fault in (Reusing, Redrawing):
        assert not found_in(rows_of(fault(), "release", repetitions=1200), "noise").exceeds


def test_an_upload_without_its_mask_is_found():
    row = found_in(rows_of(Unmasked(), "release", repetitions=1200), "mask", ("third_party",))
    assert row.exceeds and severities([row]) == {("mask-uniformity", "break")}


def test_direct_without_rho_is_beyond_its_claim_and_with_it_within():
    direct = find_scheme("direct")
    shape = Shape(2, 1, STARS, (1, 1), np.array([2]))
    for rho in (True, False):
        params, _ = direct.make_params(shape, dim=1, iterations=2, epsilon=1.0, rho=rho)
        rows = rows_of(direct, "whole", "difference", params=params, repetitions=8000, confidence=0.95)
        exceeding = {row.statistic.name for row in rows if row.exceeds}
        # a share alone is b/√2 of noise
        without = {"upload", "difference of two released sums", "difference of two uploads"}
        assert exceeding == (set() if rho else without)
        assert ("missing-noise", "break") in severities(rows) or rho


# ---- other schemes


def test_a_trusted_recommender_is_measured_by_what_it_publishes():
    document, found = measure(None, find_scheme("trusted"), epsilon=1.0, repetitions=1500, workers=1)
    (row,) = document["rows"]
    assert row["statistic"] == "published item factors" and 0.4 < row["lower_bound"] <= 1 == row["claimed"]
    assert [(finding.id, finding.severity) for finding in found] == [("missing-noise", "info")]
    quiet = PUBLICATION.problem(find_scheme("trusted"), 1e6, None)
    asked = Asked(quiet.scheme, None, 1e6, 400, SEED, 1, CONFIDENCE)
    row = measure_arms(asked, [(PUBLICATION, 1e6)])[0]
    assert row.bound.epsilon == row.bound.certifiable, "hardly any noise, so everything shows"


def test_a_scheme_of_ones_own_gets_as_many_users_as_it_needs():
    problem = RELEASE.problem(Careful(), 1.0, None)
    assert problem.params.n_users == problem.params.min_contributors == 3
    row = found_in(rows_of(Careful(), "release", repetitions=1500), "noise")
    assert 0.2 < row.bound.epsilon <= 1


def test_what_cannot_be_measured_says_why(monkeypatch):
    for scheme, epsilon in (("plain", 1.0), ("masked", math.inf)):
        document, found = measure(None, find_scheme(scheme), epsilon=epsilon)
        assert document["rows"] == found == [] and "Nothing is claimed" in document["note"]
    monkeypatch.setattr(canary, "CROWDS", (1, 2))
    document, found = measure(None, Careful(), epsilon=1.0)
    assert found == [] and "careful cannot be measured" in document["note"]
    with pytest.raises(BadInput, match="repetitions"):
        measure(None, Masked(), epsilon=1.0, repetitions=10)


# ---- the document


def test_a_run_gives_its_epsilon_its_options_and_the_seed(tmp_path):
    flags = {"data": "synthetic:8x6:.5", "dim": 2, "iterations": 2, "transport": "inprocess", "test_fraction": 0.0}
    run(out=tmp_path / "open", scheme="direct", epsilon=1.5, options={"rho": False}, seed=1, **flags)
    case = open_case(tmp_path / "open")
    documents = [measure(case, case.card.scheme, repetitions=800, workers=1) for _ in range(2)]
    assert [row["lower_bound"] for row in documents[0][0]["rows"]] == [
        row["lower_bound"] for row in documents[1][0]["rows"]
    ]
    document, found = documents[0]
    assert document["claimed"] == 1.5 and document["problem"]["epsilons"] == [1.5]
    assert any(finding.severity == "break" for finding in found), "it has no ρ"
    other = measure(case, case.card.scheme, repetitions=800, workers=1, seed=SEED)[0]
    assert [row["event"] for row in other["rows"]] != [row["event"] for row in document["rows"]]


def test_an_epsilon_that_cannot_be_certified_is_measured_beside_one_that_can():
    document, found = measure(None, find_scheme("direct"), epsilon=8.0, repetitions=800, workers=1)
    assert document["claimed"] == 8 and document["problem"]["epsilons"] == [1, 8]
    at_claim = [row for row in document["rows"] if row["epsilon"] == 8]
    assert len(at_claim) == 2 and all(row["certifiable"] < 8 for row in at_claim)
    assert all(0 < row["attainable"] < row["certifiable"] for row in at_claim)
    assert "at most" in found[0].evidence and "at ε = " in found[0].title
    inside = [(arm, 1.0) for arm in SUMS]
    assert arms_of(Masked(), None, 1.0) == inside and MEASURABLE[0] < 1 < MEASURABLE[1]
    assert arms_of(Masked(), None, 0.1) == [*inside, (RELEASE, 0.1)]


def test_the_document_is_json_and_repeats_itself():
    documents = [measure(None, find_scheme("direct"), epsilon=1.0, repetitions=400, workers=1)[0] for _ in range(2)]
    timed = {"seconds", "repetitions_per_second", "repetitions_per_processor_second"}

    def lasting(document):
        rows = [{key: value for key, value in row.items() if key not in timed} for row in document["rows"]]
        return {**{key: value for key, value in document.items() if key not in timed}, "rows": rows}

    assert lasting(documents[0]) == lasting(documents[1])
    document = json.loads(json.dumps(jsonable(documents[0]), allow_nan=False))
    assert document["repetitions"] == 400 and document["repetitions_per_second"] > 0 and document["confidence"] == 0.995
    wanted = {"coalition", "knows", "statistic", "lower_bound", "claimed", "seconds", "certifiable"}
    assert document["rows"] and all(wanted <= set(row) for row in document["rows"])


def test_the_benchmark_measures_both_sides():
    from sim.experiments.bench.audit_bench import bench_audit
    from sim.experiments.bench.benchmark import BENCHES

    assert BENCHES["audit"] is bench_audit
    result = bench_audit(samples=2, repetitions=5)
    assert len(result["samples"]) == 2 and 0 < result["ratio"] < 1
    assert result["ratio"] == pytest.approx(result["median"] / result["floor_median"])
    assert {"users", "dim", "items_per_user", "note", "floor", "unit", "data"} <= set(result["config"])


def test_a_row_is_played_once_for_all_of_its_statistics():
    stage = Stage(RELEASE.problem(Masked(), 1.0, None), bytes(32))
    row = play_once(stage, SEED, 0, False)
    assert {len(row[name]) for name in ("rho_envelopes", "eta_envelopes", "uploads", "witness_normals")} == {1}
    assert (stage.receiver, stage.masked) == ("third_party", True)
