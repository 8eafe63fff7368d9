"""Benchmarks of real processes and of the loops over all users, at tiny sizes, and checks of their floors."""

from __future__ import annotations

import json
import os
import re
import statistics

import numpy as np
import pytest
from typer.testing import CliRunner

from actors import journal
from actors.bare_frames import KINDS
from protocol.attendance import Course, Turn
from protocol.errors import BadInput, Bug
from protocol.party.party import Party
from sim.cli.app import app
from sim.experiments.bench import array_loops, benchmark, measuring, norm_bench, processes, secagg
from sim.experiments.bench import bare_frames_bench as floors
from sim.experiments.bench.bare_frames_bench import HELLO_FRAME, compare, frames_of, moved_by, run_floor
from sim.experiments.bench.benchmark import run_bench
from sim.experiments.bench.measuring import Real, interleaved, run_real
from sim.experiments.bench.processes import Load, warm
from sim.plan.plan import make_plan

CONTRACT = {"name", "config", "samples", "median", "floor_median", "ratio"}
SAID = {"users", "dim", "items_per_user", "floor", "unit", "rounds", "cores"}
LOAD = Load(users=3, dim=2, items=4, iterations=2)
TINY = {"users": 3, "dim": 2, "items": 4, "rounds": 1}


@pytest.fixture(scope="module")
def real():
    return run_real(LOAD.config())


def check(result, users, samples):
    assert {"name": "", **result}.keys() >= CONTRACT and result["config"].keys() >= SAID
    assert result["config"]["users"] == users and len(result["samples"]) == samples
    assert result["median"] == statistics.median(result["samples"]) > 0
    assert result["floor_median"] == statistics.median(result["floor_samples"]) > 0
    assert result["ratio"] == pytest.approx(result["median"] / result["floor_median"])


# ---- the floor moves what a run moves


def test_the_floor_moves_the_frames_of_a_run(real):
    frames = frames_of(real.lines)
    assert len(frames) == 2
    floor = run_floor(3, 1, frames)
    compare(floor.received, moved_by(real.lines))
    assert set(floor.received) == set(KINDS) and len(floor.seconds) == 2 and min(floor.seconds) > 0
    assert floor.received["MaskedGradient"][0] == floor.received["ItemFactors"][0] == 2 * 3
    assert floor.received["OpenSum"][0] == floor.received["MaskedTotal"][0] == 2
    assert 0 < floor.loading < floor.startup


def test_frames_have_the_sizes_that_the_formula_of_the_scheme_gives(real):
    """All users stay and have 4 items each, so one group stands for all; T = 2."""
    plan = make_plan(LOAD.config())
    everyone = np.full(1, 3.0)
    opened = float(plan.shape.rated_items)
    turn = Turn(everyone, everyone, 0 * everyone, 0 * everyone, opened, opened)
    course = Course(np.array([4]), everyone, everyone, everyone, everyone, everyone, (turn, turn))
    flows = {(flow.iteration, flow.kind): flow for flow in plan.card.scheme.predict(plan.card.params, course)}
    for iteration, sizes in enumerate(frames_of(real.lines)):
        assert [float(np.max(flows[iteration, kind].frame)) for kind in KINDS] == sizes
    assert float(np.max(flows[-1, "Hello"].frame)) == HELLO_FRAME


def test_a_byte_less_in_one_frame_shows_in_what_the_floor_received(real):
    wanted = moved_by(real.lines)
    first, second = frames_of(real.lines)
    moved = run_floor(3, 1, [first, [size - 1 for size in second]]).received
    less = {kind: wanted[kind][1] - moved[kind][1] for kind in KINDS}
    assert less == {kind: 3 if kind in ("ItemFactors", "MaskedGradient") else 1 for kind in KINDS}
    with pytest.raises(Bug, match="OpenSum"):
        compare(moved, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 1])
def test_a_difference_in_frames_or_bytes_of_any_kind_is_caught(real, kind, place):
    wanted = moved_by(real.lines)
    compare(wanted, moved_by(real.lines))
    moved = {name: list(amounts) for name, amounts in wanted.items()}
    moved[kind][place] -= 1
    with pytest.raises(Bug, match=kind):
        compare(moved, wanted)
    with pytest.raises(Bug, match=kind):
        compare({name: amounts for name, amounts in wanted.items() if name != kind}, wanted)


def test_a_floor_whose_processes_fail_says_so(real, monkeypatch, capfd):
    keys = floors._layout

    def broken(*arguments):
        layout = keys(*arguments)
        layout.user_keys[1][1] = b"no key"
        return layout

    monkeypatch.setattr(floors, "_layout", broken)
    with pytest.raises(Bug, match="did not complete"):
        run_floor(3, 1, frames_of(real.lines))
    assert "A process of the floor has failed" in capfd.readouterr().err


def test_packed_floors_answer_for_every_user():
    sizes = [70, 90, 300, 80, 70, 500]
    floor = run_floor(5, 2, [sizes] * 3)
    assert floor.received["MaskedGradient"] == [15, 15 * 300]
    assert floor.received["ItemFactors"] == [15, 15 * 90]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[0].__setitem__(3, "Present"), "frames of"),
        (lambda rows: [row.__setitem__(5, row[5] + 1) for row in rows if row[3] == "ItemFactors"], "different sizes"),
    ],
)
def test_what_the_floor_cannot_move_is_refused(real, change, words):
    lines = json.loads(json.dumps(real.lines))
    change([row for row in lines[-1]["rows"] if row[0] == lines[-1]["iteration"]])
    with pytest.raises(Bug, match=words):
        frames_of(lines)


def test_first_iterations_and_the_last_are_left_out():
    assert warm([9, 8, 7, 1, 2, 3, 50]) == [1, 2, 3]
    assert warm([9, 1, 50]) == [1] and warm([9, 50]) == [9] and warm([9]) == [9]


# ---- the benchmarks


@pytest.fixture(scope="module")
def iteration():
    return benchmark.run_bench("iteration", {**TINY, "iterations": 2})


def test_iteration(iteration):
    check(iteration, 3, 1)
    config = iteration["config"]
    assert (config["dim"], config["items_per_user"], config["scheme"], config["views"]) == (2, 4, "masked", "full")
    assert config["cores"] == len(os.sched_getaffinity(0)) and "CURVE" in config["floor"]
    assert set(config["frame_bytes"]) == set(KINDS)
    assert iteration["startup"] > 0
    assert 1 << 18 < iteration["memory"]["user_process_uss_mean"] <= iteration["memory"]["user_process_uss_max"]


def test_packed():
    result = benchmark.run_bench("packed", {**TINY, "iterations": 2, "hosts": 2})
    check(result, 3, 1)
    assert (result["config"]["hosts"], result["config"]["users_per_process"]) == (2, 2)


def test_startup():
    result = benchmark.run_bench("startup", TINY)
    check(result, 3, 1)
    assert 0 < result["loading"]["seconds"] < result["floor_median"]


def test_views():
    result = benchmark.run_bench("views", {**TINY, "iterations": 2})
    check(result, 3, 1)
    assert result["config"]["views"] == "full"


def test_with_and_without_views_take_turns_at_being_first(real, monkeypatch):
    order = []
    monkeypatch.setattr(processes, "run_real", lambda config: order.append(config.views) or real)
    result = benchmark.run_bench("views", {**TINY, "rounds": 2, "iterations": 2})
    assert order == ["full", "none", "none", "full"] and len(result["by_round"]) == 2


def test_a_run_that_moves_other_bytes_is_no_pair(real, monkeypatch):
    lines = json.loads(json.dumps(real.lines))
    lines[-1]["rows"][0][5] += 1
    monkeypatch.setattr(processes, "run_real", lambda config: Real(lines, {}) if config.views == "none" else real)
    with pytest.raises(Bug):
        benchmark.run_bench("views", {**TINY, "iterations": 2})


def test_medians_are_over_all_rounds_and_by_round():
    pairs = [([7.0], [7.0]), ([3.0, 1.0, 2.0], [1.0]), ([9.0], [2.0, 4.0])]
    result = interleaved({"users": 3}, iter(pairs).__next__, rounds=2, warm=1, whole_runs=True)
    assert result["samples"] == [3.0, 1.0, 2.0, 9.0] and result["floor_samples"] == [1.0, 2.0, 4.0]
    assert (result["median"], result["floor_median"], result["ratio"]) == (2.5, 2.0, 1.25)
    assert result["by_round"][1] == {"median": 9.0, "floor_median": 3.0, "ratio": 3.0}
    assert result["config"] == {"users": 3} and len(result["by_round"]) == 2
    assert "by_round" not in interleaved({}, lambda: ([1.0], [2.0]), rounds=3)


def test_only_the_processor_time_of_a_command_counts():
    busy = "import time\nwhile time.process_time() < {}: pass"
    short, long = (measuring.command_seconds(["-c", busy.format(seconds)]) for seconds in (0.05, 0.6))
    assert long > short + 0.3 and measuring.command_seconds(["-c", "import time; time.sleep(1)"]) < 0.6
    with pytest.raises(Bug, match="no such luck"):
        measuring.command_seconds(["-c", "raise SystemExit('no such luck')"])


def test_the_sum():
    result = benchmark.run_bench("sum", {**TINY, "rounds": 3})
    check(result, 3, 3)
    assert result["peer_ratio"] == pytest.approx(result["median"] / result["peer_median"])


def test_a_sum_that_is_wrong_is_not_measured(monkeypatch):
    honest = array_loops.Ring.sum_by_item

    def off_by_one(ring, parts, items, dim):
        total = honest(ring, parts, items, dim)
        total[-1, -1] += 1
        return total

    monkeypatch.setattr(array_loops.Ring, "sum_by_item", off_by_one)
    with pytest.raises(Bug, match="sums by item"):
        benchmark.run_bench("sum", {**TINY, "rounds": 3})


def test_masks(monkeypatch):
    made = []
    honest = array_loops.mask_rows
    monkeypatch.setattr(array_loops, "mask_rows", lambda *arguments: made.append(honest(*arguments)) or made[-1])
    result = benchmark.run_bench("masks", {**TINY, "rounds": 2})
    check(result, 3, 2)
    assert len(made) == 3 * (2 + array_loops.WARM) and {rows.shape for rows in made} == {(4, 2)}


def test_the_proof_of_the_norm(monkeypatch):
    result = benchmark.run_bench("norm-proof", {"users": 30, "items": 12, "rounds": 2})
    proof = result["proof"]
    assert len(result["samples"]) == len(result["floor_samples"]) == 2 and result["ratio"] > 1
    assert result["median"] == pytest.approx(sum(proof["seconds"].values()), rel=0.5)
    assert proof["refused"].pop("honest") == [0, norm_bench.HONEST] and len(proof["refused"]) == 14
    assert all(refused == tried == norm_bench.TRIES for refused, tried in proof["refused"].values())
    assert proof["bytes"]["up"] > proof["bytes"]["up_if_servers_make_the_noise"] > proof["bytes"]["up_without_proof"]
    monkeypatch.setitem(benchmark.BENCHES, "norm-proof", lambda: result)
    shown = CliRunner().invoke(app, ["bench", "norm-proof"]).stdout
    assert "refused: 5 of 5 beyond the bound by 1" in shown and "below 2^-5" in shown


def test_a_proof_that_lets_hostile_users_pass_is_not_measured(monkeypatch):
    monkeypatch.setattr(norm_bench, "accepts", lambda *_: True)
    with pytest.raises(Bug, match="hostile vector was accepted"):
        benchmark.run_bench("norm-proof", {"users": 30, "items": 12, "rounds": 1})
    monkeypatch.setattr(norm_bench, "accepts", lambda *_: False)
    with pytest.raises(Bug, match="honest user's proof was refused"):
        benchmark.run_bench("norm-proof", {"users": 30, "items": 12, "rounds": 1})


# ---- the command


def test_people_read_what_the_floor_is(iteration, monkeypatch):
    monkeypatch.setitem(benchmark.BENCHES, "iteration", lambda: iteration)
    made = CliRunner().invoke(app, ["bench", "iteration"])
    assert made.exit_code == 0
    words = " ".join(made.stdout.split())
    assert "3 users with 4 items each, dim 2" in words and "blocking sockets and CURVE" in words
    assert "ratio" in words and "a user process" in words


@pytest.mark.parametrize(("load", "said"), [(0.3, False), (1e6, True)])
def test_a_busy_machine_is_named(iteration, monkeypatch, load, said):
    monkeypatch.setitem(benchmark.BENCHES, "iteration", lambda: iteration)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    made = CliRunner().invoke(app, ["bench", "iteration"])
    assert ("The machine was busy" in made.stdout) == said
    assert iteration["config"]["load_average"] == load


def test_programs_read_one_document():
    flags = [f"--{name}={value}" for name, value in TINY.items()]
    printed = CliRunner().invoke(app, ["bench", "masks", *flags, "--json"])
    assert set(json.loads(printed.stdout)) == CONTRACT | {"floor_samples"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sum", "--iterations", "2"], "does not take --iterations: leave it out (it takes --users, --dim, --items"),
        (["iteration", "--hosts", "2"], "does not take --hosts"),
        (["audit", "--users", "2"], "it takes no options"),
        (["growth", "--dim", "2"], "does not take --dim"),
        (["iteration", "--users", "0"], "--users must be 1 or more"),
        (["packed", "--hosts", "9"], "--hosts must be from 1 to 8"),
        (["packed", "--users", "2", "--hosts", "3"], "--hosts must be from 1 to 2"),
    ],
)
def test_what_bench_refuses(arguments, words):
    refused = CliRunner().invoke(app, ["bench", *arguments])
    assert refused.exit_code == 2 and words in " ".join(refused.stderr.split())


def test_options_reach_the_benchmark(monkeypatch):
    monkeypatch.setitem(benchmark.BENCHES, "inprocess", lambda data="demo", iterations=3: {"config": {"t": iterations}})
    assert benchmark.run_bench("inprocess", {"iterations": 7})["config"]["t"] == 7
    with pytest.raises(BadInput, match="--users"):
        benchmark.run_bench("inprocess", {"users": 7})


# ---- beside Flower


def test_without_flower_the_benchmark_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(secagg.importlib.util, "find_spec", lambda name: None)
    made = CliRunner().invoke(app, ["bench", "iteration-secagg"])
    assert made.exit_code == 0 and "pip install 'keyhole[secagg]'" in " ".join(made.stdout.split())
    document = json.loads(CliRunner().invoke(app, ["bench", "iteration-secagg", "--users", "7", "--json"]).stdout)
    assert document["skipped"] == secagg.MISSING and document["config"]["users"] == 7
    assert document.keys() >= CONTRACT and document["ratio"] is None


def test_a_sum_of_flower_that_is_wrong_is_not_measured():
    vectors = np.random.default_rng(2).uniform(-1, 1, (5, 8)).astype(np.float32)
    mean = vectors.mean(axis=0)
    secagg.check_mean(mean, vectors)
    for wrong in (mean + 1e-4, mean[:-1], 5 * mean):
        with pytest.raises(Bug, match="SecAgg"):
            secagg.check_mean(wrong, vectors)


@pytest.mark.filterwarnings("default")
def test_beside_flower():
    pytest.importorskip("flwr", reason="needs keyhole[secagg]")
    result = benchmark.run_bench("iteration-secagg", {**TINY, "iterations": 2})
    assert len(result["floor_samples"]) == secagg.FLOWER_TURNS - 1 and result["floor_median"] > 0
    assert result["config"]["shares"] == 3


def test_the_start_of_commands_is_measured_beside_a_bare_import():
    result = run_bench("cli", {"rounds": 1})
    assert set(result["commands"]) == {"--help", "--version", "schemes", "view"}
    assert result["ratio"] == max(one["ratio"] for one in result["commands"].values()) > 0
    assert result["floor_median"] > 0 and result["median"] > 0


def test_parties_restored_from_checkpoints_are_measured_beside_those_that_replay_everything(monkeypatch):
    passed, replayed = [], []
    chained, replay = journal.chained, Party.replay
    monkeypatch.setattr(journal, "chained", lambda *given: (passed.append(1), chained(*given))[1])
    monkeypatch.setattr(Party, "replay", lambda *given: (replayed.append(1), replay(*given))[1])
    result = run_bench("restart", {"iterations": 120, "rounds": 1})
    users = result["config"]["users"]
    assert users <= len(passed) <= users + 2, "the third party's state may be too large a part of so short a view"
    assert len(passed) + len(replayed) == 2 * (users + 2)
    assert result["ratio"] > 0 and result["config"]["stopped_after"] == 120
    assert re.match(r"\d+ MB of views after 120 iterations: restored at \d+ MB/s", result["config"]["note"])
