"""From bytes to totals per day and to time on a link, with numbers that a reader can check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocol.errors import BadInput
from protocol.wire.framing import Flow
from sim.bandwidth.prediction import predict
from sim.bandwidth.projection import Link, least_seconds, links_of, parse_link, rounds_of, user_bytes
from sim.plan.config import RunConfig

FRAME = 1_000_000 - 33 - 9  # a million bytes on the wire


def flow(sender: str, receiver: str, messages: Any = 1.0, kind: str = "Kind") -> Flow:
    return Flow(0, sender, receiver, kind, messages, FRAME)


def test_a_link_is_two_speeds_and_a_latency():
    assert parse_link("office=50/10/12.5") == Link("office", 50, 10, 12.5)
    assert parse_link("office=50/10/12.5").down_seconds(50e6 / 8) == 1
    assert parse_link("office=50/10/12.5").up_seconds(10e6 / 8) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wifi", "NAME=DOWN"),
        ("=1/1/1", "NAME=DOWN"),
        ("wifi=1/1", "NAME=DOWN"),
        ("wifi=1/1/1/1", "NAME=DOWN"),
        ("wifi=fast/1/1", "NAME=DOWN"),
        ("wifi=-1/1/1", "or more"),
        ("wifi=1/0/1", "or more"),
        ("wifi=inf/1/1", "or more"),
        ("wifi=nan/1/1", "or more"),
        ("wifi=1/1/-1", "latency"),
        ("wifi=1/1/inf", "latency"),
    ],
)
def test_a_link_that_cannot_be_is_refused(text, words):
    with pytest.raises(BadInput, match=words):
        links_of([text])


def test_links_replace_the_defaults_or_stand_beside_them():
    links = {link.name: link for link in links_of(["wifi=1/2/3", "sea=4/5/6"])}
    assert list(links) == ["mobile", "wifi", "datacentre", "sea"]
    assert links["wifi"] == Link("wifi", 1, 2, 3) and links["mobile"] == Link("mobile", 20, 5, 50)


MASKED = [
    flow("recommender", "third_party", kind="OpenSum"),
    flow("recommender", "user", np.array([6.0, 4.0])),
    flow("user", "third_party", np.array([6.0, 4.0])),
    flow("third_party", "recommender", kind="Contributors"),
    flow("recommender", "third_party", kind="Agreed"),
    flow("third_party", "recommender", kind="MaskedTotal"),
]


def test_what_one_role_sends_at_once_is_one_round():
    kinds = [[flow.kind for flow in flows] for flows in rounds_of(MASKED)]
    assert kinds == [["OpenSum", "Kind"], ["Kind"], ["Contributors"], ["Agreed"], ["MaskedTotal"]]
    seldom = flow("user", "recommender", np.array([0.2, 0.2]))
    assert len(rounds_of([seldom, *MASKED])) == 5
    assert len(rounds_of([flow("user", "recommender", np.array([3.0, 0.0])), *MASKED])) == 6


def test_the_least_time_adds_serving_transfer_and_latencies():
    """Ten users and one opening, a million bytes each; servers with 80 Mbit/s, so .1 s for a million bytes.

    The recommender sends 11 MB in 1.1 s while the third party receives as much: 1.1 s. Three messages between the
    servers take .3 s. The user's own 2 MB down at 16 Mbit/s take 1 s, its 1 MB up at 4 Mbit/s 2 s. The rounds: two of
    20 + 1 ms with the user, three of 2 ms between the servers.
    """
    link, servers = Link("home", 16, 4, 20), Link("datacentre", 80, 80, 1)
    found = least_seconds(rounds_of(MASKED), link, servers, 2e6, 1e6)
    assert found == pytest.approx(1.1 + 0.3 + 1 + 2 + 2 * 0.021 + 3 * 0.002)
    slow = Link("datacentre", 8, 80, 1)  # receiving is slower now: 11 MB to the third party take 11 s
    assert least_seconds(rounds_of(MASKED), link, slow, 2e6, 1e6) == pytest.approx(11 + 3 + 3 + 0.048)


def test_median_and_largest_user_are_of_those_who_take_part():
    frames = np.array([100, 200, 300])
    invited = np.array([5.0, 4.0, 2.0])
    flows = [
        Flow(0, "recommender", "user", "ItemFactors", invited, frames),
        Flow(0, "user", "third_party", "MaskedGradient", invited, 2 * frames),
        Flow(0, "user", "recommender", "Present", invited / 10, frames),
        Flow(0, "recommender", "third_party", "OpenSum", 1, 9999),
    ]
    found = user_bytes(flows, invited)
    assert (found.down_median, found.down_max) == (200 + 35, 300 + 42)
    assert (found.up_median, found.up_max) == (400 + 42, 600 + 42)
    assert user_bytes(flows[:1], np.array([5.0, 4.0, 1.0])).down_median == 0  # not all users exchange these
    even = Flow(0, "recommender", "user", "ItemFactors", np.array([2.0, 1.0, 1.0]), frames)
    assert user_bytes([even], even.messages).down_median == (135 + 235) / 2


def test_totals_of_a_server_are_those_of_its_rows():
    document = predict(RunConfig(scheme="masked", data="synthetic:20x10:.3", iterations=4, seed=1), iteration_seconds=2)
    projection, rows = document["projection"], document["rows"]
    assert projection["iterations_per_day"] == 43_200 and projection["rounds"] == 5
    for server, figures in projection["servers"].items():
        for way, end in (("sent", "sender"), ("received", "receiver")):
            own = [row for row in rows if row[end] == server]
            each = sum(row["predicted_bytes"] for row in own if 0 <= row["iteration"] < 4) / 4
            assert figures[f"{way}_per_iteration"] == each and figures[f"{way}_per_day"] == 43_200 * each
            assert figures[f"{way}_setup"] == sum(row["predicted_bytes"] for row in own if row["iteration"] == -1)
    assert [link["name"] for link in projection["links"]] == ["mobile", "wifi"] and projection["warnings"] == []
    user, mobile = document["per_user_iteration"], projection["links"][0]
    assert mobile["down_seconds_max"] == pytest.approx(8 * user["down_max"] / 20e6)
    assert mobile["up_seconds_median"] == pytest.approx(8 * user["up_median"] / 5e6)
    assert mobile["iteration_seconds_max"] > 2 * 0.0505 + 3 * 0.001


def test_an_iteration_that_takes_longer_than_it_may_is_told():
    config = RunConfig(scheme="masked", data="synthetic:100000000x1000000:.00002", iterations=2)
    warnings = predict(config)["projection"]["warnings"]
    assert len(warnings) == 2 and all("cannot be begun every 5 s" in sentence for sentence in warnings)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_an_iteration_must_take_some_time(seconds):
    with pytest.raises(BadInput, match="--iteration-seconds"):
        predict(RunConfig(scheme="plain"), iteration_seconds=seconds)
