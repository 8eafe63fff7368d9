"""What users that misbehave do to `hardened`: the servers cannot see it, so it is measured here, beside an honest run.

Some of the users replace their vector of the table's round. `push`: all of it on the count and the rating of one item,
at the bound or a multiple of it. `loud`: a random direction, at a multiple of the bound. `uniform`: uniform ring
elements. Or they leave out their noise (`silent`): what is left of the promise to the others stands beside it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protocol.arithmetic.tape import derive
from protocol.arrays import Ints
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened.hardened_params import HardenedParams
from sim.console.console import figure
from sim.data.ratings import Column
from sim.experiments.cells import complete
from sim.experiments.grid.hardened_table import HardenedCell, errors_of, prepared, published
from sim.foreign.plain_text import jsonable
from sim.plan.plan import run_seed_of

HONEST, PUSH, LOUD, UNIFORM, SILENT = "honest", "push", "loud", "uniform", "silent"
RATERS = (250, 90, 18)  # of the items that are pushed, about
USERS = (1, 9, 47)
BEYOND = (10.0, 100.0)  # times the bound, on one item
LOUDNESS = (10.0, 100.0, 1000.0)
SILENCE = (1, 47, 95, 200)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostileCell(HardenedCell):
    """One split and one draw, with `users` that do as `kind` says."""

    kind: str
    users: int = 0
    raters: int = 0  # of the item that is pushed, about
    loudness: float = 0.0  # times the bound; 0, of a push: at the bound


def cells(data: str, splits: Sequence[int], epsilon: float = 1.0) -> list[HostileCell]:
    """List the cells in the order of the table, each with every split."""
    kinds: list[dict[str, Any]] = [{"kind": HONEST}]
    kinds += [{"kind": PUSH, "users": users, "raters": raters} for raters in RATERS for users in USERS]
    kinds += [{"kind": PUSH, "users": 1, "raters": RATERS[0], "loudness": times} for times in BEYOND]
    kinds += [{"kind": LOUD, "users": 1, "loudness": times} for times in LOUDNESS]
    kinds += [{"kind": UNIFORM, "users": 1}]
    kinds += [{"kind": SILENT, "users": users} for users in SILENCE]
    fixed: dict[str, Any] = {"data": data, "unit": "user", "features": True, "epsilon": epsilon, "draw": 0}
    return [HostileCell(**fixed, split=split, **kind) for kind in kinds for split in splits]


def run_hostile(cell: HostileCell) -> dict[str, Any]:
    """Make the line of this cell: the error of all predictions, how far a pushed item moved, and the ε that is left."""
    params, train, test = prepared(cell)
    seed = derive(run_seed_of(cell.split), "draw", cell.draw)
    draw = np.random.default_rng([cell.split, cell.users])
    users: list[int] = draw.permutation(params.n_users)[: cell.users].tolist()
    silent = users if cell.kind == SILENT else []
    hostile, item = ({}, None) if silent else _vectors(cell, params, train, users, draw)
    table, taste = published(params, train, seed, hostile, silent=silent)
    errors, moved = errors_of(params, table, taste, train, test), None
    if item is not None:
        honest, _ = published(params, train, seed)
        moved = float(table.quality[item] - honest.quality[item])
    left = gaussian_epsilon(params.mu(params.n_users - len(silent)), params.delta)
    figures = {"test_rmse": float(np.sqrt(np.mean(errors**2))), "moved": moved, "epsilon_left": left}
    return {"cell": cell.describe(), **jsonable(figures)}


def _vectors(
    cell: HostileCell, params: HardenedParams, train: Column, users: Sequence[int], draw: np.random.Generator
) -> tuple[dict[int, Ints], int | None]:
    """Return (the vectors of the `users` that misbehave, the item that they push)."""
    m, item = params.n_items, None
    if cell.kind == PUSH:
        item = int(np.argmin(np.abs(np.bincount(train.items, minlength=m) - cell.raters)))
        vector = np.zeros(2 * m, np.int64)
        vector[[item, m + item]] = round(params.whole * (cell.loudness or 1))
        return dict.fromkeys(users, vector), item
    if cell.kind == LOUD:
        ways = draw.standard_normal((len(users), 2 * m))
        ways *= cell.loudness * math.sqrt(params.squares[0]) / np.linalg.norm(ways, axis=1, keepdims=True)
        return dict(zip(users, np.rint(ways).astype(np.int64), strict=True)), None
    half = 1 << (params.ring_bits - 1)
    return {user: draw.integers(-half, half, 2 * m) for user in users}, None


def hostile_table(
    splits: Sequence[int], data: str, out: Path, jobs: int | None = None, quiet: bool = False
) -> list[dict[str, Any]]:
    """Make a row for each way to misbehave, the mean over the splits; `out` keeps a line for each of them."""
    asked = cells(data, splits)
    lines = complete(asked, out, run_hostile, jobs, quiet)
    rows = []
    for at in range(0, len(asked), len(splits)):
        one, found = asked[at], lines[at : at + len(splits)]
        moved = [line["moved"] for line in found if line["moved"] is not None]
        rows.append(
            {
                "kind": one.kind,
                "users": one.users,
                "raters": one.raters,
                "loudness": one.loudness,
                "test_rmse": float(np.mean([line["test_rmse"] for line in found])),
                "moved": float(np.mean(moved)) if moved else None,
                "epsilon_left": found[0]["epsilon_left"],
                "runs": len(found),
            }
        )
    return rows


def hostile_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Write `rows` as a Markdown table; the ε that is left is that of the other users, if all of them contribute."""
    head = "| users | what they send | test RMSE | the item's quality moves by | ε left to the others | runs |"
    lines = [head, "|" + "---|" * 6]
    for row in rows:
        moved = "" if row["moved"] is None else f"{row['moved']:+.2f} stars"
        cells = f"{row['test_rmse']:.4f} | {moved} | {figure(row['epsilon_left'])} | {row['runs']}"
        lines.append(f"| {row['users'] or 'none'} | {_words(row)} | {cells} |")
    return "\n".join(lines) + "\n"


def _words(row: dict[str, Any]) -> str:
    times = f"{row['loudness']:g} times the bound"
    return {
        HONEST: "all honest",
        PUSH: f"{times if row['loudness'] else 'within the bound'}, all on one item of about {row['raters']} raters",
        LOUD: f"a random direction, {times}",
        UNIFORM: "uniform ring elements",
        SILENT: "what is asked, without their noise",
    }[row["kind"]]
