"""`keyhole bandwidth` on folders that are no completed run, or that differ from what the run wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim import api
from sim.plan.config import RunConfig
from sim.run.run import run as make_run
from tests.sim.cli.test_cli import keyhole, refused

Change = Callable[[list[dict[str, Any]], dict[str, Any], dict[str, Any]], object]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    settings: dict[str, Any] = {"data": "synthetic:8x6:.5", "dim": 2, "iterations": 3, "seed": 1}
    assert make_run(RunConfig(**settings, join=0.6, leave=0.3, transport="inprocess"), out=folder)["completed"]
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "run"))


def change(folder: Path, how: Change) -> None:
    """Change the lines, bandwidth.json and the summary with `how`, and write all of them again."""
    lines = [json.loads(line) for line in (folder / "iterations.jsonl").read_text().splitlines()]
    totals, summary = (json.loads((folder / f"{name}.json").read_text()) for name in ("bandwidth", "summary"))
    how(lines, totals, summary)
    (folder / "iterations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, document in (("bandwidth", totals), ("summary", summary)):
        (folder / f"{name}.json").write_text(json.dumps(document))


def test_written_again_as_it_was_it_is_accepted(folder):
    change(folder, lambda lines, totals, summary: None)
    assert api.bandwidth(folder)["match"] is True


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    refused(keyhole("bandwidth", tmp_path / "nowhere"), 2, "not the folder of a run")
    refused(keyhole("bandwidth", tmp_path), 2, "not the folder of a run")


def test_a_run_that_did_not_complete_is_to_be_resumed_first(folder):
    abort = {"reason": "STALLED", "sentence": "Nothing moved."}
    change(folder, lambda lines, totals, summary: summary.update(completed=False, abort=abort))
    refused(keyhole("bandwidth", folder), 2, "did not complete", "keyhole resume")
    (folder / "summary.json").unlink()
    refused(keyhole("bandwidth", folder), 2, "keyhole resume")


def test_data_that_is_gone_or_another_is_told_and_the_views_say_what_was_rated(tmp_path):
    file, folder = tmp_path / "ratings.csv", tmp_path / "run"
    rows = [f"{user},{item},{1 + (user + item) % 5}\n" for user in range(4) for item in range(4)]
    file.write_text("user,item,rating\n" + "".join(rows))
    config = RunConfig(scheme="plain", data=str(file), iterations=2, dim=2, seed=1, transport="inprocess")
    assert make_run(config, out=folder)["completed"]
    assert api.bandwidth(folder)["match"] is True
    file.write_text("user,item,rating\n" + "".join(rows[:-4]))
    found = api.bandwidth(folder)
    assert found["match"] is True and found["supports"]["from"] == "views"
    assert "ratings.csv is not what it was" in found["supports"]["note"]
    file.unlink()
    assert "ratings.csv" in keyhole("bandwidth", folder).stdout.replace("\n", "")
    assert api.bandwidth(folder)["match"] is True


@pytest.mark.parametrize("name", ["iterations.jsonl", "bandwidth.json"])
def test_a_file_that_is_missing_empty_or_cut_off_ends_with_4(folder, name):
    whole = (folder / name).read_bytes()
    for part in (b"", whole[: len(whole) // 2], b"\xff" + whole):
        (folder / name).write_bytes(part)
        refused(keyhole("bandwidth", folder), 4, name)
    (folder / name).unlink()
    refused(keyhole("bandwidth", folder), 4, name, "No such file")


def test_a_summary_that_cannot_be_read_ends_with_4(folder):
    for text in ("{", "[]", '{"completed": true}', 100_000 * "["):
        (folder / "summary.json").write_text(text)
        refused(keyhole("bandwidth", folder), 4, "summary.json")


def _more(row: list[Any]) -> None:
    row[6] += 1


DAMAGE: dict[str, tuple[Change, tuple[str, ...]]] = {
    "a row of a line": (lambda lines, totals, summary: _more(lines[1]["rows"][-1]), ("line 2", "bytes")),
    "a row of the end": (lambda lines, totals, summary: _more(totals["rows"][0]), ("by party",)),
    "a row by party": (lambda lines, totals, summary: _more(totals["parties"][0]), ("by party",)),
    "the bytes of a line": (lambda lines, totals, summary: lines[2].update(bytes=1), ("line 3",)),
    "the bytes of the summary": (lambda lines, totals, summary: summary["bytes"].update(total=1), ("summary.json",)),
    "a resend that nobody knows": (
        lambda lines, totals, summary: totals["apart"].append(["resend", "recommender", "user:1", 1, 10, 45]),
        ("summary.json",),
    ),
    "a line less": (lambda lines, totals, summary: lines.pop(2), ("line 3", "iteration 2")),
    "the set-up": (lambda lines, totals, summary: lines.pop(0), ("line 1",)),
    "a line without its course": (lambda lines, totals, summary: lines[1].pop("course"), ("line 2", "course")),
    "a negative count": (
        lambda lines, totals, summary: lines[1]["rows"][0].__setitem__(4, -1),
        ("line 2", "`$.rows[0][4]` must be a whole number of at least 0"),
    ),
    "a text as a count": (lambda lines, totals, summary: lines[1]["rows"][0].__setitem__(4, "3"), ("line 2",)),
    "what users have": (
        lambda lines, totals, summary: lines[1]["users"]["down"][0].__setitem__(1, 99),
        ("line 2", "down"),
    ),
    "a kernel that is neither counts nor nothing": (
        lambda lines, totals, summary: totals.update(kernel=0, kernel_note=None),
        ("bandwidth.json",),
    ),
    "counts and a reason why there are none": (
        lambda lines, totals, summary: totals.update(kernel=[["recommender", "user:1", 1, 2, 3]]),
        ("bandwidth.json", "either"),
    ),
    "neither counts nor a reason": (
        lambda lines, totals, summary: totals.update(kernel_note=None),
        ("bandwidth.json", "either"),
    ),
    "two counts for one connection": (
        lambda lines, totals, summary: totals.update(
            kernel=2 * [["recommender", "user:1", 1, 2, 3]], kernel_note=None
        ),
        ("bandwidth.json", "two counts"),
    ),
    "a role that is none": (
        lambda lines, totals, summary: lines[1]["rows"][0].__setitem__(1, "[/nobody]"),
        ("line 2", "[/nobody]"),
    ),
    "a party that is none": (
        lambda lines, totals, summary: totals["parties"][0].__setitem__(2, "user:8"),
        ("bandwidth.json", "user:8"),
    ),
    "a party apart that is none": (
        lambda lines, totals, summary: totals["apart"].append(["resend", "recommender", "[/x]", 0, 0, 0]),
        ("bandwidth.json", "[/x]"),
    ),
    "items that are no number": (
        lambda lines, totals, summary: lines[0]["course"]["commitments"][0].update(opened=1.5),
        ("commitments",),
    ),
    "fewer than no items": (
        lambda lines, totals, summary: lines[0]["course"]["commitments"][0].update(sealed=-1),
        ("commitments",),
    ),
    "another format": (lambda lines, totals, summary: totals.update(format=3), ("bandwidth.json", "format 3")),
    "a kernel without numbers": (
        lambda lines, totals, summary: totals.update(kernel=[["recommender", ""]]),
        ("bandwidth.json",),
    ),
    "users that do not exist": (
        lambda lines, totals, summary: lines[1]["course"].update(invited="0-8"),
        ("course", "8 that there are"),
    ),
    "users that are no numbers": (lambda lines, totals, summary: lines[1]["course"].update(invited="all"), ("'all'",)),
    "a commitment that nobody answered": (
        lambda lines, totals, summary: [line["course"].pop("answered", None) for line in lines],
        ("commitments",),
    ),
}


@pytest.mark.parametrize(("how", "words"), DAMAGE.values(), ids=DAMAGE.keys())
def test_what_contradicts_itself_ends_with_4_and_says_where(folder, how, words):
    change(folder, how)
    refused(keyhole("bandwidth", folder, "--json"), 4, *words)


def test_a_course_that_was_not_taken_is_not_hidden(folder):
    """All sums are right, but the course of one iteration has one contributor fewer than gradients."""

    def lose_one(lines: list[dict[str, Any]], totals: dict[str, Any], summary: dict[str, Any]) -> None:
        course = lines[1]["course"]
        course["contributors"] = course["contributors"].partition(",")[2] or ""
        assert course["contributors"] != course["invited"]

    change(folder, lose_one)
    document = api.bandwidth(folder)
    assert document["match"] is False
    assert any("iteration 0, MaskedGradient from user to third_party" in line for line in document["differences"])
    rows = [row for row in document["rows"] if row["wire_bytes"] != row["predicted_bytes"]]
    assert rows and {row["iteration"] for row in rows} <= {-1, 0}
    text = keyhole("bandwidth", folder).stdout
    assert "They differ" in text and "MaskedGradient" in text
