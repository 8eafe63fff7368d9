"""Bytes by the closed formula against counted bytes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgpack
import pytest
from support.basics import shape_of, small_ratings, small_run
from support.meter import added_up, predicted_if_all_stay
from support.runs import play

from actors.metering.outcome import IterationDone
from protocol.card import Card, Seat
from protocol.wire.fields import bin_size, uint_size
from protocol.wire.framing import HANDSHAKE, Traffic, wire_size


def test_sizes_of_numbers_and_arrays_are_those_of_msgpack():
    for power in (7, 8, 15, 16, 31, 32, 63):
        for value in (2**power - 1, 2**power):
            assert uint_size(value) == len(msgpack.packb(value))
    for length in (0, 1, 255, 256, 2**15, 2**16 - 1, 2**16):
        assert bin_size(length) == len(msgpack.packb(bytes(length)))


def test_the_wire_adds_encryption_and_a_short_or_long_header():
    """33 bytes of encryption; then 2 bytes of header up to 255 bytes, else 9."""
    assert [wire_size(length) for length in (0, 222, 223, 1000)] == [35, 257, 265, 1042]


def metered(card: Card, seats: list[Seat], handshakes: bool = False) -> list[Traffic]:
    told: list[IterationDone] = []
    run = play(card, seats, on_iteration=told.append)
    return [row for row in added_up(told, run.outcome) if handshakes or row.kind != HANDSHAKE]


@pytest.mark.parametrize("scheme", ["plain", "masked", "dynamic"])
def test_every_client_makes_one_handshake_with_each_of_its_servers(scheme):
    """567 bytes from the client and 301 back; 4 users, and the recommender is a client of the third party."""
    rows = [row for row in metered(*small_run(scheme, n_users=4), handshakes=True) if row.kind == HANDSHAKE]
    servers = [("recommender", "user", 4)] + [("third_party", "recommender", 1), ("third_party", "user", 4)] * (
        scheme != "plain"
    )
    expected = [Traffic(-1, client, server, HANDSHAKE, n, 0, 567 * n) for server, client, n in servers]
    expected += [Traffic(-1, server, client, HANDSHAKE, n, 0, 301 * n) for server, client, n in servers]
    assert rows == sorted(expected, key=dataclasses.astuple)


TRAFFIC: dict[str, dict[str, Any]] = {
    "plain": {"scheme": "plain"},
    "plain, long": {"scheme": "plain", "iterations": 300},
    "compact": {},
    "compact, 24 bits": {"ring_bits": 24, "epsilon": 100.0},
    "compact, 64 bits": {"ring_bits": 64},
    "compact, 32 bits": {"ring_bits": 32},
    "compact, long": {"iterations": 300},  # numbers of one, two and three bytes
    "paper": {"wire": "paper"},
    "paper, 24 bits": {"wire": "paper", "ring_bits": 24, "epsilon": 100.0},
    "paper, 64 bits": {"wire": "paper", "ring_bits": 64},
    "paper, long": {"wire": "paper", "iterations": 300},
    "compact, wide": {"n_users": 70, "n_items": 100, "dim": 260, "iterations": 1},  # arrays beyond 2^8 and 2^16 bytes
    "paper, wide": {"wire": "paper", "n_users": 70, "n_items": 100, "dim": 260, "iterations": 1},
    "plain, wide": {"scheme": "plain", "n_users": 70, "n_items": 100, "dim": 260, "iterations": 1},
    "items below their floor": {"min_contributors": 4},
    "one user, one item": {"n_users": 1, "n_items": 1, "dim": 1, "iterations": 1},
}


@pytest.mark.parametrize("options", TRAFFIC.values(), ids=TRAFFIC.keys())
def test_the_predicted_traffic_is_the_metered_traffic(options):
    card, seats = small_run(**options)
    shape = shape_of(small_ratings(card.params.n_users, card.params.n_items), card.params.n_items)
    assert predicted_if_all_stay(card, shape) == metered(card, seats, handshakes=True)
    if card.params.min_contributors > 1:
        assert 0 < (shape.raters >= card.params.min_contributors).sum() < card.params.n_items


def test_the_predicted_traffic_leaves_out_what_nobody_rated():
    ratings = [{0: 3.0, 2: 4.0}, {2: 1.0, 3: 5.0}]
    for scheme in ("plain", "masked"):
        card, seats = small_run(scheme, ratings=ratings, n_items=5)
        assert predicted_if_all_stay(card, shape_of(ratings, 5)) == metered(card, seats, handshakes=True)


def test_a_masked_gradient_has_the_bytes_of_its_ring():
    """Iteration 0, dim 2, w bytes: header, kind, two numbers, 2 + 1 (a bit for each of 3 items), 2 + 2wn; a head."""
    ratings = [{0: 3.0, 1: 4.0, 2: 1.0}]
    for bits, width in ((24, 3), (32, 4), (64, 8)):
        card, seats = small_run(ratings=ratings, n_items=3, iterations=1, epsilon=math.inf, ring_bits=bits)
        (row,) = (row for row in metered(card, seats) if row.kind == "MaskedGradient")
        assert row.messages == 1
        assert row.payload_bytes == 4 + (2 + 1) + (2 + 2 * width * 3) + 32
