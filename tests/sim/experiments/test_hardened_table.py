"""The tables of `hardened`: their figures come from the same numbers that the roles publish."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from support.runs import play
from typer.testing import CliRunner

from protocol.arithmetic.tape import derive
from protocol.card import Card, Seat, all_parties, make_run_id
from protocol.errors import BadInput
from protocol.party.role import UserInput, user_index
from protocol.schemes import find_scheme
from protocol.schemes.hardened.hardened_params import provisioned
from sim.cli.app import app
from sim.experiments.grid import hardened_table, hostile_table
from sim.experiments.grid.hardened_table import HardenedCell, prepared, published, run_hardened
from sim.experiments.grid.hostile_table import HostileCell, run_hostile

DATA = "synthetic:40x20:.5"
CELL = {"data": DATA, "unit": "user", "features": False, "epsilon": 8.0, "split": 1, "draw": 0}


@pytest.mark.parametrize("options", [{"rounds": 1}, {"rounds": 2}, {"selected": 8}], ids=str)
def test_what_a_table_is_made_of_is_what_the_roles_publish(options):
    params, train, _ = prepared(HardenedCell(**CELL, rounds=options.get("rounds", 1)))
    if "selected" in options:
        params, _ = provisioned(params, **options)
    seed, scheme = bytes([3]) * 32, find_scheme("hardened")
    names = all_parties(scheme, params.n_users)
    seats = []
    for name in names:
        own = UserInput(*train.of(user_index(name))) if user_index(name) >= 0 else None
        seats.append(Seat(name, derive(seed, "tape", name), own))
    card = Card(scheme, params, make_run_id(params, names, bytes(32)), simulation=True)
    run = play(card, seats)
    table, taste = published(params, train, seed, run_id=card.run_id)
    result = run.outcome.item_factors
    assert result is not None and np.array_equal(result[:, 0], table.quality)
    assert np.array_equal(result[:, 1], table.popularity)
    if taste is not None:
        assert np.array_equal(result[taste.covered, 2:], taste.learned)


def test_a_cell_is_repeatable_and_noise_costs_accuracy():
    line = run_hardened(HardenedCell(**CELL))
    assert line == run_hardened(HardenedCell(**CELL)) and line["cell"] == CELL
    little = run_hardened(HardenedCell(**CELL | {"epsilon": 0.5}))
    assert line["test_rmse"] < little["test_rmse"] < 2.0


def test_users_that_push_an_item_move_it_and_loud_ones_spoil_the_sum():
    def line(**changes):
        return run_hostile(HostileCell(**CELL, **changes))

    honest = line(kind="honest")
    assert honest["moved"] is None and honest["test_rmse"] == run_hardened(HardenedCell(**CELL))["test_rmse"]
    one, many = (line(kind="push", users=users, raters=10)["moved"] for users in (1, 8))
    assert 0 < one < many
    assert line(kind="loud", users=1, loudness=1000.0)["test_rmse"] > 1.02 * honest["test_rmse"]
    assert line(kind="uniform", users=1)["test_rmse"] > 1.02 * honest["test_rmse"]


def test_users_that_leave_out_their_noise_cost_the_others_epsilon_and_no_accuracy():
    """Four of 40 users are provisioned for: with four silent ones exactly the claim is left."""
    honest = run_hostile(HostileCell(**CELL, kind="honest"))
    left = {users: run_hostile(HostileCell(**CELL, kind="silent", users=users)) for users in (1, 4, 8, 40)}
    assert honest["epsilon_left"] < left[1]["epsilon_left"] < left[4]["epsilon_left"] == pytest.approx(8.0, rel=1e-4)
    assert left[8]["epsilon_left"] > 8.5 and left[40]["epsilon_left"] == "inf"
    params, train, _ = prepared(HardenedCell(**CELL))
    bare, _ = published(params, train, bytes(32), silent=range(40))
    without, _ = published(dataclasses.replace(params, first_scale=0), train, bytes(32))
    assert bare.quality.tobytes() != without.quality.tobytes(), "the recommender counts on noise that is not there"
    assert left[40]["test_rmse"] < honest["test_rmse"]


def test_a_push_beyond_the_bound_moves_more_than_one_within():
    push = {**CELL, "kind": "push", "users": 1, "raters": 10}
    within, beyond = (run_hostile(HostileCell(**push, loudness=times))["moved"] for times in (0.0, 10.0))
    assert 0 < within < beyond


def test_users_that_are_missing_from_a_round_cost_little_and_too_many_are_refused():
    whole, some = (run_hardened(HardenedCell(**CELL | {"epsilon": 20.0}, drop=drop)) for drop in (0.0, 0.05))
    assert "drop" not in whole["cell"] and some["cell"]["drop"] == 0.05
    assert whole["test_rmse"] != some["test_rmse"] == pytest.approx(whole["test_rmse"], rel=0.1)
    with pytest.raises(BadInput, match=r"drop=0\.5 a round ends below its floor"):
        run_hardened(HardenedCell(**CELL, drop=0.5))


def test_the_command_writes_both_tables(tmp_path, monkeypatch):
    figure = hardened_table.HardenedFigure("user", False, 8.0, 0.9, 0.5)
    monkeypatch.setattr(hardened_table, "FIGURES", (figure,))
    monkeypatch.setattr(hostile_table, "RATERS", (10,))
    monkeypatch.setattr(hostile_table, "USERS", (1,))
    monkeypatch.setattr(hostile_table, "SILENCE", (5,))
    given = ["--data", DATA, "--seeds", "1", "--jobs", "1", "--json"]
    for name in ("hardened", "hardened-hostile"):
        page = tmp_path / f"{name}.md"
        done = CliRunner().invoke(app, ["evaluate", "--table", name, "--out", str(page), *given])
        assert done.exit_code == 0, done.output
        rows = json.loads(done.stdout)["rows"]
        assert len(page.read_text().splitlines()) >= 2 + len(rows)
        if name == "hardened":
            assert "| The user's own mean | " in page.read_text(), "what leaves nothing stands beside it"
            assert rows[0]["within"] == (abs(rows[0]["measured"] - 0.9) <= 0.5) and rows[0]["runs"] == 3
        else:
            assert [row["kind"] for row in rows] == ["honest", *["push"] * 3, *["loud"] * 3, "uniform", "silent"]
            assert [row["epsilon_left"] > 1.0 for row in rows] == [False] * 8 + [True]
