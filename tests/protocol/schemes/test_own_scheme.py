"""A person's own protocol: a subclass of a scheme in the person's own file, run by name with real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from actors.own_scheme import load_scheme
from protocol.errors import BadInput

README = (Path(__file__).parents[3] / "protocol" / "README.md").read_text(encoding="utf-8")
MODULE = next(block for block in re.findall(r"```python\n(.*?)```", README, re.S) if block.startswith("# mine.py"))


def test_a_scheme_that_cannot_be_used_is_refused_with_its_own_words(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wrong_syntax.py").write_text("class Careful(:\n")
    (tmp_path / "not_complete.py").write_text(
        "from protocol.schemes import Scheme\n\nclass Careful(Scheme):\n    name = 'careful'\n"
    )
    with pytest.raises(BadInput, match="SyntaxError"):
        load_scheme("wrong_syntax:Careful")
    with pytest.raises(BadInput, match=r"not complete.*make_role"):
        load_scheme("not_complete:Careful")


def test_a_scheme_from_a_file_of_ones_own_runs_as_processes(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", "from sim.cli.app import main; main()", "run", "--scheme", "mine:Careful"]
    flags = ["--data", "synthetic:9x8:.3", "--iterations", "2", "--dim", "2", "--seed", "1", "--out", "run", "--json"]
    result = subprocess.run(
        [*command, *flags],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["completed"] and summary["scheme"] == "careful"
    # the floor held: the third party released only items with three raters or more
    script = "from sim.cli.app import main; main()"
    view = subprocess.run(
        [sys.executable, "-c", script, "view", "run", "recommender", "--iteration", "0", "--json", "--trust-scheme"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {row["kind"]: row["fields"] for row in json.loads(view.stdout) if row["type"] == "received"}
    opened, released = rows["Contributors"]["counts"]["shape"][0], rows["MaskedTotal"]["items"]["shape"][0]
    assert 0 < released < opened
