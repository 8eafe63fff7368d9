"""Sentences that a person reads after a run are true: errors of the same users, resends, space, files."""

from __future__ import annotations

import collections
import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from actors import capacity
from actors.metering.observer import Observer
from actors.metering.recorder import save_factors
from protocol.errors import BadInput
from sim.console import console
from sim.experiments.grid import evaluate
from sim.experiments.grid.grid_cells import Cell
from sim.plan.config import RunConfig
from sim.run.run import run
from sim.run.summary import IterationLog

USERS = 6


def errors(observer: Observer, iteration: int, by_user: dict[int, float]) -> None:
    """Let these users take part in an iteration with these mean errors, over two ratings each."""
    for user, error in by_user.items():
        observer._note(user, iteration, np.array([3.0, 3.0]), np.array([error, error]))


def notes(tmp_path: Path, *iterations: dict[int, float]) -> list[str]:
    log = IterationLog(tmp_path)
    observer = Observer(SimpleNamespace(n_users=USERS, n_items=3, dim=2, rating_range=(1.0, 5.0)))
    for iteration, by_user in enumerate(iterations):
        errors(observer, iteration, by_user)
        log._errors.append(0.0)
        log._fall = observer.train_fall(iteration, len(by_user))
    log.close()
    return log.notes()


def test_the_error_that_still_falls_is_that_of_the_same_users(tmp_path):
    """Two users with large errors leave: the mean falls, though the error of no user does."""
    everyone = dict.fromkeys(range(USERS), 1.0)
    assert notes(tmp_path, everyone | {0: 2.0, 1: 2.0}, {2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0}) == []
    (note,) = notes(tmp_path, everyone | {0: 2.0}, dict.fromkeys(range(1, USERS), 0.9))
    assert "still fell by 10.0 %" in note
    (note,) = notes(tmp_path, everyone, dict.fromkeys(everyone, 0.98))
    assert "still fell by 2.0 %" in note


def test_nothing_is_said_where_too_few_took_part_in_both(tmp_path):
    few = {0: 1.0, 1: 1.0, 2: 1.0}
    assert notes(tmp_path, few, {2: 0.5, 3: 0.5, 4: 0.5}) == []
    assert notes(tmp_path, few) == [] and notes(tmp_path) == []


def test_duplicates_are_told_apart_from_what_was_refused():
    quiet = {"restarts": 0, "gone": [], "rejected": {}, "strangers": {}}
    assert console.disturbances(quiet) == []
    (duplicates,) = console.disturbances(quiet | {"rejected": {"REPLAYED": 39}})
    assert duplicates.startswith("39 duplicates were ignored") and "Disturbed" not in duplicates
    both = console.disturbances(quiet | {"rejected": {"REPLAYED": 2, "GAP": 1}})
    assert both[1:] == ["Disturbed: 1 frames refused (1 GAP)."]


def test_evaluate_leaves_no_file_without_a_line(tmp_path):
    cell = Cell(scheme="plain", data=str(tmp_path / "nothing.csv"), epsilon=None, dim=2, iterations=1, seed=1,
                test_fraction=0.2)  # fmt: skip
    with pytest.raises(BadInput, match=r"nothing\.csv"):
        evaluate.evaluate([cell], tmp_path / "out.jsonl", 1, quiet=True)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match=r"Cannot write .*name another --out"):
        evaluate.evaluate([cell], Path("/proc/out.jsonl"), 1, quiet=True)


def test_a_place_that_holds_no_files_is_not_called_full():
    with pytest.raises(BadInput, match="/proc is not a place for files"):
        capacity.check_disk(Path("/proc"), 1000)


def test_space_below_a_megabyte_is_told_in_kilobytes(monkeypatch):
    usage = collections.namedtuple("usage", "total free")
    monkeypatch.setattr(capacity.shutil, "disk_usage", lambda _: usage(1 << 30, 300 << 10))
    with pytest.raises(BadInput, match="about 5 MB and 300 kB are free"):
        capacity.check_disk(Path(), 5 << 20)
    monkeypatch.setattr(capacity.shutil, "disk_usage", lambda _: usage(1 << 30, 0))
    with pytest.raises(BadInput, match="about 700 kB and none is free"):
        capacity.check_disk(Path(), 700 << 10)


def test_memory_of_which_the_system_says_nothing_is_no_reason_to_refuse(monkeypatch):
    def absent():
        raise FileNotFoundError("/proc/meminfo")

    memory = collections.namedtuple("memory", "available")
    monkeypatch.setattr(psutil, "virtual_memory", absent)
    assert capacity._memory(1 << 50) is None and capacity.most_connected(500, 2) >= 100
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(900))
    lack = capacity._memory(1 << 30)
    assert lack is not None and "needs about 1024 MB of memory and 1 kB are free" in lack.words


@pytest.mark.parametrize("transport", ["tcp", "inprocess"])
def test_only_the_owner_can_read_any_file_of_a_run(tmp_path, transport, monkeypatch):
    logs: list[int] = []  # an empty log is not kept, so its mode is read when it is handed over

    def start(*arguments, **settings):
        logs.append(stat.S_IMODE(os.fstat(settings["stdout"].fileno()).st_mode))
        return subprocess.Popen(*arguments, **settings)

    monkeypatch.setattr("actors.launch.forkserver.subprocess", SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL,
                        TimeoutExpired=subprocess.TimeoutExpired))  # fmt: skip
    config = RunConfig(scheme="masked", data="synthetic:5x4", iterations=1, dim=2, transport=transport, seed=1)
    run(config, out=tmp_path / "run")
    save_factors(str(tmp_path / "run"), np.zeros((2, 2)))
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {"summary.json", "item_factors.npy"} <= {path.name for path in files}
    assert logs == ([0o600] if transport == "tcp" else [])
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in files} == {
        path.name: "0o600" for path in files
    }
