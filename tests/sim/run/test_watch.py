"""`keyhole watch`: a run while it goes on, when it has ended, and when no process works at it any more."""

from __future__ import annotations

import json

import pytest

from protocol.errors import BadInput
from protocol.party.view import Broken
from sim import api
from sim.cli import runs_command
from sim.console import console
from sim.folder.folder import locked
from sim.runs import following
from sim.runs.following import Watched, follow
from tests.sim.cli.test_cli import keyhole, refused


def line_of(folder, number):
    return (folder / "iterations.jsonl").read_bytes().splitlines(keepends=True)[number]


def test_a_finished_run_is_shown_to_its_end(folder):
    result = keyhole("watch", folder)
    assert result.exit_code == 0, result.stderr
    assert "iteration 2 of 2" in result.stdout and "Completed: test RMSE" in result.stdout
    assert "3 of 3 online" in result.stdout and "ε added up 16" in result.stdout  # two releases of ε = 8
    assert [line["iteration"] for line in api.watch(folder)] == [-1, 0, 1]


def test_lines_are_given_as_they_are_written_and_the_end_when_the_lock_is_free(folder):
    lines = [line_of(folder, number) for number in range(3)]
    summary = (folder / "summary.json").read_bytes()
    (folder / "summary.json").unlink()
    file = folder / "iterations.jsonl"
    file.write_bytes(b"")
    looks = follow(folder, often=0, grace=0)
    with locked(folder):
        assert next(looks)[1] == []
        file.write_bytes(lines[0] + lines[1][:40])  # half a line is no line
        assert [line["iteration"] for line in next(looks)[1]] == [-1]
        file.write_bytes(b"".join(lines[:2]))
        watched, new = next(looks)
        assert [line["iteration"] for line in new] == [0] and watched.done == 1 and watched.summary is None
        assert watched.bytes == sum(json.loads(line)["bytes"] for line in lines[:2])
        assert next(looks)[1] == []
        file.write_bytes(b"".join(lines))
        (folder / "summary.json").write_bytes(summary)
    watched, new = next(looks)
    assert [line["iteration"] for line in new] == [1] and watched.summary["completed"]
    assert list(looks) == []


def test_the_run_is_not_disturbed(folder):
    """Another process can take the lock between any two looks."""
    (folder / "summary.json").unlink()
    for _, _ in follow(folder, often=0, grace=0):
        with locked(folder):
            pass


def test_a_run_that_nobody_works_at_is_dead_after_a_while(folder, monkeypatch):
    (folder / "summary.json").unlink()
    monkeypatch.setattr(following.time, "sleep", lambda seconds: None)
    looks = list(follow(folder, often=1.0, grace=3.0))
    assert len(looks) == 4 and looks[-1][0].summary is None  # lines came at the first look, then three without
    result = keyhole("watch", folder)
    assert result.exit_code == 5 and "No process of" in result.stderr and "keyhole resume" in result.stderr


def test_an_aborted_run_says_why(folder):
    path = folder / "summary.json"
    changed = json.loads(path.read_text())
    changed |= {"completed": False, "abort": {"reason": "DISK_FULL", "sentence": "the disk is \x1bfull"}}
    path.write_text(json.dumps(changed))
    result = keyhole("watch", folder)
    assert result.exit_code == 5 and "the disk is ⟨U+001B⟩full" in result.stderr


def test_on_a_terminal_the_state_of_now_is_drawn(folder, monkeypatch):
    monkeypatch.setattr(console.out, "_force_terminal", True)
    with console.out.capture() as captured:
        runs_command.watch(folder)
    drawn = captured.get()
    assert "users 0-2" in drawn and "2 releases of ε = 8" in drawn and "Completed" in drawn


def test_the_person_may_leave_and_the_run_goes_on(folder, monkeypatch):
    def interrupted(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "follow", interrupted)
    assert keyhole("watch", folder).exit_code == 0


def test_what_is_no_run_or_started_by_hand_is_refused(folder, tmp_path):
    refused(keyhole("watch", tmp_path / "nowhere"), 2, "nowhere")
    (folder / "roster.json").write_text("{}")
    refused(keyhole("watch", folder), 2, "by hand")


def test_lines_that_a_run_cannot_have_are_refused(folder):
    file = folder / "iterations.jsonl"
    whole = file.read_bytes()
    for text in (whole + line_of(folder, 2), b"{}\n", b"[" * 5000 + b"\n", b"x" * (1 << 21)):
        file.write_bytes(text)
        with pytest.raises((Broken, BadInput)):
            Watched(folder).new_lines()
        assert keyhole("watch", folder).exit_code == 4


def test_a_file_that_became_shorter_is_read_anew(folder):
    watched = Watched(folder)
    assert len(watched.new_lines()) == 3
    (folder / "iterations.jsonl").write_bytes(line_of(folder, 0))
    assert [line["iteration"] for line in watched.new_lines()] == [-1] and watched.done == 0
