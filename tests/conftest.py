"""Shared fixtures: sockets with a gate, the folder of a small run, and a cache that belongs to the tests."""

from __future__ import annotations

import os

import pytest
import zmq
from support.tamper import copy_of, small_folder

from actors.transport.zeromq import Gate
from protocol import schemes
from sim.console import progress
from sim.data.ratings import cache_folder


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Keep answers in a cache folder of the tests, never in the account's; ratings may still come from that one."""
    before = {name: os.environ.get(name) for name in ("XDG_CACHE_HOME", "KEYHOLE_DATA")}
    os.environ.setdefault("KEYHOLE_DATA", str(cache_folder()))
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@pytest.fixture(autouse=True)
def own_pace(monkeypatch):
    """Let no command called in this process write a line of progress because the machine is busy."""
    monkeypatch.setattr(progress, "FIRST_SECONDS", 3600.0)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """Undo the changes to the environment that a command called in this process makes for its children."""
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.delenv("PYTHONSAFEPATH")


@pytest.fixture(autouse=True, scope="module")
def own_schemes():
    """Forget after each file the schemes that its tests loaded: errors are blamed on a loaded scheme."""
    before = dict(schemes._OWN)
    yield
    schemes._OWN.clear()
    schemes._OWN.update(before)


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def gate(context):
    gate = Gate(context)
    yield gate
    gate.close()


@pytest.fixture(params=["tcp", "ipc"])
def endpoint(request, tmp_path):
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{tmp_path}/s"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Make a small run that tests only read."""
    return small_folder(tmp_path_factory.mktemp("base") / "run")


@pytest.fixture
def folder(base, tmp_path):
    """Copy the small run for a test that tampers with it."""
    return copy_of(base, tmp_path)
