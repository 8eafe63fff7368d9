"""Whole runs through the launcher: real processes over loopback, compared with the in-process driver."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.basics import all_gone, hear_ctrl_c

from actors.launch.forkserver import python_running
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.views.viewing import read_view

SMALL = RunConfig(scheme="masked", data="synthetic:12x9:.5", iterations=4, dim=3, seed=7)


def alike(config: RunConfig, **changes) -> RunConfig:
    return RunConfig(**{**vars(config), **changes})


DIGESTS = ("item_factors_sha256", "predictions_sha256")  # the results of the recommender and of all users


def digests(summary: dict) -> list[str]:
    found = [summary[name] for name in DIGESTS]
    assert None not in found
    return found


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Make the in-process run that every other driver must repeat bit for bit."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    summary = run(alike(SMALL, transport="inprocess"), out=folder)
    return folder, summary


@pytest.mark.parametrize(
    "changes",
    [
        {"transport": "tcp"},
        {"transport": "ipc"},
        {"transport": "tcp", "wire": "paper"},
        {"transport": "inprocess", "wire": "paper"},
        {"transport": "tcp", "users_per_process": 5},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
def test_every_driver_gives_the_same_factors_bit_for_bit(reference, tmp_path, changes):
    folder, expected = reference
    summary = run(alike(SMALL, **changes), out=tmp_path / "run")
    assert summary["completed"] and summary["rejected"] == {}
    assert digests(summary) == digests(expected)
    ours, theirs = (np.load(where / "model" / "item_factors.npy") for where in (tmp_path / "run", folder))
    assert ours.tobytes() == theirs.tobytes()
    for figure in ("train_mae", "train_rmse", "test_mae", "test_rmse"):
        assert summary["accuracy"][figure] == pytest.approx(expected["accuracy"][figure], abs=1e-12)


def test_the_measured_bytes_do_not_depend_on_the_driver(reference, tmp_path):
    summary = run(alike(SMALL, transport="tcp"), out=tmp_path / "run")
    assert summary["bytes"] == reference[1]["bytes"]


def test_a_second_run_repeats_itself_and_another_seed_does_not(reference, tmp_path):
    again = run(alike(SMALL, transport="inprocess"), out=tmp_path / "again")
    other = run(alike(SMALL, transport="inprocess", seed=8), out=tmp_path / "other")
    assert digests(again) == digests(reference[1])
    assert again["anchor"] == reference[1]["anchor"]
    assert not set(digests(other)) & set(digests(reference[1]))


@pytest.mark.parametrize("scheme", ["trusted", "direct", "dynamic"])
def test_every_scheme_comes_to_the_same_end_in_every_driver(tmp_path, scheme):
    flags = {"join": 0.3, "leave": 0.2} if scheme == "dynamic" else {}
    config = RunConfig(scheme=scheme, data="synthetic:8x6:.5", iterations=3, dim=2, seed=1, **flags)
    drivers = [{"transport": "inprocess"}, {"transport": "tcp"}, {"transport": "ipc", "users_per_process": 5}]
    found = [digests(run(alike(config, **driver), out=tmp_path / str(at))) for at, driver in enumerate(drivers)]
    assert found[0] == found[1] == found[2]


def test_plain_runs_as_processes_too(tmp_path):
    config = RunConfig(scheme="plain", data="synthetic:8x6:.5", iterations=3, dim=2, seed=1)
    processes = run(config, out=tmp_path / "tcp")
    memory = run(alike(config, transport="inprocess"), out=tmp_path / "memory")
    packed = run(alike(config, transport="ipc", users_per_process=5), out=tmp_path / "ipc")
    assert digests(processes) == digests(memory) == digests(packed)
    assert processes["processes"] == {"recommender": 1, "user": 8}
    assert processes["accuracy"]["train_mae"] == pytest.approx(processes["accuracy"]["plain"]["train_mae"], abs=1e-6)


def test_a_run_folder_holds_everything_and_only_its_owner_can_read_it(tmp_path):
    summary = run(SMALL, out=tmp_path / "run")
    folder = tmp_path / "run"
    assert json.loads((folder / "summary.json").read_text()) == summary
    lines = [json.loads(line) for line in (folder / "iterations.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [-1, 0, 1, 2, 3]
    keys = {"iteration", "seconds", "online", "contributors", "dropouts", "train_mae", "bytes"}
    assert all(set(line) == keys | {"course", "rows", "users"} for line in lines)
    assert all(line["contributors"] == 12 and line["train_mae"] > 0 for line in lines[1:])
    views = sorted(path.name for path in (folder / "views").iterdir())
    assert views == sorted(["recommender.view", "third_party.view", *(f"user-{user}.view" for user in range(12))])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [folder / name for name in ("run.toml", "summary.json", "bandwidth.json")]
    private = [*files, *(folder / "views").iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert not (folder / "actors.log").exists()
    # the views are whole: each ends with its role's last record and its signature, and the summary knows the head
    for party, head in summary["views"].items():
        records = list(read_view(folder, party))
        assert len(records) == head["records"]
        assert [record["type"] for record in records[-2:]] == ["end", "signed"]


def test_the_summary_has_every_field_of_the_contract(tmp_path):
    summary = run(alike(SMALL, transport="inprocess", test_fraction=0.0), out=tmp_path / "run")
    contract = {
        "run": str, "format": int, "scheme": str, "data": str, "seed": int, "completed": bool, "users": int,
        "items": int, "ratings": dict, "dim": int, "iterations": int, "processes": dict, "users_per_process": int,
        "ring": dict, "clipped": int, "accuracy": dict, "privacy": dict, "seconds": dict, "bytes": dict,
        "memory": dict, "rejected": dict, "dropouts": int, "restarts": int, "item_factors_sha256": str,
        "anchor": str, "views": dict,
    }  # fmt: skip
    assert {name: type(summary[name]) for name in contract} == contract
    assert summary["abort"] is None
    assert summary["accuracy"]["test_rmse"] is None and summary["accuracy"]["train_mae"] > 0
    assert set(summary["accuracy"]) >= {"train_mae", "train_rmse", "test_mae", "test_rmse", "plain", "mae_increase"}
    assert set(summary["privacy"]) >= {"unit", "claimed_epsilon", "accounted"}
    assert set(summary["seconds"]) >= {"startup", "total", "iteration_median", "iteration_p95"}
    edges = {"recommender->user", "user->third_party", "third_party->recommender"}
    assert set(summary["bytes"]["per_iteration"]) >= edges
    figures = {f"{way}_{figure}" for way in ("down", "up") for figure in ("mean", "median", "max")}
    assert set(summary["bytes"]["per_user_iteration"]) == figures


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("none", set()),
        ("servers", {"recommender", "third_party"}),
        ("sample:2", {"recommender", "third_party", "user:0", "user:6"}),
    ],
)
def test_views_are_kept_for_whom_they_were_asked(reference, tmp_path, policy, expected):
    summary = run(alike(SMALL, transport="inprocess", views=policy), out=tmp_path / "run")
    assert set(summary["views"]) == expected
    assert summary["item_factors_sha256"] == reference[1]["item_factors_sha256"]


def test_a_fresh_seed_is_long_and_its_masks_are_not_marked_as_a_simulation(tmp_path):
    first, second = (run(alike(SMALL, transport="inprocess", seed=None), out=tmp_path / name) for name in "ab")
    assert first["seed"] != second["seed"] and max(first["seed"], second["seed"]).bit_length() > 100
    assert first["simulation"] is False
    header = next(read_view(tmp_path / "a", "user:0"))
    assert header["fields"]["seed"] == "fresh seed"


async def test_two_runs_beside_each_other_do_not_disturb_each_other(tmp_path):
    """Ports, sockets and shared memory belong to one run each."""

    async def start(name: str) -> dict:
        command = ["-m", "sim", "run", "--data", "synthetic:12x9:.5", "--scheme", "masked", "--seed", "7"]
        flags = ["--iterations", "30", "--dim", "3", "--out", str(tmp_path / name), "--json"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *flags, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        return json.loads(out)

    first, second = await asyncio.gather(start("a"), start("b"))
    assert first["completed"] and second["completed"]
    assert first["item_factors_sha256"] == second["item_factors_sha256"]
    assert first["rejected"] == second["rejected"] == {}


# --- processes that end too early --------------------------------------------------------------------------------


@pytest.fixture
def start_long_run():
    """Give a function that starts a run that takes far longer than the test; no such run outlives the test."""
    started: list[subprocess.Popen] = []
    yield lambda folder, *flags: _start_long_run(folder, flags, started)
    for process in started:
        process.kill()  # its children end with it
        process.communicate()


def _start_long_run(folder: Path, flags: tuple[str, ...], started: list[subprocess.Popen]) -> subprocess.Popen:
    command = [sys.executable, "-m", "sim", "run", "--scheme", "masked", "--data", "synthetic:10x8:.5"]
    command += ["--iterations", "100000"]
    pipe = subprocess.PIPE
    command = [*command, *flags, "--out", str(folder), "--json"]
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, preexec_fn=hear_ctrl_c)
    started.append(process)
    until = time.monotonic() + 60
    lines = folder / "iterations.jsonl"
    while not (lines.exists() and lines.stat().st_size):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    return process


def descendants(process: subprocess.Popen) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_every_process_and_says_so(tmp_path, signum, start_long_run):
    process = start_long_run(tmp_path / "run")
    children = descendants(process)
    assert len(children) == 1 + 2 + 10  # the zygote, two servers, ten users
    process.send_signal(signum)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 5
    assert json.loads(out)["abort"]["reason"] == "INTERRUPTED"
    assert all_gone(children)


def test_when_the_launcher_is_killed_every_child_is_gone_within_two_seconds(tmp_path, start_long_run):
    process = start_long_run(tmp_path / "run")
    children = descendants(process)
    process.kill()
    process.communicate(timeout=30)
    assert all_gone(children, seconds=2.0)


def test_a_user_that_stops_answering_costs_its_contributions_and_the_run_goes_on(tmp_path):
    """SIGSTOP leaves the connection open; the deadline closes each iteration without that user, and the end too."""
    command = [sys.executable, "-m", "sim", "run", "--scheme", "masked", "--data", "synthetic:6x5:.6"]
    command += ["--iterations", "40"]
    folder, pipe = tmp_path / "run", subprocess.PIPE
    flags = ["--deadline", ".2", "--out", str(folder), "--json", "--set", "dropout_allowance=.5"]
    process = subprocess.Popen([*command, *flags], stdout=pipe, stderr=pipe, preexec_fn=hear_ctrl_c)
    until = time.monotonic() + 60
    log = folder / "iterations.jsonl"
    while not log.exists() or log.read_text().count("\n") < 2:  # the set-up and one iteration
        assert time.monotonic() < until
        time.sleep(0.02)
    children = descendants(process)
    victim = children[-1]
    victim.suspend()
    out, _ = process.communicate(timeout=200)
    summary = json.loads(out)
    assert process.returncode == 0 and summary["completed"]
    assert summary["dropouts"] > 0 and summary["users"] == 6
    lines = [json.loads(line) for line in (folder / "iterations.jsonl").read_text().splitlines()]
    assert len(lines) == 41 and {line["contributors"] for line in lines[1:]} == {5, 6}
    assert lines[-1]["contributors"] == 5 and lines[-1]["dropouts"] == 1
    assert all_gone(children)


def test_ipc_sockets_do_not_need_a_short_temporary_folder(tmp_path, monkeypatch):
    """A unix socket's path ends at 107 bytes; TMPDIR may be longer."""
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert run(alike(SMALL, transport="ipc", iterations=1), out=tmp_path / "run")["completed"]
    assert not list(long.iterdir())


def kill_third_party(process: subprocess.Popen) -> None:
    zygote = psutil.Process(process.pid).children()[0]
    victim = min(zygote.children(), key=lambda child: child.pid)  # the third party is started first
    os.kill(victim.pid, signal.SIGKILL)


def test_a_server_that_dies_comes_back_from_its_view_and_the_run_goes_on(tmp_path, start_long_run):
    process = start_long_run(tmp_path / "run")
    kill_third_party(process)
    lines, until = tmp_path / "run" / "iterations.jsonl", time.monotonic() + 60
    before = len(lines.read_text().splitlines())
    while len(lines.read_text().splitlines()) < before + 20:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    summary = json.loads(out)
    assert (summary["restarts"], summary["abort"]["reason"]) == (1, "INTERRUPTED")


def test_a_server_that_dies_and_keeps_no_view_aborts_the_run_with_its_name(tmp_path, start_long_run):
    process = start_long_run(tmp_path / "run", "--views", "none", "--quiet")
    children = descendants(process)
    kill_third_party(process)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 5
    abort = json.loads(out)["abort"]
    assert abort["reason"] == "PARTY_DIED" and "third_party" in abort["sentence"] and "-9" in abort["sentence"]
    assert error.decode().count("\n") == 1
    assert all_gone(children)


def test_no_process_of_a_run_imports_from_the_current_folder(tmp_path):
    """The modules there have the names of standard modules and of packages; none of them is imported."""
    (tmp_path / "here").mkdir()
    for name in ("random", "socket", "numpy", "msgpack", "zmq", "actors", "protocol"):
        mark = f"open({str(tmp_path)!r} + '/seen-{name}', 'w').close()"
        (tmp_path / "here" / f"{name}.py").write_text(f"{mark}\nraise ImportError('this is not {name}')\n")
    code = (
        "import sys; sys.path.append(sys.argv.pop(1)); from sim.plan.config import RunConfig; "
        "from sim.run.run import run; from pathlib import Path; "
        "print(run(RunConfig(data='synthetic:6x5:.8', dim=2, iterations=2, scheme='masked'), "
        "out=Path(sys.argv[1]))['completed'])"
    )
    command = [sys.executable, "-P", "-c", code, str(Path(__file__).parents[3]), str(tmp_path / "run")]
    ended = subprocess.run(command, cwd=tmp_path / "here", capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("True\n", 0), ended.stderr
    assert not list(tmp_path.glob("seen-*"))


def test_a_child_process_imports_this_keyhole_before_an_installed_one(tmp_path):
    installed = tmp_path / "site-packages"
    for name in ("protocol", "actors", "sim"):
        (installed / name).mkdir(parents=True)
        (installed / name / "__init__.py").write_text("raise SystemExit('this is another Keyhole')\n")
    command = python_running("sim.cli.entry", "schemes", "--json")
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and "masked" in ended.stdout, ended.stderr


def test_a_folder_whose_name_is_no_text_is_taken_by_every_process(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xffn"))
    flags = {"data": "synthetic:5x4:.6", "dim": 2, "iterations": 2, "seed": 1}
    assert run(RunConfig(scheme="masked", **flags), out=folder)["completed"]
    assert (folder / "views" / "user-0.view").is_file()
