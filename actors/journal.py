"""The append-only view file of one party, mode 0600. No frame of a step is sent before its records are written here."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from protocol.card import Card, Seat, seat_party
from protocol.errors import Aborted, BadInput, Reason
from protocol.freeze import Unfit, restore
from protocol.party.party import Outgoing, Party, Step
from protocol.party.role import user_index
from protocol.party.view import Broken, Record, WholeRecords, chained, last_checkpoint, skim
from protocol.wire.messages import SETUP

_PER_FOLDER = 1000
_ANY = 1 << 62  # beyond every iteration
ODD = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)  # in a forged state
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

Follow = Callable[[Party, Iterable[Record]], Iterable[Record]]
Pass = Callable[[Party, Record], None]


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
        self.since_checkpoint = 0  # bytes that were written
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
        self.since_checkpoint += len(data)
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


@dataclasses.dataclass(frozen=True, slots=True)
class Onlooker:
    """The driver of a party that is read back: it sees every record of the view."""

    known: int  # the figures of the iterations up to this one are known: a checkpoint after a later one is of no use
    passed: Pass  # told of the records that a checkpoint makes it needless to replay, if they are of these types
    types: frozenset[int]
    follow: Follow  # sees the others, as they are replayed


def resume_party(card: Card, seat: Seat, path: str, onlooker: Onlooker | None = None) -> tuple[Party, Journal, Step]:
    """Restore a party from its view at `path`: from its latest checkpoint of use, and by replaying what follows.

    The hash chain is checked from the beginning. The step holds the records and frames that the party had not written
    or sent yet.
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
            party, whole, step = _read_back(card, seat, party, file, onlooker)
            _set_aside(path, file, whole.end)
        journal.cut(whole.end)
        journal.since_checkpoint = whole.end - whole.checkpoint
    except BaseException:
        journal.close()
        raise
    return party, journal, step


def _read_back(
    card: Card, seat: Seat, party: Party, file: BinaryIO, onlooker: Onlooker | None
) -> tuple[Party, WholeRecords, Step]:
    mark = last_checkpoint(file, onlooker.known + 1) if onlooker else None
    if mark is not None:
        try:
            restore(party, mark.fields[1])
        except Unfit:  # replayed from the beginning, the role shows what it does instead
            mark = None
            party, _ = seat_party(card, seat, with_view=True)
    if onlooker and mark:
        for record in _up_to(mark, party, file, onlooker.types):
            onlooker.passed(party, record)
    whole = WholeRecords(file, mark)
    records: Iterable[Record] = whole if mark else itertools.islice(whole, 2, None)
    rest = onlooker.follow(party, records) if onlooker else records
    return party, whole, _replayed_after(mark, party, rest) if mark else party.replay(rest)


def _up_to(mark: Record, party: Party, file: BinaryIO, types: frozenset[int] = frozenset()) -> Iterator[Record]:
    """Check the chain up to `mark`, in whose state `party` is, and yield the records of these `types` before it."""
    assert party.view is not None
    yield from chained(file, mark, types)
    party.view.go_on_after(mark)


def _replayed_after(mark: Record, party: Party, records: Iterable[Record]) -> Step:
    try:
        return party.replay_rest(records)
    except ODD as error:
        raise broken_after(mark.number) from error


def broken_after(number: int) -> Broken:
    return Broken(f"record {number} is a checkpoint after which this role cannot do what follows")


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
    """Derive the frames to `peer` numbered from `first` up to `end`, by replaying in memory what the view at `path` has
    after the latest checkpoint before them.
    """
    with open(path, "rb") as file:
        party, mark = _before(card, seat, file, peer, first)
        numbers, found = itertools.count(party.sent_to(peer)), []

        def on_sent(out: Outgoing) -> None:
            if out.to == peer and first <= next(numbers) < end:
                found.append(dataclasses.replace(out, kind="resend", iteration=SETUP))

        if mark:
            list(_up_to(mark, party, file))
            party.replay_rest(WholeRecords(file, mark), on_sent)
        else:
            party.replay(itertools.islice(WholeRecords(file), 2, None), on_sent)
    return found


def _before(card: Card, seat: Seat, file: BinaryIO, peer: str, first: int) -> tuple[Party, Record | None]:
    """Restore the latest checkpoint before frame number `first` to `peer` was sent; None if there is no such."""
    most = _ANY
    while (mark := last_checkpoint(file, most)) is not None:
        party, _ = seat_party(card, seat, with_view=True)
        try:
            restore(party, mark.fields[1])
            if party.sent_to(peer) <= first:
                return party, mark
        except Unfit:
            pass
        most = mark.fields[0] - 1
    return seat_party(card, seat, with_view=True)[0], None


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
