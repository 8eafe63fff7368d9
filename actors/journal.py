"""The append-only view file of one party, mode 0600. No frame of a step is sent before its records are written here."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from protocol.card import Card, Seat, seat_party
from protocol.errors import Aborted, BadInput, Reason
from protocol.party.party import Outgoing, Party, Step
from protocol.party.role import user_index
from protocol.party.view import Broken, Record, WholeRecords, skim
from protocol.wire.messages import SETUP

_PER_FOLDER = 1000
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

Follow = Callable[[Party, Iterable[Record]], Iterable[Record]]


def view_path(run_folder: str, party: str) -> str:
    """Name the view file of `party`: `views/user-17.view`; from user 1000 on, in folders of a thousand users."""
    user = user_index(party)
    shard = f"users-{user // _PER_FOLDER}/" if user >= _PER_FOLDER else ""
    return f"{run_folder}/views/{shard}{party.replace(':', '-')}.view"


def make_view_folders(run_folder: str, parties: Iterable[str]) -> None:
    for folder in {os.path.dirname(view_path(run_folder, party)) for party in parties}:
        os.makedirs(folder, mode=0o700, exist_ok=True)


def if_full(error: OSError, path: str) -> Aborted | OSError:
    """Turn the `error` of a full disk into a typed reason: the run ends, and can be resumed when there is space."""
    return Aborted(Reason.DISK_FULL, f"{path}: {error.strerror}") if error.errno in _FULL else error


class Journal:
    def __init__(self, path: str, again: bool = False) -> None:
        """Open the file at `path` as its only writer: a new one or, with `again`, one that is continued."""
        self._path = path
        self._held: list[bytes] = []
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.open(path, flags if again else flags | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise if_full(error, path) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise BadInput(f"Another process is still writing {path}: wait for it, or stop it.") from None

    def cut(self, end: int) -> None:
        """Cut the file at offset `end`, to drop what a crash left behind it."""
        os.ftruncate(self._file, end)

    def hold(self, records: list[bytes]) -> None:
        """Keep `records` that cause no frame until the next `append` or `flush` writes them."""
        self._held += records

    def flush(self) -> None:
        if self._held:
            self.append([])

    def append(self, records: list[bytes]) -> None:
        if self._held:
            records = [*self._held, *records]
            self._held = []
        data = memoryview(records[0] if len(records) == 1 else b"".join(records))
        try:
            while data:  # a regular file takes everything in one write, unless the disk is full
                data = data[self.write(data) :]
        except OSError as error:
            raise if_full(error, self._path) from error

    def write(self, data: memoryview) -> int:
        """Write as much of `data` as fits; return the number of bytes."""
        return os.write(self._file, data)

    def close(self) -> None:
        self.flush()
        os.close(self._file)


def open_journal(path: str, opening: bytes) -> Journal:
    journal = Journal(path)
    journal.append([opening])
    return journal


def resume_party(card: Card, seat: Seat, path: str, follow: Follow | None = None) -> tuple[Party, Journal, Step]:
    """Restore a party by replaying its view at `path`; `follow` sees every record.

    The step holds the records and frames that the party had not written or sent yet.
    """
    party, opening = seat_party(card, seat, with_view=True)
    try:
        journal = Journal(path, again=True)  # locked before it is read, so that no other process writes meanwhile
    except FileNotFoundError:
        return party, open_journal(path, opening), party.start()
    try:
        if not _opens_with(path, opening):
            journal.cut(0)
            journal.append([opening])
        with open(path, "rb") as file:
            whole = WholeRecords(file)
            records: Iterable[Record] = itertools.islice(whole, 2, None)
            step = party.replay(follow(party, records) if follow else records)
            _set_aside(path, file, whole.end)
        journal.cut(whole.end)
    except BaseException:
        journal.close()
        raise
    return party, journal, step


def _set_aside(path: str, file: BinaryIO, end: int) -> None:
    """Save the bytes of `file` after `end` beside the view.

    They are a record that a crash cut off, or whole records behind a length that was damaged later.
    """
    file.seek(end)
    if rest := file.read():
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with open(os.open(f"{path}.cut", flags, 0o600), "wb") as aside:
            aside.write(rest)


def view_end(path: str) -> tuple[int, bytes] | None:
    """Read (records, head) of the view at `path`; None if there is no file."""
    try:
        with open(path, "rb") as file:
            return skim(file)
    except FileNotFoundError:
        return None


def derive_again(card: Card, seat: Seat, path: str, peer: str, first: int, end: int) -> list[Outgoing]:
    """Derive the frames to `peer` numbered from `first` up to `end`, by replaying the view at `path` in memory."""
    party, _ = seat_party(card, seat, with_view=True)
    numbers, found = itertools.count(), []

    def on_sent(out: Outgoing) -> None:
        if out.to == peer and first <= next(numbers) < end:
            found.append(dataclasses.replace(out, kind="resend", iteration=SETUP))

    with open(path, "rb") as file:
        party.replay(itertools.islice(WholeRecords(file), 2, None), on_sent)
    return found


def _opens_with(path: str, opening: bytes) -> bool:
    """Compare the start of the view with `opening`: False if it was cut off there, `Broken` if it differs."""
    with open(path, "rb") as file:
        begun = file.read(len(opening))
    if begun != opening[: len(begun)]:
        raise Broken(f"{path} was begun with other data, another seed or other parameters than those of this run")
    return len(begun) == len(opening)


def write_private(path: Path, text: str) -> None:
    """Write `text` to a new file that only its owner can read, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
