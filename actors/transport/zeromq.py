"""ROUTER/DEALER sockets over tcp or ipc, with CURVE always on: the sender of a frame is the party whose key was proved.

A server binds a ROUTER and admits only the keys of the roster (ZAP). Clients have no routing identity of their own: the
ROUTER names each connection, and the first frame of a connection ties that name to the party whose key opened it. So no
party can take over the address of another, and a party that reconnects replaces its old connection. Frames of a
connection that announces an identity are dropped, since no party does that.

Refused connections and frames are counted by kind, from libzmq's events about handshakes and from what is dropped here:

    UNKNOWN_KEY         a proper handshake, with a key that is in no roster or was revoked
    NO_HANDSHAKE        no encryption, a password, made for another server's key, another protocol, noise, or silence
    BORROWED_IDENTITY   a frame of a valid key over a connection that names itself
    REVOKED             a frame over a connection that was open when its key was revoked

libzmq 4.3.5 could report a failed handshake in more detail (EVENT_HANDSHAKE_FAILED_PROTOCOL), but that event must stay
off: with it, a message that was altered on its way may leave its connection open and deaf for ever, because reporting
the event overwrites the errno by which the connection would be closed. A failed handshake is inferred instead: the
connection closed, and no handshake had ended with a result since it was accepted. If another handshake did end in
between, the failed one is not counted; a connection whose handshake succeeded is never counted.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from actors.transport.tcp_counts import ConnectionCounts
from protocol.errors import BadInput, Bug
from protocol.wire.framing import CURVE_OVERHEAD

Context = zmq.Context[zmq.Socket[bytes]]

BACKLOG = 4096
LINGER_MS = 2000
HIGH_WATER = 10_000  # frames per peer; the protocols have two or three on their way
SELF_CHECK_MS = 5000
HANDSHAKE_MS = 15_000  # then a connection is closed; a thousand users need a few seconds on two cores
_NO_WAIT, _MORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)  # plain numbers: combining flags takes as long as a short send
_SHARED = 1 << 16  # bytes from which sending without a copy pays off, although it wakes a thread per frame
_HANDSHAKE_BYTES = 1024  # more than any command of a CURVE handshake, to which the limit on messages applies too
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL  # through silence, or by the other end
_RESULT = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_WATCHED = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | _FAILED | _RESULT


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
    """The ZAP handler of a context: for each server of the process, the public keys that may connect to it."""

    def __init__(self, context: Context) -> None:
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._allowed: dict[str, frozenset[bytes]] = {}
        self._let_in: dict[str, Counter[bytes]] = {}  # handshakes by server and key

    def admit(self, server: str, keys: Iterable[bytes]) -> None:
        self._allowed[server] = frozenset(keys)
        self._let_in[server] = Counter()
        self._authenticator.configure_curve_callback(server, self)

    def revoke(self, server: str, key: bytes) -> None:
        self._allowed[server] -= {key}  # a new set, so that the handler's thread never sees a set that changes

    def callback(self, domain: str, key: bytes) -> bool:
        """Admit or refuse `key`; the authenticator calls this for every handshake."""
        allowed = self._allows(domain, key)
        if allowed:
            self._let_in[domain][key] += 1
        return allowed

    def _allows(self, domain: str, key: bytes) -> bool:
        return key in self._allowed.get(domain, ())

    def handshakes(self, server: str) -> dict[bytes, int]:
        """Copy the number of handshakes of each key, because the handler's thread goes on counting."""
        return self._let_in[server].copy()

    def close(self) -> None:
        self._authenticator.stop()


class Knocks:
    """The socket monitor of a server, read as the kinds of refused connections."""

    def __init__(self, context: Context, ledger: ConnectionCounts | None) -> None:
        self._ledger = ledger
        self.socket = context.socket(zmq.PAIR)
        self.socket.rcvhwm = 0  # no limit: on reaching it, libzmq would stop serving connections until this is read
        self._results = 0  # handshakes that succeeded, or were refused by key
        self.open: dict[int, int] = {}  # file descriptor -> results when it was accepted
        self._failed = False  # the last event was a failure: it belongs to the connection that closes next
        self.ended: list[int] = []  # descriptors of connections that ended since `ServerEnd` last took this list

    def watch(self, server: zmq.Socket[bytes], name: str) -> None:
        address = f"inproc://knocks.{name}"
        server.monitor(address, _WATCHED)
        self.socket.connect(address)

    def read(self) -> list[str]:
        kinds: list[str] = []
        while True:
            try:
                event, value = struct.unpack("=HI", self.socket.recv_multipart(zmq.NOBLOCK)[0])
            except zmq.Again:
                return kinds
            if kind := self._kind(event, value):
                kinds.append(kind)

    def _kind(self, event: int, value: int) -> str | None:
        failed, self._failed = self._failed, event == _FAILED
        self._results += bool(event & _RESULT)
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return "UNKNOWN_KEY"
        if event == _FAILED:
            return "NO_HANDSHAKE"
        if event == zmq.EVENT_ACCEPTED:
            self.open[value] = self._results
            if self._ledger:
                self._ledger.accepted(value)
        elif event == zmq.EVENT_DISCONNECTED:
            self.ended.append(value)
            if self._ledger:
                self._ledger.ended(value)
            if self.open.pop(value, None) == self._results and not failed:
                return "NO_HANDSHAKE"
        return None

    def close(self, server: zmq.Socket[bytes]) -> None:
        server.disable_monitor()
        self.socket.close(0)


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
        handshake_ms: int = HANDSHAKE_MS,
        kernel: bool = False,
        comings: bool = False,
    ) -> None:
        """Listen at `endpoint`.

        With `kernel`, the kernel's counts are kept until the end, which takes a second descriptor per connection. With
        `comings`, clients come and go while they take part, and `left` lists those that have closed their connection.
        """
        self._comings = comings
        self._route_of: dict[int, bytes] = {}  # by descriptor; used with `comings` only
        self._left: list[str] = []
        self._gate = gate
        self._server = server
        self._parties = dict(roster)
        self._party_of: dict[bytes, str] = {}  # routing name -> party, learned from a connection's first frame
        self._route_to: dict[str, bytes] = {}
        self._revoked: set[str] = set()
        self._dropped: list[str] = []  # kinds, since the last call of `refusals`
        self._disowned: dict[bytes, str] = {}  # connections that name themselves: routing name -> party of the key
        self.revoked_frames: list[tuple[str, int]] = []  # (party, size) of frames that were dropped as REVOKED
        self.ledger = ConnectionCounts(len(self._parties)) if kernel else None
        self._counted: set[bytes] = set()  # routes whose connection the ledger knows; later frames say nothing of it
        gate.admit(server, self._parties)  # before bind: without a handler CURVE lets every key in
        self.socket = context.socket(zmq.ROUTER)
        self._knocks = Knocks(context, self.ledger)
        _limit(self.socket, max_frame)
        self.socket.backlog = BACKLOG
        self.socket.handshake_ivl = handshake_ms
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
        self._knocks.watch(self.socket, server)  # only now, so that the stranger of the check is not counted

    @property
    def monitor(self) -> zmq.Socket[bytes]:
        """Return a socket that is readable when there may be refusals without a frame."""
        return self._knocks.socket

    def refusals(self) -> list[str]:
        """List the kind of each connection or frame refused since the last call, without waiting."""
        dropped, self._dropped = self._dropped, []
        dropped += self._knocks.read()
        self._note_ends()
        return dropped

    def has_dropped(self) -> bool:
        """Tell whether a frame was dropped; the monitor reports refused connections."""
        return bool(self._dropped or self.revoked_frames)

    def left(self) -> list[str]:
        """List the parties that lost their only connection since the last call, so that no frame can reach them."""
        left, self._left = self._left, []
        return left

    def _note_ends(self) -> None:
        """Forget the routes of ended connections, for which libzmq would take frames for another millisecond."""
        ended, self._knocks.ended = self._knocks.ended, []
        for descriptor in ended if self._comings else ():
            route = self._route_of.pop(descriptor, b"")
            party = self._party_of.get(route, "")
            if party and self._route_to.get(party) == route:
                del self._route_to[party]
                self._left.append(party)

    def receive(self) -> tuple[str, bytes] | None:
        """Receive (party, frame); None if no frame waits, or if it was dropped."""
        try:
            route = self.socket.recv(_NO_WAIT)
        except zmq.Again:
            return None
        frame = self.socket.recv(copy=False)
        data = _skip_rest(self.socket) if frame.more else frame.bytes
        party = self._party_of.get(route) or self._learn(route, frame)
        return None if party is None else (party, data)

    def _learn(self, route: bytes, frame: zmq.Frame) -> str | None:
        """Find the party at the other end of a new connection; None if its frames are dropped."""
        party = self._parties[str(frame.get("User-Id")).encode()]  # the key that the handshake proved
        if self.ledger or self._comings:
            self._dropped += self._knocks.read()  # so that the ledger knows this connection
            self._note_ends()  # so that an earlier one with the same descriptor has ended
        borrowed = bool(frame.get("Identity"))
        if self.ledger and route not in self._counted:
            self._counted.add(route)
            if borrowed:
                self.ledger.disown(_descriptor(frame))
            else:
                self.ledger.spoke(_descriptor(frame), party)
        if borrowed:
            self._dropped.append("REVOKED" if party in self._revoked else "BORROWED_IDENTITY")
            self._disowned[route] = party
            return None
        if party in self._revoked:
            self._dropped.append("REVOKED")
            self.revoked_frames.append((party, len(frame)))
            return None
        self._party_of[route] = party  # an old route keeps its entry, or its last frames would make it the route again
        self._route_to[party] = route
        if self._comings:
            self._route_of[_descriptor(frame)] = route
        return party

    def handshakes(self) -> dict[str, int]:
        """Count the handshakes of each party, without those of connections that name themselves."""
        made = Counter({self._parties[key]: times for key, times in self._gate.handshakes(self._server).items()})
        made.subtract(self._disowned.values())
        return {party: times for party, times in made.items() if times > 0}

    def send(self, party: str, frame: bytes) -> bool:
        """Send `frame`; return False if `party` cannot be reached: it is gone, revoked, still silent, or does not read.

        This does not wait, because a server that waited for one client would serve none. A party that missed a frame
        asks for it again.
        """
        route = self._route_to.get(party)
        if route is None:
            return False
        try:
            self.socket.send(route, _MORE | _NO_WAIT)
            self.socket.send(frame, 0, len(frame) < _SHARED)  # sending the route has checked that there is room
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def revoke(self, party: str) -> None:
        """Refuse the key of `party` from now on, and exchange no more frames over its open connections."""
        self._revoked.add(party)
        self._route_to.pop(party, None)
        self._party_of = {route: name for route, name in self._party_of.items() if name != party}
        for key, name in self._parties.items():
            if name == party:
                self._gate.revoke(self._server, key)

    def is_left(self) -> bool:
        """Tell whether clients have connected and all connections are closed again."""
        return bool(self._party_of) and not self._knocks.open

    def close(self) -> None:
        self._knocks.close(self.socket)
        if self.ledger:
            self.ledger.close()
        self.socket.close(LINGER_MS)


class ClientEnd:
    """A DEALER to one server. It refuses a server that does not hold the key of the roster."""

    def __init__(self, context: Context, server: str, address: Address, keys: KeyPair, max_frame: int) -> None:
        self.server = server
        self._endpoint = address.endpoint
        self.socket = context.socket(zmq.DEALER)
        _limit(self.socket, max_frame)
        self.socket.setsockopt(zmq.CURVE_SERVERKEY, address.public_key)
        self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        try:
            self.socket.connect(address.endpoint)
        except zmq.ZMQError as error:
            self.close(0)
            raise BadInput(f"{address.endpoint} is not an address of {server} ({error.strerror}).") from error

    def receive(self) -> tuple[str, bytes] | None:
        try:
            frame = self.socket.recv(_NO_WAIT)
        except zmq.Again:
            return None
        return self.server, _skip_rest(self.socket) if self.socket.getsockopt(zmq.RCVMORE) else frame

    def send(self, party: str, frame: bytes) -> bool:
        """Send `frame` without waiting; False if it was not handed over. After a silence, lost frames are asked for."""
        return self._hand_over(frame) or self._dial_again(frame)

    def _dial_again(self, frame: bytes) -> bool:
        """Reconnect and send `frame`.

        libzmq gives up a connection for good after an altered message, and the other end may have stopped reading.
        """
        self.socket.disconnect(self._endpoint)
        self.socket.connect(self._endpoint)
        return self._hand_over(frame)

    def _hand_over(self, frame: bytes) -> bool:
        try:
            self.socket.send(frame, _NO_WAIT)
        except zmq.Again:
            return False
        return True

    def close(self, linger_ms: int = LINGER_MS) -> None:
        self.socket.close(linger_ms)


def _skip_rest(socket: zmq.Socket[bytes]) -> bytes:
    """Read the other parts of a message and return an empty frame, since no valid message has several parts."""
    socket.recv_multipart()
    return b""


def _descriptor(frame: zmq.Frame) -> int:
    """Return the descriptor of the connection over which `frame` came."""
    return int(frame.get(zmq.SRCFD))


def _limit(socket: zmq.Socket[bytes], max_frame: int) -> None:
    # setsockopt rather than attributes, whose code would cost each user's process memory pages of its own
    socket.setsockopt(zmq.MAXMSGSIZE, max(max_frame + CURVE_OVERHEAD, _HANDSHAKE_BYTES))
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)


def _check_that_a_stranger_is_refused(context: Context, address: Address) -> None:
    """Connect with a key that is in no roster; if this is not refused, the transport authenticates nothing."""
    socket = context.socket(zmq.DEALER)
    socket.reconnect_ivl = -1  # connect only once
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
