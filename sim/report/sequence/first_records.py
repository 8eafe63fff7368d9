"""Scan the views for some iterations: the order of the kinds, and one record of each as its receiver has it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from protocol.party.role import role_of, user_index
from protocol.party.view import RECEIVED, SENT, CutOff, Record
from sim.report.sequence.arrows import Edge
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits, Seen, read_message
from sim.views.viewing import Reader, brief, describe

MOST_EXAMPLES = 50  # views of users that are opened to find one record


@dataclass(slots=True)
class Scan:
    """The results of a scan, for the wanted iterations alone."""

    orders: list[list[Edge]] = field(default_factory=list)  # edges of each view that was read, by first record
    received: dict[Edge, list[Seen]] = field(default_factory=dict)  # by servers
    told: dict[Edge, dict[str, None]] = field(default_factory=dict)  # the users that servers sent it to
    examples: dict[Edge, dict[str, Any]] = field(default_factory=dict)  # a record as `keyhole view --json` has it


def scan(case: Case, iterations: Collection[int]) -> Scan:
    """Read the servers' views, then those of as many users as are needed to see one record of everything."""
    found = Scan()
    for server in case.card.scheme.servers:
        if server in case.kept:
            _read(case, server, iterations, found)
    _read_users(case, iterations, found)
    return found


def _records(case: Case, party: str) -> Iterator[Record]:
    """Yield the records of a view, up to where it was cut off."""
    try:
        yield from Exhibits(case, (party,)).records(party)
    except CutOff:
        return


def _read(case: Case, party: str, iterations: Collection[int], found: Scan) -> None:
    """Read one view, up to the last wanted iteration."""
    order: dict[Edge, None] = {}
    for record in _records(case, party):
        if record.type == SENT:
            receiver, kind, iteration, *_ = record.fields
            edge = (iteration, role_of(party), role_of(receiver), kind)
            if iteration in iterations and user_index(receiver) >= 0:
                found.told.setdefault(edge, {}).setdefault(receiver)
        elif record.type == RECEIVED:
            seen = read_message(case, party, record)
            edge = (seen.iteration, role_of(seen.sender), role_of(party), type(seen.message).__name__)
            if seen.iteration in iterations:
                if edge not in found.examples:
                    found.examples[edge] = describe(record, Reader(party, case.card.codec, case.card.params, brief))
                if user_index(party) < 0:
                    found.received.setdefault(edge, []).append(seen)
        else:
            continue
        if edge[0] > max(iterations) + 1:  # users announce coming and going one iteration ahead
            break
        if edge[0] in iterations:
            order.setdefault(edge)
    found.orders.append(list(order))


def _read_users(case: Case, iterations: Collection[int], found: Scan) -> None:
    wanted = {edge: users for edge, users in found.told.items() if edge not in found.examples}
    candidates = dict.fromkeys(user for users in wanted.values() for user in users if user in case.kept)
    for user in list(candidates)[:MOST_EXAMPLES]:
        if any(user in users for users in wanted.values()):
            _read(case, user, iterations, found)
            wanted = {edge: users for edge, users in wanted.items() if edge not in found.examples}
