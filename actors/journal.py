"""The append-only view file of one party, mode 0600. Nothing that a step causes is sent before its records are here."""

from __future__ import annotations

import os
from collections.abc import Iterable

from protocol.party import Party, Step
from protocol.roles import user_index
from protocol.view import read_whole_records

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
    def __init__(self, path: str, resume_at: int | None = None) -> None:
        """A new file, or one that goes on at this offset (a record that a crash cut off goes)."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags if resume_at is not None else flags | os.O_CREAT | os.O_EXCL, 0o600)
        if resume_at is not None:
            os.ftruncate(self._file, resume_at)

    def append(self, records: list[bytes]) -> None:
        data = memoryview(records[0] if len(records) == 1 else b"".join(records))
        while data:  # a regular file takes all at once; a full disk raises
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        os.close(self._file)


def resume_party(party: Party, path: str) -> tuple[Journal, Step]:
    """Bring a fresh party to where its view ends; the step holds what it had not sent yet."""
    with open(path, "rb") as file:
        records, end = read_whole_records(file)
    assert party.view is not None
    party.view.resume(records[-1])
    return Journal(path, end), party.replay(records[2:])
