"""Frames of different senders may arrive in any order: hundreds of orders give the same V."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.runs import Directed, Staged, end_of, long, staged

from protocol.schemes import find_scheme

SCHEMES = ("masked", "dynamic", "direct", "trusted", "plain")
RUNS = [(name, wire) for name in SCHEMES for wire in ("compact", "paper") if "wire" in find_scheme(name).flags]
RUNS += [(name, "compact") for name in SCHEMES if "wire" not in find_scheme(name).flags]


@pytest.fixture(params=RUNS, ids=" ".join)
def run(request) -> Staged:
    return staged(*request.param, n_users=6, n_items=7)


def arrive(run: Staged, orders: int, folder: Path, record: Callable[[str, object], None]) -> None:
    """Run `orders` orders of arrival: the factors are equal, and the heads of a server's view show different orders."""
    found, heard = set(), set()
    for order in (None, *range(orders)):
        outcome = Directed(run.card, run.seats, order=order, **run.settings(folder / str(order))).run()
        assert outcome.abort is None and not outcome.rejected, order
        factors, predictions = end_of(outcome)
        found.add((factors, *sorted(predictions.items())))
        heard.add(tuple(outcome.views[server] for server in run.card.scheme.servers))
    record("orders", len(heard))
    print(f"\n{run.card.scheme.name} {getattr(run.card.params, 'wire', '')}: {len(heard)} orders, {len(found)} V")
    assert len(found) == 1 and len(heard) == orders + 1


def test_any_order_of_arrival_gives_the_same_factors(run, tmp_path, record_property):
    arrive(run, 40, tmp_path, record_property)


@long
def test_five_hundred_orders_of_arrival_give_the_same_factors(run, tmp_path, record_property):
    arrive(run, 500, tmp_path, record_property)
