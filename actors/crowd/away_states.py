"""The states of users that are not connected, in an unnamed file that only this process can open."""

from __future__ import annotations

import os
import tempfile

from actors.journal import if_full


class Vault:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - mode 0600, unlinked at once
        self._slots: dict[int, tuple[int, int, int]] = {}  # user -> offset, length, room
        self._end = 0

    def put(self, user: int, state: bytes) -> None:
        """Store the `state` of `user`, in its old slot if it fits there."""
        offset, _, room = self._slots.get(user, (0, 0, -1))
        if len(state) > room:
            offset, room = self._end, len(state)
            self._end += room
        try:
            written = os.pwrite(self._file.fileno(), state, offset)
            while written < len(state):
                written += os.pwrite(self._file.fileno(), state[written:], offset + written)
        except OSError as error:
            raise if_full(error, self._folder) from error
        self._slots[user] = (offset, len(state), room)

    def get(self, user: int) -> bytes | None:
        if user not in self._slots:
            return None
        offset, length, _ = self._slots[user]
        return os.pread(self._file.fileno(), length, offset)

    def close(self) -> None:
        self._file.close()
