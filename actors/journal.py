"""The append-only view file of one party, mode 0600. Nothing that a step causes is sent before its records are here."""

from __future__ import annotations

import os
from collections.abc import Iterable

from protocol.roles import user_index

_PER_FOLDER = 1000


def view_path(run_folder: str, party: str) -> str:
    """`views/recommender.view`, `views/user-17.view`, and from the thousandth user on in folders of a thousand."""
    user = user_index(party)
    shard = f"users-{user // _PER_FOLDER}/" if user >= _PER_FOLDER else ""
    return f"{run_folder}/views/{shard}{party.replace(':', '-')}.view"


def make_view_folders(run_folder: str, parties: Iterable[str]) -> None:
    for folder in {os.path.dirname(view_path(run_folder, party)) for party in parties}:
        os.makedirs(folder, mode=0o700, exist_ok=True)


class Journal:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, records: list[bytes]) -> None:
        data = memoryview(records[0] if len(records) == 1 else b"".join(records))
        while data:  # a regular file takes all at once; a full disk raises
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        os.close(self._file)
