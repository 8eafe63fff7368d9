"""Real ratings: some cells of the reference tables of `covariance` and `hybrid`, and a whole run beside its cell."""

from __future__ import annotations

import dataclasses
import math

import pytest

from sim.data.ratings import find, load
from sim.experiments.grid.covariance_table import CELLS, Draw, markdown, rmse_by_column, table
from sim.plan.config import RunConfig
from sim.run.run import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k"
    ),
]


def chosen(name: str, **where):
    found = [
        cell
        for cell in CELLS[name]
        if dict(cell.options) == where.get("options", {}) and cell.epsilon in where["epsilons"]
        if cell.column in where.get("columns", (cell.column,))
    ]
    assert found
    return found


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("covariance", {"epsilons": (2.0,)}),
        ("covariance", {"epsilons": (math.inf,), "columns": ("MAvg", "base")}),
        ("covariance", {"epsilons": (5.0,), "options": {"noise": "laplace"}}),
        ("covariance", {"epsilons": (1.0,), "options": {"unit_of": "user"}}),
        ("hybrid", {"epsilons": (1.0,), "options": {"gamma": 1.0}}),
    ],
)
def test_cells_of_the_reference_tables(name, where):
    rows = table(name, cells=chosen(name, **where))
    print(markdown(rows))
    assert [row for row in rows if not row["within"]] == []


def test_a_cell_that_is_off_is_found():
    """With three times the budget the base leaves its tolerance."""
    [cell] = [cell for cell in chosen("covariance", epsilons=(0.5,)) if cell.column == "base"]
    draw = Draw.of(load("ml-100k"), 1)
    assert abs(rmse_by_column(draw, cell, ["base"])["base"] - cell.reference) <= cell.tolerance
    wrong = dataclasses.replace(cell, epsilon=1.5)
    assert abs(rmse_by_column(draw, wrong, ["base"])["base"] - cell.reference) > cell.tolerance


def test_a_run_has_the_figure_of_its_cell(tmp_path):
    [cell] = [cell for cell in chosen("covariance", epsilons=(2.0,)) if cell.column == "SVD"]
    config = RunConfig(scheme="covariance", data="ml-100k", transport="inprocess", epsilon=2.0, seed=1, views="none")
    summary = run(config, out=tmp_path / "run")
    expected = rmse_by_column(Draw.of(load("ml-100k"), 1), cell, ["SVD"])["SVD"]
    assert summary["accuracy"]["test_rmse"] == pytest.approx(expected, abs=1e-9)
