"""The paper's byte figures beside both wire forms by formula, and beside a run of that size over TCP."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.bandwidth import paper_bytes
from sim.experiments.cells import KeyedCell
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import run

DATA = f"synthetic:{paper_bytes.USERS}x{paper_bytes.ITEMS}:{paper_bytes.RATED / paper_bytes.ITEMS:g}"
WHATS = ("one user, down", "one user, up", "from the third party")
EDGES = ("recommender->user", "user->third_party", "third_party->recommender")


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesCell(KeyedCell):
    wire: str
    data: str = DATA
    dim: int = paper_bytes.DIM
    iterations: int = 1
    seed: int = 1
    measures: str = "bytes"

    def config(self) -> RunConfig:
        """Make a configuration without churn; the users share two processes, which changes no byte on the wire."""
        return RunConfig(
            scheme="dynamic",
            data=self.data,
            dim=self.dim,
            iterations=self.iterations,
            seed=self.seed,
            wire=self.wire,
            join=0.0,
            leave=0.0,
            test_fraction=0.0,
            users_per_process=paper_bytes.USERS // 2,
            views="none",
            transport="tcp",
        )


def run_bytes_cell(cell: BytesCell) -> dict[str, Any]:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="keyhole-") as folder:
        summary = run(cell.config(), out=Path(folder) / "run")
    abort = summary["abort"]
    line = {"cell": cell.describe(), "seconds": round(time.perf_counter() - started, 3)}
    if abort is not None:
        return {**line, "abort": abort["sentence"], "measured": None}
    sent, rated = summary["bytes"]["per_iteration"], summary["items"] - summary["items_without_raters"]
    down, up, total = (sent[edge] for edge in EDGES)
    measured = (round(down / summary["users"]), round(up / summary["users"]), total)
    return {**line, "abort": None, "measured": dict(zip(WHATS, measured, strict=True)), "items": rated}


def formula() -> dict[str, Any]:
    """Compute what `keyhole bandwidth` prints beside a run: the paper's figures and both forms, at the paper's size."""
    plan = make_plan(BytesCell(wire="compact").config())
    found = paper_bytes.comparison(plan.card.scheme, plan.card.params)
    assert found is not None
    return found
