"""What an audit could not show is named, in words and for scripts, and is never called within the claims."""

from __future__ import annotations

import json

import pytest
from support.audit import audited
from typer.testing import CliRunner

from sim.audit.answers.not_shown import disturbances, not_shown
from sim.audit.audit import Audit, audit
from sim.cli.app import app
from sim.folder.folder import read_summary
from sim.notebook.cards import audit_card
from sim.report.reported_run import ReportedRun
from sim.report.verdict.verdict_section import sentence

RATINGS = [{0: 5.0, 1: 3.0, 2: 1.0}, {0: 2.0, 1: 4.0}, {0: 4.0, 2: 5.0}, {1: 2.0, 2: 4.0}]
QUICK = ("inventory", "algebra")


@pytest.mark.parametrize(
    ("scheme", "question", "words", "coalition"),
    [
        ("support.schemes.quiet:RefusedIfLiked", "inventory", "6 frames refused (", ["third_party"]),
        ("support.schemes.quiet:UnknownLength", "inventory", "not those of the scheme's formula", None),
        ("support.schemes.unmasked:Short", "algebra", "cannot be followed", ["third_party"]),
    ],
)
def test_it_is_named_with_its_question_and_fails_a_strict_audit(tmp_path, scheme, question, words, coalition):
    folder = audited(tmp_path, RATINGS, scheme, epsilon=1.0).folder
    document = audit(folder, only=QUICK)
    (row,) = [row for row in document["not_shown"] if row["coalition"] == coalition]
    assert row["question"] == question and words in row["reason"]
    assert document["verdict"] == "within-claims"  # what scripts compare with keeps its values
    flags = [flag for name in QUICK for flag in ("--only", name)]
    strict = CliRunner().invoke(app, ["audit", str(folder), "--strict", *flags])
    assert strict.exit_code == 3 and "Not everything was shown" in " ".join(strict.stdout.split())
    assert CliRunner().invoke(app, ["audit", str(folder), *flags]).exit_code == 0
    assert json.loads((folder / "audit.json").read_text())["not_shown"] == document["not_shown"]
    assert "not everything was shown" in str(audit_card(document))
    told = sentence(ReportedRun(read_summary(folder), Audit(folder), document))
    assert told.status == "not shown" and any(question in note for note in told.notes)


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_an_honest_run_leaves_nothing_open(tmp_path, scheme):
    folder = audited(tmp_path, RATINGS, scheme, epsilon=1.0).folder
    document = audit(folder, only=QUICK)
    assert document["not_shown"] == [] and document["verdict"] == "within-claims"
    strict = CliRunner().invoke(app, ["audit", str(folder), "--strict", "--only", "inventory", "--only", "algebra"])
    assert strict.exit_code == 0


def test_a_frame_that_was_repeated_after_a_long_wait_is_nothing_to_show(tmp_path):
    case = audited(tmp_path, RATINGS, "masked", epsilon=1.0)
    refused = {"plane": "rejected", "party": "recommender", "count": 2}
    names = ("REPLAYED", "OUT_OF_RANGE")
    rows = disturbances(case, None, [refused | {"field": name} for name in names])
    assert ["OUT_OF_RANGE" in row["reason"] for row in rows] == [True]


def test_every_answer_that_decides_nothing_is_listed():
    canary = {"coalition": ["recommender"], "claimed": 8.0, "certifiable": 5.7}
    tried = {"users": 9, "in_all": 3, "in_some": 4, "fewest": 2, "iterations": 6}
    field = {"party": "third_party", "kind": "K", "field": "f", "smallest_p": None, "values": 4}
    answers = {
        "algebra": [{"members": ["user:1"], "undecided": 3}, {"members": ["user:2"], "undecided": 0}],
        "accounting": {"noise": {"tests": 2, "missing": False, "finds_below": 0.0}},
        "pairs": {"tapes": {"seeds": {"unplayed": "it ended"}, "tried": tried}},
        "empirical": {"rows": [canary, canary | {"coalition": [], "claimed": 1.0}]},
        "statistics": {"uniformity": {"fields": [field]}},
    }
    rows = not_shown(answers, {"attacks": "It crashed."})
    assert [(row["question"], row["coalition"]) for row in rows] == [
        ("attacks", None),
        ("algebra", ["user:1"]),
        ("pairs", None),
        ("pairs", None),
        ("pairs", None),
        ("empirical", ["recommender"]),
        ("statistics", ["third_party"]),
    ]
    assert "3 rows" in rows[1]["reason"] and "It crashed." in rows[0]["reason"]
    assert "it ended" in rows[2]["reason"] and "of 4 of 9 users was tried in 2 of 6 iterations" in rows[3]["reason"]
    assert "noise of 2 of 9 users was not tried" in rows[4]["reason"]
    answers["empirical"]["rows"].append(canary | {"claimed": 1.0})  # the same party at an ε that can be measured
    assert "empirical" not in {row["question"] for row in not_shown(answers, {})}
    alone = {"accounting": answers["accounting"]}
    assert [row["question"] for row in not_shown(alone, {})] == ["accounting"]  # no other question looked for noise
    nothing = {"empirical": {"rows": [], "note": "x cannot be measured: nothing is known."}}
    assert [row["question"] for row in not_shown(nothing, {})] == ["empirical"]
