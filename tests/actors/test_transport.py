"""Real sockets on loopback: admission, the identity of a sender, frames that are too large."""

from __future__ import annotations

import time

import pytest
import zmq

from actors.transport.zeromq import Address, ClientEnd, KeyPair, ServerEnd, make_key_pair
from protocol.errors import BadInput, Bug

PATIENCE = 5.0


def receive(end, seconds: float = PATIENCE):
    """Wait for the next (party, frame); None if none comes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if end.socket.poll(50) and (arrived := end.receive()) is not None:
            return arrived
    return None


@pytest.fixture
def served(context, gate, endpoint):
    keys = {name: make_key_pair() for name in ("server", "user:0", "user:1")}
    roster = {keys[name].public: name for name in ("user:0", "user:1")}
    server = ServerEnd(context, gate, "server", endpoint, keys["server"], roster, max_frame=1000)
    yield server, keys
    server.close()


def test_frames_travel_both_ways_and_the_sender_is_whose_key_it_is(context, served):
    server, keys = served
    ends = {name: ClientEnd(context, "server", server.address, keys[name], 1000) for name in ("user:0", "user:1")}
    ends["user:1"].send("server", b"one")
    assert receive(server) == ("user:1", b"one")
    ends["user:0"].send("server", b"zero")
    assert receive(server) == ("user:0", b"zero")
    server.send("user:1", b"for one")
    assert receive(ends["user:1"]) == ("server", b"for one")
    assert receive(ends["user:0"], 0.2) is None
    for end in ends.values():
        end.close()


def test_a_key_that_is_in_no_roster_gets_nothing_through(context, served):
    server, _ = served
    stranger = ClientEnd(context, "server", server.address, make_key_pair(), 1000)
    stranger.send("server", b"let me in")
    assert receive(server, 0.5) is None
    stranger.socket.close(0)


def test_a_client_without_encryption_gets_nothing_through(context, served):
    server, _ = served
    stranger = context.socket(zmq.DEALER)
    stranger.connect(server.address.endpoint)
    stranger.send(b"let me in")
    assert receive(server, 0.5) is None
    stranger.close(0)


def test_a_client_does_not_talk_to_a_server_with_another_key(context, served):
    server, keys = served
    wrong = Address(server.address.endpoint, make_key_pair().public)
    client = ClientEnd(context, "server", wrong, keys["user:0"], 1000)
    client.send("server", b"secret for another server")
    assert receive(server, 0.5) is None
    client.socket.close(0)


def test_a_connection_that_names_itself_gets_nothing_through_and_takes_nobodys_way_back(context, served):
    """user:1 sets the ZeroMQ identity user:0; the server goes by the key, and no honest connection sets an identity."""
    server, keys = served
    honest = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    honest.send("server", b"hello")
    assert receive(server) == ("user:0", b"hello")
    thief = context.socket(zmq.DEALER)
    thief.identity = b"user:0"
    thief.curve_serverkey, thief.curve_publickey, thief.curve_secretkey = (
        server.address.public_key,
        keys["user:1"].public,
        keys["user:1"].secret,
    )
    thief.connect(server.address.endpoint)
    thief.send(b"I am user:0")
    assert receive(server, 0.5) is None
    assert server.refusals() == ["BORROWED_IDENTITY"]
    assert server.send("user:0", b"for user:0 alone")
    assert receive(honest) == ("server", b"for user:0 alone")
    assert not server.send("user:1", b"nobody is at user:1")
    assert not thief.poll(200)
    thief.close(0)
    honest.close()


def test_a_party_that_has_not_spoken_cannot_be_reached_yet(context, served):
    """This is the state after a restart of the server: the party will speak, and ask for the frames that it lacks."""
    server, keys = served
    client = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    assert not server.send("user:0", b"too early")
    client.send("server", b"hello")
    assert receive(server) == ("user:0", b"hello")
    assert server.send("user:0", b"now")
    assert receive(client) == ("server", b"now")
    client.close()


def test_a_party_that_comes_back_is_reached_at_its_new_connection(context, served):
    server, keys = served
    first = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    first.send("server", b"before")
    assert receive(server) == ("user:0", b"before")
    first.socket.close(0)
    second = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    second.send("server", b"after")
    assert receive(server) == ("user:0", b"after")
    server.send("user:0", b"welcome back")
    assert receive(second) == ("server", b"welcome back")
    second.close()


def test_what_is_left_in_an_old_connection_does_not_become_the_way_back(context, served):
    """The party was restarted while frames of its first life still waited to be read."""
    server, keys = served
    first = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    first.send("server", b"old 0")
    assert receive(server) == ("user:0", b"old 0")
    for number in (1, 2):
        first.send("server", b"old %d" % number)
    time.sleep(0.2)
    second = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    second.send("server", b"new")
    heard = [receive(server)[1] for _ in range(3)]
    assert sorted(heard) == [b"new", b"old 1", b"old 2"]
    assert server.send("user:0", b"to the new one")
    assert receive(second) == ("server", b"to the new one")
    assert receive(first, 0.2) is None
    first.socket.close(0)
    second.close()


def test_a_server_knows_when_everyone_has_left(context, served):
    server, keys = served
    assert not server.is_left()  # no client has come yet
    client = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    client.send("server", b"hello")
    assert receive(server) == ("user:0", b"hello")
    server.refusals()
    assert not server.is_left()
    client.socket.close(0)
    until = time.monotonic() + PATIENCE
    while not server.is_left() and time.monotonic() < until:
        server.monitor.poll(50)
        server.refusals()
    assert server.is_left()


def test_a_frame_of_the_largest_size_passes_and_one_byte_more_is_dropped_by_the_transport(context, served):
    server, keys = served
    client = ClientEnd(context, "server", server.address, keys["user:0"], 100_000)
    client.send("server", bytes(1000))
    assert receive(server) == ("user:0", bytes(1000))
    client.send("server", bytes(1001))
    assert receive(server, 0.5) is None
    client.socket.close(0)


def test_a_limit_below_the_size_of_a_handshake_does_not_stop_handshakes(context, gate, endpoint):
    server_keys, keys = make_key_pair(), make_key_pair()
    server = ServerEnd(context, gate, "server", endpoint, server_keys, {keys.public: "user:0"}, max_frame=10)
    client = ClientEnd(context, "server", server.address, keys, 10)
    client.send("server", b"tiny")
    assert receive(server) == ("user:0", b"tiny")
    client.close()
    server.close()


def test_a_message_of_several_parts_arrives_as_an_empty_frame(context, served):
    """No message of Keyhole has parts; the empty frame is refused as malformed, in the name of its sender."""
    server, keys = served
    client = ClientEnd(context, "server", server.address, keys["user:1"], 1000)
    client.socket.send_multipart([b"a", b"b"])
    assert receive(server) == ("user:1", b"")
    client.close()


def test_two_servers_of_one_process_have_allow_lists_of_their_own(context, gate, served):
    """The recommender may connect to the third party; its key does not thereby open the recommender's own server."""
    _, keys = served
    other_keys = make_key_pair()
    other = ServerEnd(context, gate, "other", "tcp://127.0.0.1:*", other_keys, {keys["user:1"].public: "user:1"}, 1000)
    refused = ClientEnd(context, "other", other.address, keys["user:0"], 1000)
    refused.send("other", b"wrong door")
    welcome = ClientEnd(context, "other", other.address, keys["user:1"], 1000)
    welcome.send("other", b"right door")
    assert receive(other) == ("user:1", b"right door")
    assert receive(other, 0.3) is None
    refused.socket.close(0)
    welcome.close()
    other.close()


def test_a_port_in_use_is_refused_in_words(context, gate, served):
    server, _ = served
    if server.address.endpoint.startswith("ipc"):
        pytest.skip("ipc replaces the socket file; a port is what can be in use")
    with pytest.raises(BadInput, match="choose another port"):
        ServerEnd(context, gate, "second", server.address.endpoint, make_key_pair(), {}, 1000)


def test_the_start_up_check_notices_a_server_that_lets_everyone_in(context, gate, monkeypatch):
    """CURVE without a working allow-list accepts unknown keys; such a server must not start."""
    monkeypatch.setattr(gate, "callback", lambda domain, key: True)
    with pytest.raises(Bug, match="unknown key"):
        ServerEnd(context, gate, "server", "tcp://127.0.0.1:*", make_key_pair(), {}, 1000)


def test_a_key_pair_does_not_show_itself():
    pair = KeyPair(b"public", b"very secret")
    assert "secret" not in repr(pair)
