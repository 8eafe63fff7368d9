"""What all benchmarks share: both sides in turn, processor time, a fresh process, a real run, and the ratings."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors.metering.recorder import peak_memory
from protocol.errors import Aborted, Bug, Reason
from sim.console import console
from sim.data.ratings import find
from sim.drivers.workers import worker_pool
from sim.plan.config import RunConfig
from sim.plan.plan import Plan
from sim.run import run as running

MOVIELENS = "ml-100k"
Seconds = list[float]


def interleaved(
    config: dict[str, Any],
    both: Callable[[], tuple[Seconds, Seconds]],
    rounds: int = 1,
    warm: int = 0,
    whole_runs: bool = False,
) -> dict[str, Any]:
    """Measure `both`, a side and its floor, directly one after the other in every round; return the document.

    So other load on the machine affects both alike. The first `warm` rounds are left out. Rounds of `whole_runs` are
    announced, and have medians of their own.
    """
    made = []
    for number in range(1 - warm, rounds + 1):
        if whole_runs and sys.stderr.isatty():
            console.err.print(f"round {number} of {rounds}")
        pair = both()
        if number > 0:
            made.append(pair)
    samples, floors = ([seconds for each in made for seconds in each[side]] for side in (0, 1))
    document = {"config": config, "samples": samples, "floor_samples": floors, **medians(samples, floors)}
    return document | ({"by_round": [medians(*each) for each in made]} if whole_runs else {})


def medians(samples: Sequence[float], floors: Sequence[float]) -> dict[str, float]:
    median, floor_median = statistics.median(samples), statistics.median(floors)
    return {"median": median, "floor_median": floor_median, "ratio": median / floor_median}


# --- what takes time -------------------------------------------------------------------------------------------------


def processor_seconds(work: Callable[[], object]) -> float:
    """Measure the processor seconds of `work`, which must not wait: they are all of its time, on a busy machine too."""
    before = time.process_time()
    work()
    return time.process_time() - before


def wall_seconds(work: Callable[..., object], *arguments: Any) -> float:
    before = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - before


def command_seconds(arguments: Sequence[str], **environment: str) -> float:
    """Measure the processor seconds of Python with these `arguments`, its child processes included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    asked = [sys.executable, *arguments]
    done = subprocess.run(
        asked, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        raise Bug(f"python {' '.join(arguments)} failed: {done.stderr.decode(errors='replace').strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def apart(measure: Callable[..., float], *arguments: Any) -> tuple[float, int]:
    """Call `measure` in a fresh process, as a peak never falls; return (its result, the peak of its memory)."""
    with worker_pool(1) as pool:
        return next(pool.completed([pool.submit(_with_peak, measure, *arguments)]))


def _with_peak(measure: Callable[..., float], *arguments: Any) -> tuple[float, int]:
    return measure(*arguments), peak_memory()


@dataclass(frozen=True, slots=True)
class Real:
    """A finished run."""

    lines: list[dict[str, Any]]  # of iterations.jsonl
    summary: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)  # the run, for the `config` of a benchmark

    @property
    def turns(self) -> list[dict[str, Any]]:
        """Leave out the line of the set-up."""
        return [line for line in self.lines if line["iteration"] >= 0]

    @property
    def seconds(self) -> Seconds:
        return [line["seconds"] for line in self.turns]


def run_real(config: RunConfig, out: Path | None = None) -> Real:
    """Run `config` as `keyhole run` does, in the folder `out` or in a temporary one."""
    lines: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="keyhole-bench-") as folder:
        place = out or Path(folder) / "run"
        summary = running.run(
            config, out=place, on_plan=lambda plan: about.update(described(plan)), on_line=lines.append
        )
    if not summary["completed"]:
        raise Aborted(Reason[summary["abort"]["reason"]], f"{config.scheme} on {config.data}, dim {config.dim}")
    return Real(lines, summary, about)


# --- what it is measured on ------------------------------------------------------------------------------------------


def movielens_or(stand_in: str) -> tuple[str, str | None]:
    """Choose the real ratings, or the `stand_in` and a note if they are not here."""
    if find(MOVIELENS) is not None:
        return MOVIELENS, None
    return stand_in, f"{MOVIELENS} is not here (keyhole fetch {MOVIELENS}), so this is {stand_in}."


def described(plan: Plan) -> dict[str, Any]:
    """Describe a run for the `config` of a benchmark."""
    shape, params = plan.shape, plan.card.params
    return {
        "data": plan.config.data,
        "note": None,
        "scheme": plan.card.scheme.name,
        "users": shape.n_users,
        "items": shape.n_items,
        "dim": params.dim,
        "iterations": params.iterations,
        "items_per_user": sum(shape.support_sizes) / shape.n_users,
        "epsilon": params.epsilon,
        "views": plan.config.views,
        "users_per_process": plan.config.users_per_process,
    }
