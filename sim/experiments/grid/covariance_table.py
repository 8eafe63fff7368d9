"""What the noise of `covariance` and `hybrid` costs on MovieLens-100k, cell by cell beside independent figures.

The figures come from the functions of the roles, with the data, tapes and noise of `keyhole run --seed S`, but without
messages.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.arithmetic.tape import Tape, derive
from protocol.arrays import Floats
from protocol.card import tape_seed
from protocol.party.role import RECOMMENDER, user_name
from protocol.schemes import Shape, find_scheme
from protocol.schemes.covariance.hybrid import perturbed
from protocol.schemes.covariance.model import Model, measured, predictions
from protocol.schemes.covariance.options import CovarianceParams, HybridParams
from protocol.schemes.covariance.totals import Book
from sim.data.ratings import Dealt, Ratings, load, split
from sim.experiments.reference import reference
from sim.plan.plan import run_seed_of

DATA, SEEDS = "ml-100k", (1, 2, 3)


@dataclass(frozen=True, slots=True)
class ReferenceFigure:
    """One reference figure: a test RMSE."""

    table: str
    options: tuple[tuple[str, Any], ...]  # of the scheme
    epsilon: float  # θ, or ε
    column: str  # the predictor: MAvg, base, kNN or SVD
    reference: float
    tolerance: float


# the tolerance is wide below θ = .5, where one draw decides, and for `hybrid`: its reference is one split and one draw
CELLS = {
    name: [
        ReferenceFigure(name, tuple(row["options"].items()), row["epsilon"], column, figure, row["tolerance"])
        for row in rows
        for column, figure in row["figures"].items()
    ]
    for name, rows in reference(__file__).items()
}


@dataclass(frozen=True, eq=False)
class Draw:
    """One split of the ratings, and the tapes of the run with that seed."""

    ratings: Ratings
    data: Dealt
    run_seed: bytes

    @classmethod
    def of(cls, ratings: Ratings, seed: int) -> Draw:
        run_seed = run_seed_of(seed)
        return cls(ratings, split(ratings, 0.2, derive(run_seed, "split")), run_seed)

    def tape(self, party: str) -> Tape:
        return Tape(tape_seed(self.run_seed, party))

    def params(self, cell: ReferenceFigure) -> CovarianceParams:
        raters = np.bincount(self.data.train.items, minlength=self.ratings.n_items)
        shape = Shape(self.ratings.n_users, self.ratings.n_items, self.ratings.rating_range, (), raters)
        made, _ = find_scheme(cell.table).make_params(shape, epsilon=cell.epsilon, **dict(cell.options))
        return CovarianceParams.of(made)

    def book(self, params: CovarianceParams) -> Book:
        """Collect the ratings that reach the recommender; with `hybrid`, they are perturbed."""
        train = self.data.train
        values = train.values
        if isinstance(params, HybridParams):
            parts = [perturbed(params, self.tape(user_name(user)), train.of(user)[1]) for user in range(params.n_users)]
            values = np.concatenate(parts)
        return Book(train.starts, train.items.astype(np.int64), values)


def rmse_by_column(draw: Draw, cell: ReferenceFigure, columns: Iterable[str]) -> dict[str, float]:
    """Compute the test RMSE of clipped predictions for each of `columns`, from one release."""
    wanted, params = set(columns), draw.params(cell)
    # one release for all columns: factors are computed only if SVD is asked for, and kNN needs none
    params = dataclasses.replace(params, predictor="svd" if "SVD" in wanted else "knn")
    book = draw.book(params)
    model = measured(params, book, draw.tape(RECOMMENDER))
    kinds = {"SVD": model, "kNN": dataclasses.replace(model, factors=None)}
    found = {}
    for column in wanted:
        chosen = kinds.get(column, model)
        predicted = [_predict(draw, params, book, column, chosen, user) for user in range(len(draw.data))]
        errors = np.clip(np.concatenate(predicted), *draw.ratings.rating_range) - draw.data.held_out.values
        found[column] = math.sqrt(float(np.mean(errors**2)))
    return found


def _predict(draw: Draw, params: CovarianceParams, book: Book, column: str, model: Model, user: int) -> Floats:
    targets, part = draw.data.held_out.of(user)[0].astype(np.int64), book.of_user(user)
    means = model.averages.item_means
    if column == "MAvg":
        return means[targets]
    items, ratings = book.items[part], book.ratings[part]
    if column == "base":
        above = ratings - means[items]
        predicted: Floats = means[targets] + above.sum() / (len(above) + model.averages.user_shrink)
        return predicted
    return predictions(params, model, items, ratings, targets)


def table(
    name: str, seeds: Sequence[int] = SEEDS, cells: Sequence[ReferenceFigure] | None = None, data: str = DATA
) -> list[dict[str, Any]]:
    """Make a row for each cell: `reference`, `measured` (the mean over the seeds), `tolerance`, `within`, `by_seed`."""
    chosen = CELLS[name] if cells is None else cells
    ratings = load(data)
    groups: dict[tuple[Any, ...], list[ReferenceFigure]] = {}
    for cell in chosen:
        groups.setdefault((cell.options, cell.epsilon), []).append(cell)
    draws = [Draw.of(ratings, seed) for seed in seeds]
    figures: dict[ReferenceFigure, list[float]] = {cell: [] for cell in chosen}
    for group in groups.values():
        for draw in draws:
            found = rmse_by_column(draw, group[0], [cell.column for cell in group])
            for cell in group:
                figures[cell].append(found[cell.column])
    return [_row(cell, seeds, figures[cell]) for cell in chosen]


def _row(cell: ReferenceFigure, seeds: Sequence[int], figures: list[float]) -> dict[str, Any]:
    mean = statistics.fmean(figures)
    return {
        "table": cell.table,
        "options": dict(cell.options),
        "epsilon": cell.epsilon,
        "column": cell.column,
        "reference": cell.reference,
        "measured": mean,
        "by_seed": dict(zip(map(str, seeds), figures, strict=True)),
        "tolerance": cell.tolerance,
        "within": abs(mean - cell.reference) <= cell.tolerance,
    }


def markdown(rows: Sequence[dict[str, Any]], data: str = DATA) -> str:
    """Write `rows` as a Markdown table; the references are those of MovieLens-100k, whatever `data` is."""
    lines = ["| options | ε or θ | with | reference | measured | seeds | tolerance | within |", "|" + "---|" * 8]
    for row in rows:
        options = ", ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                            for name, value in row["options"].items()) or "–"  # fmt: skip
        epsilon = "∞" if math.isinf(row["epsilon"]) else f"{row['epsilon']:g}"
        figures = f"{row['reference']:.3f} | {row['measured']:.3f} | {len(row['by_seed'])} | {row['tolerance']:g}"
        lines.append(f"| {options} | {epsilon} | {row['column']} | {figures} | {'yes' if row['within'] else 'NO'} |")
    outside = sum(not row["within"] for row in rows)
    words = f"{len(rows)} test RMSEs on {data}, 80/20, predictions clipped; {outside} outside the tolerance."
    return "\n".join(lines) + f"\n\n{words}\n"
