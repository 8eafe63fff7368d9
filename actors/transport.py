"""ROUTER/DEALER over tcp or ipc, CURVE always on, and a sender who is whoever the key proved.

A server binds a ROUTER and lets in the keys of the roster only (ZAP). Clients have no routing identity of their
own: the ROUTER names each connection, and the first frame of a connection ties that name to the party whose key
opened it. So nobody can take over another party's address, and a party that comes back replaces its old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from protocol.errors import BadInput, Bug
from protocol.framing import CURVE_OVERHEAD

Context = zmq.Context[zmq.Socket[bytes]]

BACKLOG = 4096
LINGER_MS = 2000
HIGH_WATER = 10_000  # frames per peer; the protocols keep two or three on their way
SELF_CHECK_MS = 5000
_HANDSHAKE_BYTES = 1024  # more than any command of a CURVE handshake, which the limit on messages would cut off too


@dataclass(frozen=True, slots=True)
class KeyPair:
    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "KeyPair(redacted)"


def make_key_pair() -> KeyPair:
    return KeyPair(*zmq.curve_keypair())


@dataclass(frozen=True, slots=True)
class Address:
    endpoint: str
    public_key: bytes


class Gate:
    """The ZAP handler of a context: for each server of the process, which public keys may connect to it."""

    def __init__(self, context: Context) -> None:
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._allowed: dict[str, frozenset[bytes]] = {}

    def admit(self, server: str, keys: Iterable[bytes]) -> None:
        self._allowed[server] = frozenset(keys)
        self._authenticator.configure_curve_callback(server, self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by the authenticator for every handshake."""
        return key in self._allowed.get(domain, ())

    def close(self) -> None:
        self._authenticator.stop()


class ServerEnd:
    """The ROUTER of one server, open to the keys of `roster` (public key -> party)."""

    def __init__(
        self,
        context: Context,
        gate: Gate,
        server: str,
        endpoint: str,
        keys: KeyPair,
        roster: Mapping[bytes, str],
        max_frame: int,
    ) -> None:
        self._parties = dict(roster)
        self._party_of: dict[bytes, str] = {}  # routing name -> party, learned from a connection's first frame
        self._route_to: dict[str, bytes] = {}
        gate.admit(server, self._parties)  # before bind: without a handler CURVE lets every key in
        self.socket = context.socket(zmq.ROUTER)
        _limit(self.socket, max_frame)
        self.socket.backlog = BACKLOG
        self.socket.router_mandatory = True
        self.socket.curve_server = True
        self.socket.curve_secretkey = keys.secret
        self.socket.curve_publickey = keys.public
        self.socket.zap_domain = server.encode()
        try:
            self.socket.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise BadInput(f"Cannot listen at {endpoint} ({error.strerror}): choose another port or folder.") from error
        self.address = Address(self.socket.getsockopt_string(zmq.LAST_ENDPOINT), keys.public)
        try:
            _check_that_a_stranger_is_refused(context, self.address)
        except Bug:
            self.close()
            raise

    def receive(self) -> tuple[str, bytes] | None:
        """(party, frame), or None if nothing waits."""
        try:
            name, frame, *more = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        route = name.bytes
        party = self._party_of.get(route) or self._learn(route, frame)
        return party, b"" if more else frame.bytes  # no message of ours has several parts

    def _learn(self, route: bytes, frame: zmq.Frame) -> str:
        party = self._parties[str(frame.get("User-Id")).encode()]  # what the handshake proved
        self._party_of.pop(self._route_to.get(party, b""), None)
        self._party_of[route] = party
        self._route_to[party] = route
        return party

    def send(self, party: str, frame: bytes) -> bool:
        """False if that party is gone; its process is watched elsewhere."""
        route = self._route_to.get(party)
        if route is None:
            raise Bug(f"{party} has never spoken, so there is no way to it")
        try:
            self.socket.send_multipart((route, frame), copy=len(frame) < 4096)
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def close(self) -> None:
        self.socket.close(LINGER_MS)


class ClientEnd:
    """A DEALER to one server. It refuses a server that does not hold the key of the roster."""

    def __init__(self, context: Context, server: str, address: Address, keys: KeyPair, max_frame: int) -> None:
        self.server = server
        self.socket = context.socket(zmq.DEALER)
        _limit(self.socket, max_frame)
        self.socket.setsockopt(zmq.CURVE_SERVERKEY, address.public_key)
        self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        self.socket.connect(address.endpoint)

    def receive(self) -> tuple[str, bytes] | None:
        try:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return self.server, parts[0] if len(parts) == 1 else b""

    def send(self, party: str, frame: bytes) -> bool:
        self.socket.send(frame)
        return True

    def close(self) -> None:
        self.socket.close(LINGER_MS)


def _limit(socket: zmq.Socket[bytes], max_frame: int) -> None:
    # setsockopt rather than attributes: a user's process owns every page of Python that it touches
    socket.setsockopt(zmq.MAXMSGSIZE, max(max_frame + CURVE_OVERHEAD, _HANDSHAKE_BYTES))
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)


def _check_that_a_stranger_is_refused(context: Context, address: Address) -> None:
    """Knock with a key that is in no roster; unless the handshake fails, nothing here is authenticated."""
    socket = context.socket(zmq.DEALER)
    stranger = make_key_pair()
    socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = (
        address.public_key,
        stranger.public,
        stranger.secret,
    )
    events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    monitor = socket.get_monitor_socket(events)
    try:
        socket.connect(address.endpoint)
        answered = monitor.poll(SELF_CHECK_MS)
        refused = answered and recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH
    finally:
        socket.disable_monitor()
        monitor.close(0)
        socket.close(0)
    if not refused:
        raise Bug("the transport does not refuse an unknown key")
