"""What the published noise costs in accuracy, beside independent reference figures and beside the paper's claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.experiments.grid.evaluate import grid, means
from sim.experiments.grid.grid_cells import AS_PUBLISHED, ITERATE, Cell
from sim.experiments.reference import reference

EPSILONS = (0.1, 0.4, 1.0, 2.0, 4.0, 8.0, 16.0)
DATA, ITERATIONS, SEEDS = "ml-100k", 100, 3

EXPLANATION = (
    "The paper claims almost no increase of the error on MovieLens from ε = .05 on. With the scale of its own Lemma 1, "
    "b = 2Δ√d/ε on the gradient sum of an item, that is not reproducible for small ε, whichever u_i is read: the noise "
    "is divided by the number of raters, and half of the items of MovieLens-100k have fewer than thirty. The paper "
    "measures errors on the training ratings (so are the increases here; test RMSE is on held-out ratings), and its "
    "Netflix sample has about a hundred times more raters per item, so that the same noise is a hundred times smaller. "
    "Every ε is the published one, per release of one rating's value; all releases of a run together are accounted by "
    "`keyhole run`, not by this table. The paper does not say which u_i its figures use. Iterate: u_i as "
    "the last iteration left it, which is what the reference measures. Solved: u_i fitted at home to the published V, "
    "with the λ = .001 of the paper, or with the λ that each user chooses by leaving out one of its own ratings at a "
    "time; `plain` is read in the same way."
)


@dataclass(frozen=True, slots=True)
class NoiseCostLine:
    title: str
    scheme: str
    dim: int
    test_fraction: float
    figure: str  # the figure that is compared; the reference has it for the iterate
    reference: tuple[float, ...]  # one per ε; one seed each, expect about ±10 %


ROWS = tuple(NoiseCostLine(**row) for row in reference(__file__))  # quick rows first, for some results early


def cells(schemes: Sequence[str], data: str = DATA, iterations: int = ITERATIONS, seeds: int = SEEDS) -> list[Cell]:
    """List the cells that the rows of `schemes` need; rows share cells."""
    wanted = [
        cell
        for row in ROWS
        if row.scheme in schemes
        for cell in grid([row.scheme], EPSILONS, [row.dim], [iterations], seeds, data, row.test_fraction)
    ]
    return list(dict.fromkeys(wanted))


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """Write the measured figures, the reference and the claim below each other; – for what has not been run."""
    averages = means(lines)
    header = ["", "", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    table = [_line(header), _line(["---"] * len(header))]
    for row in ROWS:
        found = [_find(averages, row, epsilon) for epsilon in EPSILONS]
        seeds = max((mean["seeds"] for mean in found if mean), default=0)
        measured = f"measured ({seeds} seed{'s' * (seeds > 1)})" if seeds else "not run"
        table.append(_line([row.title, f"iterate, {measured}", *_figures(found, row, ITERATE)]))
        table.append(_line(["", "iterate, reference (1 seed)", *map(_figure, row.reference)]))
        table.append(_line(["", f"solved, λ = .001, {measured}", *_figures(found, row, AS_PUBLISHED)]))
        table.append(_line(["", f"solved, each user's λ, {measured}", *_figures(found, row)]))
        if row.figure == "mae_increase":
            table.append(_line(["", "the paper's claim", *["≈ 0"] * len(EPSILONS)]))
    shown = sorted({(line["cell"]["data"], line["cell"]["iterations"]) for line in lines})
    where = ", ".join(f"{data}, {iterations} iterations" for data, iterations in shown) or "nothing was run"
    title = f"## Cost of the published noise\n\n{where}; means over the seeds, predictions clipped to the rating range."
    return f"{title}\n\n" + "\n".join(table) + f"\n\n{EXPLANATION}\n"


def _find(averages: Sequence[dict[str, Any]], row: NoiseCostLine, epsilon: float) -> dict[str, Any] | None:
    for mean in averages:
        same = (mean["scheme"], mean["dim"], mean["test_fraction"]) == (row.scheme, row.dim, row.test_fraction)
        if same and mean["epsilon"] == epsilon:
            return mean
    return None


def _figures(found: Sequence[dict[str, Any] | None], row: NoiseCostLine, reading: str = "") -> list[str]:
    """Write the figure of each ε; without a `reading`, that of the device's own profile."""
    read = [mean[reading] if mean and reading else mean for mean in found]
    return [_figure(mean[row.figure] if mean else None) for mean in read]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"
