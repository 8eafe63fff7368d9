"""Processor time of the first audit of a run, of the second, and of the page after them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from protocol.errors import BadInput
from sim.plan.config import RunConfig
from sim.run.run import run

DATA = "demo"
COMMANDS = {"first audit": ("audit",), "second audit": ("audit",), "page": ("report",)}


def audit_times(data: str = DATA, iterations: int | None = None, scheme: str = "dynamic") -> dict[str, float]:
    """Measure processor seconds of each command, workers included, beginning with an empty cache.

    By default, `data`, `iterations` and `scheme` are those of a bare `keyhole run`.
    """
    with tempfile.TemporaryDirectory() as place:
        folder, made = Path(place) / "run", {}
        config = RunConfig(scheme=scheme, data=data, iterations=iterations, seed=1, transport="inprocess")
        run(config, out=folder)
        environment = {**os.environ, "XDG_CACHE_HOME": f"{place}/cache"}
        for words, command in COMMANDS.items():
            before = _processor_seconds()
            asked = [sys.executable, "-m", "sim", *command, str(folder)]
            done = subprocess.run(asked, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if done.returncode:
                raise BadInput(f"keyhole {command[0]} failed: {done.stderr.decode(errors='replace').strip()}")
            made[words] = _processor_seconds() - before
    return made


def _processor_seconds() -> float:
    """Read the processor seconds of all child processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
