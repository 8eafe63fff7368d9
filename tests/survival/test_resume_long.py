"""Runs of realistic length, stopped and resumed: pipes fill up, views are long, and nothing may hang.

The undisturbed run is made in one process, which gives the same factors, bytes and errors.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest
from support.runs import long

from sim import api
from sim.plan.config import RunConfig
from sim.run.run import run
from tests.survival.test_resume import family, kill_everything, start

TINY = {"data": "synthetic:6x5:.8", "dim": 2, "seed": 3}
SCHEMES = {"dynamic": {"join": 0.2, "leave": 0.1}, "masked": {}}
PATIENCE = 300.0  # seconds; a machine may be busy


def settings(scheme: str, iterations: int) -> dict:
    return {**TINY, "scheme": scheme, "iterations": iterations, **SCHEMES[scheme]}


def undisturbed(folder: Path, config: dict) -> dict:
    return run(RunConfig(**config, transport="inprocess", views="servers"), out=folder)


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "iterations.jsonl").read_text().splitlines()]


def await_iteration(process, folder: Path, iteration: int) -> None:
    """Wait until the log has the line of `iteration`; read the file as it grows."""
    until, found, path = time.monotonic() + PATIENCE, b"", folder / "iterations.jsonl"
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    with path.open("rb") as file:
        while f'"iteration": {iteration},'.encode() not in found:
            found = found[-200:] + file.read()
            assert process.poll() is None and time.monotonic() < until, found
            time.sleep(0.01)


def give_time(folder: Path, seconds: float, iteration: int) -> None:
    """Wait for these seconds, or until the run is about to pass this iteration, however fast the machine."""
    until, path = time.monotonic() + seconds, folder / "iterations.jsonl"
    while time.monotonic() < until and path.read_bytes().count(b"\n") < iteration:
        time.sleep(0.05)


def finish(process) -> dict:
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return json.loads(output)


def check_same(found: dict, folder: Path, expected: dict) -> None:
    assert found["completed"] and found["item_factors_sha256"] == expected["item_factors_sha256"]
    assert found["bytes"]["per_iteration"] == expected["bytes"]["per_iteration"]
    assert found["accuracy"]["test_rmse"] == expected["accuracy"]["test_rmse"]
    whole = lines(Path(expected["run"]))
    told = ("iteration", "bytes", "contributors", "online")
    assert [[line[key] for key in told] for line in lines(folder)] == [[line[key] for key in told] for line in whole]


def test_a_run_of_forty_users_goes_on_after_450_iterations(tmp_path):
    """Each side used to fill the other's pipe after 277 replayed iterations, and neither read."""
    config = {"data": "demo-small", "iterations": 700, "seed": 1}
    process = start(tmp_path / "run", "run", **config)
    await_iteration(process, tmp_path / "run", 450)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 5
    check_same(finish(start(tmp_path / "run", "resume")), tmp_path / "run", undisturbed(tmp_path / "whole", config))


def check_resume_after(count: int, scheme: str, tmp_path: Path) -> None:
    """Kill a run of `scheme` after `count` iterations; what is resumed must end as if nothing had happened."""
    config, folder = settings(scheme, count + 200), tmp_path / "run"
    process = start(folder, "run", **config)
    await_iteration(process, folder, count - 1)
    kill_everything(process)
    behind, size = len(lines(folder)) - 1, sum(path.stat().st_size for path in (folder / "views").iterdir())
    found = finish(start(folder, "resume"))
    check_same(found, folder, undisturbed(tmp_path / "whole", config))
    seconds = found["seconds"]["startup"]
    assert seconds > 0
    print(f"\n{scheme}: {behind} iterations, {size / 1e6:.1f} MB of views, replayed in {seconds:.1f} s, identical")


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "count"), [("masked", 1), ("masked", 300), ("dynamic", 1500)])
def test_a_run_that_is_killed_after_any_number_of_iterations_is_resumed(tmp_path, scheme, count):
    check_resume_after(count, scheme, tmp_path)


@long
@pytest.mark.parametrize("count", [1, 300, 1000, 5000])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_that_is_killed_after_thousands_of_iterations_is_resumed(tmp_path, scheme, count):
    check_resume_after(count, scheme, tmp_path)


@pytest.mark.parametrize("stopped_at", [-1, 0])
def test_a_scheme_of_two_rounds_is_resumed_after_each_with_as_much_to_say_as_it_has(tmp_path, stopped_at):
    """`covariance-masked` has only two rounds; many users and its frames, the longest of all, make the run long."""
    config = {"scheme": "covariance-masked", "data": "synthetic:150x60:.3", "seed": 2}
    folder = tmp_path / "run"
    process = start(folder, "run", **config)
    await_iteration(process, folder, stopped_at)
    kill_everything(process)
    found = finish(start(folder, "resume"))
    expected = run(RunConfig(**config, transport="inprocess"), out=tmp_path / "whole")
    assert found["item_factors_sha256"] == expected["item_factors_sha256"]
    assert found["accuracy"]["test_rmse"] == expected["accuracy"]["test_rmse"]


def check_resumes_in_a_row(times: int, tmp_path: Path) -> None:
    """Kill one run that many `times`, at any moment of its start, of its replay or of its work."""
    config, folder, draw = settings("dynamic", 800 + 40 * times), tmp_path / "run", random.Random(5)
    process = start(folder, "run", **config)
    await_iteration(process, folder, 500)
    for number in range(times):
        if number % 3:
            give_time(folder, 2.0 * draw.random(), 520 + 40 * number)  # perhaps before or during its start
        else:
            await_iteration(process, folder, 510 + 40 * number)
        assert process.poll() is None, "it came to its end before it was killed so often"
        kill_everything(process)
        process = start(folder, "resume")
    check_same(finish(process), folder, undisturbed(tmp_path / "whole", config))


@pytest.mark.slow
def test_seven_resumes_in_a_row_of_one_run(tmp_path):
    check_resumes_in_a_row(7, tmp_path)


@long
def test_thirty_resumes_in_a_row_of_one_run(tmp_path):
    check_resumes_in_a_row(30, tmp_path)


@pytest.mark.slow
def test_each_server_comes_back_after_a_thousand_iterations(tmp_path):
    config, folder = settings("dynamic", 1200), tmp_path / "run"
    process = start(folder, "run", **config)
    for iteration, name in ((1000, "third_party"), (1100, "recommender")):
        await_iteration(process, folder, iteration)
        _server(process, folder, name).kill()
    found = finish(process)
    assert found["restarts"] == 2
    check_same(found, folder, undisturbed(tmp_path / "whole", config))
    assert api.verify(folder)["verified"]


def _server(process, folder: Path, name: str) -> psutil.Process:
    """Find the process that has the view of this server open for writing."""
    path = str(folder / "views" / f"{name}.view")
    for member in family(process):
        if any(file.path == path and "a" in file.mode for file in member.open_files()):
            return member
    raise AssertionError(f"nobody writes {path}")


def test_a_replay_takes_no_memory_for_what_lies_behind_it(tmp_path):
    """The launcher keeps no replayed iteration and a party keeps no record: 1,500 and 300 iterations need the same."""
    peaks = []
    for count in (300, 1500):
        config, folder = settings("dynamic", count + 50), tmp_path / str(count)
        stopped = run(RunConfig(**config, transport="inprocess"), out=folder, on_line=_stop_at(count))
        assert not stopped["completed"]
        text = (folder / "run.toml").read_text()
        os.chmod(folder / "run.toml", 0o600)
        (folder / "run.toml").write_text(text.replace('transport = "inprocess"', 'transport = "tcp"'))
        peaks.append(finish(start(folder, "resume"))["memory"]["peak"])
    for server in ("recommender", "third_party"):
        assert peaks[1][server] < peaks[0][server] + 8_000_000, peaks


def _stop_at(iteration: int):
    def stop(line: dict) -> None:
        if line["iteration"] == iteration:
            raise KeyboardInterrupt

    return stop
