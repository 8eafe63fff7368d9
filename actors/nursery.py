"""The launcher's side of the zygote: fork processes, hand them their orders, hear their reports and their ends."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgpack

from actors.channel import Channel, Mailbox, send_file
from protocol.errors import Aborted, Reason

_STOP_SECONDS = 10.0


class Nursery:
    """Processes by the parties that they host. `lock` stays locked as long as one of them lives."""

    def __init__(self, common: dict[str, Any], observer_fd: int, log: Path, lock: int | None) -> None:
        self._lines: dict[str, Channel] = {}  # to the process of each party
        self._log = log
        control, far_control = socket.socketpair()
        self._orders, far_orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reports, far_reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control, self._mailbox = Channel(control), Mailbox(reports)
        descriptors = (far_control.fileno(), far_orders.fileno(), far_reports.fileno(), observer_fd)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OPENBLAS_NUM_THREADS": "1",  # no thread before the forks
            "MALLOC_ARENA_MAX": "1",  # ZeroMQ's two threads need no heaps of their own
        }
        with log.open("ab") as output:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "actors.zygote", *map(str, descriptors)],
                pass_fds=descriptors if lock is None else (*descriptors, lock),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the launcher alone, which then stops the rest
            )
        for far in (far_control, far_orders, far_reports):
            far.close()
        self._common = common

    def prepare(self) -> None:
        """Before the first fork: what every process is told."""
        self._command({"order": "common", "path": sys.path, **self._common})

    def fork(self, count: int) -> None:
        self._command({"order": "fork", "count": count})

    def _command(self, order: dict[str, Any]) -> None:
        try:
            self._control.send(order)
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None

    def _ended(self) -> Aborted:
        return Aborted(Reason.PARTY_DIED, "the process that starts the others")

    def order(self, parties: Sequence[str], details: dict[str, Any], shared: bytes | None = None) -> None:
        """The next idle process becomes the host of these parties; `shared` is what it maps (`ranks.py`)."""
        line, far_line = socket.socketpair()
        channel = Channel(line)
        for old in self._channels(parties):
            old.close()
        self._lines |= dict.fromkeys(parties, channel)
        try:
            send_file(self._orders, msgpack.packb({"parties": list(parties), **details}), far_line, shared)
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None
        finally:
            far_line.close()

    def is_lost(self, party: str) -> bool:
        """The order of this party was taken by a process that has ended: nobody holds the other end of its line."""
        return self._lines[party].is_closed()

    def tell(self, party: str, order: list[Any]) -> None:
        """Nothing happens if its process has not started or has ended; the one that comes next is told as well."""
        if party in self._lines:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._lines[party].send([party, *order])

    def call(self, server: str, users: Iterable[str]) -> None:
        """This server has something for these users, who are not connected to it."""
        by_line: dict[int, list[str]] = {}
        for user in users:
            if user in self._lines:
                by_line.setdefault(id(self._lines[user]), []).append(user)
        for called in by_line.values():
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._lines[called[0]].send(["", "Call", server, called])

    def tell_all(self, order: list[Any]) -> None:
        for channel in self._channels(self._lines):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                channel.send(["", *order])

    def _channels(self, parties: Iterable[str]) -> list[Channel]:
        return list({id(self._lines[party]): self._lines[party] for party in parties if party in self._lines}.values())

    def listen(self, timeout: float | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(reports, exits) that have come by now; a party's report of its end stands before its exit."""
        sources: list[Channel | Mailbox] = [self._control, self._mailbox]
        ready, _, _ = select.select(sources, [], [], timeout)
        exits = self._control.receive() if self._control in ready else []
        if exits is None:
            raise self._ended()
        reports = []
        while (report := self._mailbox.receive()) is not None:
            reports.append(report)
        return reports, exits

    def stop(self) -> None:
        """The zygote kills what still runs and ends; if it cannot, its end takes the rest along."""
        try:
            self._control.send({"order": "stop"})
            self._zygote.wait(_STOP_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self._zygote.kill()
            self._zygote.wait()
        for channel in (self._control, *self._channels(self._lines)):
            channel.close()
        self._mailbox.close()
        self._orders.close()
        if self._log.exists() and not self._log.stat().st_size:
            self._log.unlink()
