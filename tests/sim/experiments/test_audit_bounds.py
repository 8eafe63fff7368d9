"""`keyhole evaluate --table audit-bounds` writes the tables of the README, and needs no data."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from sim.cli.app import app
from sim.experiments.grid import audit_bounds


def test_the_command_writes_the_tables(tmp_path, monkeypatch):
    few = audit_bounds.rows(draws=3)
    monkeypatch.setattr(audit_bounds, "rows", lambda: few)
    page, lines = tmp_path / "bounds.md", tmp_path / "bounds.jsonl"
    made = CliRunner().invoke(app, ["evaluate", "--table", "audit-bounds", "--out", str(lines), "--json"])
    assert made.exit_code == 0, made.output
    document = json.loads(made.stdout)
    assert document["table"] == str(page) and document["rows"] == few
    assert page.read_text() == audit_bounds.markdown(few) and not lines.exists(), "results beside it are not lost"
    refused = CliRunner().invoke(app, ["evaluate", "--table", "audit-bound"])
    assert refused.exit_code == 2 and "audit-bounds" in refused.output
