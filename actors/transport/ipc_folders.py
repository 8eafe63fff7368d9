"""Private folders for ipc sockets, in the temporary directory, because a socket's path must be short.

Every process of a run holds the lock of its folder. A run that was killed cannot remove its folder; the next run of the
same person removes it, once no process holds the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "kh-"
_LOCK = "lock"
_LONGEST = 80  # of a folder: a unix socket path has at most 107 bytes


class SocketFolder:
    def __init__(self) -> None:
        while True:
            self._path = _short_folder()
            self.lock = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.stat(self._path / _LOCK)  # another run may have removed it before it was locked
                return
            os.close(self.lock)

    def address(self, server: str) -> str:
        return f"ipc://{self._path}/{server}"

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self.lock)


def _places() -> list[str]:
    """List the directories that may hold such folders: the temporary directory, and /tmp if its name is too long."""
    return list(dict.fromkeys([tempfile.gettempdir(), "/tmp"]))


def _short_folder() -> Path:
    for place in _places():
        if len(os.path.join(place, _PREFIX)) + 8 <= _LONGEST:
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    raise AssertionError("/tmp is short")


def remove_those_of_the_dead() -> None:
    """Remove the folders of killed runs of this person."""
    for place in _places():
        for folder in Path(place).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    """Remove `folder` if its run is dead; raise OSError if the folder has no lock, or its run holds the lock."""
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
