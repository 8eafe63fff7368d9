"""The verbs of the command line for a notebook or a script: `from sim.api import run, view, schemes, …`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from protocol.schemes import SCHEMES
from sim import bandwidth as measuring
from sim import data, notebook, prediction, show_compare, viewing
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
from sim.notebook import Audit, Compared, Run

__all__ = [
    "audit",
    "bandwidth",
    "bench",
    "compare",
    "datasets",
    "evaluate",
    "fetch",
    "load",
    "predict_bandwidth",
    "replay",
    "report",
    "reproduce",
    "resume",
    "run",
    "schemes",
    "verify",
    "view",
]


def run(*, out: str | Path | None = None, force: bool = False, **flags: Any) -> Run:
    """`keyhole run` with its flags as keywords (`users_per_process=4`, `options={"clip": 4.0}`): the summary.

    It is a dictionary that also has the folder, the views, the audit and more of this run: see `sim.notebook.Run`.
    """
    summary = running.run(RunConfig(**flags), out=Path(out) if out else None, force=force)
    return Run(Path(summary["run"]), summary)


def load(run: str | Path) -> Run:
    """The same of a run that was made before, also of one that was aborted."""
    return notebook.load(Path(run))


def resume(run: str | Path) -> Run:
    """Go on with a run that was stopped: the same."""
    return Run(Path(run), running.resume(Path(run)))


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


def audit(run: str | Path, *, coalitions: Iterable[str] = (), only: Iterable[str] = (), **settings: Any) -> Audit:
    """What each party saw, what coalitions can work out, and what is left of the claim: `verdict` and `findings`."""
    return notebook.audit(Path(run), coalitions, only, **settings)


def report(run: str | Path, out: str | Path | None = None, **settings: Any) -> Path:
    """`keyhole report`: the page, as a file (`report.html` in the run folder, unless `out` names another)."""
    return load(run).report(out, **settings)


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


def compare(*, schemes: Iterable[str] = (), out: str | Path | None = None, **asked: Any) -> Compared:
    """All schemes (or these) on the same ratings, beside what needs no protocol: `rows` and `floors`.

    Keywords of `sim.experiments.compare.Comparison`: data, epsilon, iterations, dim, users, rating_range, seed, seeds,
    `options={"masked": {"clip": 4.0}}`. `out` is a .json, .csv or .html file.
    """
    path = None if out is None else Path(out)
    if path is not None:
        show_compare.check_file(path)
    document = run_comparison(Comparison(schemes=tuple(schemes), **asked))
    if path is not None:
        show_compare.write(document, path)
    return Compared(document)


def reproduce(
    figure: str = "all", *, out: str | Path = "reproduced", quick: bool = False, jobs: int | None = None
) -> dict[str, Any]:
    """The paper's figures (or one of them) as files in `out`: claims, measured figures and why they differ."""
    from sim.experiments.reproduce import reproduce as make  # slow to import

    return make(figure, Path(out), quick=quick, jobs=jobs)
