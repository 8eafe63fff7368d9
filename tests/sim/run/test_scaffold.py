"""`keyhole new`: two files that run as they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sim import api
from tests.sim.cli.test_cli import keyhole, refused

ROOT = Path(__file__).parents[3]


def test_the_scaffold_runs_in_its_folder_and_so_does_its_own_test(tmp_path):
    result = keyhole("new", "my_scheme", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    scheme, test = result.stdout.split()
    assert (Path(scheme), Path(test)) == (tmp_path / "my_scheme.py", tmp_path / "test_my_scheme.py")
    assert "keyhole run --scheme my_scheme:MyScheme" in result.stderr
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = _tests(result.stderr)
    tested = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert tested.returncode == 0 and "3 passed" in tested.stdout, tested.stdout
    flags = ["--data", "synthetic:9x8:.3", "--iterations", "2", "--dim", "2", "--seed", "1", "--transport", "inprocess"]
    command = [sys.executable, "-m", "sim", "run", "--scheme", "my_scheme:MyScheme", *flags, "--out", "run", "--json"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and '"scheme": "my-scheme"' in ran.stdout, ran.stderr
    assert "min_contributors = 3" in (tmp_path / "run" / "run.toml").read_text()


def _tests(told: str) -> list[str]:
    """Return the printed command, as it runs for a person with pytest but none of its plugins."""
    told = next(line for line in told.splitlines() if line.startswith("Test it: "))
    assert told.endswith("  (needs: pip install pytest)")
    words = told.removesuffix("  (needs: pip install pytest)").split()
    command = words[words.index("python") + 1 :]
    plugins = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "asyncio")]
    return [sys.executable, *command[:2], *plugins, *command[2:]]


def test_its_test_runs_inside_a_clone_without_the_plugins_of_its_settings(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    result = keyhole("new", "my_scheme", "--out", tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    tested = subprocess.run(_tests(result.stderr), cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert tested.returncode == 0 and "3 passed" in tested.stdout, tested.stdout + tested.stderr


def test_its_source_is_its_author(tmp_path, monkeypatch):
    keyhole("new", "sourced_one", "--out", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    row = json.loads(keyhole("schemes", "sourced_one:SourcedOne", "--json").stdout)
    assert row["source"] == "your own, after Hua, Xia, Zhong 2015"


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "test_own_one.py").write_text("mine")
    refused(keyhole("new", "own_one", "--out", tmp_path), 2, "test_own_one.py exists already")
    assert [path.name for path in tmp_path.iterdir()] == ["test_own_one.py"]
    (tmp_path / "own_two.py").symlink_to(tmp_path / "elsewhere")
    refused(keyhole("new", "own_two", "--out", tmp_path), 2, "exists already")
    refused(keyhole("new", "own_three", "--out", tmp_path / "none"), 2, "is not a folder")
    assert len(api.new("own_four", tmp_path)) == 2


@pytest.mark.parametrize("name", ["my-scheme", "1st", "class", "../up", "a b", "", "é", "__main__", "_1"])
def test_a_name_that_is_none_of_a_module_is_refused(tmp_path, name):
    refused(keyhole("new", "--out", tmp_path, "--", name), 2, "my_scheme" if name != "__main__" else "another name")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["json", "numpy", "sim", "masked", "laplace_ratings"])
def test_a_name_that_something_else_has_is_refused(tmp_path, name):
    refused(keyhole("new", name, "--out", tmp_path), 2, "take another name")
