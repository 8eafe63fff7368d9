"""What a machine allows is looked at before the start."""

from __future__ import annotations

import resource
from types import SimpleNamespace

import pytest

from actors import limits
from protocol.errors import BadInput
from sim.config import RunConfig
from sim.plan import make_plan
from sim.run import check_limits, run


def test_a_soft_limit_on_files_is_raised_and_a_hard_one_is_refused(monkeypatch):
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 500))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: raised.append(limit))
    limits.check_files(connections=30, sockets=2)
    assert raised == []  # 30 + 64 fit into 100
    limits.check_files(connections=300, sockets=2)
    assert raised == [(364, 500)]
    with pytest.raises(BadInput, match=r"564 open files.*limit is 500"):
        limits.check_files(connections=500, sockets=2)


def test_too_few_processes_are_refused(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10, 10))
    limits.check_processes(10)
    with pytest.raises(BadInput, match="--users-per-process"):
        limits.check_processes(11)


def test_too_little_memory_is_refused(monkeypatch):
    monkeypatch.setattr(limits.psutil, "virtual_memory", lambda: SimpleNamespace(available=2 << 30))
    limits.check_memory(user_processes=100, users=100)
    with pytest.raises(BadInput, match="memory"):
        limits.check_memory(user_processes=1000, users=1000)
    limits.check_memory(user_processes=2, users=1000)  # packed


def test_views_that_do_not_fit_on_the_disk_are_refused_before_the_folder_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(limits.shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
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
