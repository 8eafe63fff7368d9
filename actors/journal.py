"""The append-only view file of one party, mode 0600. Nothing that a step causes is sent before its records are here."""

from __future__ import annotations

import os
from pathlib import Path

from protocol.roles import user_index

_PER_FOLDER = 1000


def view_path(folder: Path, party: str) -> Path:
    """`views/recommender.view`, `views/user-17.view`, and from the thousandth user on in folders of a thousand."""
    user = user_index(party)
    name = party.replace(":", "-") + ".view"
    return folder / f"users-{user // _PER_FOLDER}" / name if user >= _PER_FOLDER else folder / name


class Journal:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, records: list[bytes]) -> None:
        data = memoryview(records[0] if len(records) == 1 else b"".join(records))
        while data:  # a regular file takes all at once; a full disk raises
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        os.close(self._file)
