"""`keyhole bench restart`: restore the parties of a stopped run from checkpoints, beside a replay of whole views."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from actors.journal import view_path
from actors.metering.recorder import Figures
from actors.stage import Performer
from protocol.wire.messages import SETUP
from sim.drivers.inprocess import servers_of
from sim.experiments.bench.measuring import Seconds, described, interleaved, processor_seconds
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.run import run

DATA, ITERATIONS, AFTER, SEED, ROUNDS = "demo-small", 1000, 50, 1, 3


def bench_restart(iterations: int = ITERATIONS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Processor seconds in which all parties of a `masked` run that was stopped after `iterations` are restored, over
    those of a replay of their whole views.
    """
    sizes: dict[str, Any] = {"data": DATA, "iterations": iterations + AFTER, "seed": SEED, "transport": "inprocess"}
    settings = RunConfig(scheme="masked", **sizes)
    plan = make_plan(settings)
    config: dict[str, Any] = {
        **described(plan),
        "floor": "a replay of the whole views",
        "unit": "processor seconds for all parties",
        "stopped_after": iterations,
    }
    with tempfile.TemporaryDirectory(prefix="keyhole-bench-") as place:
        folder = Path(place) / "run"

        def stop(line: dict[str, Any]) -> None:
            if line["iteration"] == iterations - 1:
                raise KeyboardInterrupt

        run(settings, out=folder, on_line=stop)
        size = sum(path.stat().st_size for path in (folder / "views").iterdir())

        def both() -> tuple[Seconds, Seconds]:
            restored = processor_seconds(lambda: _read_back(plan, folder, iterations - 1))
            return [restored], [processor_seconds(lambda: _read_back(plan, folder, SETUP - 1))]

        result = interleaved(config, both, rounds)
    config["note"] = _rates(size / 1e6, result)
    return result


def _read_back(plan: Plan, folder: Path, known: int) -> None:
    """Restore every party; a checkpoint is of use if the figures of the iterations before it are `known`."""
    servers = plan.card.scheme.servers
    for seat in plan.seats():
        name = seat.party
        ahead = servers_of(plan.card.scheme, name) if name in servers else None
        figures = Figures(name, ahead, known, lambda report: None, None, None, plan.card.params.n_users)
        performer = Performer(plan.card, seat, figures, view_path(str(folder), name))
        performer.resume()
        performer.finish()


def _rates(megabytes: float, result: dict[str, Any]) -> str:
    fast, slow = (megabytes / statistics.median(result[side]) for side in ("samples", "floor_samples"))
    views = f"{megabytes:.0f} MB of views after {result['config']['stopped_after']:,} iterations"
    return f"{views}: restored at {fast:.0f} MB/s, replayed at {slow:.0f} MB/s."
