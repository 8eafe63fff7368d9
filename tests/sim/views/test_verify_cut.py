"""`keyhole verify`: runs that did not complete, views larger than memory, and the command itself."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from support.tamper import (
    SMALL,
    bodies,
    copy_of,
    edit_summary,
    findings,
    joined,
    last_held,
    name_of,
    rebuild,
    split,
    the_finding,
    view_of,
)
from typer.testing import CliRunner

from protocol.party.view import PREAMBLE, ViewWriter
from sim.api import verify
from sim.cli.app import app
from sim.folder.folder import locked
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.run.summary import anchor_of, digest_of_predictions
from sim.views.evidence import Report, open_case
from sim.views.exchange import Exchange
from sim.views.viewcheck import ViewCheck, ViewDemand

# --- a run that did not complete --------------------------------------------------------------------------------------


def test_without_a_summary_a_view_may_stop_anywhere_behind_its_last_frame(base, folder):
    (folder / "summary.json").unlink()
    (folder / "model" / "item_factors.npy").unlink()
    path, last = view_of(folder, "recommender"), last_held(base)["recommender"]
    view = path.read_bytes()
    start = len(joined(split(view)[: last + 1]))
    for end in range(start, len(view)):
        path.write_bytes(view[:end])
        found = verify(folder)
        assert found["verified"], (end, found["findings"])
    assert "There is no summary.json" in found["notes"][0]
    assert found["notes"][1] == "views/recommender.view, record 38, is cut off, as a crash leaves it."


@pytest.mark.parametrize("party", ["recommender", "third_party", "user:0"])
def test_without_a_summary_the_others_still_hold_what_a_cut_takes_away(base, folder, party):
    (folder / "summary.json").unlink()
    (folder / "model" / "item_factors.npy").unlink()
    records, last = split(view_of(folder, party).read_bytes()), last_held(base)[party]
    for kept in range(2, last + 1):
        view_of(folder, party).write_bytes(joined(records[:kept]) + records[kept][:7])
        file, record, what = the_finding(folder)
        assert (file, record) == (name_of(party), kept) and "holds a frame that this view does not know" in what


def test_without_a_summary_a_view_that_is_missing_is_told_of_by_the_others(folder):
    (folder / "summary.json").unlink()
    view_of(folder, "user:1").unlink()
    file, record, what = the_finding(folder)
    assert (file, record) == ("views/user-1.view", None) and "views/recommender.view, record" in what


def test_a_party_that_had_not_begun_is_no_finding(folder):
    for party in ("recommender", "third_party", "user:0", "user:1", "user:2"):
        records = split(view_of(folder, party).read_bytes())
        view_of(folder, party).write_bytes(joined(records[:2]))
    (folder / "summary.json").unlink()
    (folder / "model" / "item_factors.npy").unlink()
    view_of(folder, "user:1").unlink()
    view_of(folder, "user:2").write_bytes(b"KEYHOLE-V")
    found = verify(folder)
    assert found["verified"] and found["views"] == 4
    notes = " ".join(found["notes"])
    assert "user-1.view is missing" in notes and "user-2.view, record 0, is cut off before its first record" in notes


def test_what_no_party_brings_is_named_before_anyone_has_spoken(folder):
    (folder / "summary.json").unlink()
    (folder / "model" / "item_factors.npy").unlink()
    for party in ("recommender", "third_party", "user:0", "user:1", "user:2"):
        rebuild(folder, party, bodies(folder, party)[:2])
    assert findings(folder) == []
    for party, key, value, words in (
        ("user:1", "tape_seed", bytes(32), "has another tape seed than follows from the seed of the run"),
        ("user:1", "ratings", bytes(8), "is not what such a party brings"),  # of two items
        ("user:1", "items", bytes(7), "is not what such a party brings"),
        ("recommender", "items", bytes(4), "is not what such a party brings"),
    ):
        header, inputs = bodies(folder, party)
        rebuild(folder, party, [header, [1, inputs[1] | {key: value}]])
        assert the_finding(folder) == (name_of(party), 1, words)
        rebuild(folder, party, [header, inputs])


def test_a_model_without_an_end_of_the_recommender_is_a_finding(folder):
    (folder / "summary.json").unlink()
    rebuild(folder, "recommender", bodies(folder, "recommender")[:-2])
    assert the_finding(folder) == ("model/item_factors.npy", None, "is there, though views/recommender.view has no end")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Make a run that is interrupted after its first iteration."""
    folder = tmp_path_factory.mktemp("stopped") / "run"

    def interrupt(line: dict[str, Any]) -> None:
        if line["iteration"] == 0:
            raise KeyboardInterrupt

    summary = run(RunConfig(scheme="masked", **{**SMALL, "iterations": 5}), out=folder, on_line=interrupt)
    assert summary["abort"]["reason"] == "INTERRUPTED"
    return folder


def test_an_aborted_run_verifies_as_far_as_it_went(stopped):
    found = verify(stopped)
    assert found["verified"] and found["views"] == 5
    assert found["notes"] == ["The run was aborted (INTERRUPTED), so its views may stop anywhere."]


def test_an_aborted_run_still_knows_its_records(stopped, tmp_path):
    for party in ("recommender", "user:1"):
        folder = copy_of(stopped, tmp_path / party.replace(":", "-"))
        records = split(view_of(folder, party).read_bytes())
        view_of(folder, party).write_bytes(joined(records[:-1]))
        assert (name_of(party), len(records) - 1) in [(file, record) for file, record, _ in findings(folder)]


def test_an_aborted_run_may_have_gone_on_since(stopped, tmp_path):
    folder = copy_of(stopped, tmp_path)
    path = view_of(folder, "user:1")
    records = split(path.read_bytes())

    def know_less(summary: dict[str, Any]) -> None:
        summary["views"]["user:1"] = {"records": len(records) - 1, "head": records[-2][-32:].hex()}
        summary["anchor"] = None

    edit_summary(folder, know_less)
    assert the_finding(folder)[2] == "has an anchor that is not the digest over the heads that it lists"


def test_a_full_disk_may_have_kept_the_last_records_away(stopped, tmp_path):
    folder = copy_of(stopped, tmp_path)
    path = view_of(folder, "recommender")
    records = split(path.read_bytes())
    assert last_held(folder)["recommender"] < len(records) - 1  # so no other view shows the last one
    path.write_bytes(joined(records[:-1]))
    assert the_finding(folder)[:2] == ("views/recommender.view", len(records) - 1)
    edit_summary(folder, lambda summary: summary["abort"].update(reason="DISK_FULL"))
    found = verify(folder)
    assert found["verified"] and "but the disk was full" in " ".join(found["notes"])


def test_a_user_without_whom_the_run_ended_may_lack_its_end(folder):
    """This is the state after its process has died; the summary then does not list its view."""
    contents = bodies(folder, "user:2")
    rebuild(folder, "user:2", contents[:-2])

    def leave_out(summary: dict[str, Any]) -> None:
        del summary["views"]["user:2"]
        ends = {party: bodies(folder, party)[-2][1].hex() for party in ("user:0", "user:1")}
        summary["predictions_sha256"] = digest_of_predictions(ends)
        heads = {party: (view["records"], bytes.fromhex(view["head"])) for party, view in summary["views"].items()}
        summary["anchor"] = anchor_of(heads)

    edit_summary(folder, leave_out)
    found = verify(folder)
    assert found["verified"] and "user-2.view is not in summary.json" in found["notes"][0]
    assert found["anchor"] == json.loads((folder / "summary.json").read_text())["anchor"]


def test_who_calls_a_completed_run_aborted_is_contradicted(folder):
    def deny(summary: dict[str, Any]) -> None:
        summary["completed"], summary["abort"] = False, {"reason": "INTERRUPTED", "sentence": "…"}

    edit_summary(folder, deny)
    assert "though every view has its end" in the_finding(folder)[2]


# --- a large view, and the command ------------------------------------------------------------------------------------


def test_a_large_view_is_not_loaded(base, tmp_path):
    case, report, path = open_case(base), Report(), tmp_path / "large.view"
    body = bodies(base, "user:0")
    writer, frame = ViewWriter(), bytes(1 << 18)
    with path.open("wb") as file:
        file.write(opening(writer, body))
        for _ in range(160):
            file.write(writer.received("recommender", frame))
    check = ViewCheck(case, "user:0", ViewDemand(), Exchange(case, report), report)
    tracemalloc.start()
    with path.open("rb") as stream:
        check.read(stream, lambda count: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (check.records, report.findings) == (162, [])
    assert peak < 3 << 20 < path.stat().st_size // 10


def opening(writer: ViewWriter, body: list[list[Any]]) -> bytes:
    return PREAMBLE + writer.record(*body[0]) + writer.record(*body[1])


def keyhole(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_the_command_says_what_it_found(folder):
    anchor = json.loads((folder / "summary.json").read_text())["anchor"]
    good = keyhole("verify", folder, "--anchor", anchor, "--json")
    assert good.exit_code == 0 and good.stderr == ""
    document = json.loads(good.stdout)
    assert (document["verified"], document["findings"], document["anchor_matches"]) == (True, [], True)
    assert keyhole("verify", folder).exit_code == 0
    path = view_of(folder, "user:1")
    view = path.read_bytes()
    path.write_bytes(view[:-1] + bytes([view[-1] ^ 1]))
    bad = keyhole("verify", folder)
    assert bad.exit_code == 4 and bad.stderr.count("\n") == 1
    assert bad.stderr.startswith(f"keyhole: {folder} does not verify: views/user-1.view, record 14,")
    assert "views/user-1.view" in bad.stdout and "Not covered: " in bad.stdout
    bad = keyhole("verify", folder, "--json")
    assert bad.exit_code == 4
    assert json.loads(bad.stdout)["findings"] == [
        {"file": "views/user-1.view", "record": 14, "what": "does not fit the hash chain"}
    ]


def test_the_command_does_not_print_what_a_forger_wrote_as_markup(folder):
    edit_summary(folder, lambda summary: summary.update(data="[/bold][red]"))
    result = keyhole("verify", folder)
    assert result.exit_code == 4 and "[/bold][red]" in result.stdout


@pytest.mark.parametrize("command", ["verify", "replay"])
def test_a_run_that_still_goes_on_is_not_judged(folder, command):
    """One view could be ahead of another only because it was read later."""
    with locked(folder):
        result = keyhole(command, folder)
        assert result.exit_code == 2 and "still running" in result.stderr
    assert keyhole(command, folder).exit_code == 0
    (folder / "lock").unlink()  # as in a copy without the lock
    assert keyhole(command, folder).exit_code == 0


def test_the_command_refuses_what_is_no_run(folder, tmp_path):
    for arguments in ((tmp_path,), (tmp_path / "nowhere",), (folder, "--anchor", "12"), (folder, "--anchor", "x" * 64)):
        result = keyhole("verify", *arguments)
        assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1
