"""The verbs of the command line for a notebook or a script: `from sim.api import run, view, schemes, …`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from actors.own_scheme import load_scheme
from protocol.schemes import SCHEMES, Scheme
from sim.audit.pairs import one_pair as pairing
from sim.bandwidth import bandwidth as measuring
from sim.bandwidth import prediction
from sim.console.glossary import find_term
from sim.data import fetch as fetching
from sim.data import ratings
from sim.experiments import compare_files
from sim.experiments.bench.benchmark import run_bench
from sim.experiments.compare import Comparison
from sim.experiments.compare import compare as run_comparison
from sim.experiments.grid.evaluate import evaluate as run_grid
from sim.experiments.grid.evaluate import grid
from sim.folder.folder import trust_scheme as trust
from sim.folder.naming import resolve
from sim.notebook import notebook
from sim.notebook.notebook import AuditDocument, Compared, Run
from sim.plan.config import FLAGS, RunConfig
from sim.run import run as running
from sim.runs import following as watching
from sim.runs import recommend as recommending
from sim.runs.listing import diff_runs, list_runs
from sim.runs.scaffold import make_scaffold
from sim.views import replay as replaying
from sim.views import verify as verifying
from sim.views import viewing

P = ParamSpec("P")
Asked = TypeVar("Asked")
Result = TypeVar("Result")

__all__ = [
    "audit",
    "bandwidth",
    "bench",
    "compare",
    "datasets",
    "diff",
    "evaluate",
    "explain",
    "fetch",
    "load",
    "ls",
    "new",
    "pair",
    "predict_bandwidth",
    "recommend",
    "replay",
    "report",
    "reproduce",
    "resume",
    "run",
    "schemes",
    "verify",
    "view",
    "watch",
]


def _called_with(made: Callable[P, Asked]) -> Callable[[Callable[[Asked], Result]], Callable[P, Result]]:
    """Let a function of one object take the keywords that `made` makes it from: editors and type checkers see them."""

    def decorate(function: Callable[[Asked], Result]) -> Callable[P, Result]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            return function(made(*args, **kwargs))

        call.__signature__ = inspect.signature(made)  # type: ignore[attr-defined]
        return call

    return decorate


def _config_of(asked: RunConfig) -> RunConfig:
    """Return the flags of a run alone, with their scheme loaded."""
    load_scheme(asked.scheme)
    return RunConfig(**{flag: getattr(asked, flag) for flag in FLAGS})


@dataclass(frozen=True, kw_only=True)
class RunCall(RunConfig):
    """The keywords of `run`: the flags of `keyhole run`."""

    out: str | Path | None = None
    force: bool = False


@_called_with(RunCall)
def run(asked: RunCall) -> Run:
    """Run what `keyhole run` runs, with its flags as keywords (`users_per_process=4`, `options={"clip": 4.0}`).

    The result is the summary: a dictionary that also gives access to the run's folder, views, audit and more
    (see `Run` in `sim/notebook/notebook.py`). `out` is the run folder; `force` as on the command line.
    """
    summary = running.run(_config_of(asked), out=Path(asked.out) if asked.out else None, force=asked.force)
    return Run(Path(summary["run"]), summary)


# The functions below load a custom scheme if `scheme` names it or `trust_scheme` is set. Once loaded, it stays known
# until this Python process ends.


def load(run: str | Path, *, scheme: str | None = None, trust_scheme: bool = False) -> Run:
    """Load an earlier run from the folder `run`, completed or aborted, as the result that `run()` gives."""
    return notebook.load(Path(run), scheme, trust_scheme)


def resume(run: str | Path, *, scheme: str | None = None, trust_scheme: bool = False) -> Run:
    """Resume the stopped run in the folder `run`, and give the same result as `run()`."""
    trust(Path(run), scheme, trust_scheme)
    return Run(Path(run), running.resume(Path(run)))


def view(
    run: str | Path,
    party: str,
    *,
    iteration: int | None = None,
    kind: str | None = None,
    full: bool = False,
    scheme: str | None = None,
    trust_scheme: bool = False,
) -> Iterator[dict[str, Any]]:
    """Iterate over the records of the view of `party`; `full` gives arrays and keys with all their values."""
    trust(Path(run), scheme, trust_scheme)
    records = viewing.read_view(Path(run), resolve(Path(run), party), full)
    return iter(viewing.Selection(records, viewing.Filter(iteration, kind)))


def verify(
    run: str | Path, *, anchor: str | None = None, scheme: str | None = None, trust_scheme: bool = False
) -> dict[str, Any]:
    """Check that the folder `run` holds what the parties wrote: `verified`, and `findings` with file and record.

    `anchor` is the digest that the run printed; with it, even a consistent rewrite of all views is detected.
    """
    trust(Path(run), scheme, trust_scheme)
    return verifying.verify(Path(run), anchor)


def replay(
    run: str | Path, *, party: str | None = None, scheme: str | None = None, trust_scheme: bool = False
) -> dict[str, Any]:
    """Replay the role of every party (or of `party`) from its view: `identical`, or the first difference of each."""
    trust(Path(run), scheme, trust_scheme)
    return replaying.replay(Path(run), None if party is None else resolve(Path(run), party))


def pair(
    run: str | Path,
    *,
    user: str | None = None,
    item: int | None = None,
    scheme: str | None = None,
    trust_scheme: bool = False,
) -> dict[str, Any]:
    """Change one rating and run all roles again: what differs in whose view, and the exact ε of that pair."""
    trust(Path(run), scheme, trust_scheme)
    return pairing.pair_of(Path(run), user, item)


def bandwidth(
    run: str | Path,
    *,
    by: str | None = None,
    wire: str | None = None,
    user: str | None = None,
    top: int | None = None,
    scheme: str | None = None,
    trust_scheme: bool = False,
) -> dict[str, Any]:
    """Count the bytes of every iteration of a run: rows with counted and predicted bytes, and whether they match.

    `wire` predicts the same run in the other wire form, `user` gives the rows of one user, and `top` limits the rows
    to that number of largest ones.
    """
    trust(Path(run), scheme, trust_scheme)
    return measuring.bandwidth(Path(run), by, wire=wire, user=user, top=top)


def audit(
    run: str | Path,
    *,
    coalitions: Iterable[str] = (),
    only: Iterable[str] = (),
    scheme: str | None = None,
    trust_scheme: bool = False,
    **settings: Any,
) -> AuditDocument:
    """Audit a run: what parties saw, what `coalitions` can work out, what is left of the claim.

    The result has the properties `verdict` and `findings`; `only` limits the questions that are asked.
    """
    trust(Path(run), scheme, trust_scheme)
    from sim.audit.audit import audit as ask  # slow to import

    return AuditDocument(ask(Path(run), list(coalitions), only=list(only), **settings))


def recommend(
    run: str | Path,
    user: str | None = None,
    *,
    top: int = recommending.TOP,
    scheme: str | None = None,
    trust_scheme: bool = False,
) -> dict[str, Any]:
    """List what `user` (`user:17`, or its name in the data) would be shown: `recommendations`, beside its `rated`."""
    trust(Path(run), scheme, trust_scheme)
    return recommending.recommend(Path(run), user, top)


def report(
    run: str | Path,
    out: str | Path | None = None,
    *,
    scheme: str | None = None,
    trust_scheme: bool = False,
    **settings: Any,
) -> Path:
    """Write the page of `keyhole report` to `out` (by default `report.html` in the run folder); return its path."""
    return load(run, scheme=scheme, trust_scheme=trust_scheme).report(out, **settings)


@dataclass(frozen=True, kw_only=True)
class PredictionCall(RunConfig):
    """The keywords of `predict_bandwidth`."""

    by: str | None = None
    iteration_seconds: float = 5.0
    links: Iterable[str] = ()


@_called_with(PredictionCall)
def predict_bandwidth(asked: PredictionCall) -> dict[str, Any]:
    """Predict the bytes of a run without making it, with the flags of `run`; `basis` says whether it is exact."""
    return prediction.predict(_config_of(asked), asked.by, asked.iteration_seconds, asked.links)


def schemes() -> list[dict[str, Any]]:
    return [describe_scheme(found()) for found in SCHEMES.values()]


def describe_scheme(scheme: Scheme) -> dict[str, Any]:
    return {
        "name": scheme.name,
        "title": scheme.title,
        "parties": list(scheme.parties()),
        "unit": scheme.unit,
        "claims": scheme.claims,
        "known_weaknesses": scheme.weakness_ids(),
        "weaknesses": [one.document() for one in scheme.weaknesses()],
        "options": dict(scheme.options),
        "source": scheme.source,
    }


def ls(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """List the runs in `folder`, newest first, without loading any scheme."""
    return list_runs(Path(folder))


def diff(first: str | Path, second: str | Path) -> dict[str, Any]:
    """Compare two runs side by side: configuration, accuracy, ε, bytes, and what each party learns."""
    return diff_runs(Path(first), Path(second))


def watch(run: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the figures of each iteration as it ends, until the run has ended or no process works on it."""
    for _, lines in watching.follow(Path(run)):
        yield from lines


def explain(term: str) -> dict[str, Any]:
    """Look up `term` in the glossary: `meaning`, `for_you`, and the `command` that shows it."""
    return dataclasses.asdict(find_term(term))


def new(name: str, out: str | Path = ".") -> tuple[Path, Path]:
    """Write a custom scheme named `name`, ready to run, and its test into the folder `out`."""
    return make_scaffold(name, Path(out))


def datasets() -> list[dict[str, Any]]:
    return [dataclasses.asdict(entry) for entry in ratings.available()]


def fetch(dataset: str) -> Path:
    return fetching.fetch(dataset)


def bench(name: str, **options: int) -> dict[str, Any]:
    """Run the benchmark `name`; `options` as on the command line: users, dim, items, iterations, rounds, hosts."""
    return run_bench(name, options)


def evaluate(out: str | Path, *, jobs: int | None = None, **axes: Any) -> list[dict[str, Any]]:
    """Run the grid of cells that `axes` span (see `sim.experiments.grid.evaluate.grid`), one dict for each cell.

    Cells that `out` already holds are not run again.
    """
    return run_grid(grid(**axes), Path(out), jobs, quiet=True)


def compare(*, schemes: Iterable[str] = (), out: str | Path | None = None, **asked: Any) -> Compared:
    """Compare `schemes` (by default all) on the same ratings, beside guesses without a protocol: `rows`, `floors`.

    `asked` are keywords of `sim.experiments.compare.Comparison`: data, epsilon, iterations, dim, users, rating_range,
    seed, seeds, `options={"masked": {"clip": 4.0}}`. `epsilon` may be a tuple. `out` is a .json, .csv or .html file, or
    a .svg or .png: then a file for each unit of ε.
    """
    path = None if out is None else Path(out)
    if path is not None:
        compare_files.check_file(path)
    document = run_comparison(Comparison(schemes=tuple(schemes), **asked))
    if path is not None:
        compare_files.write(document, path)
    return Compared(document)


def reproduce(
    figure: str = "all", *, out: str | Path = "reproduced", quick: bool = False, jobs: int | None = None
) -> dict[str, Any]:
    """Reproduce the paper's figures (or only `figure`) as files in `out`: claims, measurements, and why they differ."""
    from sim.experiments.reproduce.reproduce import reproduce as make  # slow to import

    return make(figure, Path(out), quick=quick, jobs=jobs)
