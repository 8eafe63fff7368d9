"""Follow a run in progress: the lines of `iterations.jsonl` as they come, and whether a process still works on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from protocol.errors import BadInput
from protocol.party.view import Broken
from protocol.schemes import Scheme
from protocol.schemes.composition import basic_composition
from protocol.wire.messages import SETUP
from sim.folder.byte_records import LINES, parse_line
from sim.folder.folder import read_run, read_summary
from sim.folder.unloaded import is_loaded
from sim.foreign import untrusted
from sim.runs.listing import is_by_hand, is_live

OFTEN = 0.5  # seconds between two looks
GRACE = 2.0  # seconds that a run without a process is given to show one, and its last lines
_SHOWN = ("iteration", "bytes", "seconds", "online", "contributors", "dropouts", "train_mae")
_TOLD = ("invited", "contributors", "present", "absent")  # users by their numbers, such as 0-39,41

Line = dict[str, Any]


class Watched:
    """The state of a run so far. The folder is only read, so the run is not disturbed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _, card = read_run(folder, unloaded=True)
        self.params = card.params
        self.scheme: Scheme | None = card.scheme if is_loaded(card) else None
        self.latest: Line | None = None  # of an iteration, not of the set-up
        self.bytes = 0
        self.summary: dict[str, Any] | None = None
        self._end = self._lines = 0  # bytes and lines read so far

    @property
    def done(self) -> int:
        """Count the iterations that are done."""
        return 0 if self.latest is None else self.latest["iteration"] + 1

    def epsilon(self, done: int) -> tuple[float, str]:
        """Compute the ε that all releases of `done` iterations may add up to, and say in words how it follows."""
        claimed = self.params.epsilon
        if self.scheme is None:
            return claimed, "claimed; the scheme is not loaded, so it is not known for what"
        if not self.scheme.unit.endswith("per release"):
            return claimed, f"claimed for: {self.scheme.unit}"
        return basic_composition(claimed, done), f"{done} releases of ε = {claimed:g}, added up"

    def new_lines(self) -> list[Line]:
        """Read the lines written since the last call; a line that is still incomplete is left for the next call."""
        most, lines = untrusted.most_bytes(self.params.n_users), []
        try:
            with untrusted.open_inside(self.folder, LINES) as stream:
                if stream.seek(0, 2) < self._end:  # the run was started anew
                    self._end, self._lines, self.bytes, self.latest = 0, 0, 0, None
                stream.seek(self._end)
                while (text := stream.readline(most + 1)).endswith(b"\n"):
                    lines.append(self._take(text))
                if len(text) > most:
                    raise Broken(f"{LINES} has a line that is longer than this run can have")
        except FileNotFoundError:
            return []
        return lines

    def _take(self, text: bytes) -> Line:
        try:
            _, line = parse_line(text)
        except ValueError as error:
            raise Broken(f"{LINES} is damaged ({' '.join(str(error).split())})") from error
        self._end, self._lines = self._end + len(text), self._lines + 1
        if self._lines > self.params.iterations + 1:
            raise Broken(f"{LINES} has more lines than the {self.params.iterations} iterations of this run")
        self.bytes += line["bytes"]
        told = {name: value for name in _TOLD if type(value := line["course"].get(name)) is str}
        line = {name: line[name] for name in _SHOWN} | {"course": told, "bytes_so_far": self.bytes}
        if line["iteration"] > SETUP:
            self.latest = line
        return line


def follow(folder: Path, often: float = OFTEN, grace: float = GRACE) -> Iterator[tuple[Watched, list[Line]]]:
    """Yield the new lines every `often` seconds, until the run has ended or no process of it is running.

    A run without a process is watched for `grace` seconds before it is taken for dead. At the end its summary, if
    there is one, has been read.
    """
    watched = Watched(folder)
    if is_by_hand(folder):
        raise BadInput(f"The parties of {folder} are started by hand and keep no {LINES}: each tells how far it is.")
    patience = grace
    while True:
        live = is_live(folder)  # checked before the lines, so that the last lines of a process are not missed
        lines = watched.new_lines()
        if not live:
            watched.summary = read_summary(folder)
        patience = grace if live or lines else patience - often
        yield watched, lines
        if not live and (watched.summary is not None or patience <= 0):
            return
        time.sleep(often)
