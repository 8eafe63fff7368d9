"""Measure how long a command takes to say its first word, beside importing the libraries that every command needs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from sim.experiments.bench.measuring import Seconds, command_seconds, interleaved, medians, run_real
from sim.plan.config import RunConfig

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
    config = {"note": None, "rounds": rounds, "floor": f"python -c '{FLOOR}'", "unit": "CPU seconds"}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run_real(RunConfig(data="demo-small", iterations=2, seed=1, transport="inprocess"), folder)

        def both() -> tuple[Seconds, Seconds]:
            floor = _start(FLOOR)
            asked = [[str(folder) if word == "RUN" else word for word in words] for words in COMMANDS.values()]
            return [_start(START, *words) for words in asked], [floor]

        result = interleaved(config, both, rounds)
    samples = {name: result["samples"][place :: len(COMMANDS)] for place, name in enumerate(COMMANDS)}
    commands = {name: medians(seconds, result["floor_samples"]) for name, seconds in samples.items()}
    slowest = max(commands, key=lambda name: commands[name]["median"])
    told = {name: {"median": found["median"], "ratio": found["ratio"]} for name, found in commands.items()}
    return result | {"samples": samples[slowest], **commands[slowest], "commands": told}


def _start(code: str, *arguments: str) -> float:
    return command_seconds(["-P", "-c", code, *arguments], PYTHONDONTWRITEBYTECODE="", OPENBLAS_NUM_THREADS="1")
