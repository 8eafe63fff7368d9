"""`keyhole ls` and `keyhole diff`: lists and comparisons of runs, also of runs that others made."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.tamper import small_folder

from sim import api
from sim.audit.findings import QUESTIONS
from sim.console import console
from sim.folder.folder import locked
from sim.foreign.plain_text import json_text
from sim.tables.run_tables import _show_bytes, age, verdict_words
from tests.sim.cli.test_cli import keyhole, refused

AUDIT = {
    "verdict": "within-claims",
    "published_claim": {"status": "refuted", "claimed": 8.0, "shown": 12.5},
    "parties": [
        {"members": ["recommender"], "stands_for": 1, "determines": "aggregate", "works_out": "4 sums", "measured": []},
        {"members": ["user:2"], "stands_for": 2, "determines": "nothing", "works_out": "nothing", "measured": []},
        {"members": ["recommender", "user:0", "user:1"], "determines": "noisy-individual", "works_out": "one user"},
    ],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make four runs that the tests only read."""
    top = tmp_path_factory.mktemp("runs")
    flags: dict[str, dict[str, Any]] = {
        "compact": {},
        "paper": {"wire": "paper"},
        "seed": {"seed": 2},
        "plain": {"scheme": "plain"},
    }
    for at, (name, changes) in enumerate(flags.items()):
        small_folder(top / name, **changes)
        os.utime(top / name / "run.toml", (1_000_000 + at, 1_000_000 + at))
    return top


@pytest.fixture
def runs(made, tmp_path):
    """Copy the four runs, so that a test can change them."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    result = keyhole("ls", folder, "--json")
    assert result.exit_code == 0, result.stderr
    return {Path(row["run"]).name: row for row in json.loads(result.stdout)}


def differences(*runs: Path) -> dict[str, Any]:
    result = keyhole("diff", *runs, "--json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


# --- the list --------------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_with_what_is_known_of_each(made):
    rows = rows_of(made)
    assert list(rows) == ["plain", "seed", "paper", "compact"]
    compact, summary = rows["compact"], json.loads((made / "compact" / "summary.json").read_text())
    assert (compact["scheme"], compact["data"], compact["epsilon"]) == ("masked", "synthetic:3x4:.6", 8.0)
    assert compact["test_rmse"] == summary["accuracy"]["test_rmse"] and compact["state"] == "completed"
    assert compact["verdict"] is None and "keyhole audit" in compact["audit_note"]
    assert rows["plain"]["epsilon"] == "inf" and rows["paper"]["wire"] == "paper"
    assert api.ls(made / "seed")[0]["seed"] == "2"  # a run itself is a list of one


def test_people_read_a_table_of_80_columns(made):
    printed = keyhole("ls", made, columns=80).stdout
    assert "masked" in printed and "not audited" in printed and "keyhole audit RUN" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_the_verdict_is_that_of_the_last_audit(runs):
    (runs / "compact" / "audit.json").write_text(json.dumps(AUDIT))
    (runs / "paper" / "audit.json").write_text(json.dumps({"verdict": ["x"], "published_claim": 3}))
    (runs / "seed" / "audit.json").write_text("{")
    rows = rows_of(runs)
    assert (rows["compact"]["verdict"], rows["compact"]["published_claim"]) == ("within-claims", "refuted")
    assert rows["paper"]["verdict"] is None and rows["seed"]["verdict"] is None
    assert "makes it anew" in rows["seed"]["audit_note"]
    printed = " ".join(keyhole("ls", runs / "compact").stdout.split())
    assert "as declared" in printed and "refuted" in printed


def test_a_verdict_on_some_questions_says_on_which(runs):
    asked = AUDIT | {"questions": {"inventory": 0.1, "x": 1}}
    (runs / "compact" / "audit.json").write_text(json.dumps(asked))
    row = rows_of(runs)["compact"]
    assert row["asked"] == ["inventory"]
    assert verdict_words(row) == "as declared (inventory only), claim refuted"
    everything = row | {"asked": list(QUESTIONS)}
    assert verdict_words(everything) == "as declared, claim refuted"


def test_folders_that_are_no_runs_are_left_out(runs, tmp_path):
    (runs / "notes").mkdir()
    (runs / "file.txt").write_text("x")
    assert "notes" not in rows_of(runs) and len(rows_of(runs)) == 4
    assert rows_of(runs / "notes") == {} and "no runs" in keyhole("ls", runs / "notes").stdout
    refused(keyhole("ls", tmp_path / "nowhere"), 2, "nowhere", "keyhole run")


def test_a_run_that_goes_on_was_stopped_or_aborted_is_listed_as_such(runs):
    (runs / "compact" / "summary.json").unlink()
    assert rows_of(runs)["compact"]["state"] == "stopped"
    with locked(runs / "compact"):
        assert rows_of(runs)["compact"]["state"] == "running"
    path = runs / "paper" / "summary.json"
    changed = json.loads(path.read_text()) | {"completed": False, "abort": {"reason": "X", "sentence": "x"}}
    path.write_text(json.dumps(changed))
    assert rows_of(runs)["paper"]["state"] == "aborted"


def test_what_others_made_is_shown_as_data(runs):
    """Names that would repaint the screen, damaged files, a scheme that must not be imported, links that lead out."""
    shutil.copytree(runs / "compact", runs / "r\x1b[31mu\u202en[bold]")
    (runs / "paper" / "summary.json").write_text('{"accuracy": 1')
    text = (runs / "seed" / "run.toml").read_text()
    (runs / "seed" / "run.toml").write_text(text.replace('scheme = "masked"', 'scheme = "os:system\x7f[red]"', 1))
    (runs / "plain" / "run.toml").write_text("format = 2\n")
    (runs / "compact" / "audit.json").symlink_to("/etc/hostname")
    rows = rows_of(runs)
    assert rows["paper"]["state"] == rows["plain"]["state"] == rows["seed"]["state"] == "damaged"  # a DEL is no TOML
    assert "summary.json is damaged" in rows["paper"]["problem"] and "run.toml" in rows["plain"]["problem"]
    assert rows["compact"]["verdict"] is None
    printed = keyhole("ls", runs)
    assert printed.exit_code == 0 and "⟨U+001B⟩" in printed.stdout and "\x1b" not in printed.stdout
    assert "\u202e" not in printed.stdout and "\x1b" not in keyhole("ls", runs, "--json").stdout


def test_a_scheme_of_somebodys_own_is_listed_and_compared_without_its_code(runs):
    text = (runs / "seed" / "run.toml").read_text()
    (runs / "seed" / "run.toml").write_text(text.replace('scheme = "masked"', 'scheme = "antigravity:[bold]X"', 1))
    assert rows_of(runs)["seed"]["scheme"] == "antigravity:[bold]X"
    assert differences(runs / "seed", runs / "compact")["bytes"]["kinds"]
    assert "antigravity:[bold]X" in keyhole("diff", runs / "seed", runs / "compact").stdout


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (100_000, "28 h"), (2e5, "2 days"), (float("inf"), "–")],
)
def test_an_age_is_told_in_the_unit_that_matters(seconds, words):
    assert age(seconds) == words


# --- two runs --------------------------------------------------------------------------------------------------------


def test_two_wires_differ_in_their_bytes_alone(made):
    found = differences(made / "compact", made / "paper")
    assert [(row["what"], row["first"], row["second"]) for row in found["configuration"]] == [
        ("wire", "compact", "paper")
    ]
    assert all(row["difference"] in (0, None) for row in found["accuracy"])
    kinds = {row["kind"]: (row["first"], row["second"]) for row in found["bytes"]["kinds"]}
    assert kinds["Welcome"][1] is None and kinds["WelcomeInFull"][0] is None
    totals = [json.loads((made / name / "summary.json").read_text())["bytes"]["total"] for name in ("compact", "paper")]
    total = found["bytes"]["total"]
    assert [total["first"], total["second"], total["difference"]] == [*totals, totals[1] - totals[0]]


def test_the_bytes_by_edge_are_those_of_the_ledger(made):
    found, whole = differences(made / "compact", made / "seed"), api.bandwidth(made / "compact")
    for row in found["bytes"]["edges"]:
        same = [k for k in whole["kinds"] if all(k[n] == row[n] for n in ("when", "sender", "receiver"))]
        assert row["first"] == pytest.approx(sum(each["wire_bytes"] for each in same))


def kinds_shown(*runs: Path) -> list[list[str]]:
    """Give the cells of the table of kinds, as people read it."""
    printed = keyhole("diff", *runs).stdout.partition("Kinds whose bytes differ")[2]
    shown = re.findall(r"^ (?:set-up|iteration|end) .*$", printed, re.MULTILINE)
    return [re.split(r"\s{2,}", line.strip()) for line in shown]


def test_kinds_are_shown_with_their_edge_and_only_where_they_differ(made, monkeypatch):
    monkeypatch.setattr(console.out, "_width", 200)
    pair = made / "compact", made / "paper"
    rows = {
        (row["when"], f"{row['sender']} → {row['receiver']}", row["kind"]): (row["first"], row["second"])
        for row in differences(*pair)["bytes"]["kinds"]
    }
    differing = [list(key) for key, (first, second) in rows.items() if first != second]
    assert [row[:3] for row in kinds_shown(*pair)] == differing and 0 < len(differing) < len(rows)


def test_a_kind_whose_means_differ_by_a_rounding_is_not_shown(capsys):
    row = {"when": "iteration", "sender": "recommender", "receiver": "third_party"}
    means = [("Agreed", 105.0, 105.00000000000001), ("Join", 20701.0, 20704.0), ("Commit", None, 1.0)]
    kinds = [{**row, "kind": kind, "first": first, "second": second} for kind, first, second in means]
    _show_bytes({"edges": [], "total": {"first": 1, "second": 2}, "kinds": kinds})
    printed = capsys.readouterr().out
    assert "Agreed" not in printed and "Commit" in printed
    assert "20,701.00 B" in printed and "20,704.00 B" in printed  # both are 20.70 kB


def test_the_accounted_epsilon_says_that_it_counts_every_sum(made, monkeypatch):
    monkeypatch.setattr(console.out, "_width", 200)
    printed = keyhole("diff", made / "compact", made / "paper").stdout
    assert "accounted, as if every sum were released" in printed and "accounted epsilon" not in printed
    found = differences(made / "compact", made / "paper")
    assert "accounted epsilon" in [row["what"] for row in found["epsilon"]]


def test_two_seeds_and_two_schemes_can_be_compared(made):
    seeds = differences(made / "compact", made / "seed")
    assert {"seed"} <= {row["what"] for row in seeds["configuration"]}
    schemes = differences(made / "compact", made / "plain")
    assert {"scheme", "epsilon"} <= {row["what"] for row in schemes["configuration"]}
    claimed = next(row for row in schemes["epsilon"] if row["what"] == "claimed")
    assert claimed["first"] == 8.0 and claimed["second"] is None
    same = json.loads(json_text(api.diff(made / "compact", made / "plain")))
    assert schemes == same | {"runs": schemes["runs"]}  # their ages are from another moment


def test_who_learns_what_comes_from_both_audits_or_it_is_said_which_command_makes_one(runs):
    (runs / "compact" / "audit.json").write_text(json.dumps(AUDIT))
    found = differences(runs / "compact", runs / "paper")
    rows = {row["what"]: row for row in found["knowledge"]}
    assert list(rows) == ["recommender", "a user", "recommender + 2 users"]
    assert rows["recommender"]["first"]["works_out"] == "4 sums" and rows["recommender"]["second"] is None
    assert any("keyhole audit" in note and "paper" in note for note in found["notes"])
    printed = " ".join(keyhole("diff", runs / "compact", runs / "paper").stdout.split())
    assert "Who learns what" in printed and "2 such users" in printed


def test_a_run_without_figures_is_compared_as_far_as_it_goes(runs):
    (runs / "compact" / "summary.json").unlink()
    found = differences(runs / "compact", runs / "paper")
    assert found["bytes"]["total"]["first"] is None and any("keyhole resume" in note for note in found["notes"])
    assert keyhole("diff", runs / "compact", runs / "paper").exit_code == 0


def test_hostile_folders_are_compared_or_refused_in_one_sentence(runs):
    with (runs / "compact" / "run.toml").open("a") as file:
        file.write('day = 2020-01-01\n"\\u001b[31m" = "[/bold]\\u202e"\n')  # in [platform]
    (runs / "paper" / "iterations.jsonl").write_text("{}\n")
    path = runs / "seed" / "summary.json"
    changed = json.loads(path.read_text())
    changed["accuracy"]["test_rmse"] = 10**400
    path.write_text(json.dumps(changed))
    printed = keyhole("diff", runs / "compact", runs / "paper")
    assert printed.exit_code == 0 and "\x1b" not in printed.stdout and "\u202e" not in printed.stdout
    found = differences(runs / "compact", runs / "paper")
    assert any("by kind are not known" in note for note in found["notes"])
    assert {"what": "platform.day", "first": "2020-01-01", "second": None} in found["configuration"]
    refused(keyhole("diff", runs / "seed", runs / "compact"), 2, "`$.accuracy.test_rmse` is out of range")
    (runs / "plain" / "summary.json").write_text("[]")
    refused(keyhole("diff", runs / "plain", runs / "compact"), 2, "summary.json is damaged")
    refused(keyhole("diff", runs / "compact", runs), 2, "is not the folder of a run")
