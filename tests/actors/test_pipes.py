"""Every pipe and socket between the processes of a run, with a reader that is late and a hundred thousand items.

No writer waits: each hands over everything while its reader has not begun to read.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest
import zmq

from actors import pipes as channels
from actors.launch.reports import Exited, Happens, read, write
from actors.pipes import Channel, Mailbox, Orders, receive_order
from actors.transport.zeromq import HIGH_WATER, ClientEnd, Gate, ServerEnd, make_key_pair
from protocol.errors import Aborted
from tests.survival.test_resume import start
from tests.survival.test_resume_long import PATIENCE, await_iteration, check_same, finish, settings, undisturbed
from tests.survival.test_resume_long import _server as server_of

ITEMS = 100_000
LATE = 10.0  # seconds that a reader is late, at least


@contextmanager
def pair(kind: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair(socket.AF_UNIX, kind)
    try:
        yield near, far
    finally:
        near.close()
        far.close()


def both(write: Callable[[], object], read: Callable[[], object]) -> object:
    """Run `read` when `write` has returned and `LATE` seconds have passed since it began; give its result."""
    begun = time.monotonic()
    write()
    time.sleep(max(0.0, begun + LATE - time.monotonic()))
    return read()


def from_launcher_to_host() -> bool:
    """Send events, which a host takes one by one."""
    with pair(socket.SOCK_STREAM) as (near, far):
        launcher, host = Channel(near), Channel(far)
        found: list[object] = []

        def send() -> None:
            for number in range(ITEMS):
                launcher.send(write(Happens("user:3", "Churn", [number, True])))

        def take() -> None:
            while len(found) < ITEMS:
                launcher.flush()
                found.append(host.receive_one())

        both(send, take)
        happened = [Happens("user:3", "Churn", [number, True]) for number in range(ITEMS)]
        return [read(values) for values in found] == happened and not launcher.pending


def from_zygote_to_launcher() -> bool:
    """Send ends of processes, which the launcher takes in batches."""
    with pair(socket.SOCK_STREAM) as (near, far):
        zygote, launcher = Channel(near), Channel(far)
        found: list[object] = []

        def send() -> None:
            for number in range(ITEMS):
                zygote.send(write(Exited(number, -9)))

        def take() -> None:
            while len(found) < ITEMS:
                zygote.flush()
                found.extend(launcher.receive() or ())

        both(send, take)
        return [read(values) for values in found] == [Exited(number, -9) for number in range(ITEMS)]


class Companion:
    """A single descriptor that stands for the far end of every line: a hundred thousand cannot be open."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self.closed = end, 0

    def fileno(self) -> int:
        return self._end.fileno()

    def close(self) -> None:
        self.closed += 1


def from_launcher_to_new_processes() -> bool:
    with pair(socket.SOCK_SEQPACKET) as (near, far), pair(socket.SOCK_STREAM) as (line, _):
        orders, companion = Orders(near), Companion(line)
        found: list[int] = []

        def send() -> None:
            for number in range(ITEMS):
                orders.send(msgpack.packb(number), companion)

        def take() -> None:
            while len(found) < ITEMS:
                orders.flush()
                taken = receive_order(far)
                assert taken is not None
                found.append(msgpack.unpackb(taken[0]))
                os.close(taken[1])

        both(send, take)
        return found == list(range(ITEMS)) and companion.closed == ITEMS and not orders.pending


def from_hosts_to_launcher() -> bool:
    """Send reports, most of them short and some so long that they travel as files."""
    with pair(socket.SOCK_SEQPACKET) as (near, far):
        host, launcher = Mailbox(near), Mailbox(far)
        wanted = [[number, bytes(70_000 if number % 1000 == 0 else 40)] for number in range(ITEMS)]
        found: list[object] = []

        def send() -> None:
            for report in wanted:
                host.send(report)

        def take() -> None:
            while len(found) < ITEMS:
                host.flush()
                while (report := launcher.receive()) is not None:
                    found.append(report)

        both(send, take)
        return found == wanted and not host.pending


@contextmanager
def connected() -> Iterator[tuple[ServerEnd, ClientEnd]]:
    context: zmq.Context = zmq.Context()
    gate, ours, theirs = Gate(context), make_key_pair(), make_key_pair()
    server = ServerEnd(context, gate, "recommender", "tcp://127.0.0.1:*", ours, {theirs.public: "user:0"}, 1000)
    client = ClientEnd(context, "recommender", server.address, theirs, 1000)
    try:
        yield server, client
    finally:
        client.close(0)
        server.close()
        gate.close()
        context.destroy(linger=0)


def drain(end: ServerEnd | ClientEnd) -> list[int]:
    """Read frame numbers until nothing has come for three seconds."""
    found: list[int] = []
    while end.socket.poll(3000):
        while (arrived := end.receive()) is not None:
            found.append(int.from_bytes(arrived[1], "little"))
    return found


def frame(number: int) -> bytes:
    """Make a frame so long that a hundred thousand fill every buffer of the kernel and both queues of libzmq."""
    return number.to_bytes(900, "little")


def from_server_to_user() -> bool:
    """Send frames: those that the socket takes arrive in order, and the sender knows which it did not take."""
    with connected() as (server, client):
        client.send("recommender", bytes(8))
        assert server.socket.poll(PATIENCE * 1000) and server.receive() == ("user:0", bytes(8))
        taken: list[int] = []

        def send() -> None:
            taken.extend(at for at in range(ITEMS) if server.send("user:0", frame(at)))

        return both(send, lambda: drain(client)) == taken and HIGH_WATER <= len(taken) < ITEMS


def from_user_to_server() -> bool:
    """Send frames; the user dials again when the server does not read, which may lose frames but doubles none."""
    with connected() as (server, client):

        def send() -> None:
            for number in range(ITEMS):
                client.send("recommender", frame(number))

        found = both(send, lambda: drain(server))
        return isinstance(found, list) and len(set(found)) == len(found) >= HIGH_WATER


PIPES = (
    from_launcher_to_host,
    from_zygote_to_launcher,
    from_launcher_to_new_processes,
    from_hosts_to_launcher,
    from_server_to_user,
    from_user_to_server,
)


def begin(work: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future[Any]:
    """Run `work` in a daemon thread: a writer that blocks for ever must not keep the process from ending."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def carry_out() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=carry_out, daemon=True).start()
    return future


@pytest.fixture(scope="module")
def outcomes() -> dict[str, concurrent.futures.Future[bool]]:
    """Start all pipes at once, since each takes as long as its reader is late."""
    return {pipe.__name__: begin(pipe) for pipe in PIPES}


@pytest.mark.parametrize("pipe", [pipe.__name__ for pipe in PIPES])
def test_no_writer_waits_for_a_late_reader_and_nothing_is_lost(outcomes, pipe):
    assert outcomes[pipe].result(timeout=PATIENCE / 2)


def test_a_line_that_nobody_reads_ends_the_run_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(channels, "MOST_PENDING", 1 << 20)
    with pair(socket.SOCK_STREAM) as (near, _):
        channel = Channel(near, "user:3")
        with pytest.raises(Aborted, match="user:3 does not read"):
            all(channel.send(bytes(100)) is None for _ in range(ITEMS))
        assert 1 << 20 < channel.pending < 2 << 20


def test_reports_that_nobody_reads_hold_their_host_up_before_they_fill_its_memory(monkeypatch):
    monkeypatch.setattr(channels, "MOST_PENDING", 1 << 20)
    with pair(socket.SOCK_SEQPACKET) as (near, far):
        host, launcher = Mailbox(near), Mailbox(far)
        most: list[int] = []

        def send() -> None:
            for number in range(ITEMS):
                host.send([number, bytes(100)])
                most.append(host.pending)
            host.flush(wait=True)

        writer = threading.Thread(target=send)
        writer.start()
        found: list[int] = []
        while len(found) < ITEMS:
            while (report := launcher.receive()) is not None:
                found.append(report[0])
        writer.join(PATIENCE)
        assert found == list(range(ITEMS)) and 0 < max(most) <= 1 << 20


# --- the same between real processes ---------------------------------------------------------------------------------


def _launcher(process, folder: Path) -> psutil.Process:
    return psutil.Process(process.pid)


def _zygote(process, folder: Path) -> psutil.Process:
    return psutil.Process(process.pid).children()[0]


LATE_PROCESSES: dict[str, Callable[..., psutil.Process]] = {
    "launcher": _launcher,
    "zygote": _zygote,
    "recommender": lambda process, folder: server_of(process, folder, "recommender"),
    "third_party": lambda process, folder: server_of(process, folder, "third_party"),
    "user:2": lambda process, folder: server_of(process, folder, "user-2"),
}


def run_with_a_late_process(folder: Path, config: dict, who: str) -> dict:
    process = start(folder, "run", **config)
    await_iteration(process, folder, 20)
    late = LATE_PROCESSES[who](process, folder)
    late.send_signal(signal.SIGSTOP)
    time.sleep(LATE)
    late.send_signal(signal.SIGCONT)
    return finish(process)


@pytest.fixture(scope="module")
def late_runs(tmp_path_factory) -> tuple[Path, dict, dict[str, concurrent.futures.Future[dict]]]:
    folder, config = tmp_path_factory.mktemp("late"), settings("dynamic", 1000)
    expected = undisturbed(folder / "whole", config)
    runs = {who: begin(run_with_a_late_process, folder / who.replace(":", "-"), config, who) for who in LATE_PROCESSES}
    return folder, expected, runs


@pytest.mark.parametrize("who", LATE_PROCESSES)
def test_a_process_that_does_nothing_for_ten_seconds_costs_ten_seconds(late_runs, who):
    folder, expected, runs = late_runs
    check_same(runs[who].result(timeout=2 * PATIENCE), folder / who.replace(":", "-"), expected)
