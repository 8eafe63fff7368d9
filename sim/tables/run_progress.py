"""The progress of a run: starting, joining, replaying, iterating, measuring."""

from __future__ import annotations

from typing import Any

from sim.console.console import number, size
from sim.console.progress import Progress

_MEASURING = "measuring the predictions, with and without protection"


class RunProgress(Progress):
    """A display of each stage of a run."""

    def __init__(self, quiet: bool) -> None:
        super().__init__("reading the ratings", quiet=quiet)
        self._users = self._iterations = 0

    def start(self, users: int, iterations: int) -> None:
        self._users, self._iterations = users, iterations
        self.begin(f"starting the processes of {users:,} users")

    def join(self, users: int) -> None:
        self.begin("joining", self._users, "users")
        self.to(users)

    def replay(self, iterations: int, done: int | None) -> None:
        """Show that the parties of a resumed run have replayed `done` of `iterations` from their views."""
        if iterations:
            self.begin(f"replaying {iterations:,} iterations", iterations)
            self.to(min(done or 0, iterations))

    def line(self, line: dict[str, Any]) -> None:
        """Show the time and bytes of the latest iteration, and the error that users had before it."""
        done = line["iteration"] + 1
        if done >= self._iterations:
            self.begin(_MEASURING)
            return
        error = "" if line["train_mae"] is None else f", train MAE of the iterate {line['train_mae']:.3f}"
        taken = f" ({number(line['seconds'])} s{error}, {size(line['bytes'])})" if done else ""
        self.begin("iterating", self._iterations, taken.strip())
        self.to(done)

    def audit(self) -> None:
        self.begin("auditing: the questions that take a moment")
