"""The verbs of the command line for a notebook or a script: `from sim.api import run, view, schemes, …`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from protocol.schemes import SCHEMES
from sim import bandwidth as measuring
from sim import data, prediction, show_compare, viewing
from sim import fetch as fetching
from sim import replay as replaying
from sim import run as running
from sim import verify as verifying
from sim.config import RunConfig
from sim.experiments.bench import run_bench
from sim.experiments.compare import Comparison
from sim.experiments.compare import compare as run_comparison
from sim.experiments.evaluate import evaluate as run_grid
from sim.experiments.evaluate import grid

__all__ = [
    "audit",
    "bandwidth",
    "bench",
    "compare",
    "datasets",
    "evaluate",
    "fetch",
    "predict_bandwidth",
    "replay",
    "resume",
    "run",
    "schemes",
    "verify",
    "view",
]


def run(*, out: str | Path | None = None, force: bool = False, **flags: Any) -> dict[str, Any]:
    """`keyhole run` with its flags as keywords (`users_per_process=4`, `options={"clip": 4.0}`): the summary."""
    return running.run(RunConfig(**flags), out=Path(out) if out else None, force=force)


def resume(run: str | Path) -> dict[str, Any]:
    """Go on with a run that was stopped: its summary."""
    return running.resume(Path(run))


def view(
    run: str | Path, party: str, *, iteration: int | None = None, kind: str | None = None, full: bool = False
) -> Iterator[dict[str, Any]]:
    """The records of a party's view, one at a time; `full` gives arrays and keys with all their values."""
    return viewing.select(viewing.read_view(Path(run), party, full), iteration, kind, None)


def verify(run: str | Path, *, anchor: str | None = None) -> dict[str, Any]:
    """Is the run folder what the parties wrote? `verified` says so, `findings` name file and record."""
    return verifying.verify(Path(run), anchor)


def replay(run: str | Path, *, party: str | None = None) -> dict[str, Any]:
    """Every role (or one) again from its view: `identical`, or the first difference of each."""
    return replaying.replay(Path(run), party)


def bandwidth(run: str | Path, *, by: str | None = None) -> dict[str, Any]:
    """What every iteration of a run cost: rows with counted and predicted bytes, and whether all of them match."""
    return measuring.bandwidth(Path(run), by)


def audit(
    run: str | Path, *, coalitions: Iterable[str] = (), only: Iterable[str] = (), **settings: Any
) -> dict[str, Any]:
    """What each party saw, what coalitions can work out, and what is left of the claim: `verdict` and `findings`."""
    from sim.audit.audit import audit as ask  # slow to import

    return ask(Path(run), list(coalitions), only=list(only), **settings)


def predict_bandwidth(
    *, by: str | None = None, iteration_seconds: float = 5.0, links: Iterable[str] = (), **flags: Any
) -> dict[str, Any]:
    """The same for a run that is not made, with the flags of `run` as keywords; `basis` says whether it is exact."""
    return prediction.predict(RunConfig(**flags), by, iteration_seconds, links)


def schemes() -> list[dict[str, Any]]:
    return [
        {
            "name": scheme.name,
            "title": scheme.title,
            "parties": list(scheme.parties()),
            "unit": scheme.unit,
            "claims": scheme.claims,
            "known_weaknesses": list(scheme.known_weaknesses),
            "options": dict(scheme.options),
            "source": scheme.source,
        }
        for scheme in (found() for found in SCHEMES.values())
    ]


def datasets() -> list[dict[str, Any]]:
    return [dataclasses.asdict(entry) for entry in data.available()]


def fetch(dataset: str) -> Path:
    return fetching.fetch(dataset)


def bench(name: str, **options: int) -> dict[str, Any]:
    """`options` as on the command line: users, dim, items, iterations, rounds, hosts."""
    return run_bench(name, options)


def evaluate(out: str | Path, *, jobs: int | None = None, **axes: Any) -> list[dict[str, Any]]:
    """A grid of cells (see `sim.experiments.evaluate.grid`), a dictionary each; a second call runs what is missing."""
    return run_grid(grid(**axes), Path(out), jobs, quiet=True)


def compare(*, schemes: Iterable[str] = (), out: str | Path | None = None, **asked: Any) -> dict[str, Any]:
    """All schemes (or these) on the same ratings, beside what needs no protocol: `rows` and `floors`.

    Keywords of `sim.experiments.compare.Comparison`: data, epsilon, iterations, dim, users, rating_range, seed, seeds,
    `options={"masked": {"clip": 4.0}}`. `out` is a .json or .csv file.
    """
    path = None if out is None else Path(out)
    if path is not None:
        show_compare.check_file(path)
    document = run_comparison(Comparison(schemes=tuple(schemes), **asked))
    if path is not None:
        show_compare.write(document, path)
    return document
