"""The limits of the machine are checked before the start, and users are packed where a process each does not fit."""

from __future__ import annotations

import re
import resource
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors import capacity
from protocol.errors import BadInput
from sim.plan.config import RunConfig, read_config
from sim.plan.placement import Demand, Placement, lay_out
from sim.plan.plan import make_plan
from sim.run.run import check_limits, run

GB = 1 << 30


class Machine:
    """A simulated machine; `raised` lists the soft limits on open files that were set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.files, self.soft_files, self.processes, self.memory, self.cores = 1 << 20, 1 << 20, 1 << 20, 64 * GB, 2
        self.raised: list[int] = []
        self._cgroup = folder / "cgroup"
        monkeypatch.setattr(resource, "getrlimit", self._getrlimit)
        monkeypatch.setattr(resource, "setrlimit", lambda which, limit: self.raised.append(limit[0]))
        monkeypatch.setattr(capacity.psutil, "virtual_memory", lambda: SimpleNamespace(available=self.memory))
        monkeypatch.setattr(capacity, "cores", lambda: self.cores)
        monkeypatch.setattr(capacity, "CGROUPS", self._cgroup)
        monkeypatch.setattr(capacity, "OWN_CGROUP", folder / "own")
        (folder / "own").write_text("0::/outer/inner\n")

    def _getrlimit(self, which: int) -> tuple[int, int]:
        if which == resource.RLIMIT_NPROC:
            return self.processes, self.processes
        return min(self.soft_files, self.files), self.files

    def group(self, path: str, most: str, there: int) -> None:
        folder = self._cgroup / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pids.max").write_text(most + "\n")
        (folder / "pids.current").write_text(f"{there}\n")


@pytest.fixture
def machine(monkeypatch, tmp_path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def demand(users: int, takes_turns: bool = False) -> Demand:
    return Demand(users, 2, 1000, takes_turns)


def test_a_soft_limit_on_files_is_raised_and_a_hard_one_is_refused(machine):
    machine.soft_files, machine.files = 100, 500
    capacity.check_files(capacity.files_of(30, 1))
    assert machine.raised == []  # 30 + 64 fit into 100
    capacity.check_files(capacity.files_of(300, 1))
    assert machine.raised == [364]
    with pytest.raises(BadInput, match=r"564 open files.*limit is 500.*ulimit -n 564"):
        capacity.check_files(capacity.files_of(500, 1))
    with pytest.raises(BadInput, match="564 open files"):
        capacity.check_files(capacity.files_of(10, 100))  # five files for each packed user


# ---- a process for each user where that fits


def test_a_process_for_each_user_where_it_fits(machine):
    assert lay_out(demand(1000), None) == Placement(1, 1000)
    assert lay_out(demand(1000, takes_turns=True), None) == Placement(1, 1000)


SMALL = {
    "memory": ({"memory": 2 * GB}, r"needs about \d+ MB of memory and 2048 MB are free"),
    "processes": ({"processes": 1000}, "needs 3016 processes and threads and the limit is 1000"),
}


@pytest.mark.parametrize(("changes", "words"), SMALL.values(), ids=SMALL.keys())
def test_else_users_are_packed_and_the_note_names_the_limit(machine, changes, words):
    vars(machine).update(changes)
    layout = lay_out(demand(1000), None)
    assert (layout.users_per_process, layout.connected, layout.processes(1000)) == (500, 1000, 2)
    (note,) = layout.notes
    assert re.search(words, note) and "packed into 2 processes of up to 500" in note
    with pytest.raises(BadInput, match=words + ".*--users-per-process"):
        lay_out(demand(1000), 1)  # an explicit number is respected, or refused
    assert lay_out(demand(1000), 250) == Placement(250, 1000)


def test_a_control_group_counts_too(machine):
    machine.group("", "max", 5000)
    machine.group("outer", "2000", 500)
    machine.group("outer/inner", "max", 100)
    assert capacity.cgroup_tasks() == 1500
    assert lay_out(demand(400), None) == Placement(1, 400)
    (note,) = lay_out(demand(600), None).notes
    assert "needs 1816 processes and threads and its control group has room for 1500 (pids.max)" in note
    with pytest.raises(BadInput, match=r"pids\.max"):
        lay_out(demand(600), 1)
    machine.group("outer", "10", 9)
    with pytest.raises(BadInput, match="Even packed into 8 processes"):
        lay_out(demand(600), None)


def test_the_older_control_groups_are_read_as_well(machine):
    capacity.OWN_CGROUP.write_text("3:cpu:/elsewhere\n2:pids:/mine\n")
    machine.group("pids/mine", "70", 20)
    machine.group("elsewhere", "1", 1)
    assert capacity.cgroup_tasks() == 50
    capacity.OWN_CGROUP.unlink()
    assert capacity.cgroup_tasks() is None  # no such thing on this system


@pytest.mark.parametrize(("cores", "hosts"), [(1, 2), (4, 4), (64, 8)])
def test_hosts_follow_the_cores(machine, cores, hosts):
    machine.cores, machine.memory = cores, 3 * GB
    assert lay_out(demand(1600), None).processes(1600) == hosts


def test_more_hosts_where_one_has_too_few_files(machine):
    machine.memory, machine.files = 16 * GB, 20_000
    layout = lay_out(demand(10_000), None)
    assert layout.users_per_process == 3334 and 5 * 3334 + 64 <= 20_000 < 5 * 5000 + 64
    machine.files = 9_000
    with pytest.raises(BadInput, match=r"Even packed into 8 processes this run needs 10064 open files.*fewer users"):
        lay_out(demand(10_000), None)


# ---- users that take turns


def test_a_crowd_that_comes_and_goes_takes_turns(machine):
    machine.files, machine.memory = 20_000, 20 * GB
    layout = lay_out(demand(191_668, takes_turns=True), None)
    assert (layout.users_per_process, layout.connected) == (95_834, 4000)
    assert "packed into 2 processes" in layout.notes[0] and "At most 4,000 of the 191,668 users" in layout.notes[1]
    with pytest.raises(BadInput, match="Even packed"):
        lay_out(demand(191_668), None)  # everyone at once
    few = lay_out(demand(3000, takes_turns=True), 1500)
    assert few == Placement(1500, 3000)  # all fit at once


def test_nobody_takes_turns_where_hardly_anyone_could_be_connected(machine):
    machine.files = 90
    with pytest.raises(BadInput, match=r"needs 104 open files.*limit is 90.*ulimit -n 104, or use fewer users"):
        lay_out(demand(40, takes_turns=True), None)
    machine.files = 400
    assert lay_out(demand(200, takes_turns=True), 100).connected == 108


@pytest.mark.parametrize(
    ("files", "hosts", "most"),
    [
        (1 << 20, 2, 4000),
        (4128, 2, 1600),  # two hosts with 4000 / 5 users each
        (4128, 8, 2000),  # 4000 / 2 in a server
        (10, 8, 1),
    ],
)
def test_how_many_may_be_connected(machine, files, hosts, most):
    machine.files = files
    assert capacity.most_connected(100_000, hosts) == most
    assert capacity.most_connected(7, hosts) == min(7, most)


def test_memory_bounds_how_many_may_be_connected(machine):
    mb = 1 << 20
    fixed = 2 * 200 * mb + 2 * 4 * mb + 100_000 * (4 << 10)  # servers, hosts, what everyone keeps
    machine.memory = fixed + 500 * 390 * 1024 + 1000  # 150 KB in a host and 120 KB in each server
    assert capacity.most_connected(100_000, 2) == 500
    machine.memory = 0
    assert capacity.most_connected(100_000, 2) == 1


def test_larger_messages_need_more_memory(machine):
    machine.memory = 2 * GB
    assert capacity.most_connected(100_000, 2, 2, 50_000) < capacity.most_connected(100_000, 2, 2, 1000)
    assert capacity.need_of(100, 50, 2, 50_000).memory > capacity.need_of(100, 50, 2, 1000).memory


# ---- in a run


def test_a_run_records_how_it_was_packed(machine, tmp_path):
    machine.processes = 25  # 8 users with 3 tasks each, two servers and the launcher do not fit, two hosts do
    config = RunConfig(scheme="masked", data="synthetic:8x6:.5", iterations=2, seed=1)
    summary = run(config, out=tmp_path / "run")
    assert summary["completed"] and (summary["users_per_process"], summary["processes"]["user"]) == (4, 2)
    assert any("the limit is 25" in note and "2 processes" in note for note in summary["notes"])
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text("utf-8"))["run"]["users_per_process"] == 4


def test_auto_in_a_file_and_no_number_at_all(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text('users-per-process = "auto"\n')
    assert read_config(file).users_per_process is None
    for wrong in ('"many"', "1.5", "true"):
        file.write_text(f"users-per-process = {wrong}\n")
        with pytest.raises(BadInput, match="--users-per-process takes auto"):
            read_config(file)


def test_views_that_do_not_fit_on_the_disk_are_refused_before_the_folder_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(capacity.shutil, "disk_usage", lambda path: SimpleNamespace(total=1 << 40, free=10_000))
    config = RunConfig(scheme="masked", data="synthetic:10x10:.5", transport="inprocess", iterations=50)
    with pytest.raises(BadInput, match="--views servers or none"):
        run(config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    check_limits(make_plan(RunConfig(**{**vars(config), "views": "none"})), tmp_path)


@pytest.mark.parametrize("views", ["full", "servers", "sample:3"])
def test_the_predicted_size_of_the_views_is_close_and_not_too_small(tmp_path, views):
    sizes = {"data": "synthetic:20x30:.3", "iterations": 10, "dim": 8}
    config = RunConfig(scheme="masked", transport="inprocess", views=views, seed=1, **sizes)
    run(config, out=tmp_path / "run")
    actual = sum(path.stat().st_size for path in (tmp_path / "run" / "views").rglob("*.view"))
    predicted = make_plan(config).view_bytes()
    assert 0.9 * actual <= predicted <= 1.3 * actual
