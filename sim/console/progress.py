"""Progress of a command: a live line on a terminal, elsewhere a line on stderr every few seconds; nothing if `quiet`.

    with Progress("joining", 943, unit="users", quiet=quiet) as progress:
        progress.advance()                      # "joining: 1 of 943 users"
        progress.begin("replaying", 20)         # the next stage
        progress.to(7)                          # "replaying: 7 of 20"

A command that ends within two seconds prints nothing. Lines follow the clock, even while a stage reports no progress.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Self

from rich.markup import escape

from sim.console.console import err, say
from sim.foreign.plain_text import visible

FIRST_SECONDS = 2.0  # before the first line
SECONDS = 5.0  # between lines
PERCENT = "%"  # as a unit: only the share that is done is shown

Wait = Callable[[float], bool]  # waits for that number of seconds; True: the command is over
Tell = Callable[[int, int], None]  # (done, total), for code that knows nothing else of the progress


class Progress:
    """The progress of the current stage of a command. Safe to call from any thread; never writes to stdout."""

    def __init__(
        self, label: str, total: int | None = None, unit: str = "", *, quiet: bool = False, wait: Wait | None = None
    ) -> None:
        self._over = threading.Event()
        self._wait = wait or self._over.wait
        self._quiet = quiet
        self._status = err.status(escape(label)) if not quiet and sys.stderr.isatty() else None
        self._clock = threading.Thread(target=self._write_lines, daemon=True)
        self.begin(label, total, unit)

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        elif not self._quiet:
            self._clock.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        if self._status:
            self._status.stop()
        elif self._clock.is_alive():
            self._clock.join()

    def begin(self, label: str, total: int | None = None, unit: str = "") -> None:
        """Start the next stage, with nothing of it done yet."""
        self._label, self._total, self._unit, self._done = label, total, unit, 0
        self._show()

    def advance(self, count: int = 1) -> None:
        self.to(self._done + count)

    def to(self, done: int, total: int | None = None) -> None:
        """Report how much is `done`; `total` replaces the earlier total, where it becomes known only now."""
        self._done, self._total = done, self._total if total is None else total
        self._show()

    @property
    def text(self) -> str:
        done, total, unit = self._done, self._total, self._unit
        if not done and not total:
            return self._label
        if unit == PERCENT and total:
            return f"{self._label}: {100 * done // total} %"
        of = f" of {total:,}" if total is not None else ""
        return f"{self._label}: {done:,}{of}{f' {unit}' if unit else ''}"

    def _show(self) -> None:
        if self._status:
            self._status.update(escape(visible(self.text)))

    def _write_lines(self) -> None:
        seconds = FIRST_SECONDS
        while not self._wait(seconds):
            say(self.text)
            seconds = SECONDS
