"""The run's configuration, and the command that runs it again."""

from __future__ import annotations

import shlex

from sim.report.material import Material
from sim.report.section import Section, render


def section(material: Material) -> Section:
    config = (material.folder / "run.toml").read_text(encoding="utf-8")
    command = f"keyhole run --config {shlex.quote(str(material.folder / 'run.toml'))}"
    return Section("again", "Configuration", render("again.html", command=command, config=config))
