"""The stage, and a host's peers: frames that are no longer kept, and frames to a peer that is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors import stage
from actors.seats import Hosted
from actors.stage import Performer
from protocol.errors import Aborted, Reason
from protocol.party.party import Outgoing, Step


@pytest.fixture
def derive(monkeypatch):
    """Give `derive(peer, first)`, which says whether the view was replayed for `peer`."""
    monkeypatch.setattr(stage, "derive_again", lambda card, seat, path, peer, first, end: [(peer, first, end)])
    hosted = Hosted.__new__(Hosted)
    hosted.card = hosted.seat = hosted.journal = None
    hosted._derived = {}
    return lambda peer, first: bool(hosted.derive("view", peer, first, first + 5))


def test_a_peer_that_gets_on_may_ask_as_often_as_it_must(derive):
    assert all(derive("user:3", first) for first in range(50))


def test_a_peer_that_asks_for_the_same_again_and_again_is_not_served_for_ever(derive):
    assert [derive("user:3", 7) for _ in range(5)] == [True, True, True, False, False]
    assert derive("user:4", 7) and derive("user:3", 8)


@pytest.mark.parametrize("reachable", [True, False])
def test_a_frame_that_cannot_be_handed_over_is_counted_as_such(reachable):
    lost: list[tuple[str, int]] = []
    hosted = Hosted.__new__(Hosted)
    hosted.figures = SimpleNamespace(undelivered=lambda to, size: lost.append((to, size)))
    hosted.server_end, hosted.client_ends = SimpleNamespace(send=lambda to, frame: reachable), {}
    hosted.hand_over("user:3", bytes(70))
    assert lost == ([] if reachable else [("user:3", 70)])


# --- the stage -------------------------------------------------------------------------------------------------------


class Told(Performer):
    """Notes what is written and what leaves, in this order."""

    def __init__(self, *parts: Step) -> None:
        self.said: list[str] = []
        _, *later = parts
        self.party = SimpleNamespace(go_on=lambda rest: later.pop(0))
        self.journal = SimpleNamespace(append=lambda records: self.said.extend(map(bytes.decode, records)))
        self.figures = SimpleNamespace(sent=lambda out: None)

    def hand_over(self, to: str, frame: bytes) -> None:
        self.said.append(f"{frame.decode()} leaves")

    def schedule(self, iteration: int) -> None:
        self.said.append(f"timer {iteration}")


def part(name: str, **more: Any) -> Step:
    return Step([f"{name} is written".encode()], [Outgoing("user:0", "Join", -1, name.encode())], **more)


def test_each_part_of_a_step_is_written_before_it_leaves():
    parts = part("one", rest=["two"], timers=[7]), part("two", rest=["three"]), part("three", done=True)
    told = Told(*parts)
    told.carry_out(parts[0])
    one, two, three = ([f"{name} is written", f"{name} leaves"] for name in ("one", "two", "three"))
    assert told.said == [*one, "timer 7", *two, *three]
    assert parts[0].done, "the step is done with its last part"


def test_of_a_step_that_ends_the_run_all_is_written_and_nothing_leaves():
    step = part("one", abort=Aborted(Reason.DIVERGED))
    told = Told(step)
    with pytest.raises(Aborted, match="DIVERGED"):
        told.carry_out(step)
    assert told.said == ["one is written"]
