"""Connections that a server must turn away: each function below tries once, as a stranger of one kind."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable

import zmq

from actors.transport.zeromq import Address, KeyPair, make_key_pair

Prepare = Callable[[zmq.Socket], None]
Stranger = Callable[[zmq.Context, Address], None]

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)  # ZMTP 3.0, as a client
PATIENCE_MS = 5000


def dial(address: Address, keys: KeyPair, server_key: bytes | None = None) -> Prepare:
    """Set these keys on a socket."""

    def prepare(client: zmq.Socket) -> None:
        client.curve_serverkey = server_key or address.public_key
        client.curve_publickey, client.curve_secretkey = keys.public, keys.secret

    return prepare


def knock(context: zmq.Context, address: Address, prepare: Prepare, kind: int = zmq.DEALER) -> None:
    """Connect once, send a message in case the server lets us in, and wait until it lets us in or hangs up."""
    client = context.socket(kind)
    client.reconnect_ivl = -1
    prepare(client)
    monitor = client.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    client.connect(address.endpoint)
    with contextlib.suppress(zmq.Again):  # it may have been turned away already
        client.send(b"let me in", zmq.NOBLOCK)
    assert monitor.poll(PATIENCE_MS), "nobody answered at all"
    client.disable_monitor()
    monitor.close(0)
    client.close(0)


def unknown_key(context: zmq.Context, address: Address) -> None:
    knock(context, address, dial(address, make_key_pair()))


def no_encryption(context: zmq.Context, address: Address) -> None:
    knock(context, address, lambda client: None)


def password(context: zmq.Context, address: Address) -> None:
    def prepare(client: zmq.Socket) -> None:
        client.plain_username, client.plain_password = b"user:0", b"let me in"

    knock(context, address, prepare)


def wrong_server_key(keys: KeyPair) -> Stranger:
    """Make a valid party that was told a false key of the server, as by an attacker on the wire."""

    def attempt(context: zmq.Context, address: Address) -> None:
        knock(context, address, dial(address, keys, make_key_pair().public))

    return attempt


def valid_key_as_push(keys: KeyPair) -> Stranger:
    """Make a stranger with a valid key on a type of socket with which a server does not talk."""

    def attempt(context: zmq.Context, address: Address) -> None:
        knock(context, address, dial(address, keys), zmq.PUSH)

    return attempt


def revoked_key(keys: KeyPair) -> Stranger:
    def attempt(context: zmq.Context, address: Address) -> None:
        knock(context, address, dial(address, keys))

    return attempt


class Impostor:
    """A valid party that gives itself the routing name of another party, or none; the connection stays open."""

    def __init__(self, context: zmq.Context, address: Address, keys: KeyPair, name: bytes) -> None:
        self._client = context.socket(zmq.DEALER)
        if name:
            self._client.identity = name
        dial(address, keys)(self._client)
        monitor = self._client.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._client.connect(address.endpoint)
        assert monitor.poll(PATIENCE_MS), "its key is valid"
        self._client.disable_monitor()
        monitor.close(0)

    def speak(self, frame: bytes) -> None:
        self._client.send(frame)

    def hears(self) -> bool:
        return bool(self._client.poll(0))

    def close(self) -> None:
        self._client.close(PATIENCE_MS)


def raw(address: Address) -> socket.socket:
    """Open a plain connection to the address of a server."""
    scheme, _, place = address.endpoint.partition("://")
    if scheme == "ipc":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(place)
    else:
        host, _, port = place.rpartition(":")
        connection = socket.create_connection((host, int(port)))
    connection.settimeout(PATIENCE_MS / 1000)
    return connection


def hung_up(connection: socket.socket) -> bool:
    """Read until the other side closes; tell whether it did so in time."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def say(*pieces: bytes) -> Stranger:
    """Make a stranger that sends these bytes and waits until the server hangs up."""

    def attempt(_: zmq.Context, address: Address) -> None:
        with raw(address) as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                return
            assert hung_up(connection)

    return attempt


def leave_after(piece: bytes) -> Stranger:
    """Make a stranger that sends these bytes and closes the connection."""

    def attempt(_: zmq.Context, address: Address) -> None:
        with raw(address) as connection:
            connection.sendall(piece)

    return attempt


def noise(context: zmq.Context, address: Address) -> None:
    """Send random bytes; the first one is never that of a greeting."""
    say(bytes([random.randrange(255)]) + os.urandom(random.randrange(20, 300)))(context, address)


GARBAGE: dict[str, Stranger] = {
    "noise": noise,
    "HTTP": say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a cut greeting": leave_after(GREETING[:30]),
    "a greeting and nothing more": leave_after(GREETING),
    "a greeting, then noise": say(GREETING, b"\x04\xc8\x05HELLO" + os.urandom(194)),
    "a greeting, then a message": say(GREETING, b"\x00\x05hello"),
    "a greeting, then a length of 2^63": say(GREETING, b"\x06" + b"\x7f" * 8),
    "an old version": say(b"\x01\x00"),
    "nothing at all": leave_after(b""),
}
