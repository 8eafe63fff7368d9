"""The launcher's side of the zygote: it forks processes, sends them their orders, and receives reports and exits.

Only `listen` waits, and it reads everything that arrives meanwhile (`pipes.py` says why that matters).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from actors.launch.reports import Ask, Call, Common, Exited, Fork, Happens, Hosting, Quit, Restarted, Stop, read, write
from actors.pipes import Channel, Mailbox, Orders, pack
from actors.source_root import ROOT
from protocol.errors import Aborted, Reason

_STOP_SECONDS = 10.0
_MAIN = """
import sys
places = [place for place, folder in enumerate(sys.path) if folder.endswith("-packages")]
sys.path.insert(min(places, default=len(sys.path)), sys.argv.pop(1))
from {module} import main
main()
"""


def python_running(module: str, *arguments: str) -> list[str]:
    """Return a command that calls `main` of `module` of this Keyhole with `arguments` in a new interpreter.

    -P keeps the current folder off the import path. The folder of Keyhole comes before the installed packages, among
    which may be another Keyhole, and after the standard library.
    """
    return [sys.executable, "-P", "-c", _MAIN.format(module=module), ROOT, *arguments]


class Nursery:
    """The processes of a run, by the parties that they host; `locks` stay locked while any of them runs."""

    def __init__(self, observer_fd: int, log: Path, locks: Sequence[int] = ()) -> None:
        self._lines: dict[str, Channel] = {}  # to the process of each party
        self._behind: dict[int, Channel] = {}  # by descriptor: lines with data still to be sent
        self._log = log
        control, far_control = socket.socketpair()
        orders, far_orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reports, far_reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control, self._orders, self._mailbox = Channel(control), Orders(orders), Mailbox(reports)
        descriptors = (far_control.fileno(), far_orders.fileno(), far_reports.fileno(), observer_fd)
        environment = os.environ | {
            "OPENBLAS_NUM_THREADS": "1",  # no threads may exist when the zygote forks
            "MALLOC_ARENA_MAX": "1",  # ZeroMQ's two threads need no heaps of their own
        }
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with open(os.open(log, flags, 0o600), "ab") as output:
            self._zygote = subprocess.Popen(
                python_running("actors.launch.zygote", *map(str, descriptors)),
                pass_fds=(*descriptors, *locks),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the launcher alone, which then stops the rest
            )
        for far in (far_control, far_orders, far_reports):
            far.close()

    def prepare(self, common: Common) -> None:
        """Send the zygote what every process needs to know, before the first fork."""
        self._command(common)

    def fork(self, count: int) -> None:
        self._command(Fork(count))

    def _command(self, order: Common | Fork) -> None:
        try:
            self._control.send(write(order))
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None

    def _ended(self) -> Aborted:
        return Aborted(Reason.PARTY_DIED, "the process that starts the others")

    def order(self, order: Hosting, shared: bytes | None = None) -> None:
        """Have the next idle process carry out `order`; `shared` is a block that it maps (`secret_rows.py`)."""
        parties = order.parties
        line, far_line = socket.socketpair()
        channel = Channel(line, ", ".join(parties[:3]))
        for old in self._channels(parties):
            self._behind.pop(old.fileno(), None)
            old.close()
        self._lines |= dict.fromkeys(parties, channel)
        try:
            self._orders.send(pack(write(order)), far_line, shared)
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None

    def has_idle_orders(self) -> bool:
        """Tell whether orders wait because the pipe is full; no more should be sent before a process takes some."""
        return self._orders.pending > 0

    def is_lost(self, party: str) -> bool:
        """Tell whether the order of `party` was taken by a process that has ended, which closed its line."""
        return self._lines[party].is_closed()

    def tell(self, party: str, order: Happens | Ask) -> None:
        """Send `order` to the process of `party`.

        It is dropped if that process has ended or has no order yet; the process that replaces it is told again.
        """
        if party in self._lines:
            self._say(self._lines[party], order)

    def call(self, server: str, users: Iterable[str]) -> None:
        """Call `users`, which are not connected to `server` but have frames waiting there."""
        by_line: dict[int, list[str]] = {}
        for user in users:
            if user in self._lines:
                by_line.setdefault(id(self._lines[user]), []).append(user)
        for called in by_line.values():
            self._say(self._lines[called[0]], Call(server, called))

    def tell_all(self, order: Restarted | Quit) -> None:
        for channel in self._channels(self._lines):
            self._say(channel, order)

    def _say(self, channel: Channel, order: tuple[Any, ...]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            channel.send(write(order))
        if channel.pending:
            self._behind[channel.fileno()] = channel

    def _channels(self, parties: Iterable[str]) -> list[Channel]:
        return list({id(self._lines[party]): self._lines[party] for party in parties if party in self._lines}.values())

    def listen(self, timeout: float | None) -> tuple[list[Any], list[Exited]]:
        """Return the (reports, exits) that have arrived; the reports of a process always precede its exit.

        Waits until something arrives, until a full pipe takes more, or for `timeout` seconds.
        """
        poller = select.poll()  # not select.select, which ends at descriptor 1023
        for source in (self._control, self._mailbox):
            poller.register(source, select.POLLIN)
        if self._control.pending:
            poller.register(self._control, select.POLLIN | select.POLLOUT)
        if self._orders.pending:
            poller.register(self._orders, select.POLLOUT)
        for line in self._behind:
            poller.register(line, select.POLLOUT)
        ready = dict(poller.poll(None if timeout is None else 1000 * timeout))
        exits = self._control.receive() if ready.get(self._control.fileno(), 0) & ~select.POLLOUT else []
        if exits is None:
            raise self._ended()
        reports = []
        while (report := self._mailbox.receive()) is not None:
            reports.append(read(report))
        self._go_on_sending(ready)
        return reports, [read(values) for values in exits]

    def _go_on_sending(self, ready: Collection[int]) -> None:
        try:
            self._control.flush()
            self._orders.flush()
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None
        for descriptor in self._behind.keys() & ready:
            channel = self._behind[descriptor]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                channel.flush()
            if not channel.pending:
                del self._behind[descriptor]

    def stop(self) -> None:
        """Have the zygote kill all processes and end; if it does not, kill it, which ends the others too."""
        try:
            self._control.send(write(Stop()))
            self._see_out(_STOP_SECONDS)
        except (OSError, Aborted, subprocess.TimeoutExpired):
            self._zygote.kill()
            self._zygote.wait()
        for channel in (self._control, *self._channels(self._lines)):
            channel.close()
        self._mailbox.close()
        self._orders.close()
        if self._log.exists() and not self._log.stat().st_size:
            self._log.unlink()

    def _see_out(self, seconds: float) -> None:
        """Wait up to `seconds` for the zygote to end, and send it the orders that it has not read yet."""
        until = time.monotonic() + seconds
        while self._control.pending and self._zygote.poll() is None and time.monotonic() < until:
            self.listen(0.05)
        self._zygote.wait(max(0.0, until - time.monotonic()))
