"""The list of commands: it agrees with the commands, and names are suggested and completed from it."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.cli.commands import COMMANDS
from tests.sim.cli.test_cli import keyhole

KEYHOLE = Path(sys.executable).with_name("keyhole")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says_of_itself(name):
    command = getattr(importlib.import_module(f"sim.cli.{COMMANDS[name].module}"), name)
    first = (inspect.getdoc(command) or "").split("\n\n")[0]
    assert " ".join(first.split()) == COMMANDS[name].summary
    assert COMMANDS[name].example.startswith(name)


def test_a_name_that_is_nearly_one_gets_the_nearest():
    assert "Did you mean 'run'" in keyhole("rn").stderr and keyhole("rn").exit_code == 2


@pytest.mark.parametrize(
    ("typed", "word", "offered"),
    [
        ("keyhole re", 1, {"resume", "replay", "recommend", "report", "reproduce"}),
        ("keyhole run --eps", 2, {"--epsilon"}),
    ],
)
def test_the_shell_completes_commands_and_flags(typed, word, offered):
    wanted = {"_KEYHOLE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(word)}
    made = subprocess.run([KEYHOLE], env={**os.environ, **wanted}, capture_output=True, text=True)
    assert set(made.stdout.split()) == offered


@pytest.mark.parametrize("words", [["--help"], ["schemes"], ["ls", "--help"]])
def test_a_reader_that_stops_reading_gets_no_traceback(words):
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([KEYHOLE, *words], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert ended.stderr == ""


def test_a_clone_runs_its_own_code_where_another_keyhole_is_installed(tmp_path):
    installed = tmp_path / "site-packages"
    for name in ("protocol", "actors"):
        (installed / name).mkdir(parents=True)
        (installed / name / "__init__.py").write_text("raise SystemExit('this is another Keyhole')\n")
    command, environment = [sys.executable, "-m", "sim", "schemes"], {**os.environ, "PYTHONPATH": str(installed)}
    root = Path(__file__).parents[3]
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and "masked" in ended.stdout, ended.stderr
