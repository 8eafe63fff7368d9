"""The Python scripts of the READMEs run, and print what the README shows below them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from sim import api
from sim.cli.commands import COMMANDS

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / name / "README.md" for name in (".", "protocol", "actors", "sim", "sim/experiments", "tests")]
GENERATED = re.compile(r"^<!-- table: .*?^<!-- end -->$", re.M | re.S)  # see test_prose.py
README = GENERATED.sub("", "\n".join(page.read_text("utf-8") for page in PAGES))
SCRIPT = re.compile(r"^```python\n(.*?)^```\n(?:\n[^\n]+\n\n?```\n(.*?)^```\n)?", re.M | re.S)  # and what it prints
MODULE = "# mine.py\n"  # the first line of a file, not of a script: tests/protocol/schemes/test_own_scheme.py runs it
BY_HAND_ALONE = {"prepare", "actor"}  # for processes that are started on other machines


def lines(text: str) -> list[str]:
    """Split `text` into lines without spaces at their ends: tables have some, and editors remove them."""
    return [line.rstrip() for line in text.strip().splitlines()]


def carried_out(script: str, folder: Path) -> str:
    """Run `script` as a person would, in another process and an empty folder; it must print nothing on stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    folder.mkdir()
    made = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert made.returncode == 0 and made.stderr == "", made.stderr
    return made.stdout


def test_every_script_prints_what_stands_under_it_and_leaves_the_files_that_it_names(tmp_path):
    scripts = [found for found in SCRIPT.findall(README) if not found[0].startswith(MODULE)]
    assert scripts and README.count("```python\n") == len(scripts) + README.count(f"```python\n{MODULE}")
    for number, (script, printed) in enumerate(scripts):
        assert printed, "what a script of the README prints stands under it"
        folder = tmp_path / str(number)
        assert lines(carried_out(script, folder)) == lines(printed)
        for name in re.findall(r"^runs/\S+$", printed, re.M):
            assert (folder / name).stat().st_size > 1000


def test_the_script_for_a_notebook_is_short_and_shows_all_of_it():
    (script,) = [script for script, _ in SCRIPT.findall(README) if "import load, run" in script]
    assert len(script.splitlines()) <= 30
    for what in ("run(", "load(", ".views[", ".bandwidth(", ".audit(", ".report("):
        assert what in script


def test_the_functions_that_it_lists_are_those_that_there_are():
    listed = re.search(r"`import keyhole` has every verb of the command line: `([^`]+)`", README)
    assert listed is not None
    names = [name.strip() for name in listed[1].split(",")]
    assert sorted(names) == sorted(api.__all__) and len(set(names)) == len(names)
    for name in names:
        assert callable(getattr(api, name)) and getattr(api, name).__module__ == "sim.api"


def test_every_command_is_a_function_too():
    commands = set(COMMANDS)
    assert commands - BY_HAND_ALONE <= set(api.__all__) and {"report", "load"} <= set(api.__all__)
