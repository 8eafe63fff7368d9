"""The arrows of the sequence diagrams: one for each sender, receiver and kind, with the bytes that were counted."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import BadInput
from protocol.schemes import Scheme
from protocol.wire.framing import HANDSHAKE
from protocol.wire.messages import SETUP
from sim.console.console import counted, size
from sim.report.reported_run import ReportedRun

Row = dict[str, Any]  # iteration, sender, receiver, kind, messages, payload_bytes, wire_bytes
Edge = tuple[int, str, str, str]  # iteration, sender, receiver (both roles), kind

CONNECTING = (HANDSHAKE, "Hello")


@dataclass(frozen=True, slots=True)
class Arrow:
    """One row of bytes or, for a connection, the rows of both directions."""

    key: str  # of its panel on the page
    rows: tuple[Row, ...]
    tells_round: bool = False  # the drawing has more than one round

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def edge(self) -> Edge:
        return edge_of(self.first)

    @property
    def connects(self) -> bool:
        return self.first["kind"] in CONNECTING

    @property
    def messages(self) -> int:
        return int(sum(row["messages"] for row in self.rows if row["kind"] != HANDSHAKE))

    @property
    def wire_bytes(self) -> int:
        return int(sum(row["wire_bytes"] for row in self.rows))

    @property
    def payload_bytes(self) -> int:
        return int(sum(row["payload_bytes"] for row in self.rows))

    @property
    def name(self) -> str:
        if self.connects:
            return "handshake, Hello"
        kind, iteration = self.first["kind"], self.first["iteration"]
        return f"{kind}, round {iteration}" if self.tells_round and iteration != SETUP else str(kind)

    @property
    def amount(self) -> str:
        return f"{counted(self.messages, 'message')}, {size(self.wire_bytes)}"

    @property
    def spoken(self) -> str:
        """Describe the arrow to a reader who cannot see the drawing."""
        way = "and" if self.connects else "to"
        return f"{self.name}, {self.first['sender']} {way} {self.first['receiver']}, {self.amount}"


@dataclass(frozen=True, slots=True)
class Diagram:
    key: str
    title: str
    words: str  # which messages these are, and why these
    arrows: tuple[Arrow, ...]


def edge_of(row: Row) -> Edge:
    return row["iteration"], row["sender"], row["receiver"], row["kind"]


def rows_of(run: ReportedRun) -> tuple[list[Row], str]:
    """List (the rows of bytes, a sentence if they are not those of a completed run)."""
    try:
        found, words = run.bandwidth["rows"], ""
    except BadInput:  # the run did not complete: take what was written until then
        found = run.told_rows
        words = "The run did not complete: these are the bytes that were told until then."
    return [row for row in found if row["wire_bytes"]], words


def typical_iteration(run: ReportedRun, rows: Iterable[Row]) -> int | None:
    """Choose the middle one of the iterations in which users contributed; None if there is no such iteration."""
    counted_ = {row["iteration"] for row in rows}
    lines = (line for line in run.lines if line["iteration"] in counted_ - {SETUP} and line["contributors"])
    found = sorted(line["iteration"] for line in lines)
    return found[len(found) // 2] if found else None


def is_one_round(run: ReportedRun, rows: Iterable[Row]) -> bool:
    """Tell whether nothing is repeated, so that the whole run fits into one drawing."""
    ended, turns = run.summary["completed"], range(run.params.iterations)
    return not run.scheme.factorizes or (ended and all(row["iteration"] not in turns for row in rows))


def connections(rows: Sequence[Row], lifelines: Sequence[str]) -> list[tuple[Row, ...]]:
    """Group handshakes and Hellos by the pair of roles that they connect."""
    pairs: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] in CONNECTING:
            pairs[tuple(sorted((row["sender"], row["receiver"]), key=lifelines.index))].append(row)
    order = sorted(pairs, key=lambda pair: [lifelines.index(role) for role in pair])
    return [tuple(sorted(pairs[pair], key=lambda row, a=pair[0]: row["sender"] != a)) for pair in order]  # type: ignore[misc]


def in_order(edges: Iterable[Edge], seen: Iterable[Sequence[Edge]], scheme: Scheme) -> list[Edge]:
    """Order `edges`: a party sends after what it has received and sent before; ties follow the list of the scheme.

    `seen` has for each view its edges by their first record. Which of two senders' messages reached a receiver first
    is a race, and says nothing. Where two views contradict each other (two messages that crossed on their way), the
    earlier view of the list is followed.
    """
    ranks = {kind.__name__: at for at, kind in enumerate(scheme.messages)}
    left = set(edges)
    before: dict[Edge, set[Edge]] = {edge: set() for edge in left}
    for order in seen:
        known = [edge for edge in order if edge in left]
        for first, then in itertools.combinations(known, 2):
            raced = first[2] == then[2] and first[1] != then[1]  # to one receiver, from different senders
            if not raced and not _leads(before, then, first):
                before[then].add(first)
    done: list[Edge] = []
    while left:
        ready = [edge for edge in left if not before[edge] & left]
        done.append(min(ready, key=lambda edge: (edge[0], ranks.get(edge[3], len(ranks)), edge)))
        left.remove(done[-1])
    return done


def _leads(before: Mapping[Edge, set[Edge]], start: Edge, end: Edge) -> bool:
    """Tell whether `start` is already known to come before `end`."""
    waiting, met = [end], set[Edge]()
    while waiting:
        edge = waiting.pop()
        if edge == start:
            return True
        waiting += before[edge] - met
        met |= before[edge]
    return False


def make_diagram(
    key: str, title: str, words: str, rows: Sequence[Row], seen: Iterable[Sequence[Edge]], scheme: Scheme
) -> Diagram:
    """Make a diagram: connections first, whenever they were made, then every kind where it first came."""
    by_edge = {edge_of(row): row for row in rows if row["kind"] not in CONNECTING}
    ordered = [(by_edge[edge],) for edge in in_order(by_edge, seen, scheme)]
    groups = [*connections(rows, scheme.parties()), *ordered]
    rounds = len({row["iteration"] for row in rows} - {SETUP}) > 1
    arrows = tuple(Arrow(f"seq-{key}-{number}", group, rounds) for number, group in enumerate(groups))
    return Diagram(key, title, words, arrows)
