"""A host and its peers: frames asked for that are no longer kept, and frames to a peer that is not there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from actors import host
from actors.host import Host
from actors.seats import Place


@pytest.fixture
def derive(monkeypatch):
    """Give `derive(peer, first)`, which says whether the view was replayed for `peer`."""
    monkeypatch.setattr(host, "derive_again", lambda card, seat, path, peer, first, end: [(peer, first, end)])
    place = Place("run", frozenset({"recommender"}), 60.0)
    party = SimpleNamespace(name="recommender")
    hosted = SimpleNamespace(party=party, card=None, secret=SimpleNamespace(seat=None), derived={}, journal=None)
    return lambda peer, first: bool(Host._derive(SimpleNamespace(_place=place), hosted, peer, first, first + 5))


def test_a_peer_that_gets_on_may_ask_as_often_as_it_must(derive):
    assert all(derive("user:3", first) for first in range(50))


def test_a_peer_that_asks_for_the_same_again_and_again_is_not_served_for_ever(derive):
    assert [derive("user:3", 7) for _ in range(5)] == [True, True, True, False, False]
    assert derive("user:4", 7) and derive("user:3", 8)


@pytest.mark.parametrize("reachable", [True, False])
def test_a_frame_that_cannot_be_handed_over_is_counted_as_such(reachable):
    lost: list[tuple[str, int]] = []
    figures = SimpleNamespace(undelivered=lambda to, size: lost.append((to, size)))
    server_end = SimpleNamespace(send=lambda to, frame: reachable)
    hosted = SimpleNamespace(client_ends={}, server_end=server_end, figures=figures, doorbell=None)
    Host._hand_over(SimpleNamespace(), hosted, "user:3", bytes(70))
    assert lost == ([] if reachable else [("user:3", 70)])
