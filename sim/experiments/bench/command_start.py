"""Measure how long a command takes to say its first word, beside importing the libraries that every command needs."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from protocol.errors import Bug
from sim.plan.config import RunConfig
from sim.run.run import run

ROUNDS = 15
FLOOR = "import typer, rich, msgpack"
START = "from sim.cli.entry import main; main()"
COMMANDS = {
    "--help": ("--help",),
    "--version": ("--version",),
    "schemes": ("schemes",),
    "view": ("view", "RUN", "user:0"),
}


def bench_cli(rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure processor seconds of short commands over those of a bare import, in turn; `ratio` is the largest."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run(RunConfig(data="demo-small", iterations=2, seed=1, transport="inprocess"), out=folder)
        floors: list[float] = []
        samples: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(rounds):
            floors.append(_processor_seconds(FLOOR, ()))
            for name, words in COMMANDS.items():
                given = tuple(str(folder) if word == "RUN" else word for word in words)
                samples[name].append(_processor_seconds(START, given))
    floor = statistics.median(floors)
    medians = {name: statistics.median(each) for name, each in samples.items()}
    slowest = max(medians, key=lambda name: medians[name])
    return {
        "config": {"note": None, "rounds": rounds, "floor": f"python -c '{FLOOR}'", "unit": "CPU seconds"},
        "samples": samples[slowest],
        "median": medians[slowest],
        "floor_median": floor,
        "ratio": medians[slowest] / floor,
        "commands": {name: {"median": median, "ratio": median / floor} for name, median in medians.items()},
    }


def _processor_seconds(code: str, arguments: tuple[str, ...]) -> float:
    """Run Python code in a process of its own, and return what that cost."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "OPENBLAS_NUM_THREADS": "1"}
    asked = [sys.executable, "-P", "-c", code, *arguments]
    done = subprocess.run(asked, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise Bug(f"keyhole {' '.join(arguments)} failed: {done.stderr.decode(errors='replace').strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
