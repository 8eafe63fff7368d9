"""Planted faults of metadata, noise and masks, and the question that names each; and none in honest schemes."""

from __future__ import annotations

import numpy as np
import pytest
from support.audit import audited

from sim.audit.answers.not_shown import not_shown
from sim.audit.audit import audit
from sim.audit.pairs import retaping
from sim.audit.pairs.pairs import ask_pairs
from sim.audit.pairs.retaping import Retaping
from sim.audit.pairs.tapes import another_tape

RATINGS = [{0: 5, 1: 3, 2: 1, 3: 2}, {0: 4, 1: 2, 4: 5}, {0: 2, 1: 5, 4: 2}, {0: 2, 2: 4, 3: 4}, {0: 1, 2: 5, 4: 3}]
HERE = "support.schemes"
FOUND = {
    "shape": [
        "broken:SaysMore",
        "quiet:RefusedIfLiked",
        "derived:RatingKey",
        *(f"telltale:In{what}" for what in ("Length", "Items", "Number", "Iteration", "Digest", "NumbersOfADigest")),
        *(f"telltale:In{what}" for what in ("Counts", "HowMany", "Order", "Receiver", "Refusals")),
    ],
    "interference": [
        f"telltale:{name}" for name in ("SignsOfSums", "LengthOfSums", "BitsOfMaskedValues", "MaskInANumber")
    ],
    "own-randomness": [
        *(f"unmasked:{name}" for name in ("Bare", "Shared", "BareDynamic")),
        "noise_faults:Reusing",
        *(f"telltale:{name}" for name in ("PublicSeed", "SeedOfKeys", "SameForItems", "SameForCoordinates")),
        *(f"telltale:{name}" for name in ("Repeated", "Antithetic", "EveryOther")),
        *(f"telltale:Missing{what}" for what in ("ForAUser", "ForAnItem", "Once")),
        "noise_faults:Quiet",
        *("derived:RatingSeed", "derived:ShortMaskKeys"),
        *(f"uneven_noise:{name}" for name in ("TwoAgo", "OneForBoth", "ShortSeed", "FewKeys")),
    ],
    "missing-noise": [
        *("telltale:InANumber", "telltale:CallsItNoise"),
        *(f"uneven_noise:{name}" for name in ("HalfForAUser", "HalfForAnItem", "HalfOnce", "DirectHalfOnce")),
        *(f"uneven_noise:{name}" for name in ("CutOff", "Coarse")),
    ],
    "sensitivity": ["telltale:TripleGradients"],
}


@pytest.mark.parametrize("scheme", [f"{id_} {name}" for id_, names in FOUND.items() for name in names])
def test_the_question_of_pairs_names_the_fault(tmp_path, scheme):
    id_, name = scheme.split()
    case = audited(tmp_path, RATINGS, f"{HERE}.{name}", epsilon=1.0, iterations=8)
    found = {one.id for one in ask_pairs(case, 6)[1] if one.severity == "break"}
    assert id_ in found


def test_a_recommender_that_tells_users_their_trained_factors_leaks_at_any_epsilon(tmp_path):
    case = audited(tmp_path, RATINGS, f"{HERE}.broken:TellsProfiles", epsilon=0.01)
    document = audit(case.folder, only=["pairs"])
    (found,) = [one for one in document["findings"] if one["id"] == "missing-noise"]
    assert found["severity"] == "break" and "WithProfile.user_factors of 4 of 4 other users" in found["title"]


def test_a_scheme_that_fails_in_a_small_run_is_still_asked_the_rest(tmp_path):
    case = audited(tmp_path, RATINGS, f"{HERE}.uneven_noise:ManyAlone", epsilon=1.0, iterations=3)
    document, findings = ask_pairs(case, 3)
    seeds = document["tapes"]["seeds"]
    assert seeds["unplayed"] == "the smallest run of the scheme ended with ValueError: two users are too few"
    assert seeds["streams"] > 0 and not [one for one in findings if one.severity == "break"]
    (row,) = not_shown({"pairs": document}, {})
    assert row["question"] == "pairs" and "two users are too few" in row["reason"]


# --- faults that begin late, or are those of a few of many users ------------------------------------------------------


def many(count=60, items=20):
    draw = np.random.default_rng(5)
    sizes = draw.integers(4, 9, count).tolist()
    return [{int(i): float(draw.integers(1, 6)) for i in draw.choice(items, n, replace=False)} for n in sizes]


LATE = {"TenthMissing": 2, "TenthLate": 2, "LateForOne": 2, "LateForAnItem": 4}  # and its dim


@pytest.mark.parametrize("name", LATE)
def test_noise_that_few_users_leave_out_late_is_found_by_the_algebra(tmp_path, name):
    case = audited(tmp_path, many(), f"{HERE}.uneven_noise:{name}", epsilon=1.0, iterations=30, dim=LATE[name])
    document = audit(case.folder, only=["algebra"])
    beyond = {(one["id"], *one["coalition"]) for one in document["findings"] if one["beyond"]}
    assert ("missing-noise", "recommender") in beyond


def test_noise_that_a_tenth_of_the_users_halve_late_is_found_by_pairs(tmp_path):
    case = audited(tmp_path, many(), f"{HERE}.uneven_noise:TenthHalvedLate", epsilon=1.0, iterations=30)
    document, findings = ask_pairs(case, 6)
    assert [one.id for one in findings if one.severity == "break"] == ["missing-noise"]
    assert document["tapes"]["tried"]["in_all"] == 60 and not_shown({"pairs": document}, {}) == []


@pytest.mark.parametrize("scheme", ["masked", "direct", "dynamic"])
def test_a_budget_leaves_out_iterations_that_the_run_id_draws_and_says_so(tmp_path, monkeypatch, scheme):
    monkeypatch.setattr(retaping, "TURNS", 40)
    case = audited(tmp_path, many(20), scheme, epsilon=1.0, iterations=30)
    document, findings = ask_pairs(case, 3)
    assert not [one for one in findings if one.severity == "break"]
    tried = document["tapes"]["tried"]
    assert tried["users"] == 20 and tried["in_some"] > 10 and 2 < tried["fewest"] < 30
    (row,) = [row for row in not_shown({"pairs": document}, {}) if "was tried in" in row["reason"]]
    assert f"of {tried['in_some']} of 20 users" in row["reason"]
    chosen = frozenset({0, 1, 12, 13, 14})
    assert another_tape(case, "user:0", chosen).iterations == chosen  # the set-up and these, no more


def test_the_iterations_of_each_user_differ_and_all_are_drawn(tmp_path):
    case = audited(tmp_path, many(4), "masked", epsilon=1.0, iterations=30)
    tried, draw = Retaping(case, ["user:0"], [], 1), np.random.default_rng(1)
    drawn = [tried._chosen(draw, 8) for _ in range(40)]
    assert all(len(some) == 8 and {0, 1} <= some for some in drawn)
    assert len(set(drawn)) > 20 and frozenset().union(*drawn) == frozenset(range(30))
    assert tried._chosen(draw, 30) is None


# --- other items, and later rounds ------------------------------------------------------------------------------------

ONCE = {"epsilon": 1.0, "dim": None, "iterations": None}


@pytest.mark.parametrize(
    ("name", "options", "id_", "where"),
    [
        ("JoinsWithItems", {}, "shape", "Join.items"),
        ("JoinsWithACount", {}, "shape", "Join.items"),
        ("LoudCounts", {}, "sensitivity", "exchanged for"),
        ("LoudSecondRound", {"rounds": 2}, "sensitivity", "at once"),
    ],
)
def test_what_follows_the_items_of_a_user_is_found_where_presence_is_hidden(tmp_path, name, options, id_, where):
    case = audited(tmp_path, RATINGS, f"{HERE}.presence:{name}", **ONCE, options=options)
    _, findings = ask_pairs(case, 6)
    assert any(one.id == id_ and where in one.title and one.severity == "break" for one in findings)


@pytest.mark.parametrize(
    ("scheme", "flags"),
    [
        ("hardened", {"options": {"rounds": 2}}),
        ("hardened", {"options": {"selected": 4}}),
        ("hardened", {"unit": "rating"}),
        ("covariance", {"options": {"predictor": "knn", "unit_of": "user"}}),
        ("covariance-masked", {"options": {"form": "sparse"}}),
        ("covariance-masked", {"options": {"unit_of": "user"}}),
        ("hybrid", {}),
    ],
)
def test_other_items_of_a_user_show_only_where_that_is_declared(tmp_path, scheme, flags):
    case = audited(tmp_path, [*RATINGS, {6: 3, 7: 2}, {8: 1, 9: 4}], scheme, **ONCE, **flags)
    document, findings = ask_pairs(case, 6)
    assert document["exchange"]["leaks"] == [] and not [one for one in findings if one.severity == "break"]
    names = [one for one in case.card.scheme.leakage if case.card.scheme.names_support(case.card.params, one)]
    assert (document["exchange"]["users"] == 6) == (not names)
    if not names and flags.get("unit") != "rating" and scheme == "hardened":
        assert 0.5 < document["exchange"]["shift"]["largest_release"] <= 1


def test_the_items_of_a_scheme_that_promises_nothing_of_presence_are_not_exchanged(tmp_path):
    case = audited(tmp_path, RATINGS, "masked", epsilon=1.0)
    assert ask_pairs(case, 4)[0]["exchange"] is None
