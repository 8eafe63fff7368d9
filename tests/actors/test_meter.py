"""The meter by hand: rows, users, parties, traffic apart; then the figures from frames, views and faults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.basics import codec_with
from support.wire import Form

from actors.launch.reports import Closed, Finished
from actors.metering.meter import ALL, Meter, Tally
from actors.metering.outcome import Books, Outcome
from actors.metering.recorder import Figures
from protocol.errors import Reason
from protocol.party.party import Outgoing, Step
from protocol.party.view import EVENT, RECEIVED, REJECTED, SENT, Record
from protocol.wire.framing import Traffic
from protocol.wire.messages import Again, Hello, Join

CODEC = codec_with((Hello, Join), Form(32), max_frame=1000)

# on the wire a frame of L bytes is L + 35 up to 222 bytes, and L + 42 beyond


@pytest.fixture
def meter() -> Meter:
    """Meter a recommender and two users in two iterations: 300 and 200 bytes down, 100 up; 1000 to the third party."""
    meter = Meter("recommender")
    for iteration in range(2):
        for user, size in (("user:0", 300), ("user:1", 200)):
            meter.sent(iteration, user, "Factors", size)
            meter.received(iteration, user, "Answer", 100)
        meter.sent(iteration, "third_party", "Total", 1000)
    return meter


def test_an_iteration_is_taken_by_role_and_kind_and_then_forgotten(meter):
    expected = [
        Traffic(0, "recommender", "third_party", "Total", 1, 1000, 1042),
        Traffic(0, "recommender", "user", "Factors", 2, 500, 342 + 235),
        Traffic(0, "user", "recommender", "Answer", 2, 200, 2 * 135),
    ]
    assert meter.take(0).rows == expected
    assert meter.take(0).rows == []
    assert [row.iteration for row in meter.take(ALL).rows] == [1, 1, 1]


def test_what_a_user_received_and_sent_is_that_of_the_iteration_that_is_taken(meter):
    meter.received(-1, "user:0", "Join", 50)  # late
    assert meter.take(0).users == {"user:0": [342, 135], "user:1": [235, 135]}
    meter.received(1, "user:0", "Present", 10)
    assert meter.take(1).users == {"user:0": [342, 180], "user:1": [235, 135]}
    assert meter.take(2).users == {}


@pytest.mark.parametrize("most", [0, 1, 10_000])
def test_parties_are_added_up_over_all_iterations_and_the_set_up_for_itself(meter, most, monkeypatch):
    """The result does not depend on how many sizes are kept before they are added up."""
    monkeypatch.setattr("actors.metering.meter._MOST_SIZES", most)
    meter.received(-1, "user:0", "Join", 50)
    assert meter.parties() == [], "nothing was taken yet"
    meter.take(0)
    meter.sent(1, "user:0", "Factors", 10)
    meter.take(ALL)
    expected = [
        [-1, "user:0", "recommender", "Join", 1, 50, 85],
        [0, "recommender", "third_party", "Total", 2, 2000, 2 * 1042],
        [0, "recommender", "user:0", "Factors", 3, 610, 2 * 342 + 45],
        [0, "recommender", "user:1", "Factors", 2, 400, 2 * 235],
        [0, "user:0", "recommender", "Answer", 2, 200, 2 * 135],
        [0, "user:1", "recommender", "Answer", 2, 200, 2 * 135],
    ]
    assert meter.parties() == expected
    assert meter.parties() == expected, "asking changes nothing"


def test_a_handshake_belongs_to_the_set_up_and_comes_with_the_first_frame():
    meter = Meter("recommender")
    for _ in range(3):
        meter.greet("user:0")
    tally = meter.take(-1)
    assert tally.rows == [
        Traffic(-1, "recommender", "user", "handshake", 1, 0, 301),
        Traffic(-1, "user", "recommender", "handshake", 1, 0, 567),
    ]
    assert tally.users == {"user:0": [301, 567]}
    meter.greet("user:1")
    assert [row.iteration for row in meter.take(4).rows] == [-1, -1]


def test_further_handshakes_stand_apart_and_those_of_the_silent_come_at_the_end():
    """user:0 spoke and came back twice, user:1 never spoke, user:2 spoke in an earlier life and came back once."""
    meter = Meter("recommender")
    meter.greet("user:0")
    meter.greet("user:2", now=False)
    meter.close_handshakes({"user:0": 3, "user:1": 1, "user:2": 1})
    assert meter.take(ALL).rows == [
        Traffic(-1, "recommender", "user", "handshake", 3, 0, 3 * 301),
        Traffic(-1, "user", "recommender", "handshake", 3, 0, 3 * 567),
    ]
    assert meter.apart() == [
        ["reconnect", "recommender", "user:0", 2, 0, 602],
        ["reconnect", "recommender", "user:2", 1, 0, 301],
        ["reconnect", "user:0", "recommender", 2, 0, 1134],
        ["reconnect", "user:2", "recommender", 1, 0, 567],
    ]


def test_tallies_of_two_servers_are_one_with_each_row_and_user_once():
    one = Tally([Traffic(0, "user", "third_party", "Answer", 2, 20, 90)], {"user:0": [5, 0]})
    one.add(Tally([Traffic(0, "user", "third_party", "Answer", 1, 10, 45)], {"user:0": [1, 7], "user:1": [0, 9]}))
    one.add(Tally.from_lists([[[-1, "user", "third_party", "Hello", 1, 1, 36]], {}]))
    assert one.rows == [
        Traffic(-1, "user", "third_party", "Hello", 1, 1, 36),
        Traffic(0, "user", "third_party", "Answer", 3, 30, 135),
    ]
    assert one.users == {"user:0": [6, 7], "user:1": [0, 9]}


# --- figures ---------------------------------------------------------------------------------------------------------


class Server:
    """The figures of a recommender that is a client of the third party, and the report that they give at the end."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        ahead = ("third_party",)
        self.figures = Figures("recommender", ahead, -2, self.reports.append, None, None)

    def closed(self, **handshakes: int) -> Closed:
        self.figures.closed({name.replace("_", ":"): n for name, n in handshakes.items()}, None, "none here")
        return self.reports[-1]


def out(to: str, kind: str, size: int, iteration: int = 0) -> Outgoing:
    return Outgoing(to, kind, iteration, bytes(size))


def test_each_message_is_counted_once_where_a_server_sends_it_or_takes_it_from_a_user():
    server = Server()
    server.figures.received("user:0", Step(kind="Join"), 40)
    server.figures.received("third_party", Step(kind="Total", iteration=0), 500)  # the third party counts it
    server.figures.sent(out("user:0", "Factors", 100))
    server.figures.sent(out("third_party", "OpenSum", 60))
    assert server.closed().parties == [
        [-1, "recommender", "user:0", "handshake", 1, 0, 301],
        [-1, "user:0", "recommender", "Join", 1, 40, 75],
        [-1, "user:0", "recommender", "handshake", 1, 0, 567],
        [0, "recommender", "third_party", "OpenSum", 1, 60, 95],
        [0, "recommender", "user:0", "Factors", 1, 100, 135],
    ]


def test_what_is_no_part_of_the_course_stands_apart():
    server = Server()
    server.figures.received("user:0", Step(kind="Join", rejected=Reason.REPLAYED), 40)
    server.figures.received("user:0", Step(rejected=Reason.MALFORMED), 50)
    server.figures.received("user:0", Step(kind="Again"), 36)
    server.figures.received("third_party", Step(kind="Total", rejected=Reason.REPLAYED), 70)  # counted by its sender
    server.figures.sent(out("user:0", "Again", 37, -1))
    server.figures.sent(out("user:0", "resend", 100, -1))
    server.figures.undelivered("user:0", 100)
    server.figures.revoked("user:0", 20)
    report = server.closed()
    assert report.apart == [
        ["again", "recommender", "user:0", 1, 37, 72],
        ["again", "user:0", "recommender", 1, 36, 71],
        ["rejected:MALFORMED", "user:0", "recommender", 1, 50, 85],
        ["rejected:REPLAYED", "user:0", "recommender", 1, 40, 75],
        ["rejected:REVOKED", "user:0", "recommender", 1, 20, 55],
        ["resend", "recommender", "user:0", 1, 100, 135],
        ["undelivered", "recommender", "user:0", 1, 100, 135],
    ]
    assert {row[3] for row in report.parties} == {"handshake"}
    assert server.figures.rejected == {"REPLAYED": 2, "MALFORMED": 1}


def test_frames_that_suffer_on_purpose_add_up_to_what_left():
    """Four faults: lost; doubled; damaged, one byte shorter; sent together with another frame that was held back."""
    for leaving, expected in (
        ([], {"undelivered": 100}),
        ([100, 100], {"resend": 100}),
        ([99], {"undelivered": 100, "resend": 99}),
        ([100, 40], {"resend": 40}),
    ):
        server = Server()
        frame = out("user:0", "Factors", 100)
        server.figures.sent(frame)
        server.figures.suffered(frame, [bytes(size) for size in leaving])
        apart = {what: payload for what, _, _, _, payload, _ in server.closed().apart}
        assert apart == expected
        assert 100 + apart.get("resend", 0) - apart.get("undelivered", 0) == sum(leaving)


def test_a_view_that_is_done_again_gives_what_was_counted_the_first_time():
    hello = CODEC.encode(Hello(1, bytes(32), bytes(32)), 0)
    again = CODEC.encode(Again(3, 1), 0)
    live, late = Server(), Server()
    live.figures.received("user:0", Step(kind="Hello"), len(hello))
    live.figures.received("user:0", Step(kind="Join", rejected=Reason.REPLAYED), 40)
    live.figures.received("user:1", Step(kind="Again"), len(again))
    live.figures.sent(out("user:0", "Factors", 100, 4))
    records = [
        (RECEIVED, ["user:0", hello]),
        (REJECTED, ["user:0", "REPLAYED", 40, bytes(32), False]),
        (EVENT, ["Again", "user:1", 3]),
        (SENT, ["user:0", "Factors", 4, 100, bytes(32)]),
        (RECEIVED, ["third_party", hello]),
    ]
    for number, (kind, fields) in enumerate(records):
        late.figures.recount(Record(number, kind, fields, b""), CODEC)
    first, second = live.closed(user_0=1, user_1=1), late.closed()
    assert (first.tally, first.parties, first.apart) == (second.tally, second.parties, second.apart)
    assert live.figures.rejected == late.figures.rejected == {"REPLAYED": 1}


def test_iterations_that_were_reported_before_a_restart_are_not_reported_again():
    reports: list[Any] = []
    figures = Figures("recommender", (), 1, reports.append, None, None)
    for iteration in range(5):
        figures.recount(Record(0, SENT, ["user:0", "Factors", iteration, 100, bytes(32)], b""), CODEC)
        figures.turned(SimpleNamespace(iteration=iteration, facts=dict))
    assert [(report.iteration, report.tally[0][0][0]) for report in reports] == [(2, 2), (3, 3)]
    assert all(report.seconds is None for report in reports), "nobody knows how long they took"


# --- the books -------------------------------------------------------------------------------------------------------


def iteration_report(party: str, iteration: int, invited: int = 3, contributors: int = 2) -> Finished:
    tally = [[[iteration, party, "user", "Factors", 1, 1, 36]], {"user:0": [36, 0]}]
    return Finished(party, iteration, 1.0, invited, contributors, {party: iteration}, tally)


def test_an_iteration_is_told_once_when_every_server_has_reported_it_and_the_set_up_when_the_recommender_has():
    told, outcome = [], Outcome()
    books = Books(("recommender", "third_party"), outcome, told.append)
    books.iteration(iteration_report("recommender", -1), 9.0)
    books.iteration(iteration_report("recommender", 0), 1.5)
    assert [(done.iteration, done.seconds) for done in told] == [(-1, 9.0)]
    books.iteration(iteration_report("third_party", 0, invited=0, contributors=0), 7.0)
    books.iteration(iteration_report("third_party", 0), 7.0)  # it was started again
    assert [(done.iteration, done.seconds, done.invited, done.contributors) for done in told[1:]] == [(0, 1.5, 3, 2)]
    assert told[1].course == {"recommender": 0, "third_party": 0}
    assert [row.sender for row in told[1].tally.rows] == ["recommender", "third_party"]
    assert told[1].tally.users == {"user:0": [72, 0]}
    books.iteration(iteration_report("recommender", 1), 1.0)
    books.conclude()  # it ends before the other server has said anything
    assert [row.iteration for row in outcome.rest.rows] == [1]


def test_the_kernels_counts_are_those_of_every_server_or_none():
    def closed(party: str, note: str | None) -> Closed:
        kernel = None if note else [["user:0", 1, 600, 400]]
        peak = 1000 if party == "recommender" else None
        return Closed(party, {}, [], True, [], False, kernel, note, peak, [[], {}])

    def concluded(*reports: Closed) -> Outcome:
        outcome = Outcome()
        books = Books(("recommender", "third_party"), outcome, None)
        for report in reports:
            books.closed(report)
        books.conclude()
        return outcome

    both = concluded(closed("third_party", None), closed("recommender", None))
    assert both.kernel == [["recommender", "user:0", 1, 600, 400], ["third_party", "user:0", 1, 600, 400]]
    assert both.kernel_note is None and both.peaks == {"recommender": 1000}
    one = concluded(closed("third_party", "It was started again."), closed("recommender", None))
    assert (one.kernel, one.kernel_note) == (None, "It was started again.")
    silent = concluded(closed("recommender", None))
    assert silent.kernel is None and silent.kernel_note == "third_party did not say what it had counted."
