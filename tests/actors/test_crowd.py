"""More users than may be connected at once: they come when something happens or when they are called."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import zmq
from support.basics import small_run
from support.runs import check_view, end_of, staged

from actors import capacity
from actors.crowd.away_states import Vault
from actors.crowd.calling import Doorbell
from actors.crowd.secret_rows import Ranks, pack_ranks
from actors.keys import Roster, Secret
from actors.launch.launcher import Launch, Staff
from actors.metering.observer import HeldOut
from actors.transport.waiting import Watch
from actors.transport.zeromq import ClientEnd, ServerEnd, make_key_pair
from protocol.card import seat_party
from protocol.errors import BadInput
from protocol.freeze import put_down, take_up
from protocol.schemes import LISTED
from sim import api
from sim.drivers.inprocess import InProcess

USERS = 12


def launched(run, folder: Path, connected: int | None, views: frozenset[str] = frozenset()):
    """Run real processes, two of which hold the users."""
    folder.mkdir()
    held_out = HeldOut(np.array([0], np.uint32), np.array([3.0]))
    secrets = [Secret(seat, make_key_pair(), held_out if seat.inputs else None) for seat in run.seats]
    roster = Roster(run.card, run.card.scheme.name, {s.seat.party: s.keys.public for s in secrets}, {})
    staff = Staff(folder, views, 30.0, users_per_process=USERS // 2, connected=connected)
    launch = Launch(roster, secrets, staff, events_for=run.settings().get("events_for"))
    outcome = launch.run()
    assert outcome.abort is None and outcome.gone == []
    return outcome, launch.observer.accuracy()


@pytest.mark.parametrize(
    ("scheme", "wire", "connected"),
    [
        ("dynamic", "compact", 2),
        ("dynamic", "paper", 5),
        ("masked", "compact", 3),
        ("direct", "compact", 2),
        ("plain", "compact", 2),
        ("trusted", "compact", 2),
    ],
)
def test_with_few_connections_nothing_differs(scheme, wire, connected, tmp_path):
    run = staged(scheme, wire, n_users=USERS, iterations=4)
    (tmp_path / "expected").mkdir()
    expected = run.undisturbed(tmp_path / "expected")
    few, accuracy = launched(run, tmp_path / "few", connected)
    everyone, same = launched(run, tmp_path / "all", None)
    assert end_of(few) == expected == end_of(everyone)
    assert accuracy == same and accuracy.test_mae is not None
    assert set(few.rejected) <= {"REPLAYED"}, "a frame may come twice, and none is missing"
    visits = {row[1]: row[2] for row in few.kernel if row[0] == "recommender" and row[1] != "third_party"}
    assert len(visits) == USERS and max(visits.values()) > 1, "somebody left his place to others and came back"
    assert all(row[2] == 1 for row in everyone.kernel)


def test_every_frame_of_a_crowd_is_metered_as_the_kernel_counts_it(tmp_path):
    """Frames handed over just as their receiver closed are the exception: they never left, and were sent again."""
    run = staged("dynamic", "compact", n_users=USERS, iterations=4)
    outcome, _ = launched(run, tmp_path / "run", 3)
    assert outcome.kernel_note is None
    counted = sum(sum(row[3:]) for row in outcome.kernel)
    course = sum(row[-1] for row in outcome.parties)
    apart = sum(-row[-1] if row[0] == "undelivered" else row[-1] for row in outcome.apart)
    assert {row[0] for row in outcome.apart} >= {"again", "reconnect", "resend", "undelivered"}
    again = sum(row[-1] for row in outcome.apart if row[0] == "resend")
    assert 0 <= course + apart - counted <= again


def test_users_of_a_crowd_keep_views_that_can_be_replayed(tmp_path):
    run = staged("dynamic", "compact", n_users=USERS, iterations=4)
    outcome, _ = launched(run, tmp_path / "run", 3, run.everyone)
    assert outcome.views.keys() == run.everyone
    for seat in run.seats:
        records = check_view(run.card, seat, tmp_path / "run")
        assert (len(records), records[-1].head) == outcome.views[seat.party]


def test_a_crowd_host_that_dies_is_not_started_again(tmp_path):
    """The states of its users are lost with it."""
    run = staged("masked", "compact", n_users=2, iterations=2)
    secrets = [Secret(seat, make_key_pair()) for seat in run.seats]
    roster = Roster(run.card, "masked", {s.seat.party: s.keys.public for s in secrets}, {})
    for connected, goes_on in ((1, False), (None, True)):
        launch = Launch(roster, secrets, Staff(tmp_path, run.everyone, 30.0, connected=connected))
        assert launch._can_resume(["user:0"]) == goes_on


# --- the state of a user that is away --------------------------------------------------------------------------------


@pytest.mark.parametrize("viewed", [False, True])
@pytest.mark.parametrize("wire", ["compact", "paper"])
@pytest.mark.parametrize("scheme", ["masked", "dynamic", "plain", "direct", "trusted"])
def test_a_user_laid_down_and_taken_up_between_any_two_frames_is_the_same(scheme, wire, viewed, tmp_path):
    """user:1 is stored and restored after each of its steps; every frame that it sends stays the same."""
    if wire == "paper" and scheme in ("plain", "trusted"):
        pytest.skip("one wire form only")
    run = staged(scheme, wire, n_users=4, iterations=3)
    frames = [exchange(run, laid_down, tmp_path / str(laid_down), viewed) for laid_down in (False, True)]
    assert frames[0] == frames[1] and len(frames[0]) >= 2


def exchange(run, laid_down: bool, folder: Path, viewed: bool) -> list[bytes]:
    """Collect the frames that user:1 sends in a run in one process."""
    folder.mkdir()
    sent: list[bytes] = []

    class Resting(InProcess):
        def _settle(self, name, step):
            if name == "user:1":
                sent.extend(out.frame for out in step.sends)
                state = put_down(self.parties[name]) if laid_down else None
                if state is not None:
                    fresh, _ = seat_party(self.card, self._seats[name], viewed)
                    take_up(fresh, state)
                    self._cast[name].party = fresh
            super()._settle(name, step)

    settings = run.settings(folder) | {"with_view": run.everyone if viewed else frozenset()}
    assert Resting(run.card, run.seats, **settings).run().abort is None
    return sent


@pytest.mark.parametrize("scheme", LISTED)
def test_every_scheme_lets_a_user_be_laid_down(scheme):
    """A user that cannot be stored stays in memory, and a crowd of such users would not fit."""
    card, seats = small_run(scheme)
    party, _ = seat_party(card, seats[-1], with_view=False)
    assert put_down(party) is not None


def test_a_role_with_something_of_its_own_stays_where_it_is():
    card, seats = small_run("masked")
    party, _ = seat_party(card, seats[-1], with_view=False)
    assert put_down(party) is not None
    party.role.notebook = object()
    assert put_down(party) is None


def test_a_party_at_its_end_is_not_laid_down():
    card, seats = small_run("masked")
    party, _ = seat_party(card, seats[-1], with_view=False)
    party.done = True
    assert put_down(party) is None


def test_the_vault_returns_what_was_put_last_and_reuses_the_place(tmp_path):
    vault = Vault(str(tmp_path))
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    assert vault.get(1) is None
    for state in (b"one", b"", b"longer than before", b"short"):
        vault.put(1, state)
        vault.put(2, b"two" + state)
        assert (vault.get(1), vault.get(2)) == (state, b"two" + state)
    assert vault._end == len(b"one" + b"twoone" + b"longer than before" + b"twolonger than before")
    vault.close()


def test_ranks_hold_the_secrets_of_users_as_they_were():
    run = staged("masked", "compact", n_users=3)
    users = [seat for seat in run.seats if seat.inputs]
    held_out = [HeldOut(np.array([u], np.uint32), np.array([float(u)])) for u in range(2)]
    secrets = [Secret(seat, make_key_pair(), held) for seat, held in zip(users, [*held_out, None], strict=True)]
    ranks = Ranks(pack_ranks(secrets))
    assert (len(ranks), ranks.users()) == (3, [0, 1, 2])
    for user, secret in enumerate(secrets):
        found = ranks.secret(user)
        empty = HeldOut(np.zeros(0, np.uint32), np.zeros(0))
        assert (found.keys, found.seat.tape_seed, found.seat.signer, found.seat.party) == (
            secret.keys,
            secret.seat.tape_seed,
            secret.seat.signer,
            secret.seat.party,
        )
        for one, other in ((found.seat.inputs, secret.seat.inputs), (found.held_out, secret.held_out or empty)):
            assert np.array_equal(one.items, other.items) and np.array_equal(one.ratings, other.ratings)
            assert (one.items.dtype, one.ratings.dtype) == (np.uint32, np.float64)


# --- which users are called or seen to leave -------------------------------------------------------------------------


def test_a_server_calls_whoever_missed_what_cannot_wait():
    bell = Doorbell(frozenset({"Welcome"}))
    kinds = {"user:1": "Welcome", "user:2": "ItemFactors", "user:3": "ItemFactors", "user:4": "resend"}
    for user, kind in kinds.items():
        bell.sent(user, kind)
    bell.has_all("user:3")
    for user in ("user:4", "user:3", "user:2", "user:1", "user:2"):
        bell.missed(user)
    assert bell.take_calls() == ["user:2"] and bell.take_calls() == []
    bell.missed("user:2")
    assert bell.take_calls() == ["user:2"], "until it says that it has everything"


def settled(server: ServerEnd, condition) -> bool:
    """Serve until `condition` holds; give False after five seconds."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        server.receive()
        server.refusals()
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_server_sees_who_leaves_and_sends_nothing_into_a_closed_connection(context, gate, endpoint):
    keys = {name: make_key_pair() for name in ("server", "user:0", "user:1")}
    roster = {keys[name].public: name for name in ("user:0", "user:1")}
    server = ServerEnd(context, gate, "server", endpoint, keys["server"], roster, 1000, comings=True)
    ends = [ClientEnd(context, "server", server.address, keys[f"user:{user}"], 1000) for user in range(2)]
    for end in ends:
        end.send("server", b"hello")
    assert settled(server, lambda: server.send("user:0", b"x") and server.send("user:1", b"x"))
    ends[0].close()
    left: list[str] = []
    assert settled(server, lambda: left.extend(server.left()) or left == ["user:0"])
    assert not server.send("user:0", b"x") and server.send("user:1", b"x")
    back = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    back.send("server", b"hello")
    assert settled(server, lambda: server.send("user:0", b"x")) and server.left() == []
    for end in (ends[1], back):
        end.close()
    server.close()


def test_a_connection_that_was_replaced_does_not_count_as_left(context, gate, endpoint):
    keys = {name: make_key_pair() for name in ("server", "user:0")}
    roster = {keys["user:0"].public: "user:0"}
    server = ServerEnd(context, gate, "server", endpoint, keys["server"], roster, 1000, comings=True)
    old = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    old.send("server", b"old")
    assert settled(server, lambda: bool(server._route_to))
    before = server._route_to["user:0"]
    new = ClientEnd(context, "server", server.address, keys["user:0"], 1000)
    new.send("server", b"new")
    assert settled(server, lambda: server._route_to["user:0"] != before)
    old.close()
    assert settled(server, lambda: len(server._route_of) == 1)
    assert server.left() == [] and server.send("user:0", b"x")
    new.close()
    server.close()


def test_a_watch_finds_what_came_while_something_was_sent(context):
    """Sending consumes the signal of the descriptor for a message that came; `look_again` reads the socket anyway."""
    one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    one.bind("inproc://watch")
    other.connect("inproc://watch")
    watch = Watch()
    watch.register(one)
    assert watch.poll(0) == [(one, zmq.POLLIN)], "it is looked at when it is new"
    with pytest.raises(zmq.Again):
        one.recv(zmq.NOBLOCK)
    assert watch.poll(0) == []
    other.send(b"a")
    one.send(b"b")
    assert one.getsockopt(zmq.EVENTS) & zmq.POLLIN
    watch.look_again(one)
    assert watch.poll(0) == [(one, zmq.POLLIN)] and one.recv(zmq.NOBLOCK) == b"a"
    watch.unregister(one)
    other.send(b"c")
    assert watch.poll(0) == []
    watch.close()
    for socket in (one, other):
        socket.close(0)


# --- a whole run -----------------------------------------------------------------------------------------------------


def test_a_run_whose_users_take_turns_says_so_is_predicted_to_the_byte_and_cannot_be_resumed(tmp_path, monkeypatch):
    settings = {"data": "synthetic:30x20", "iterations": 4, "join": 0.3, "leave": 0.2, "seed": 3}
    plain = api.run(**settings, out=tmp_path / "all", users_per_process=15)
    monkeypatch.setattr(capacity, "MOST_CONNECTED", 6)
    monkeypatch.setattr(capacity, "FEWEST_CONNECTED", 1)
    summary = api.run(**settings, out=tmp_path / "few", users_per_process=15)
    assert summary["completed"] and summary["item_factors_sha256"] == plain["item_factors_sha256"]
    assert summary["predictions_sha256"] == plain["predictions_sha256"] is not None
    assert summary["accuracy"] == plain["accuracy"]
    assert any("At most 6 of the 30 users are connected at a time" in note for note in summary["notes"])
    assert not any("connected at a time" in note for note in plain["notes"])
    told = api.bandwidth(tmp_path / "few")
    assert told["match"] and told["kernel_match"] and told["differences"] == []
    assert told["total"]["predicted_bytes"] == told["total"]["wire_bytes"]
    assert api.verify(tmp_path / "few")["verified"]
    stopped = {"completed": False, "abort": {"reason": "INTERRUPTED", "sentence": "INTERRUPTED"}}
    (tmp_path / "few" / "summary.json").write_text(json.dumps(summary | stopped))
    with pytest.raises(BadInput, match="take turns"):
        api.resume(tmp_path / "few")
    with pytest.raises(BadInput, match="Faults need users who stay connected"):
        api.run(**settings, out=tmp_path / "faults", users_per_process=15, faults="1:.1")
