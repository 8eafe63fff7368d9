"""The progress line of a command."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from protocol.errors import BadInput
from sim.cli.app import app
from sim.console import progress as module
from sim.console.progress import PERCENT, SECONDS, Progress
from sim.run import run as run_module


class Clock:
    """A wait function for tests: each wait does the next of the `steps`; the wait after the last step ends."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.waits = []

    def __call__(self, seconds):
        self.waits.append(seconds)
        if not self.steps:
            return True
        self.steps.pop(0)()
        return False


def lines_of(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_without_a_terminal_there_is_a_line_every_few_seconds(capsys):
    clock = Clock()
    progress = Progress("joining", 943, "users", wait=clock)
    clock.steps = [lambda: progress.advance(512), lambda: progress.advance(431), lambda: progress.begin("drawing")]
    with progress:
        pass
    assert lines_of(capsys) == ["keyhole: joining: 512 of 943 users", "keyhole: joining: 943 of 943 users",
                                "keyhole: drawing"]  # fmt: skip
    assert clock.waits == [module.FIRST_SECONDS, SECONDS, SECONDS, SECONDS]


def test_what_is_done_at_once_says_nothing(capsys):
    with Progress("auditing", 10) as progress:
        progress.advance(10)
    assert lines_of(capsys) == []


def test_quiet_is_silent_however_long_it_takes(capsys):
    clock = Clock(lambda: None)
    with Progress("auditing", 10, quiet=True, wait=clock) as progress:
        progress.advance()
    assert lines_of(capsys) == [] and clock.waits == []


@pytest.mark.parametrize(
    ("total", "unit", "done", "text"),
    [
        (None, "", 0, "stage"),
        (8000, PERCENT, 2000, "stage: 25 %"),
        (8000, PERCENT, 0, "stage: 0 %"),
        (1682, "items", 1200, "stage: 1,200 of 1,682 items"),
        (None, "items", 3, "stage: 3 items"),
    ],
)
def test_a_line_says_how_much_is_done_of_how_much(total, unit, done, text):
    progress = Progress("stage", total, unit, quiet=True)
    progress.to(done)
    assert progress.text == text


def test_a_total_that_is_known_later_replaces_the_first(capsys):
    progress = Progress("stage", quiet=True)
    progress.to(3, 12)
    assert progress.text == "stage: 3 of 12"


def test_on_a_terminal_the_line_is_live_and_carries_no_control_character(monkeypatch):
    shown = []

    class Status:
        def start(self):
            shown.append("start")

        def stop(self):
            shown.append("stop")

        def update(self, text):
            shown.append(text)

    class Terminal:
        def isatty(self):
            return True

    monkeypatch.setattr(module.err, "status", lambda text: Status())
    monkeypatch.setattr(module.sys, "stderr", Terminal())
    with Progress("reading a\x1b[2Jb", 2) as progress:
        progress.advance()
    assert shown == [r"reading a⟨U+001B⟩[2Jb: 0 of 2", "start", "reading a⟨U+001B⟩[2Jb: 1 of 2", "stop"]


def test_what_a_run_spends_is_said_before_any_party_starts(tmp_path, monkeypatch):
    started = []

    def drive(plan, *rest):
        started.append(plan.card.scheme.name)
        raise BadInput("Nothing was started.")

    monkeypatch.setattr(run_module, "_drive", drive)
    flags = ("run", "--scheme", "hardened", "--data", "demo-small", "--epsilon", "1", "--transport", "inprocess")
    for quiet in ((), ("--quiet",)):
        ended = CliRunner().invoke(app, [*flags, "--out", str(tmp_path / f"run{len(quiet)}"), *quiet])
        first, *rest = ended.stderr.splitlines()
        assert ended.stdout == "" and started.pop() == "hardened"
        if quiet:
            assert rest == [] and "Nothing was started" in first
        else:
            assert first.startswith("keyhole: This run spends ε 1 at δ 1e-05, for one user") and "started" in rest[-1]


def test_it_is_said_too_where_parties_are_started_by_hand(tmp_path):
    flags = ("--scheme", "hardened", "--data", "demo-small", "--epsilon", "1", "--out", str(tmp_path / "run"))
    ended = CliRunner().invoke(app, ["prepare", *flags])
    assert ended.exit_code == 0 and ended.stderr.startswith("keyhole: This run spends ε 1 at δ 1e-05")
    assert ended.stdout.startswith("Start each of these")
