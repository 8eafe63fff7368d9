"""`keyhole audit` on runs of many kinds: it never crashes, calls no correct run broken, and misses no planted fault."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from protocol.party.view import Broken
from sim.api import audit, run
from sim.audit.attacks.difference_guesses import ceiling
from sim.audit.findings import QUESTIONS
from sim.audit.questions import FALSE_ALARMS
from sim.audit.scoring import Score, score
from sim.cli.app import app
from sim.foreign.plain_text import jsonable

SMALL = {"data": "synthetic:12x10:.4", "dim": 2, "iterations": 3, "epsilon": 1.0, "seed": 1}
NO_CANARY = [question for question in QUESTIONS if question != "empirical"]


def audited(folder, questions=NO_CANARY, **flags):
    """Run and audit; give the document as JSON would hold it."""
    run(out=folder, transport="inprocess", **{**SMALL, **flags})
    return json.loads(json.dumps(jsonable(audit(folder, only=questions, repetitions=400)), allow_nan=False))


def beyond(document):
    return {finding["id"] for finding in document["findings"] if finding["severity"] == "break"}


ODD = {
    "one user": {"scheme": "masked", "data": "synthetic:1x5:.8"},
    "one item": {"scheme": "masked", "data": "synthetic:6x1:1"},
    "one rating": {"scheme": "direct", "data": "synthetic:1x1:1", "iterations": 1},
    "one iteration": {"scheme": "dynamic", "iterations": 1, "test_fraction": 0.0},
    "items that nobody rated": {"scheme": "trusted", "data": "synthetic:5x60:.05"},
    "nothing is ever released": {"scheme": "masked", "options": {"min_contributors": 12}},
    "nobody online, for a while": {
        "scheme": "dynamic",
        "data": "synthetic:6x8:.5",
        "join": 0.3,
        "leave": 0.7,
        "iterations": 12,
        "options": {"committers": 2},
    },
    "one of many at a time": {"scheme": "dynamic", "wire": "paper", "join": 1.0, "leave": 0.0, "online": 1},
    "no noise": {"scheme": "masked", "epsilon": math.inf},
    "another scale": {"scheme": "direct", "rating_range": (0.0, 100.0)},
    "a ring of 16 bits": {"scheme": "masked", "data": "synthetic:6x5:.5", "epsilon": 300.0, "ring_bits": 16},
    "half of them may stay away": {"scheme": "masked", "options": {"dropout_allowance": 0.5}},
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_run_is_audited_and_within_its_claims(tmp_path, name):
    document = audited(tmp_path / "run", **ODD[name])
    assert document["verdict"] == "within-claims" and not document["unanswered"]


def test_an_iteration_in_which_nobody_is_online_has_no_contributors(tmp_path):
    document = audited(tmp_path / "run", ["algebra", "attacks"], **ODD["nobody online, for a while"])
    lines = [json.loads(line) for line in (tmp_path / "run" / "iterations.jsonl").read_text().splitlines()]
    assert 0 in [line["contributors"] for line in lines], "the seed is to give such an iteration"
    assert document["verdict"] == "within-claims"


@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("scheme", ["masked", "direct"])
def test_a_correct_run_is_within_its_claims_for_every_seed(tmp_path, scheme, seed):
    epsilon = (0.3, 1.0, 8.0)[seed % 3]
    document = audited(tmp_path / "run", scheme=scheme, seed=seed, epsilon=epsilon, iterations=2)
    assert document["verdict"] == "within-claims", beyond(document)


def test_all_questions_together_call_a_correct_run_broken_once_in_a_hundred_at_most():
    assert set(FALSE_ALARMS) <= set(QUESTIONS) and 0 < sum(FALSE_ALARMS.values()) <= 0.01


# --- an attack breaks a claim only with more than it permits ---------------------------------------------------------


def lucky(right, targets, groups=6):
    """Score `right` of `targets` guesses as right, in `groups` equal groups."""
    hits = np.zeros(targets)
    hits[:right] = 1
    by_chance = np.zeros(targets)
    return score(np.array_split(hits, groups), np.array_split(by_chance, groups), np.random.default_rng(1))


def test_a_few_lucky_guesses_break_nothing():
    all_right = lucky(6, 6)
    assert all_right.interval == (1.0, 1.0)  # a bootstrap of equal values has no width
    assert not all_right.beats(ceiling(0.4, 8.0), 1e-3)  # .9995: six of six are no surprise
    assert not all_right.beats(0.4, 1e-3)  # .4^6 is .004
    assert lucky(60, 60).beats(0.4, 1e-3) and not lucky(24, 60).beats(0.4, 1e-3)


def test_of_guesses_that_are_right_as_often_as_permitted_hardly_any_sample_beats_that():
    rng, level = np.random.default_rng(3), 0.01
    beaten = sum(_sample(rng, 0.5).beats(0.5, level) for _ in range(2000))
    assert beaten <= 35  # 20 expected at most; 3.4 standard errors
    assert sum(_sample(rng, 0.8).beats(0.5, level) for _ in range(200)) > 190


def _sample(rng, rate):
    right = rng.binomial(60, rate)
    return Score(right / 60, 0.0, (0.0, 1.0), (0.0, 1.0), 60, 10)


def test_both_servers_together_break_no_claim_of_a_party_alone(tmp_path):
    """With many raters a user's share of the noise is small: the known weakness `unmasking` declares that."""
    flags = {"scheme": "masked", "data": "synthetic:90x6:.9", "dim": 1, "epsilon": 20.0, "iterations": 2}
    document = audited(tmp_path / "run", ["algebra", "attacks"], **flags)
    together = [
        finding
        for finding in document["findings"]
        if finding["coalition"] == ["recommender", "third_party"] and "accuracy" in (finding["measured"] or {})
    ]
    assert together and max(finding["measured"]["accuracy"] for finding in together) > 0.9
    assert {finding["severity"] for finding in together} <= {"weak", "info"}
    assert document["verdict"] == "within-claims"


def test_who_uploads_little_is_guessed_at_too(tmp_path):
    """No user has four ratings here: no difference attack, but the recommender holds single gradients."""
    flags = {"scheme": "direct", "data": "synthetic:20x8:.2", "epsilon": math.inf, "iterations": 1}
    document = audited(tmp_path / "run", ["attacks"], **flags)
    guessed = [finding for finding in document["findings"] if finding["id"] == "rating-inference"]
    (found,) = [finding for finding in guessed if finding["coalition"] == ["recommender"]]
    assert found["measured"]["accuracy"] > 0.9 and "noisy" not in found["title"]


# --- schemes that a person wrote, and faults -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "ids"),
    [
        ("support.schemes.broken:SendsItsMask", {"unmasking"}),
        ("support.schemes.broken:ForwardsIndividuals", {"unmasking"}),
        ("support.schemes.broken:ReusesItsSeed", {"mask-uniformity", "unmasking"}),
        ("support.schemes.broken:SaysMore", {"undeclared-field"}),
        ("support.schemes.unmasked:Bare", {"mask-uniformity", "unmasking"}),
        ("support.schemes.unmasked:Forwarding", {"unmasking"}),
        ("support.schemes.unmasked:PerUser", {"mask-uniformity"}),
        ("support.schemes.unmasked:Short", {"mask-uniformity"}),
        ("support.schemes.noise_faults:Reusing", {"missing-noise"}),
        ("support.schemes.broken:Forgetful", {"difference-attack", "missing-noise"}),
    ],
)
def test_a_planted_fault_is_beyond_the_claims(tmp_path, scheme, ids):
    document = audited(tmp_path / "run", scheme=scheme, iterations=6)
    assert document["verdict"] == "beyond-claims" and beyond(document) >= ids


def test_what_a_question_cannot_follow_is_said_and_the_others_are_asked(tmp_path):
    """The user makes ring values with numpy: the algebra has no forms for them."""
    folder = tmp_path / "run"
    document = audited(folder, scheme="support.schemes.unmasked:Short")
    assert "algebra" in {row["question"] for row in document["not_shown"]} and not document["unanswered"]
    assert document["findings"] and document["statistics"]
    shown = CliRunner().invoke(app, ["audit", str(folder), "--only", "algebra"])
    assert shown.exit_code == 0 and "Not shown: algebra" in shown.stdout
    assert "Not everything was shown" in " ".join(shown.stdout.split())


def test_the_masks_as_they_should_be_are_within_by_the_same_detour(tmp_path):
    assert audited(tmp_path / "run", scheme="support.schemes.unmasked:Sound")["verdict"] == "within-claims"


def test_a_protocol_of_ones_own_is_audited(tmp_path):
    flags = {"scheme": "example_shares:Shares", "dim": 1, "iterations": 1, "epsilon": None}
    document = audited(tmp_path / "run", list(QUESTIONS), **flags)
    assert document["verdict"] == "within-claims" and not document["unanswered"]


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_copy_of_the_views_is_enough_and_a_cut_one_names_its_file(tmp_path):
    folder = tmp_path / "run"
    first = audited(folder, ["inventory", "algebra"], scheme="masked")
    for name in ("lock", "summary.json", "iterations.jsonl", "names.json"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "model")
    again = json.loads(json.dumps(jsonable(audit(folder, only=["inventory", "algebra"]))))
    for document in (first, again):  # without names.json, victims are named by their numbers alone
        for row in [*document["findings"], *document["coalitions"]]:
            row.pop("victims", None), row.pop("names", None)
    assert (again["findings"], again["coalitions"]) == (first["findings"], first["coalitions"])
    view = folder / "views" / "recommender.view"
    view.write_bytes(view.read_bytes()[:-9])
    with pytest.raises(Broken, match=r"views/recommender\.view: record \d+ is cut off"):
        audit(folder, only=["inventory"])


def test_a_view_that_was_kept_and_is_gone_is_asked_for(tmp_path):
    folder = tmp_path / "run"
    audited(folder, ["inventory"], scheme="masked")
    (folder / "views" / "user-3.view").unlink()
    shown = CliRunner().invoke(app, ["audit", str(folder)])
    assert shown.exit_code == 2 and "user:3" in shown.stderr and "bring its view back" in shown.stderr


def test_everything_fits_into_eighty_columns(tmp_path):
    audited(tmp_path / "run", ["inventory"], scheme="masked")
    command = ["audit", str(tmp_path / "run"), "--all", "--only", "attacks"]
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
    assert shown.exit_code == 0 and "evidence: " in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
