"""A bit that is flipped on the wire: the message is not delivered, and the run asks for it again.

The transport must protect integrity, because a masked vector with a flipped bit is another valid vector. Server and
clients are separate processes; the proxy between them alters frames and counts them.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import zmq
from support.attackers.proxy import DOWN, UP, Choose, FlippingProxy, only, sometimes

from actors.launch.launcher import Launch, Staff
from actors.launch.reports import Common
from actors.transport.zeromq import Address, ClientEnd, Gate, KeyPair, ServerEnd, make_key_pair
from sim.drivers.inprocess import InProcess
from sim.plan.config import RunConfig
from sim.plan.plan import Plan, make_plan
from sim.run.run import make_roster

CLIENTS = 2
ROUNDS = 500  # of each client in each direction: 2,000 altered frames
PATIENCE_MS = 10_000

processes = multiprocessing.get_context("spawn")


def text(which: str, client: int, number: int) -> bytes:
    """Make a frame that differs from every other one in many bits."""
    return hashlib.sha256(f"{which} of {client}, round {number}".encode()).digest() + bytes(number % 300)


def texts(which: str, rounds: int) -> Counter[bytes]:
    return Counter(text(which, client, number) for client in range(CLIENTS) for number in range(rounds))


# --- the processes at both ends of the wire --------------------------------------------------------------------------


def serve(pipe: Connection, keys: KeyPair | None, roster: dict[bytes, str]) -> None:
    """Answer every frame with the same bytes until told to stop; then say what arrived. Without keys: no encryption."""
    context = zmq.Context()
    gate = Gate(context)
    end = ServerEnd(context, gate, "server", "tcp://127.0.0.1:*", keys, roster, 1000) if keys else Unprotected(context)
    pipe.send(end.socket.getsockopt_string(zmq.LAST_ENDPOINT))
    poller = zmq.Poller()
    poller.register(end.socket, zmq.POLLIN)
    poller.register(pipe.fileno(), zmq.POLLIN)
    arrived: Counter[bytes] = Counter()
    while not pipe.poll(0):
        poller.poll()
        while (item := end.receive()) is not None:
            arrived[item[1]] += 1
            end.send(*item)
    pipe.send((arrived, Counter(end.refusals())))
    gate.close()
    context.destroy(0)


class Unprotected:
    """A ZeroMQ server without CURVE."""

    def __init__(self, context: zmq.Context) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.bind("tcp://127.0.0.1:*")

    def receive(self) -> tuple[bytes, ...] | None:
        return tuple(self.socket.recv_multipart()) if self.socket.poll(0) else None

    def send(self, party: bytes, frame: bytes) -> None:
        self.socket.send_multipart((party, frame))

    def refusals(self) -> list[str]:
        return []


def dial(context: zmq.Context, address: Address, keys: KeyPair | None) -> zmq.Socket:
    if keys:
        return ClientEnd(context, "server", address, keys, 1000).socket
    client = context.socket(zmq.DEALER)
    client.connect(address.endpoint)
    return client


def converse(pipe: Connection, number: int, rounds: int, address: Address, keys: KeyPair | None) -> None:
    """Open a connection in each round: send a frame and hear its echo, then send one whose echo may not come."""
    context = zmq.Context()
    received: Counter[bytes] = Counter()
    for turn in range(rounds):
        client = dial(context, address, keys)
        monitor = client.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        client.send(text("first", number, turn))
        assert client.poll(PATIENCE_MS), "an unaltered frame did not arrive"
        received[client.recv()] += 1
        client.send(text("second", number, turn))
        assert zmq.select([client, monitor], [], [], PATIENCE_MS / 1000)[0], "no echo, and the connection stands"
        while client.poll(0):
            received[client.recv()] += 1
        client.disable_monitor()
        monitor.close(0)
        client.close(0)
    context.destroy(0)
    pipe.send(received)


@dataclass(frozen=True)
class Heard:
    altered: Counter[str]  # by the proxy
    server: Counter[bytes]
    refused: Counter[str]  # by the server
    clients: Counter[bytes]


def talk_through(choose: Choose, rounds: int, encrypted: bool) -> Heard:
    keys = [make_key_pair() for _ in range(CLIENTS)]
    server_keys = make_key_pair()
    roster = {pair.public: f"user:{number}" for number, pair in enumerate(keys)}
    started = []

    def start(target: Callable[..., None], *arguments: object) -> Connection:
        ours, theirs = processes.Pipe()
        process = processes.Process(target=target, args=(theirs, *arguments), daemon=True)
        process.start()
        theirs.close()
        started.append(process)
        return ours

    server = start(serve, server_keys if encrypted else None, roster)
    proxy = FlippingProxy(server.recv(), choose)
    address = Address(proxy.endpoint, server_keys.public)
    clients = [
        start(converse, number, rounds, address, pair if encrypted else None) for number, pair in enumerate(keys)
    ]
    received: Counter[bytes] = Counter()
    for client in clients:
        received.update(client.recv())
    server.send("stop")
    arrived, refused = server.recv()
    for process in started:
        process.join(PATIENCE_MS / 1000)
        assert process.exitcode == 0
    proxy.close()
    return Heard(proxy.altered, arrived, refused, received)


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_no_altered_frame_is_delivered_and_every_other_one_is(direction):
    """The connection of an altered frame is closed at once, and does not count as a stranger's."""
    heard = talk_through(only(direction, 1), ROUNDS, encrypted=True)
    first, second = texts("first", ROUNDS), texts("second", ROUNDS)
    assert heard.altered == {direction: CLIENTS * ROUNDS}
    assert heard.clients == first
    assert heard.server == (first if direction == UP else first + second)
    assert heard.refused == {}  # these are no strangers


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_without_encryption_the_same_proxy_has_its_altered_frames_delivered(direction):
    """The proxy does alter frames, so the test above can fail."""
    rounds = 50
    heard = talk_through(only(direction, 1), rounds, encrypted=False)
    sound, total = texts("first", rounds) + texts("second", rounds), CLIENTS * rounds
    assert heard.altered == {direction: total}
    assert (heard.clients - sound).total() == total
    assert (heard.server - sound).total() == (total if direction == UP else 0)


def test_a_client_dials_again_after_something_altered_came():
    """libzmq gives such a connection up for good; the next frame of the client opens another."""
    context = zmq.Context()
    gate, keys = Gate(context), make_key_pair()
    server = ServerEnd(context, gate, "server", "tcp://127.0.0.1:*", make_key_pair(), {keys.public: "user:0"}, 1000)
    proxy = FlippingProxy(server.address.endpoint, only(DOWN, 1))
    client = ClientEnd(context, "server", Address(proxy.endpoint, server.address.public_key), keys, 1000)
    for turn in range(5):
        client.send("server", b"question %d" % turn)
        assert server.socket.poll(PATIENCE_MS)
        assert server.receive() == ("user:0", b"question %d" % turn)
        server.send("user:0", b"answer %d" % turn)
        assert client.socket.poll(PATIENCE_MS)
        assert client.receive() == ("server", b"answer %d" % turn)
        server.send("user:0", b"altered on its way")
        assert not client.socket.poll(300)
    assert proxy.altered == {DOWN: 5}
    client.close()
    server.close()
    gate.close()
    context.term()
    proxy.close()


# --- a whole run -----------------------------------------------------------------------------------------------------


class Tapped(Launch):
    """A run in which every connection to a server goes through a proxy."""

    rate = 0.0

    def _common(self) -> Common:
        return super()._common()._replace(silence=0.3)

    def _listens(self, server: str, endpoint: str) -> None:
        proxy = FlippingProxy(endpoint, sometimes(self.rate, seed=len(self._endpoints)))
        self.proxies.append(proxy)
        super()._listens(server, proxy.endpoint)


def run_tapped(plan: Plan, folder: Path, rate: float):
    secrets, roster = make_roster(plan)
    churn = plan.churn()
    folder.mkdir()
    launch = Tapped(roster, secrets, Staff(folder, plan.views, deadline=60.0), None, churn.events if churn else None)
    launch.rate, launch.proxies = rate, []
    try:
        outcome = launch.run()
    finally:
        for proxy in launch.proxies:
            proxy.close()
    altered = sum((proxy.altered for proxy in launch.proxies), Counter())
    return outcome, altered


@pytest.mark.parametrize("scheme", ["dynamic", "masked"])
def test_a_run_with_somebody_on_the_wire_comes_to_the_same_factors(tmp_path, scheme):
    """Every altered frame costs its connection; what is lost with it is asked for after a short silence."""
    flags = {"join": 0.3, "leave": 0.1} if scheme == "dynamic" else {}
    plan = make_plan(RunConfig(scheme=scheme, data="synthetic:7x6:.6", dim=2, iterations=8, seed=4, **flags))
    churn = plan.churn()
    expected = InProcess(plan.card, plan.seats(), events_for=churn.events if churn else None).run().item_factors
    outcome, altered = run_tapped(plan, tmp_path / "run", rate=0.05)
    assert outcome.abort is None
    assert altered[UP] >= 5 and altered[DOWN] >= 5
    assert outcome.item_factors.tobytes() == expected.tobytes()
    assert set(outcome.rejected) <= {"REPLAYED", "GAP"}
    assert not outcome.strangers
