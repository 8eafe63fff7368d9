"""Worker processes that are spawned, so that they inherit no threads or sockets, and that import the same modules.

`map_cells` calls a function for many cells. `Workers.completed` waits for what was submitted. It raises `Aborted` with
a typed reason if a worker has died, or if no worker has taken any processor time for `PATIENCE` seconds. A worker that
computes may take any time.

A new Python process would search the current folder before the standard library; PYTHONSAFEPATH prevents that. Schemes
that the person has trusted in this process are loaded in the workers too, because work refers to their classes by name.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import psutil

from actors.own_scheme import load_scheme
from actors.timers import Watchdog
from protocol.errors import Aborted, BadInput, Reason
from protocol.schemes import own_schemes

SAFE_PATH = "PYTHONSAFEPATH"
PATIENCE = 120.0  # seconds without processor time; long, as a machine may be busy or asleep for a while
_LOOK_SECONDS = 1.0

Result = TypeVar("Result")


class Workers:
    """A pool of processes. Child processes that existed before it was made do not belong to it."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self._others = set(multiprocessing.active_children())

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        return self._pool.submit(work, *arguments)

    def completed(self, futures: Iterable[Future[Result]], patience: float = PATIENCE) -> Iterator[Result]:
        """Yield the result of each piece of work as it is done."""
        left, watchdog, taken = set(futures), Watchdog(patience), 0.0
        try:
            while left:
                done, left = wait(left, _LOOK_SECONDS, FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                if done or (now := self._processor_seconds()) > taken:
                    watchdog.moved()
                    taken = taken if done else now
                elif watchdog.is_stalled():
                    raise Aborted(Reason.STALLED, f"for {patience:.0f} s: {self._describe()}")
        except BrokenProcessPool:
            words = "a worker process; was it killed, or is there too little memory?"
            raise Aborted(Reason.PARTY_DIED, words) from None

    def kill(self) -> None:
        for worker in self._own():
            worker.kill()

    def _own(self) -> list[BaseProcess]:
        return [worker for worker in multiprocessing.active_children() if worker not in self._others]

    def _processes(self) -> Iterator[psutil.Process]:
        for worker in self._own():
            with contextlib.suppress(psutil.Error, ValueError):
                yield psutil.Process(worker.pid)

    def _processor_seconds(self) -> float:
        """Add up the processor time of all workers. It falls when a worker ends; only a rise counts as progress."""
        total = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                times: Any = process.cpu_times()
                total += times.user + times.system
        return total

    def _describe(self) -> str:
        states = [f"worker process {process.pid} is {process.status()}" for process in self._processes()]
        return "; ".join(states) or "there is no worker process"


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[Workers]:
    """Make a pool of `workers` processes, and end it; if an exception is raised, the processes are killed at once."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, context, _load, (own_schemes(),)) as pool:
            made = Workers(pool)
            try:
                yield made
            except BaseException:
                made.kill()
                raise
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def map_cells(
    work: Callable[..., Result],
    cells: Sequence[tuple[Any, ...]],
    processes: int | None = None,
    finished: Callable[[Result], object] = lambda result: None,
) -> list[Result]:
    """Call `work` with the arguments in each of `cells`; return the results in the order of `cells`.

    With None, there are as many `processes` as cores; one process is this one. `finished` is called with each result as
    soon as it is there.
    """
    processes = min(processes or os.cpu_count() or 1, len(cells))
    if processes <= 1:
        results = []
        for cell in cells:
            results.append(work(*cell))
            finished(results[-1])
        return results
    with worker_pool(processes) as pool:
        futures = [pool.submit(work, *cell) for cell in cells]
        for result in pool.completed(futures):
            finished(result)
        return [future.result() for future in futures]


def _load(schemes: Iterable[str]) -> None:
    """Load the person's `schemes` in a worker.

    A scheme that cannot be loaded is skipped: the current folder may have changed, and the work may not need it.
    """
    for name in schemes:
        with contextlib.suppress(BadInput):
            load_scheme(name)
