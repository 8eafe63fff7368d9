"""Small audited runs for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sim.api import run
from sim.audit.findings import Finding
from sim.evidence import Case, open_case


def made(folder: Path, scheme: str, **flags: Any) -> Case:
    """Twenty iterations on the demo data, in this process."""
    settings = {"data": "demo", "iterations": 20, "seed": 1, "transport": "inprocess", **flags}
    run(scheme=scheme, out=folder, **settings)
    return open_case(folder)


def of(findings: Iterable[Finding], name: str) -> Finding:
    """The one with this id."""
    (found,) = [finding for finding in findings if finding.id == name]
    return found
