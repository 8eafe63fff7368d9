"""Folders for ipc sockets: short, private, and gone when their run is, also if it was killed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from actors.transport import ipc_folders
from actors.transport.ipc_folders import SocketFolder, remove_those_of_the_dead
from tests.survival.test_resume import await_lines, kill_everything, start

RUN = {"data": "synthetic:6x5:.8", "dim": 2, "iterations": 100_000, "seed": 3, "scheme": "masked", "transport": "ipc"}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Make a temporary directory that no other process uses, with a short name."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    monkeypatch.setattr(ipc_folders, "_places", lambda: [str(folder)])
    yield folder
    assert not list(folder.iterdir())
    folder.rmdir()


def test_a_folder_is_private_and_goes_with_its_run(place):
    folder = SocketFolder()
    [path] = place.iterdir()
    assert path.stat().st_mode & 0o777 == 0o700
    assert folder.address("recommender") == f"ipc://{path}/recommender" and len(str(path)) <= 80
    remove_those_of_the_dead()
    assert path.exists(), "its run lives"
    folder.remove()


def test_a_folder_that_nobody_holds_any_more_is_removed_with_its_sockets(place):
    folder = SocketFolder()
    [path] = place.iterdir()
    (path / "recommender").touch()
    os.close(folder.lock)  # as the kernel does when the last process of a run has ended
    remove_those_of_the_dead()


def test_what_is_not_ours_stays(place, monkeypatch):
    folder, elsewhere = SocketFolder(), place / "elsewhere"
    [path] = [entry for entry in place.iterdir() if entry.name.startswith("kh-")]
    os.close(folder.lock)
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (place / "kh-link").symlink_to(elsewhere)
    (place / "kh-without").mkdir()
    (place / "kh-file").touch()
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    remove_those_of_the_dead()
    assert path.exists(), "it belongs to another person"
    monkeypatch.setattr(os, "getuid", lambda: owner)
    remove_those_of_the_dead()
    assert sorted(entry.name for entry in place.iterdir()) == ["elsewhere", "kh-file", "kh-link", "kh-without"]
    assert (elsewhere / "lock").exists(), "no link is followed"
    for entry in (place / "kh-link", place / "kh-file", elsewhere / "lock"):
        entry.unlink()
    (place / "kh-without").rmdir()
    elsewhere.rmdir()


def test_the_folder_of_a_run_that_was_killed_is_removed_by_the_next_one(tmp_path, monkeypatch):
    """Its name is short enough for a socket, so the run puts its folder there."""
    place = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(place))
    process = start(tmp_path / "run", "run", **RUN)
    await_lines(process, tmp_path / "run", 3)
    [left] = place.glob("kh-*")
    kill_everything(process)
    assert left.exists(), "nobody was there to remove it"
    process = start(tmp_path / "other", "run", **RUN | {"iterations": 2, "transport": "tcp"})
    process.communicate(timeout=120)
    assert process.returncode == 0 and not left.exists()
    place.rmdir()
