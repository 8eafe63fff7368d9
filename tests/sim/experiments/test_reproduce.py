"""The paper's figures: their engine against the roles, the claims beside them, the files, and resumption."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from protocol.arithmetic.fixedpoint import FixedPoint
from protocol.arithmetic.tape import Tape
from protocol.card import tape_seed
from protocol.party.profile import PRINTED_RIDGE, fit_profile
from protocol.party.role import RECOMMENDER, user_name
from protocol.schemes.factorization.trusted import (
    RatingBook,
    fresh_item_factors,
    noisy_item_factors,
    objective_noise,
    train,
)
from sim.cli.app import app
from sim.console import progress
from sim.data import ratings
from sim.drivers.inprocess import InProcess
from sim.experiments.cells import read_lines
from sim.experiments.reproduce import figure_plan
from sim.experiments.reproduce import reproduce as making
from sim.experiments.reproduce.curves import ComparedClaim, CurvePoint, Results
from sim.experiments.reproduce.differences import sentence
from sim.experiments.reproduce.engine import LearningProblem, Noise, OnlineUsers, learn, publish
from sim.experiments.reproduce.figure_plan import FIGURES, INF, Size, cells_of, comparable, size_of
from sim.experiments.reproduce.paper_claims import CLAIMED, CLAIMS, MEASURED
from sim.experiments.reproduce.reproduce import _claim_document, choose, reproduce
from sim.experiments.reproduce.scenario_cells import READINGS, FigureCell, problem_of, run_figure_cell
from sim.plan.churn import ChurnPlan
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run import baseline
from sim.run.all_profiles import solve_profiles

NETFLIX = "netflix-shaped"
TINY = Size(
    users=300, epsilons=(0.15, 8.0), checkpoints=(2, 3), dynamic_epsilons=(0.8, INF), dynamic_checkpoints=(3, 6),
    online=50, joins=(0.005, 0.02), leaves=(0.01, 0.02), churn_epsilons=(0.8,), seeds=2,
)  # fmt: skip


# ---- the engine against the roles


def heard_noise(monkeypatch, n_items: int, dim: int) -> dict[tuple[str, int], np.ndarray]:
    """Collect by (what, iteration) the sum of all shares of η and ρ that roles encode from now on, a row per item."""
    sums: dict[tuple[str, int], np.ndarray] = {}
    encode = FixedPoint.encode

    def listening(self, reals, label=None):
        if label is not None and label.what in ("eta", "rho"):
            rows = sums.setdefault((label.what, label.iteration), np.zeros((n_items, dim)))
            np.add.at(rows, label.items, reals)
        return encode(self, reals, label)

    monkeypatch.setattr(FixedPoint, "encode", listening)
    return sums


@pytest.mark.parametrize("scheme", ["masked", "dynamic"])
def test_with_the_noise_of_the_roles_the_engine_makes_their_factors(monkeypatch, scheme):
    flags = {"online": 9} if scheme == "dynamic" else {}
    sizes = {"data": "demo-small", "dim": 4, "iterations": 8}
    config = RunConfig(scheme=scheme, seed=3, epsilon=2.0, transport="inprocess", **sizes, **flags)
    plan = make_plan(config)
    params, churn = plan.card.params, plan.churn()
    noise = heard_noise(monkeypatch, params.n_items, params.dim)
    driver = InProcess(plan.card, plan.seats(), events_for=churn.events if churn else None)
    outcome = driver.run()
    assert outcome.abort is None
    engine = baseline.start_baseline(params, plan.data, plan.run_seed)
    engine.clip, before = params.clip, engine.item_factors.copy()
    engine.__post_init__()
    again, eta = plan.churn(), noise["eta", 0]
    for iteration in range(params.iterations):
        active = None if again is None else baseline._invited(params, again, iteration, plan.run_seed)
        engine.iterate(active, eta + noise["rho", iteration])
    # each of at most 3k roundings of a sum of k (9 committed shares at most besides) is half a unit, divided by k_j
    unit = 0.5 * 2.0**-params.fraction_bits
    bound = params.iterations * params.learning_rate * (3 + 3) * unit
    moved = np.abs(engine.item_factors - before).max()
    assert moved > 1000 * bound, "the factors did move"
    assert np.abs(engine.item_factors - outcome.item_factors).max() < bound
    users = np.array([driver.parties[user_name(user)].role.user_factors for user in range(params.n_users)])
    assert np.abs(engine.user_factors - users).max() < bound


def test_without_noise_the_engine_is_the_baseline():
    plan = make_plan(RunConfig(scheme="plain", data="demo-small", seed=5, dim=6, iterations=12, test_fraction=0.0))
    problem = LearningProblem(ratings.load("demo-small"), plan.data, 6, seed=1)
    model = problem.start()
    first = baseline.start_baseline(plan.card.params, plan.data, plan.run_seed)
    model.user_factors, model.item_factors = first.user_factors, first.item_factors
    silent = Noise(problem.scale(INF), 60, 6, seed=1)
    assert list(learn(model, 12, silent, lambda: None)) == list(range(1, 13))
    expected = baseline.plain_accuracy(plan.card.params, plan.data, plan.run_seed)
    assert np.abs(model.errors(plan.data.train)).mean() == pytest.approx(expected.iterate.train_mae, abs=1e-9)


def test_the_trusted_recommender_publishes_what_the_role_publishes():
    plan = make_plan(RunConfig(scheme="trusted", data="demo-small", seed=2, dim=5, iterations=7, epsilon=1.0))
    params, tape = plan.card.params, Tape(tape_seed(plan.run_seed, RECOMMENDER))
    book = RatingBook({user: seat.inputs for user, seat in enumerate(plan.seats()[1:])}, params.n_items)
    users, _ = train(book, params, tape)
    expected = noisy_item_factors(book, users, params, tape)
    first, noise = fresh_item_factors(params, tape), objective_noise(params, tape)
    silent, ours = publish(plan.data.train, users, first, [0 * noise, noise], params, params.iterations)
    assert np.abs(ours - expected).max() < 1e-9
    assert np.abs(silent - expected).max() > 0.1, "the noise is in it"


def test_noise_is_laplace_of_scale_b_and_half_of_it_stays():
    """Variance 2b² each of η and ρ; kurtosis 6 where a normal law has 3; two iterations share η alone."""
    noise = Noise(3.0, 2000, 50, seed=4)
    first, second = noise(), noise()
    for made in (first, second):
        assert made.var() == pytest.approx(4 * 9.0, rel=0.03)
    assert np.mean(first * second) == pytest.approx(2 * 9.0, rel=0.03)
    fresh = (first - second) / math.sqrt(2)  # of two Laplace values: kurtosis 3 + 3/2
    assert np.mean(fresh**4) / np.mean(fresh**2) ** 2 == pytest.approx(4.5, rel=0.06)
    assert Noise(0.0, 2, 2, seed=1)() is None


def test_the_crowd_has_the_law_of_the_churn_plan():
    """The same share of users is online, as many stay for the next iteration, and no more than the limit are drawn."""
    n_users, join, leave = 4000, 0.1, 0.2
    plan, crowd = ChurnPlan(n_users, join, leave, bytes(32)), OnlineUsers(n_users, n_users, join, leave, seed=1)
    theirs = [np.flatnonzero(plan.online(iteration)) for iteration in range(40)]
    ours = [crowd.draw() for _ in range(40)]
    for sets in (theirs, ours):
        assert np.mean([len(one) for one in sets]) / n_users == pytest.approx(1 / 3, abs=0.01)
        stay = [len(np.intersect1d(a, b)) / len(a) for a, b in itertools.pairwise(sets)]
        assert np.mean(stay) == pytest.approx(1 - leave, abs=0.01)
    few = OnlineUsers(n_users, 30, join, leave, seed=1)
    drawn = few.draw()
    assert len(drawn) == 30 and np.all(np.diff(drawn) > 0) and np.all(np.isin(drawn, ours[0]))
    assert len(OnlineUsers(10, 10, 0.0, 0.0, seed=1).draw()) == 10


# ---- the solved reading


@pytest.mark.parametrize("dim", [4, 12, 50])
def test_all_profiles_at_once_are_those_that_each_user_fits(dim):
    """Users have 6 to 18 ratings: more than 4 dimensions, about 12, fewer than 50. Profiles are equal to rounding."""
    dealt = ratings.split(ratings.load("demo-small"), 0.2, bytes(32))
    items = np.random.default_rng(7).normal(size=(60, dim))
    assert (dealt.train.counts.min(), dealt.train.counts.max()) == (6, 18)
    for ridge in (PRINTED_RIDGE, 3.0):
        found = solve_profiles(items, dealt.train, ridge)
        for own, profile in zip(dealt, found, strict=True):
            fitted = fit_profile(items[own.items], own.values, (1.0, 5.0), ridge)
            assert profile == pytest.approx(fitted.factors, abs=1e-8)


def test_users_are_solved_in_parts_and_one_without_ratings_has_zeros(monkeypatch):
    dealt = ratings.split(ratings.load("demo-small"), 0.2, bytes(32))
    items = np.random.default_rng(7).normal(size=(60, 5))
    whole = solve_profiles(items, dealt.train)
    monkeypatch.setattr("sim.run.all_profiles._AT_ONCE", 1)
    assert solve_profiles(items, dealt.train) == pytest.approx(whole, abs=1e-12)
    starts = np.concatenate([dealt.train.starts, dealt.train.starts[-1:]])
    longer = solve_profiles(items, ratings.Column(starts, dealt.train.items, dealt.train.values))
    assert not longer[-1].any() and longer[:-1] == pytest.approx(whole, abs=1e-12)


def test_a_point_holds_both_readings_and_the_solved_one_is_what_devices_fit():
    """The engine's figure of the last checkpoint is that of the protocol's own fit to the same V."""
    cell = FigureCell(
        scenario="masked", data="demo-small", users=None, epsilons=(4.0,), dim=3, checkpoints=(5,), seed=1,
        test_fraction=0.2,
    )  # fmt: skip
    (point,) = run_figure_cell(cell)["points"]
    problem = problem_of(cell)
    model = problem.start(4.0)
    list(learn(model, 5, Noise(problem.scale(4.0), 60, 3, seed=1), lambda: None))
    _, printed = baseline.solved_readings(model, problem.data)
    assert point["solved"]["train_mae"] == pytest.approx(printed.train_mae, abs=1e-9)
    assert point["solved"]["test_mae"] == pytest.approx(printed.test_mae, abs=1e-9)
    last = baseline.last_reading(model, problem.data)
    assert point["train_mae"] == pytest.approx(last.train_mae) and point["test_mae"] == pytest.approx(last.test_mae)
    assert point["solved"]["train_mae"] < point["train_mae"], "it is the best for these ratings, but for λ"


def test_an_increase_is_over_a_baseline_that_is_read_in_the_same_way():
    def line(scenario: str, iterate: float, solved: float) -> dict:
        cell = {"scenario": scenario, "join": None, "leave": None, "test_fraction": 0.0, "seed": 1}
        epsilon = "inf" if scenario == "plain" else 8.0
        errors = {"train_mae": iterate, "solved": {"train_mae": solved}}
        return {"cell": cell, "points": [{"epsilon": epsilon, "iteration": 9, **errors}]}

    results = Results([line("plain", 0.7, 0.4), line("masked", 0.8, 0.55)])
    at = (9, "masked", 8.0, 9)
    assert results.increases(*at) == pytest.approx([0.1])
    assert results.increases(*at, "solved") == pytest.approx([0.15])
    assert results.increases(*at, "solved", "iterate") == pytest.approx([-0.15])


def test_a_claim_that_holds_for_a_v_that_has_learned_nothing_is_not_said_to_agree():
    """The profile of a user with fewer ratings than dimensions fits its ratings for any V."""
    figure, size = FIGURES["fig1"], size_of(NETFLIX, quick=False)
    (claim,) = [claim for claim in CLAIMS if (claim.data, claim.scenario) == (NETFLIX, "trusted")]
    empty, real = ComparedClaim(claim, 0.5, 0.01, 0.01, 0.02, 0.02), ComparedClaim(claim, 0.5, 0.01, 0.01, 1.2, 1.1)
    words = sentence(figure, size, [empty], [], {})
    assert words.count("which says nothing") == 2 and "learned nothing, solved: +0.020" in words
    words = sentence(figure, size, [real], [], {})
    assert "says nothing" not in words and words.count("+0.010, which agrees") == 2
    assert [_claim_document(found, size)["agrees_solved"] for found in (empty, real)] == [None, True]
    assert [_claim_document(found, size)["agrees_solved_over_iterate"] for found in (empty, real)] == [None, True]
    assert _claim_document(empty, size)["agrees"] is False


def test_the_baseline_is_measured_before_it_has_learned(tiny, tmp_path):
    made = reproduce("fig7", tmp_path, quick=True, jobs=1)
    rows = [row for row in read_rows(made["figures"][0]) if row["series"] == "a V that has learned nothing"]
    assert [row["panel"] for row in rows] == ["(a) by ε, solved", "(b) by ε, solved"]
    plain = [line for line in read_lines(tmp_path / "cells.jsonl").values() if line["cell"]["scenario"] == "plain"]
    gains = [line["points"][-2]["solved"]["train_mae"] - line["points"][-1]["solved"]["train_mae"] for line in plain]
    assert all(line["points"][-2]["iteration"] == 0 for line in plain)
    assert float(rows[0]["y"]) == pytest.approx(np.mean(gains), abs=1e-6)


def test_cells_of_another_engine_are_neither_used_nor_touched(tiny, tmp_path):
    whole = reproduce("fig3", tmp_path, quick=True, jobs=1)
    lines = [json.loads(text) for text in (tmp_path / "cells.jsonl").read_text("utf-8").splitlines()]
    for line in lines:
        line["cell"]["engine"] = 1
        for point in line["points"]:
            del point["solved"]
    old = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "cells.jsonl").write_text(old, "utf-8")
    again = reproduce("fig3", tmp_path, quick=True, jobs=1)
    assert again["cells"] == {**whole["cells"], "found": 0} and again["cells"]["run"] == len(lines)
    assert (tmp_path / "cells.jsonl").read_text("utf-8").startswith(old)
    assert again["figures"][0]["claims"] == whole["figures"][0]["claims"]


# ---- cells and figures


def test_a_cell_is_decided_by_its_key_alone():
    cell = FigureCell(
        scenario="masked", data="demo-small", users=None, epsilons=(4.0,), dim=3, checkpoints=(2, 5), seed=1,
        test_fraction=0.2,
    )  # fmt: skip
    first, second = run_figure_cell(cell), run_figure_cell(cell)
    assert first["points"] == second["points"] and json.loads(cell.key()) == first["cell"]
    assert [point["iteration"] for point in first["points"]] == [2, 5]
    assert all(point["test_mae"] > 0 and point["cdf"][-1] == 1.0 for point in first["points"])
    other = dataclasses.replace(cell, engine=cell.engine + 1)
    assert other.key() != cell.key()


def test_every_figure_of_the_paper_has_cells_and_claims():
    assert list(FIGURES) == [*(f"fig{number}" for number in range(1, 11)), "table-bytes"]
    for figure in FIGURES.values():
        assert cells_of(figure, quick=True) and len(cells_of(figure, quick=False)) >= len(cells_of(figure, quick=True))
        assert ("generated data, Netflix-shaped" in figure.title) == figure.generated or figure.kind == "bytes"
    for claim in CLAIMS:  # the ε of every claim is run in both sizes
        for quick in (True, False):
            assert claim.epsilon in size_of(claim.data, quick).of(claim.scenario)
        assert comparable(size_of(claim.data, quick=False), claim.scenario)


def test_the_sentence_follows_the_numbers():
    figure, size = FIGURES["fig3"], size_of(NETFLIX, quick=False)
    (claim,) = [claim for claim in CLAIMS if (claim.data, claim.scenario) == (NETFLIX, "masked")]
    verdicts = {0.15: "agrees", 0.014: "is lower", 1.5: "is higher"}
    small = dataclasses.replace(size, users=1000)
    for measured, verdict in verdicts.items():
        for found in (ComparedClaim(claim, measured, 9.0, 9.0), ComparedClaim(claim, 9.0, measured, 9.0)):
            words = sentence(figure, size, [found], [], {})
            assert f"{measured:+.3f}, which {verdict}" in words and "2,145 raters" in words
            assert "not comparable" in sentence(figure, small, [found], [], {})
    alone = {"iterate": {"masked": 0.25}, "solved": {"masked": 0.75}}
    words = sentence(figure, size, [ComparedClaim(claim, 0.5, 0.3, 0.1)], [], alone)
    assert "for the iterate, +0.500 (+0.250 without any noise), which is higher" in words
    assert "solved, +0.300 (+0.750 without any noise)" in words and "baseline's iterate, +0.100, which agrees" in words
    assert "not run" in sentence(figure, size, [ComparedClaim(claim, None, None, None)], [], {})


def test_a_trend_counts_where_the_seeds_do_not_overlap():
    def rows(x_name: str, last: float, spread: float) -> list[CurvePoint]:
        ends = [(0.005, 0.5), (0.02, last)]
        return [
            CurvePoint(panel="", series="ε = 0.8", x_name=x_name, x=x, quantity="", y=y, low=y - spread,
                high=y + spread, seeds=3, reading=reading)
            for reading in READINGS
            for x, y in ends
        ]  # fmt: skip

    size = dataclasses.replace(size_of(NETFLIX, quick=False), churn_epsilons=(0.8,))
    for last, spread, verb in ((0.4, 0.01, "falls"), (0.6, 0.01, "rises"), (0.4, 0.2, "hardly moves")):
        made = rows("joining probability", last, spread) + rows("leaving probability", 0.5, 0.1)
        words = sentence(FIGURES["fig9"], size, [], made, {})
        assert f"it {verb} (+0.500 to {last:+.3f}) as joining" in words and "hardly moves (+0.500 to +0.500)" in words


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(figure_plan._QUICK, NETFLIX, TINY)


def test_a_figure_on_the_command_line_and_again(tiny, tmp_path):
    asked = ["reproduce", "fig5", "--quick", "--jobs", "1", "--out", str(tmp_path), "--json"]
    made = CliRunner().invoke(app, asked)
    assert made.exit_code == 0, made.output
    document = json.loads(made.stdout)
    assert document["cells"]["run"] == 6 and document["cells"]["found"] == 0  # 2 seeds × (baseline, .8, ∞)
    check_files(document)
    lines = (tmp_path / "cells.jsonl").read_text("utf-8")
    again = json.loads(CliRunner().invoke(app, asked).stdout)
    assert again["cells"]["run"] == 0 and again["figures"] == document["figures"]
    assert (tmp_path / "cells.jsonl").read_text("utf-8") == lines


def test_a_call_that_was_cut_off_goes_on(tiny, tmp_path):
    whole = reproduce("fig1", tmp_path / "whole", quick=True, jobs=1)
    text = (tmp_path / "whole" / "cells.jsonl").read_text("utf-8")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "cells.jsonl").write_text(text[:-40], "utf-8")
    rest = reproduce("fig1", tmp_path / "cut", quick=True, jobs=1)
    assert rest["cells"]["run"] == 1 and rest["cells"]["found"] == whole["cells"]["run"] - 1
    assert rest["figures"][0]["sentence"] == whole["figures"][0]["sentence"]
    assert (tmp_path / "cut" / "fig1.csv").read_bytes() == (tmp_path / "whole" / "fig1.csv").read_bytes()


def test_how_far_it_is_is_said(tiny, tmp_path, monkeypatch, capfd):
    """Cells that are there already count as done from the start."""
    reproduce("fig3", tmp_path, quick=True, jobs=1)
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(progress, "SECONDS", 0.05)
    monkeypatch.setattr(making, "run_any", lambda cell: time.sleep(0.2) or run_figure_cell(cell))
    made = reproduce("fig5", tmp_path, quick=True, jobs=1, quiet=False)
    assert made["cells"] == {**made["cells"], "run": 4, "found": 2}
    said = re.findall(r"keyhole: cells: (\d) of 6", capfd.readouterr().err)
    assert said[0] == "2" and said[-1] == "5" and said == sorted(said)


def test_an_unknown_figure_is_refused():
    made = CliRunner().invoke(app, ["reproduce", "fig11"])
    assert made.exit_code == 2 and "use fig1, fig2" in made.stderr


def test_without_the_ratings_a_figure_is_refused_and_all_leaves_it_out(monkeypatch):
    monkeypatch.setattr(ratings, "find", lambda name: None)
    made = CliRunner().invoke(app, ["reproduce", "fig2", "--quick"])
    assert made.exit_code == 2 and "keyhole fetch ml-100k" in made.stderr
    figures, skipped = choose("all")
    assert [row["figure"] for row in skipped] == ["fig2", "fig4", "fig6", "fig8", "fig10"]
    assert [figure.name for figure in figures] == ["fig1", "fig3", "fig5", "fig7", "fig9", "table-bytes"]
    assert all("keyhole fetch ml-100k" in row["why"] for row in skipped)


def check_files(document: dict) -> None:
    for made in document["figures"]:
        files = {ending: Path(path).read_bytes() for ending, path in made["files"].items()}
        assert files["png"].startswith(b"\x89PNG") and len(files["png"]) > 30_000
        assert b"<svg" in files["svg"] and json.loads(files["json"])["sentence"] == made["sentence"]
        rows = list(csv.DictReader(files["csv"].decode().splitlines()))
        assert {MEASURED, CLAIMED} <= {row["source"] for row in rows}
        assert all(row["y"] for row in rows if row["source"] == MEASURED), "no measured point is blank"
        assert sum(row["source"] == MEASURED for row in rows) == made["measured"]
        readings = {row["reading"] for row in rows if row["source"] == MEASURED}
        assert readings == ({"iterate", "solved"} if made["figure"] != "table-bytes" else {""})
        assert "which u_i" in made["caption"] or made["figure"] == "table-bytes"
        if made["generated"]:
            assert all("generated data" in row["data"] for row in rows) and "enerated" in made["caption"]
        assert ("quick: " in made["caption"]) == document["quick"]
    if document["index"] is None:
        return
    page = Path(document["index"]["page"]).read_text("utf-8")
    assert page.count("<svg") == len(document["figures"])
    assert "https:" not in page and "http:" not in page.replace("http://www.w3.org", ""), "it needs no network"


@pytest.mark.slow
@pytest.mark.skipif(
    ratings.find("ml-100k") is None, reason="ml-100k is absent: set KEYHOLE_DATA or run keyhole fetch ml-100k"
)
def test_everything_quick(tmp_path):
    """All figures in smaller sizes; the MovieLens figures have all users, so their S1 and S2 are comparable."""
    document = reproduce("all", tmp_path, quick=True)
    assert [made["figure"] for made in document["figures"]] == list(FIGURES) and document["skipped"] == []
    check_files(document)
    lines = read_lines(tmp_path / "cells.jsonl")
    assert document["cells"]["run"] == len(lines)
    assert all(f"## {name}: " in (tmp_path / "figures.md").read_text("utf-8") for name in FIGURES)
    figures = {made["figure"]: made for made in document["figures"]}
    again = reproduce("fig8", tmp_path, quick=True)
    assert again["cells"]["run"] == 0 and again["figures"] == [figures["fig8"]]
    for name in ("fig2", "fig4"):  # the paper says no increase here
        (claim,) = figures[name]["claims"]
        assert claim["claimed"] == 0 and claim["measured"] > 0.8 and claim["agrees"] is False
    gains = {
        (row["series"], row["x"]): float(row["y"]) for row in read_rows(figures["fig8"]) if row["panel"] == "(a) by ε"
    }
    # the roles give .038 and .109 with 3 seeds (the README's table of the cost of the published noise)
    assert gains["S1", "8.0"] == pytest.approx(0.038, abs=0.015)
    assert gains["S2", "8.0"] == pytest.approx(0.109, abs=0.03)
    assert gains["S1", "0.05"] > gains["S1", "0.8"] > gains["S1", "8.0"] > gains["S1", "inf"]
    sizes = {(row["series"], row["panel"]): float(row["y"]) for row in read_rows(figures["table-bytes"])
             if row["source"] == MEASURED}  # fmt: skip
    formula = {(row["series"], row["panel"]): float(row["y"]) for row in read_rows(figures["table-bytes"])
               if row["source"] == "by formula"}  # fmt: skip
    for what in ("one user, down", "one user, up"):
        assert sizes["compact form", what] == formula["compact form", what]


def read_rows(made: dict) -> list[dict[str, str]]:
    with open(made["files"]["csv"], encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["source"] != CLAIMED]
