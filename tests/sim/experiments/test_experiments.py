"""Benchmarks and grids on tiny data, and shortcuts for speed that must change no result."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from support.basics import small_run
from typer.testing import CliRunner

from actors.own_scheme import load_scheme
from protocol.arithmetic.tape import Envelopes, exponential
from protocol.errors import BadInput
from protocol.party.role import user_name
from protocol.schemes.factorization.masked import Masked
from sim.cli.app import app
from sim.drivers.inprocess import InProcess
from sim.experiments.bench import audit_bench, benchmark, growth, inprocess_bench, measuring
from sim.experiments.cells import read_lines
from sim.experiments.grid import noise_cost
from sim.experiments.grid.evaluate import evaluate, grid, means, write_parquet
from sim.experiments.grid.grid_cells import GRID, LINE_FORMAT, Cell, run_cell
from sim.plan.plan import make_plan


class Runaway(Masked):
    """`masked` with a rate of 2^70: one step moves the factors beyond the range that may be sent."""

    options = {**Masked.options, "learning_rate": 2.0**70}  # noqa: RUF012

    def make_params(self, shape, **settings):
        return super().make_params(shape, **{"learning_rate": 2.0**70, **settings})


KEYS = [bytes([number]) * 32 for number in range(5)]


def demo_cell(**changes) -> Cell:
    settings = {"scheme": "masked", "data": "demo-small", "epsilon": 8.0, "dim": 4, "iterations": 3, "seed": 1}
    return Cell(**{**settings, "test_fraction": 0.2, **changes})


# ---- envelopes that many users of one process share


def test_remembered_envelopes_are_the_derived_ones():
    kept = Envelopes()
    kept.sharers = 2
    for keys in (KEYS[:3], KEYS[1:], KEYS, KEYS[::-1], []):
        for name in (("eta", 0), ("rho", 0), ("rho", 1), ("rho", 2), ("rho", 3), ("rho", 0)):
            assert kept.exponential(keys, 3, *name).tobytes() == exponential(keys, 3, *name).tobytes()
    assert kept.exponential(KEYS, 2, "rho", 0).shape == (5, 2)  # another dimension is another stream


def test_few_streams_are_remembered():
    kept = Envelopes()
    kept.sharers = 2
    for iteration in range(20):
        kept.exponential(KEYS, 3, "rho", iteration)
    assert len(kept._rows) <= 3


def test_a_lone_user_remembers_nothing():
    card, seats = small_run(n_users=1, n_items=2)
    InProcess(card, seats).run()
    assert card.setting.envelopes.sharers == 1
    assert not card.setting.envelopes._rows and not card.setting.envelopes._keys


def test_equal_keys_of_two_users_become_one_object():
    kept = Envelopes()
    kept.sharers = 2
    first, second = kept.keep(list(KEYS)), kept.keep([bytes(bytearray(key)) for key in KEYS])
    assert all(a is b for a, b in zip(first, second, strict=True)) and first == KEYS


# ---- benchmarks


def test_the_inprocess_benchmark_measures_both_sides():
    result = inprocess_bench.bench_inprocess("demo-small", 4)
    assert len(result["samples"]) == 3
    assert result["ratio"] == pytest.approx(result["median"] / result["floor_median"])
    assert {"users", "dim", "items_per_user"} <= set(result["config"])
    assert (result["config"]["users"], result["config"]["dim"]) == (40, 10)


def test_without_the_ratings_a_stand_in_is_used_and_named(monkeypatch):
    monkeypatch.setattr(measuring, "find", lambda name: None)
    monkeypatch.setattr(inprocess_bench, "STAND_IN", "synthetic:12x10")
    config = inprocess_bench.bench_inprocess(iterations=2)["config"]
    assert config["users"] == 12 and config["data"] == "synthetic:12x10"
    assert "synthetic:12x10" in config["note"] and "keyhole fetch ml-100k" in config["note"]


def test_bench_on_the_command_line(monkeypatch):
    monkeypatch.setitem(benchmark.BENCHES, "inprocess", lambda: inprocess_bench.bench_inprocess("demo-small", 3))
    made = CliRunner().invoke(app, ["bench", "inprocess", "--json"])
    assert made.exit_code == 0
    assert {"name", "config", "samples", "median", "floor_median", "ratio"} <= set(json.loads(made.stdout))
    assert "ratio" in CliRunner().invoke(app, ["bench", "inprocess"]).stdout
    refused = CliRunner().invoke(app, ["bench", "sailing"])
    assert refused.exit_code == 2 and "use iteration" in refused.stderr


def test_growth_is_measured_and_fitted(monkeypatch):
    monkeypatch.setattr(growth, "BASE", {"users": 3, "items": 50, "dim": 2})
    monkeypatch.setattr(growth, "FITTED", {"users": (3, 12)})
    result = growth.bench_growth({"users": (2, 3, 12), "processes": (3,), "dim": (2, 8, 32)}, iterations=2)
    samples = result["samples"]
    assert [row["users"] for row in samples] == [2, 3, 12, 3, 3, 3, 3]
    assert [row["processes"] for row in samples] == [2, 2, 2, 3, 3, 3, 3], "one layout for all that is fitted"
    assert [row["fitted"] for row in samples] == [False] + [True] * 6
    assert all(row["seconds"] > 0 and row["user_bytes"] < row["bytes"] for row in samples)
    fits = result["fits"]
    assert set(fits) == {"users", "dim"}, "one size is no fit"
    assert 0.5 < fits["users"]["bytes"]["exponent"] < 1
    assert fits["users"]["user_bytes"]["exponent"] == pytest.approx(1, abs=0.001)
    assert fits["dim"]["bytes"]["line_residual"] < 0.01, "bytes are a line in the dimension, but for the numbers' sizes"


def test_a_size_that_does_not_fit_is_left_out_in_words(monkeypatch):
    refused = BadInput("This run needs more than there is.")

    def measure(users: int, **size: Any) -> dict[str, Any]:
        if users > 1000:
            raise refused
        asked.append(users)
        slower = users * (1 + asked.count(users))  # the second time takes longer; the median lies between
        figures = {"bytes": [users], "user_bytes": [users], "seconds": [slower]}
        return {"processes": 2, "user_down": 1, "user_up": 1, **figures}

    asked: list[int] = []
    monkeypatch.setattr(growth, "measure", measure)
    result = growth.bench_growth({"users": (10, 100, 400, 1000, 4000)})
    assert asked == [10, 100, 400, 1000, 1000, 400, 100], "up and down again"
    assert [(row["runs"], row["seconds"]) for row in result["samples"]] == [(1, 20), (2, 250), (2, 1000), (2, 2500)]
    assert result["skipped"] == [{"axis": "users", "size": 4000, "why": str(refused)}]
    assert result["fits"]["users"]["seconds"]["exponent"] == pytest.approx(1)
    monkeypatch.setitem(benchmark.BENCHES, "growth", lambda: result)
    assert "users 4000 was left out. This run needs" in CliRunner().invoke(app, ["bench", "growth"]).stdout


def test_fits_find_what_they_are_made_of():
    sizes = [10, 20, 50, 100, 400]
    power = growth.fit(sizes, [3 * size**1.25 for size in sizes])
    assert power["exponent"] == pytest.approx(1.25) and power["exponent_residual"] < 1e-9 < power["line_residual"]
    low, high = growth.fit(sizes, [3.3, 5.9, 15.2, 30, 121])["exponent_interval"]
    assert 0.9 < low < 1 < high < 1.1 and growth.fit([1, 2], [1, 2])["exponent_interval"] is None
    line = growth.fit(sizes, [70 + 4 * size for size in sizes])
    assert (line["fixed"], line["slope"]) == pytest.approx((70, 4))
    assert line["line_residual"] < 1e-9 < line["exponent_residual"]
    off = growth.fit(sizes, [70 + 4 * size for size in sizes[:-1]] + [2 * (70 + 4 * 400)])
    assert off["line_residual"] > 0.1


def test_growth_on_the_command_line(monkeypatch):
    monkeypatch.setattr(growth, "BASE", {"users": 2, "items": 50, "dim": 2})
    monkeypatch.setitem(benchmark.BENCHES, "growth", lambda: growth.bench_growth({"dim": (2, 4)}, iterations=1))
    shown = CliRunner().invoke(app, ["bench", "growth"])
    assert shown.exit_code == 0 and "bytes against dim" in shown.stdout and "dim 4" in shown.stdout
    made = CliRunner().invoke(app, ["bench", "growth", "--json"])
    assert json.loads(made.stdout)["fits"]["dim"]["bytes"]["slope"] > 0


# ---- one cell


@pytest.mark.parametrize("scheme", ["masked", "trusted", "dynamic"])
def test_a_cell_measures_what_the_run_itself_reports(tmp_path, scheme):
    from sim.run.run import run

    cell = demo_cell(scheme=scheme, iterations=5)
    line, summary = run_cell(cell), run(cell.config(), out=tmp_path / "run")
    accuracy = summary["accuracy"]
    assert line["abort"] is None and line["mae_increase"] == pytest.approx(accuracy["mae_increase"], abs=1e-9)
    names = ("train_mae", "train_rmse", "test_mae", "test_rmse")
    for ours, theirs, plain in (
        (line, accuracy, accuracy["plain"]),
        (line["as_published"], accuracy["as_published"], accuracy["plain"]["as_published"]),
        (line["iterate"], accuracy["iterate"], accuracy["plain"]["iterate"]),
    ):
        assert [ours[name] for name in names] == pytest.approx([theirs[name] for name in names], abs=1e-9)
        assert ours["plain_test_rmse"] == pytest.approx(plain["test_rmse"], abs=1e-9)
        assert ours["mae_increase"] == pytest.approx(theirs["train_mae"] - plain["train_mae"], abs=1e-9)
    assert len({line["test_rmse"], line["as_published"]["test_rmse"], line["iterate"]["test_rmse"]}) == 3


def test_the_distribution_of_errors_by_hand():
    """The errors follow from U and V of the roles, one rating at a time, and from the profiles that users fitted."""
    cell = demo_cell(test_fraction=0.0)
    line, plan = run_cell(cell), make_plan(cell.config())
    driver = InProcess(plan.card, plan.seats())
    items = driver.run().item_factors
    for found, factors_of in (
        (line["iterate"], lambda role: role.user_factors),
        (line["as_published"], lambda role: role.profile.as_printed),
        (line, lambda role: role.profile.factors),
    ):
        errors = []
        for user, own in enumerate(plan.data):
            factors = factors_of(driver.parties[user_name(user)].role)
            for item, rating in zip(own.items, own.values, strict=True):
                prediction = sum(float(a) * float(b) for a, b in zip(factors, items[item], strict=True))
                errors.append(abs(rating - min(max(prediction, 1.0), 5.0)))
        within = {"0.5": share(errors, 0.5), "1": share(errors, 1), "2": share(errors, 2)}
        assert found["within"] == pytest.approx(within)
        assert found["cdf"] == pytest.approx([share(errors, threshold) for threshold in GRID])
        assert found["cdf"][-1] == 1 and found["test_cdf"] is None and found["test_rmse"] is None


def share(errors: list[float], threshold: float) -> float:
    return sum(error <= threshold + 1e-12 for error in errors) / len(errors)


def test_without_noise_masked_costs_nothing():
    assert abs(run_cell(demo_cell(epsilon=math.inf, iterations=10))["mae_increase"]) < 1e-4


@pytest.mark.parametrize("scheme", ["plain", "trusted", "direct", "dynamic"])
def test_every_factorization_scheme_has_cells(scheme):
    (cell,) = grid([scheme], [8.0], [4], [3], 1, "demo-small", 0.2)
    assert cell.epsilon == (None if scheme == "plain" else 8.0)
    assert run_cell(cell)["train_mae"] > 0


def test_an_aborted_run_is_a_result():
    load_scheme("test_experiments:Runaway")
    line = run_cell(demo_cell(scheme="test_experiments:Runaway"))
    assert "iteration 0" in line["abort"]
    (row,) = means([line])
    assert row["aborted"] == 1 and row["train_mae"] is None and row["iterate"]["train_mae"] is None


# ---- a grid


def test_a_second_call_runs_what_is_missing_only(tmp_path, monkeypatch):
    out = tmp_path / "results.jsonl"
    cells = grid(["masked"], [1.0, 8.0], [2], [2], 2, "demo-small", 0.2)
    first = evaluate(cells[:3], out, jobs=1)
    before = out.read_bytes()
    ran = []
    monkeypatch.setattr("sim.experiments.grid.evaluate.run_cell", lambda cell: ran.append(cell) or run_cell(cell))
    lines = evaluate(cells, out, jobs=1)
    assert ran == cells[3:]
    assert lines[:3] == first and out.read_bytes().startswith(before)
    assert [line["cell"] for line in lines] == [cell.describe() for cell in cells]
    evaluate(cells, out, jobs=1)
    assert len(ran) == 1


def test_lines_of_the_format_before_are_neither_used_nor_touched(tmp_path):
    """Their figures were those of the iterate, and must not be averaged with the others."""
    out = tmp_path / "results.jsonl"
    cells = grid(["masked"], [8.0], [2], [2], 2, "demo-small", 0.2)
    described = {name: value for name, value in cells[0].describe().items() if name != "format"}
    old = json.dumps({"cell": described, "seconds": 0.1, "abort": None, "train_mae": 99.0}) + "\n"
    out.write_text(old)
    lines = evaluate(cells, out, jobs=1)
    assert [line["cell"]["format"] for line in lines] == [LINE_FORMAT] * 2 and means(lines)[0]["train_mae"] < 4
    assert out.read_text().startswith(old) and len(read_lines(out)) == 3


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    out = tmp_path / "results.jsonl"
    cells = grid(["masked"], [8.0], [2], [2], 2, "demo-small", 0.2)
    evaluate(cells, out, jobs=1)
    whole = out.read_text()
    out.write_text(whole[:-40])
    assert len(read_lines(out)) == 1
    again = evaluate(cells, out, jobs=1)
    assert len(read_lines(out)) == 2 == len(out.read_text().splitlines())
    assert again[1]["train_mae"] == json.loads(whole.splitlines()[1])["train_mae"]


@pytest.mark.parametrize("text", ["shopping list\n", "shopping list", '{"cell": {}}\nbread', "[]\n"])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, text):
    out = tmp_path / "notes.jsonl"
    out.write_text(text)
    with pytest.raises(BadInput, match=r"line [12]"):
        evaluate([demo_cell()], out)
    assert out.read_text() == text


def test_processes_give_the_same_lines(tmp_path):
    cells = grid(["masked", "plain"], [8.0, math.inf], [2], [2], 1, "demo-small", 0.2)
    assert [cell.epsilon for cell in cells] == [8.0, math.inf, None]
    alone = evaluate(cells, tmp_path / "a.jsonl", jobs=1)
    together = evaluate(cells, tmp_path / "b.jsonl", jobs=2)
    for one, other in zip(alone, together, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_means_over_seeds(tmp_path):
    lines = evaluate(grid(["masked"], [8.0], [2], [2], 3, "demo-small", 0.2), tmp_path / "r.jsonl", jobs=1)
    (row,) = means(lines)
    assert row["seeds"] == 3 and row["aborted"] == 0 and "seed" not in row
    assert row["train_mae"] == pytest.approx(np.mean([line["train_mae"] for line in lines]))
    assert row["within"]["1"] == pytest.approx(np.mean([line["within"]["1"] for line in lines]))
    for reading in ("as_published", "iterate"):
        assert row[reading]["test_rmse"] == pytest.approx(np.mean([line[reading]["test_rmse"] for line in lines]))


def test_parquet_holds_the_same_figures(tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    cells = grid(["masked", "plain"], [8.0, math.inf], [2], [2], 1, "demo-small", 0.2)
    lines = evaluate(cells, tmp_path / "r.jsonl", jobs=1)
    assert write_parquet(lines, tmp_path / "r.parquet")
    table = pyarrow.read_table(tmp_path / "r.parquet").to_pylist()
    assert [row["epsilon"] for row in table] == [8.0, math.inf, None]
    assert [row["train_mae"] for row in table] == [line["train_mae"] for line in lines]


def test_evaluate_on_the_command_line(tmp_path):
    out = str(tmp_path / "r.jsonl")
    flags = ["--schemes", "masked", "--epsilon", "1,8", "--dim", "2", "--iterations", "2", "--seeds", "1"]
    made = CliRunner().invoke(app, ["evaluate", *flags, "--data", "demo-small", "--out", out, "--jobs", "1", "--json"])
    assert made.exit_code == 0
    document = json.loads(made.stdout)
    assert [row["epsilon"] for row in document["means"]] == [1.0, 8.0] and len(document["cells"]) == 2
    shown = CliRunner().invoke(app, ["evaluate", *flags, "--data", "demo-small", "--out", out, "--jobs", "1"])
    assert shown.exit_code == 0 and "train MAE" in shown.stdout
    assert all(word in shown.stdout for word in ("solved", "λ = .001", "iterate"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", "much"], "--epsilon takes numbers"),
        (["--dim", ","], "--dim must name"),
        (["--schemes", "morse"], "no scheme 'morse'"),
        (["--table", "water"], "noise-cost"),
        (["--seeds", "0"], "--seeds must be"),
        (["--jobs", "0"], "--jobs must be"),
    ],
)
def test_what_evaluate_refuses(flags, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["evaluate", *flags])
    assert refused.exit_code == 2 and words in refused.stderr


# ---- the table of the published noise


def test_the_rows_of_the_table_share_cells():
    cells = noise_cost.cells(["masked", "trusted"])
    assert len(cells) == 4 * 7 * 3
    assert {(cell.scheme, cell.dim, cell.test_fraction) for cell in cells} == {
        ("masked", 10, 0.2),
        ("masked", 50, 0.0),
        ("trusted", 10, 0.2),
        ("trusted", 50, 0.0),
    }
    assert all(len(row.reference) == len(noise_cost.EPSILONS) for row in noise_cost.ROWS)


def test_the_page_sets_ours_beside_the_reference_and_the_claim():
    cell = demo_cell(dim=10, epsilon=1.0, iterations=2)
    line = {**run_cell(cell), "mae_increase": 0.123}
    for reading, value in (("iterate", 0.456), ("as_published", 0.789)):
        line[reading] = {**line[reading], "mae_increase": value}
    page = noise_cost.markdown([line]).splitlines()
    start = next(place for place, text in enumerate(page) if text.startswith("| masked, d=10, 80/20: MAE increase"))
    rows = [[part.strip() for part in text.split("|")[2:-1]] for text in page[start : start + 4]]
    assert [row[:4] for row in rows] == [
        ["iterate, measured (1 seed)", "–", "–", "0.456"],
        ["iterate, reference (1 seed)", "1.42", "1.18", "0.470"],
        ["solved, λ = .001, measured (1 seed)", "–", "–", "0.789"],
        ["solved, each user's λ, measured (1 seed)", "–", "–", "0.123"],
    ]
    page = "\n".join(page)
    assert "0.47" in page and "≈ 0" in page and "not run" in page and "not reproducible" in page


def test_the_algebra_is_measured_beside_a_replay():
    result = audit_bench.bench_algebra("synthetic:8x6:.6", iterations=2)
    assert result["ratio"] == pytest.approx(result["median"] / result["floor_median"])
    assert result["config"]["users"] == 8 and result["config"]["peak_memory_bytes"] > 1 << 24
