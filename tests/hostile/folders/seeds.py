"""True runs, made once; every case begins with a copy of one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.audit.audit import QUICK, audit
from sim.foreign.plain_text import json_text
from sim.plan.config import RunConfig
from sim.run.manual_start import prepare
from sim.run.run import run
from sim.runs.listing import AUDIT

SMALL: dict[str, Any] = {"data": "synthetic:6x5:.6", "seed": 1, "transport": "inprocess"}
SIZES = {"dim": 2, "iterations": 2}
WHOLE = ("dynamic", "masked", "direct", "trusted")
OTHERS = ("hybrid", "covariance-masked", "covariance", "randomized-response", "laplace-ratings")


@dataclass(frozen=True, slots=True)
class Seed:
    name: str
    folder: Path
    resumable: bool = False
    by_hand: bool = False  # it has a roster and keys
    usual: bool = True  # drawn for every command; the others only now and then


def make_seeds(work: Path) -> list[Seed]:
    """Make small runs in this process: completed, aborted, with a person's own scheme, and prepared by hand."""
    seeds = []
    for scheme in WHOLE:
        run(RunConfig(scheme=scheme, **SMALL, **SIZES), out=work / scheme)
        (work / scheme / AUDIT).write_text(json_text(audit(work / scheme, only=QUICK)), "utf-8")
        seeds.append(Seed(scheme, work / scheme))
    for scheme in OTHERS:
        run(RunConfig(scheme=scheme, **SMALL), out=work / scheme)
        seeds.append(Seed(scheme, work / scheme))
    seeds += [_aborted(work, scheme) for scheme in ("dynamic", "masked")]
    shutil.copytree(work / "masked", work / "own")
    _rename_scheme(work / "own" / "run.toml")
    seeds.append(Seed("own", work / "own", usual=False))
    by_hand = RunConfig(scheme="masked", data=SMALL["data"], seed=1, **SIZES)
    prepare(by_hand, work / "by-hand", False, "127.0.0.1", 5551)
    seeds.append(Seed("by-hand", work / "by-hand", by_hand=True, usual=False))
    return seeds


def _aborted(work: Path, scheme: str) -> Seed:
    """Make a run that was interrupted after an iteration, so that it can be resumed."""

    def stop(line: dict[str, Any]) -> None:
        if line["iteration"] >= 0:
            raise KeyboardInterrupt

    folder = work / f"aborted-{scheme}"
    run(RunConfig(scheme=scheme, **SMALL, dim=2, iterations=3), out=folder, on_line=stop)
    return Seed(folder.name, folder, resumable=True)


def _rename_scheme(path: Path) -> None:
    """Let run.toml name a person's own scheme, whose module the auditor does not have."""
    path.write_text(path.read_text("utf-8").replace('scheme = "masked"', 'scheme = "mine:Careful"', 1), "utf-8")
