"""The kernel's counts by connection: ends of every kind, reused descriptor numbers, strangers."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time

import pytest
import zmq
from support.attackers import strangers

from actors import capacity
from actors.transport import tcp_counts
from actors.transport.tcp_counts import SPARE, ConnectionCounts, why_not
from actors.transport.zeromq import ClientEnd, ServerEnd, make_key_pair

PATIENCE = 5.0


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def connect(listener):
    """Open a connection: (our end, the client's end); our end gets the descriptor number that is given, if any."""
    opened: list[socket.socket] = []

    def connected(number: int | None = None) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        if number is not None:
            os.dup2(accepted.fileno(), number)
            accepted.close()
            accepted = socket.socket(fileno=number)
        opened.extend((accepted, client))
        return accepted, client

    yield connected
    for end in opened:
        with contextlib.suppress(OSError):
            end.close()


def await_state(end: socket.socket, state: int) -> None:
    until = time.monotonic() + PATIENCE
    while end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)[0] != state:
        assert time.monotonic() < until
        time.sleep(0.001)


def exchange(ours: socket.socket, client: socket.socket, up: int, down: int) -> None:
    client.sendall(bytes(up))
    assert len(ours.recv(up, socket.MSG_WAITALL)) == up
    before = acknowledged(ours)
    ours.sendall(bytes(down))
    assert len(client.recv(down, socket.MSG_WAITALL)) == down
    until = time.monotonic() + PATIENCE
    while acknowledged(ours) < before + down:  # that may take a moment
        assert time.monotonic() < until
        time.sleep(0.001)


def acknowledged(end: socket.socket) -> int:
    return struct.unpack_from("=Q", end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 120)[0]


def test_the_end_of_a_stream_is_no_byte(connect):
    ledger = ConnectionCounts(1)
    ours, client = connect()
    ledger.accepted(ours.fileno())
    ledger.spoke(ours.fileno(), "user:0")
    exchange(ours, client, 1234, 567)
    client.close()
    await_state(ours, 8)  # CLOSE_WAIT: its FIN is here
    ledger.ended(ours.fileno())
    assert ledger.close() == [["user:0", 1, 1234, 567]]


def test_a_reset_adds_nothing_either(connect):
    ledger = ConnectionCounts(1)
    ours, client = connect()
    ledger.accepted(ours.fileno())
    ledger.spoke(ours.fileno(), "user:0")
    exchange(ours, client, 1000, 300)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await_state(ours, 7)  # CLOSE
    ledger.ended(ours.fileno())
    assert ledger.close() == [["user:0", 1, 1000, 300]]


def test_a_reset_after_the_end_of_the_stream_adds_nothing_either(connect):
    """The client has gone, and what still comes for it is answered by a reset."""
    ledger = ConnectionCounts(1)
    ours, client = connect()
    ledger.accepted(ours.fileno())
    ledger.spoke(ours.fileno(), "user:0")
    exchange(ours, client, 1000, 300)
    client.close()
    await_state(ours, 8)
    ours.sendall(b"too late")
    await_state(ours, 7)
    ledger.ended(ours.fileno())
    assert ledger.close() == [["user:0", 1, 1000, 300]]


def test_what_still_runs_at_the_end_is_counted_as_far_as_it_went(connect):
    ledger = ConnectionCounts(2)
    for user in range(2):
        ours, client = connect()
        ledger.accepted(ours.fileno())
        ledger.spoke(ours.fileno(), f"user:{user}")
        exchange(ours, client, 10 + user, 20 + user)
    assert not ledger.is_left()
    assert ledger.close() == [["user:0", 1, 10, 20], ["user:1", 1, 11, 21]]
    assert ledger.is_left()


def test_connections_of_one_party_are_added_up(connect):
    ledger = ConnectionCounts(1)
    for _ in range(3):
        ours, client = connect()
        ledger.accepted(ours.fileno())
        ledger.spoke(ours.fileno(), "user:0")
        exchange(ours, client, 10, 20)
        ledger.ended(ours.fileno())
    assert ledger.close() == [["user:0", 3, 30, 60]]


def test_who_said_nothing_is_a_party_if_the_handshake_was_made_and_a_stranger_if_not(connect):
    """301 bytes are greeting, welcome and READY; a client without a key of the roster never gets READY."""
    ledger = ConnectionCounts(3)
    for up, down in ((567, 301), (567, 246), (64, 64)):
        ours, client = connect()
        ledger.accepted(ours.fileno())
        exchange(ours, client, up, down)
        assert ledger.is_left() == (down < 301)
        ledger.ended(ours.fileno())
    assert ledger.close() == [["", 1, 567, 301]]


def test_a_disowned_connection_is_let_go_at_once(connect):
    ledger = ConnectionCounts(1)
    ours, client = connect()
    ledger.accepted(ours.fileno())
    exchange(ours, client, 600, 301)
    ledger.disown(ours.fileno())
    ours.close()
    assert client.recv(1) == b"", "no descriptor keeps it open"
    assert ledger.close() == []


def test_a_number_that_has_come_back_by_the_time_it_is_told_is_not_mistaken(connect):
    """A stranger has left and a user has its descriptor before the ledger looks: accepted, ended, accepted."""
    ledger = ConnectionCounts(1)
    stranger, _ = connect()
    number = stranger.fileno()
    stranger.detach()
    ours, client = connect(number)
    exchange(ours, client, 567, 301)
    ledger.accepted(number)  # the stranger's
    ledger.ended(number)
    ledger.accepted(number)  # the user's
    ledger.spoke(number, "user:0")
    exchange(ours, client, 100, 50)
    ledger.ended(number)
    assert ledger.close() == [["user:0", 1, 667, 351]]


def test_nor_is_it_counted_if_it_turns_out_to_be_a_strangers_too(connect):
    ledger = ConnectionCounts(1)
    ours, client = connect()
    exchange(ours, client, 567, 301)
    ledger.accepted(ours.fileno())  # of a connection that has left
    ledger.ended(ours.fileno())
    ledger.accepted(ours.fileno())
    ledger.disown(ours.fileno())
    assert ledger.close() == []


def test_a_number_that_is_a_descriptor_of_its_own_is_no_connection(connect):
    ledger = ConnectionCounts(2)
    ours, client = connect()
    before = set(os.listdir("/proc/self/fd"))
    ledger.accepted(ours.fileno())
    [second] = {name for name in os.listdir("/proc/self/fd") if int(name) not in map(int, before)} - before
    files = open_files()
    ledger.accepted(int(second))  # of a connection that has left, too
    assert open_files() == files
    ledger.spoke(ours.fileno(), "user:0")
    exchange(ours, client, 5, 6)
    ledger.ended(int(second))
    assert ledger.close() == [["user:0", 1, 5, 6]]


def test_a_number_that_is_closed_or_no_connection_is_passed_over(tmp_path):
    ledger, files = ConnectionCounts(2), open_files()
    ledger.accepted(9999)
    with (tmp_path / "file").open("wb") as file:
        ledger.accepted(file.fileno())
        assert ledger.is_left()
        ledger.ended(file.fileno())
    assert ledger.close() == [] and open_files() == files


def test_a_flood_does_not_take_more_descriptors_than_there_is_room_for(connect):
    ledger = ConnectionCounts(3)
    ends = [connect()[0] for _ in range(3 + SPARE + 20)]
    files = open_files()
    for end in ends:
        ledger.accepted(end.fileno())
    assert open_files() == files + 3 + SPARE
    assert "not every connection was watched" in ledger.note
    assert ledger.close() == [] and open_files() == files


# --- a server that keeps one -----------------------------------------------------------------------------------------


@pytest.fixture
def keys():
    return {name: make_key_pair() for name in ("server", "user:0", "user:1")}


@pytest.fixture
def server(context, gate, keys):
    roster = {keys[name].public: name for name in ("user:0", "user:1")}
    server = ServerEnd(context, gate, "server", "tcp://127.0.0.1:*", keys["server"], roster, 100_000, kernel=True)
    yield server
    server.close()


def serve_until(server: ServerEnd, condition) -> None:
    until = time.monotonic() + PATIENCE
    server.refusals()
    while not condition():
        assert time.monotonic() < until
        zmq.select([server.socket, server.monitor], [], [], 0.05)
        while server.socket.poll(0):
            server.receive()
        server.refusals()


def hear(server: ServerEnd) -> tuple[str, bytes] | None:
    """Wait for the next frame; None if it is dropped."""
    assert server.socket.poll(1000 * PATIENCE)
    return server.receive()


def spoken(context, server: ServerEnd, keys, size: int, answer: int) -> None:
    """Open a connection of user:0, exchange one frame each way, and close it."""
    client = ClientEnd(context, "server", server.address, keys["user:0"], 100_000)
    client.send("server", bytes(size))
    assert hear(server) == ("user:0", bytes(size)) and server.send("user:0", bytes(answer))
    assert client.socket.poll(1000 * PATIENCE) and client.receive() == ("server", bytes(answer))
    client.close()
    serve_until(server, server.is_left)


def test_handshake_and_frames_are_what_the_formulas_say(context, server, keys):
    """567 + F(100 + 33) and 301 + F(50,000 + 33), with F(L) = L + 2 up to 255 and L + 9 beyond."""
    spoken(context, server, keys, 100, 50_000)
    assert server.handshakes() == {"user:0": 1}
    assert server.ledger.close() == [["user:0", 1, 567 + 135, 301 + 50_042]]


def test_who_comes_back_has_two_connections_and_who_says_nothing_has_one(context, server, keys):
    for _ in range(2):
        spoken(context, server, keys, 10, 10)
    silent = ClientEnd(context, "server", server.address, keys["user:1"], 1000)
    serve_until(server, lambda: server.handshakes().get("user:1") == 1)
    time.sleep(0.1)  # until it has heard READY
    assert not server.ledger.is_left()
    silent.close()
    serve_until(server, server.is_left)
    assert server.handshakes() == {"user:0": 2, "user:1": 1}
    assert server.ledger.close() == [["", 1, 567, 301], ["user:0", 2, 2 * (567 + 45), 2 * (301 + 45)]]


def test_strangers_and_impostors_are_in_nobodys_figures(context, server, keys):
    spoken(context, server, keys, 10, 10)
    impostor = strangers.Impostor(context, server.address, keys["user:1"], b"user:0")
    for _ in range(3):
        impostor.speak(b"I am user:0")
    for attempt in (strangers.unknown_key, strangers.no_encryption, *strangers.GARBAGE.values()):
        attempt(context, server.address)
    serve_until(server, lambda: server.handshakes() == {"user:0": 1} and server.ledger.is_left())
    impostor.close()
    assert server.handshakes() == {"user:0": 1}
    assert server.ledger.close() == [["user:0", 1, 567 + 45, 301 + 45]]


@pytest.mark.parametrize("name", [b"user:0", b""])
def test_a_frame_that_is_read_after_its_connection_ended_still_says_whose_that_was(context, server, keys, name):
    """A server that is busy finds frames and end at once: an impostor's counts go, those of user:1 get its name."""
    client = strangers.Impostor(context, server.address, keys["user:1"], name)
    for _ in range(2):
        client.speak(bytes(20))
    client.close()
    serve_until_told(server, lambda: server.ledger._over)
    user = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    user.send("server", bytes(10))
    while hear(server) != ("user:0", bytes(10)):
        pass
    assert server.send("user:0", bytes(10)) and user.socket.poll(1000 * PATIENCE)
    user.close()
    serve_until(server, server.is_left)
    assert server.ledger.close() == [
        ["user:0", 1, 567 + 45, 301 + 45],
        *([] if name else [["user:1", 1, 567 + 2 * 55, 301]]),
    ]


def serve_until_told(server: ServerEnd, condition) -> None:
    """Read what libzmq reports of connections, and no frame."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        server.monitor.poll(50)
        server.refusals()


def test_later_frames_of_an_impostor_take_nobody_else_from_the_counts(server, connect, keys):
    """Its connection has ended, and a user's has the same descriptor, by the time its second frame is read."""
    stranger, _ = connect()
    number = stranger.fileno()
    from_impostor = {"User-Id": keys["user:1"].public.decode(), "Identity": "user:0", zmq.SRCFD: number}
    from_user = {"User-Id": keys["user:0"].public.decode(), "Identity": "", zmq.SRCFD: number}
    server.ledger.accepted(number)
    assert server._learn(b"one", from_impostor) is None
    stranger.detach()
    ours, client = connect(number)
    server.ledger.accepted(number)
    assert server._learn(b"one", from_impostor) is None
    exchange(ours, client, 567, 301)
    assert server._learn(b"two", from_user) == "user:0"
    assert server.ledger.close() == [["user:0", 1, 567, 301]]


def test_frames_of_a_revoked_party_are_its_own(context, server, keys):
    client = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    client.send("server", bytes(10))
    assert hear(server) == ("user:0", bytes(10)) and server.send("user:0", bytes(10))
    server.revoke("user:0")
    client.send("server", bytes(20))
    serve_until(server, lambda: server.revoked_frames == [("user:0", 20)])
    assert client.socket.poll(1000 * PATIENCE)
    client.close()
    serve_until(server, server.ledger.is_left)
    assert server.ledger.close() == [["user:0", 1, 567 + 45 + 55, 301 + 45]]


# --- where there are no such counts ----------------------------------------------------------------------------------


def test_why_there_are_none_is_said_in_words(monkeypatch):
    tcp = "tcp://127.0.0.1:*"
    assert why_not("recommender", tcp, 10, False) is None
    assert "tcp connections alone" in why_not("recommender", "ipc:///tmp/x", 10, False)
    assert "recommender was started again" in why_not("recommender", tcp, 10, True)
    monkeypatch.setattr(tcp_counts, "AVAILABLE", False)
    assert "Linux" in why_not("recommender", tcp, 10, False)


def test_two_descriptors_per_connection_are_made_room_for_or_done_without(monkeypatch):
    raised = []
    monkeypatch.setattr(capacity.resource, "getrlimit", lambda which: (200, 500))
    monkeypatch.setattr(capacity.resource, "setrlimit", lambda which, limit: raised.append(limit))
    assert capacity.make_room_for_twice(36) is None and raised == []  # 2 · 36 + 128 fit into 200
    assert capacity.make_room_for_twice(100) is None and raised == [(328, 500)]
    refusal = capacity.make_room_for_twice(200)
    assert "528 open files" in refusal and "ulimit -n 528" in refusal
