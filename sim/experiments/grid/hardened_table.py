"""What the noise of `hardened` costs on MovieLens-100k, cell by cell beside independent figures.

The figures come from the functions of the roles, without messages: the sum of all vectors and shares is made in one
loop, and each user predicts from the table as at home. Ratings are divided at random, a fifth of them for the test.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import Floats, Ints, Places
from protocol.params import require
from protocol.party.role import user_name
from protocol.schemes.base import ItemFeatures, Shape
from protocol.schemes.hardened.hardened import Hardened
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.hardened_roles import posterior_of
from protocol.schemes.hardened.item_sketch import chosen_items, sketch_vector
from protocol.schemes.hardened.item_table import ItemTable, predict_stars
from protocol.schemes.hardened.share_law import draw_shares
from protocol.schemes.hardened.taste import Taste, directions, learn, second_vector
from protocol.schemes.hardened.unit_vectors import first_vector
from sim.data.described_items import AUTO, describe_items
from sim.data.device_guesses import errors, floors
from sim.data.ratings import Column, Dealt, Ratings, load
from sim.experiments.cells import KeyedCell, complete
from sim.experiments.reference import reference
from sim.plan.plan import run_seed_of

DATA, SPLITS, DRAWS = "ml-100k", (1, 2, 3), 3
HELD_OUT = 0.2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HardenedCell(KeyedCell):
    """One split and one draw of the noise."""

    data: str
    unit: str
    features: bool
    epsilon: float
    split: int
    draw: int
    rounds: int = 0  # as many as pay
    drop: float = 0.0  # the chance of each user to be missing from a round

    def describe(self) -> dict[str, Any]:
        usual, known = {"rounds": 0, "drop": 0.0}, KeyedCell.describe(self)
        return {name: value for name, value in known.items() if name not in usual or value != usual[name]}


@dataclasses.dataclass(frozen=True, slots=True)
class HardenedFigure:
    """One reference figure: a mean test RMSE."""

    unit: str
    features: bool
    epsilon: float
    reference: float
    tolerance: float
    drop: float = 0.0


ASKED = ("unit", "features", "epsilon", "drop")
FIGURES = tuple(HardenedFigure(**row) for row in reference(__file__)["hardened"])


@functools.lru_cache(maxsize=1)
def _loaded(data: str) -> tuple[Ratings, ItemFeatures | None]:
    ratings = load(data)
    return ratings, describe_items(ratings, AUTO)


def _divided(ratings: Ratings, seed: int) -> tuple[Column, Column]:
    """Divide all ratings at random, whoever made them: a user may have none left to train on."""
    order = np.random.default_rng(seed).permutation(len(ratings))
    cut = int(HELD_OUT * len(ratings))
    test, train = np.sort(order[:cut]), np.sort(order[cut:])
    return _column(ratings, train), _column(ratings, test)


def _column(ratings: Ratings, places: Any) -> Column:
    counts = np.bincount(ratings.users[places], minlength=ratings.n_users)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Column(starts, ratings.items[places].astype(np.uint32), ratings.values[places])


def prepared(cell: HardenedCell) -> tuple[HardenedParams, Column, Column]:
    """Make the parameters of a cell, and divide its ratings: (parameters, to train on, held out)."""
    ratings, described = _loaded(cell.data)
    train, test = _divided(ratings, cell.split)
    raters, sizes = np.bincount(train.items, minlength=ratings.n_items), tuple(train.counts.tolist())
    features = described if cell.features else None
    shape = Shape(ratings.n_users, ratings.n_items, ratings.rating_range, sizes, raters, features=features)
    params, _ = Hardened().make_params(shape, unit=cell.unit, epsilon=cell.epsilon, rounds=cell.rounds)
    return params, train, test


def run_hardened(cell: HardenedCell) -> dict[str, Any]:
    """Make the line of this cell."""
    params, train, test = prepared(cell)
    table, taste = published(params, train, derive(run_seed_of(cell.split), "draw", cell.draw), drop=cell.drop)
    missed = errors_of(params, table, taste, train, test)
    figures = {"test_rmse": float(np.sqrt(np.mean(missed**2))), "test_mae": float(np.mean(np.abs(missed)))}
    return {"cell": cell.describe(), **figures, "ring_bits": params.ring_bits}


def published(
    params: HardenedParams,
    train: Column,
    seed: bytes,
    hostile: Mapping[int, Ints] | None = None,
    run_id: bytes | None = None,
    silent: Collection[int] = (),
    drop: float = 0.0,
) -> tuple[ItemTable, Taste | None]:
    """Make what is published, in one round or two, from the vectors and shares of all users.

    Users in `hostile` add these integers in the table's round, whatever they rated, and `silent` ones no noise. From
    each round a user is missing with the chance `drop`. Items are selected by the hash of `run_id`, or of one that
    follows from `seed`.
    """
    instead, there = hostile or {}, [_contributing(params, seed, drop, t) for t in range(params.rounds)]

    def summed(t: int, vector_of: Callable[[Places, Floats], Ints]) -> Floats:
        total = np.zeros(params.lengths[t], np.int64)
        for user in there[t]:
            total += instead[user] if t == params.table_round and user in instead else vector_of(*train.of(user))
            tape, scale = Tape(derive(seed, "tape", user_name(user))), 0 if user in silent else params.scales[t]
            total += draw_shares(tape, scale, len(total), "share", t)
        return np.asarray(total / params.whole)

    selected, table_vector = None, functools.partial(first_vector, params)
    if params.selected:
        public = run_id or derive(seed, "run id")
        selected = chosen_items(params, public, summed(0, lambda items, _: sketch_vector(params, public, items)))
        table_vector = functools.partial(table_vector, selected=selected)
    contributors = len(there[params.table_round])
    found = posterior_of(params, summed(params.table_round, table_vector), contributors, selected)
    table = ItemTable.of(found, params.described())
    if not params.tastes:
        return table, None
    taste, values = directions(params, table, found.counts)
    noisy = summed(1, functools.partial(second_vector, params, table, taste))
    return table, learn(params, taste, values, noisy, found.counts, len(there[1]))


def _contributing(params: HardenedParams, seed: bytes, drop: float, t: int) -> list[int]:
    """Draw the users that contribute to round `t`; below the floor nothing would be released."""
    draw = np.random.default_rng(list(derive(seed, "missing", t)))
    found: list[int] = np.flatnonzero(draw.random(params.n_users) >= drop).tolist()
    require(len(found) >= params.min_contributors, f"With drop={drop:g} a round ends below its floor: lower it.")
    return found


def errors_of(params: HardenedParams, table: ItemTable, taste: Taste | None, train: Column, test: Column) -> Floats:
    """Predict the held-out ratings of every user as at home, and return the errors."""
    described, more, found = params.described(), None if taste is None else taste.more, []
    for user in range(params.n_users):
        (items, ratings), (wanted, truth) = train.of(user), test.of(user)
        above = (ratings - params.centre) / params.star
        stars = predict_stars(table, described, items, above, wanted, more)
        found.append(np.clip(params.centre + params.star * stars, *params.rating_range) - truth)
    return np.concatenate(found)


def hardened_table(
    splits: Sequence[int], draws: int, data: str, out: Path, jobs: int | None = None, quiet: bool = False
) -> list[dict[str, Any]]:
    """Make a row for each figure: `measured` is the mean over splits and draws; `out` keeps a line for each of them."""
    cells = {
        figure: [
            HardenedCell(data=data, split=s, draw=d, **{name: getattr(figure, name) for name in ASKED})
            for s in splits
            for d in range(draws)
        ]
        for figure in FIGURES
    }
    lines = iter(complete([cell for each in cells.values() for cell in each], out, run_hardened, jobs, quiet))
    return [_row(figure, [next(lines)["test_rmse"] for _ in each]) for figure, each in cells.items()]


def _row(figure: HardenedFigure, found: Sequence[float]) -> dict[str, Any]:
    mean = statistics.fmean(found)
    return {
        **dataclasses.asdict(figure),
        "measured": mean,
        "deviation": statistics.pstdev(found),
        "runs": len(found),
        "within": abs(mean - figure.reference) <= figure.tolerance,
    }


def floor_rows(splits: Sequence[int], data: str) -> list[dict[str, Any]]:
    """Measure the guesses for which nothing leaves the device, on the same splits."""
    ratings, described = _loaded(data)
    dealt = [Dealt(*_divided(ratings, split)) for split in splits]
    every = [floors(one, ratings.rating_range, described) for one in dealt]
    return [
        {"floor": same[0].name, "title": same[0].title, "test_rmse": statistics.fmean(found)}
        for same in zip(*every, strict=True)
        for found in [[errors(floor, one)["test_rmse"] for floor, one in zip(same, dealt, strict=True)]]
    ]


def markdown(rows: Sequence[dict[str, Any]], below: Sequence[dict[str, Any]], data: str = DATA) -> str:
    """Write `rows` and the floors as Markdown tables; the references are those of ml-100k, whatever `data` is."""
    lines = ["| unit | public features | ε | reference | measured | sd of a run | runs | within |", "|" + "---|" * 8]
    for row in rows:
        epsilon = "∞" if math.isinf(row["epsilon"]) else f"{row['epsilon']:g}"
        figures = f"{row['reference']:.3f} | {row['measured']:.4f} | {row['deviation']:.4f} | {row['runs']}"
        missing = f", {row['drop']:.0%} of the users missing".replace("%", " %") if row["drop"] else ""
        words = f"{row['unit']}{missing} | {'with' if row['features'] else 'without'} | {epsilon}"
        lines.append(f"| {words} | {figures} | {'yes' if row['within'] else 'NO'} |")
    outside = sum(not row["within"] for row in rows)
    words = f"{len(rows)} mean test RMSEs on {data}, 80/20, predictions clipped; {outside} outside the tolerance."
    return "\n".join([*lines, "", words, "", *_floor_lines(below)]) + "\n"


def _floor_lines(below: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"| {floor['title']} | {floor['test_rmse']:.4f} |" for floor in below]
    return ["| nothing leaves the device | test RMSE |", "|---|---|", *lines]
