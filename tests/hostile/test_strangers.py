"""A stranger gets no message through, is counted by its kind, and does not disturb the honest parties."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter

import pytest
import zmq
from support.attackers import strangers

from actors.launch.launcher import Launch
from actors.transport.zeromq import Address, ClientEnd, Gate, ServerEnd, make_key_pair
from protocol.party.party import result_digest
from protocol.party.view import EVENT, read_records
from sim.plan.config import RunConfig
from sim.plan.plan import make_plan
from sim.run.run import run
from tests.actors.test_deaths import in_process, losses

ATTEMPTS = 200  # of each kind
PATIENCE = 10.0


class Server:
    """A server with three users of whom the first is honest, and everything that it let in or turned away."""

    def __init__(self, context, gate, endpoint, handshake_ms=10_000) -> None:
        self.keys = {f"user:{user}": make_key_pair() for user in range(3)}
        roster = {keys.public: name for name, keys in self.keys.items()}
        counts = endpoint.startswith("tcp")  # as in a run
        keys = (make_key_pair(), roster)
        self.end = ServerEnd(context, gate, "server", endpoint, *keys, 1000, handshake_ms, kernel=counts)
        self.address = self.end.address
        self.honest = ClientEnd(context, "server", self.address, self.keys["user:0"], 1000)
        self.delivered: list[tuple[str, bytes]] = []
        self.refused: Counter[str] = Counter()

    def serve(self) -> None:
        """Receive every frame that waits now, and count the refusals."""
        while self.end.socket.poll(0):
            if (arrived := self.end.receive()) is not None:
                self.delivered.append(arrived)
        self.refused.update(self.end.refusals())

    def serve_until(self, condition) -> None:
        until = time.monotonic() + PATIENCE
        while not condition() and time.monotonic() < until:
            zmq.select([self.end.socket, self.end.monitor], [], [], 0.05)
            self.serve()
        assert condition(), (self.refused, self.delivered[:3])

    def greet(self) -> None:
        """Check that a frame of the honest user arrives, and its answer too."""
        before = len(self.delivered)
        self.honest.send("server", b"hello")
        self.serve_until(lambda: len(self.delivered) > before)
        assert self.delivered[before:] == [("user:0", b"hello")]
        assert self.end.send("user:0", b"welcome")
        assert self.honest.socket.poll(5000)
        assert self.honest.receive() == ("server", b"welcome")

    def close(self) -> None:
        self.honest.socket.close(0)
        self.end.close()


@pytest.fixture
def server(context, gate, endpoint):
    server = Server(context, gate, endpoint)
    yield server
    server.close()


def turn_away(context, server: Server, stranger, kind: str, attempts: int = ATTEMPTS) -> None:
    """Check that each attempt counts as `kind`, and nothing else, and that only the honest user's frames arrive."""
    server.greet()
    assert server.refused == {}
    for attempt in range(attempts):
        visit = threading.Thread(target=stranger, args=(context, server.address))
        visit.start()
        server.serve_until(lambda due=attempt: server.refused.total() > due)
        visit.join()
    server.greet()
    assert server.refused == {kind: attempts}
    assert server.delivered == [("user:0", b"hello")] * 2


def test_a_server_that_nobody_disturbs_has_turned_nobody_away(context, server):
    """Its own start-up check does not count, nor do users that come, go and come back."""
    for _ in range(20):
        server.greet()
        guest = ClientEnd(context, "server", server.address, server.keys["user:1"], 1000)
        guest.send("server", b"from another")
        server.serve_until(lambda: server.delivered[-1:] == [("user:1", b"from another")])
        guest.socket.close(0)
    silent = ClientEnd(context, "server", server.address, server.keys["user:2"], 1000)
    time.sleep(0.2)
    silent.socket.close(0)  # it sent nothing
    time.sleep(0.2)
    server.greet()
    assert server.refused == {}


def test_unknown_keys(context, server):
    turn_away(context, server, strangers.unknown_key, "UNKNOWN_KEY")


def test_no_encryption(context, server):
    turn_away(context, server, strangers.no_encryption, "NO_HANDSHAKE")


def test_a_password_instead_of_a_key(context, server):
    turn_away(context, server, strangers.password, "NO_HANDSHAKE")


def test_a_client_that_was_told_another_key_of_the_server(context, server):
    turn_away(context, server, strangers.wrong_server_key(server.keys["user:1"]), "NO_HANDSHAKE")


def test_a_socket_of_another_type(context, server):
    turn_away(context, server, strangers.valid_key_as_push(server.keys["user:1"]), "NO_HANDSHAKE")


@pytest.mark.parametrize("garbage", strangers.GARBAGE)
def test_garbage(context, server, garbage):
    turn_away(context, server, strangers.GARBAGE[garbage], "NO_HANDSHAKE")


def test_a_valid_user_with_another_users_name(context, server):
    """It is refused whether or not the other user is connected, and whatever it sends afterwards."""
    server.greet()
    impostors = []
    for attempt in range(ATTEMPTS // 2):
        name = b"user:0" if attempt == 0 else b"user:0 %d" % attempt  # a name in use is not even heard
        impostors.append(strangers.Impostor(context, server.address, server.keys["user:1"], name))
        for _ in range(2):
            impostors[-1].speak(b"I am user:0")
    server.serve_until(lambda: server.refused.total() >= ATTEMPTS)
    server.greet()
    assert server.refused == {"BORROWED_IDENTITY": ATTEMPTS}
    assert not server.end.send("user:1", b"it never got a way back")
    assert not any(impostor.hears() for impostor in impostors)
    for impostor in impostors:
        impostor.close()
    assert server.delivered == [("user:0", b"hello")] * 2


def test_a_revoked_user_that_is_still_connected(context, server):
    server.greet()
    revoked = ClientEnd(context, "server", server.address, server.keys["user:1"], 1000)
    revoked.send("server", b"while I may")
    server.serve_until(lambda: len(server.delivered) == 2)
    server.end.revoke("user:1")
    for _ in range(ATTEMPTS):
        revoked.send("server", b"let me stay")
    server.serve_until(lambda: server.refused.total() >= ATTEMPTS)
    assert not server.end.send("user:1", b"nothing for you")
    assert not revoked.socket.poll(100)
    revoked.socket.close(0)
    server.greet()
    assert server.refused == {"REVOKED": ATTEMPTS}
    assert [party for party, _ in server.delivered] == ["user:0", "user:1", "user:0"]


def test_a_revoked_user_that_comes_back(context, server):
    server.end.revoke("user:1")
    turn_away(context, server, strangers.revoked_key(server.keys["user:1"]), "UNKNOWN_KEY")
    other = ClientEnd(context, "server", server.address, server.keys["user:2"], 1000)
    other.send("server", b"I was not meant")
    server.serve_until(lambda: server.delivered[-1] == ("user:2", b"I was not meant"))
    other.socket.close(0)


def test_silent_connections_are_closed_after_a_while(context, gate, endpoint):
    server = Server(context, gate, endpoint, handshake_ms=1000)
    server.greet()
    silent = [strangers.raw(server.address) for _ in range(ATTEMPTS)]
    for connection in silent[::2]:
        connection.sendall(strangers.GREETING)
    server.serve_until(lambda: server.refused.total() >= ATTEMPTS)
    assert all(strangers.hung_up(connection) for connection in silent)
    for connection in silent:
        connection.close()
    server.greet()
    assert server.refused == {"NO_HANDSHAKE": ATTEMPTS}
    server.close()


def test_a_flood_that_nobody_looks_at_does_not_stop_the_server(context, server):
    """libzmq waits for the reader of its events about connections; here the server does not read them for long."""
    server.greet()
    for _ in range(2500):  # two events each: more than the 2000 that would fit
        strangers.leave_after(b"\x01\x00")(context, server.address)
    server.honest.send("server", b"hello")
    assert server.end.socket.poll(5000)
    assert server.end.receive() == ("user:0", b"hello")
    server.serve_until(lambda: server.refused.total() >= 2500)
    assert server.refused == {"NO_HANDSHAKE": 2500}


def test_servers_and_their_monitors_close_without_a_trace(tmp_path):
    """They close in bounded time, also with unread events, and leave no file open."""

    def life(number: int) -> None:
        context = zmq.Context()
        gate = Gate(context)
        server = Server(context, gate, f"ipc://{tmp_path}/{number}")
        server.greet()
        strangers.unknown_key(context, server.address)
        server.close()
        gate.close()
        ending = threading.Thread(target=context.term, daemon=True)
        ending.start()
        ending.join(PATIENCE)
        assert not ending.is_alive(), "the context does not end"

    life(0)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, 6):
        life(number)
    assert len(os.listdir("/proc/self/fd")) <= before


# --- a run that goes on while strangers knock ------------------------------------------------------------------------

SHARE = 20  # attempts of each kind at each server per iteration
BUSY = range(4, 14)  # the iterations after which strangers come: 200 attempts
SPARED = "user:1"  # lends its keys to impostors
DROPPED = "user:3"  # its process is killed and its key revoked


class Besieged(Launch):
    """Keeps a reference to itself, so that strangers find its servers."""

    def run(self):
        Besieged.current = self
        return super().run()


class Crowd:
    """Sends strangers of each kind, one after the other, after each busy iteration, while the next one goes on."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._context.max_sockets = 4096
        self._impostors: list[strangers.Impostor] = []
        self.came: Counter[str] = Counter()  # at each server

    def __call__(self, line: dict) -> None:
        if line["iteration"] == 0:
            [pid] = [pid for pid, parties in Besieged.current._alive.items() if parties == [DROPPED]]
            os.kill(pid, signal.SIGKILL)
        if line["iteration"] < min(BUSY):
            time.sleep(0.2)  # until every party knows of its death
            return
        assert Besieged.current.outcome.gone == [DROPPED]
        if line["iteration"] in BUSY:
            for _ in range(SHARE):
                for server in ("recommender", "third_party"):
                    self._knock(server)
                self._count()

    def _knock(self, server: str) -> None:
        launch = Besieged.current
        address = Address(launch._endpoints[server], launch._roster.public_keys[server])
        spared, revoked = (launch._secrets[name].keys for name in (SPARED, DROPPED))
        impostor = strangers.Impostor(self._context, address, spared, b"user:0 %d" % len(self._impostors))
        impostor.speak(b"I am user:0")
        self._impostors.append(impostor)
        strangers.unknown_key(self._context, address)
        strangers.no_encryption(self._context, address)
        strangers.password(self._context, address)
        strangers.wrong_server_key(spared)(self._context, address)
        strangers.revoked_key(revoked)(self._context, address)
        for garbage in strangers.GARBAGE.values():
            garbage(self._context, address)

    def _count(self) -> None:
        handshakes = {"UNKNOWN_KEY": 2, "NO_HANDSHAKE": 3 + len(strangers.GARBAGE)}
        self.came.update(handshakes | {"BORROWED_IDENTITY": 1})

    def leave(self) -> None:
        for impostor in self._impostors:
            impostor.close()
        self._context.term()


def refused_in(folder, server: str) -> dict[str, list[int]]:
    """Read from a server's view the counts, by kind, at which it mentions refused connections."""
    counts: dict[str, list[int]] = {}
    with open(folder / "views" / f"{server}.view", "rb") as stream:
        for record in read_records(stream):
            if record.type == EVENT and record.fields[0] == "Refused":
                counts.setdefault(record.fields[1], []).append(record.fields[2])
    return counts


def digest_of(outcome) -> str:
    return result_digest(outcome.item_factors).hex()


def test_a_run_goes_on_while_strangers_of_every_kind_knock(tmp_path, monkeypatch):
    """Nothing from strangers gets in; they are counted and mentioned in the views, and the factors are right."""
    monkeypatch.setattr("sim.run.run.Launch", Besieged)
    config = RunConfig(
        scheme="dynamic",
        data="synthetic:14x10:.5",
        dim=3,
        iterations=max(BUSY) + 3,
        seed=5,
        join=0.1,
        leave=0.05,
        on_death="drop",
        options={"dropout_allowance": 0.5},
    )
    crowd = Crowd()
    summary = run(config, out=tmp_path / "run", on_line=crowd)
    crowd.leave()
    assert summary["completed"] and summary["gone"] == [DROPPED]
    assert summary["rejected"] == {}, "no role ever saw a frame of theirs"
    assert crowd.came["UNKNOWN_KEY"] == 2 * SHARE * len(BUSY) == 400
    assert summary["strangers"] == {kind: 2 * count for kind, count in crowd.came.items()}
    for server in ("recommender", "third_party"):
        powers = {kind: [2**n for n in range(count.bit_length())] for kind, count in crowd.came.items()}
        assert refused_in(tmp_path / "run", server) == powers
    plan = make_plan(config)
    silent, gone = losses(plan, tmp_path / "run")
    assert summary["item_factors_sha256"] == digest_of(in_process(plan, silent=silent, gone=gone))
