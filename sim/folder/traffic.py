"""Rows of traffic: predicted by formula, joined with the counts, added up by iteration, edge, kind or party."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protocol.errors import BadInput
from protocol.params import Params
from protocol.party.role import role_of, user_index, user_name
from protocol.schemes import Scheme
from protocol.wire.framing import HANDSHAKE, Flow, wire_size
from protocol.wire.messages import SETUP
from sim.folder.byte_records import Key

BY = ("iteration", "edge", "kind", "party")
COLUMNS = ("iteration", "sender", "receiver", "kind", "messages", "payload_bytes", "wire_bytes", "predicted_bytes")
WHEN = ("set-up", "iteration", "end")

Row = dict[str, Any]


def check_by(by: str | None) -> None:
    if by is not None and by not in BY:
        raise BadInput(f"--by must be one of {', '.join(BY)}, not {by!r}.")


def describe(scheme: Scheme, params: Params, data: str) -> dict[str, Any]:
    return {
        "scheme": scheme.name,
        "data": data,
        "factorizes": scheme.factorizes,  # False: there are no iterations and no dimension
        "users": params.n_users,
        "items": params.n_items,
        "dim": params.dim,
        "iterations": params.iterations,
        "wire": params.wire,
        "ring_bits": params.ring_bits,
        "factor_bits": params.factor_bits,
    }


# --- by formula ------------------------------------------------------------------------------------------------------


@dataclass
class Forecast:
    """Sums of flows by (iteration, sender, receiver, kind), and for each user if every group is a single user."""

    n_users: int = 0  # 0: sums by party are not kept
    rows: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    parties: dict[Key, tuple[Any, Any]] = field(default_factory=dict)  # messages and wire bytes

    def add(self, flows: Iterable[Flow]) -> None:
        for flow in flows:
            amounts = flow.total()
            if not amounts[0]:
                continue
            entry = self.rows[flow.iteration, flow.sender, flow.receiver, flow.kind]
            for place, amount in enumerate(amounts):
                entry[place] += amount
            if self.n_users:
                self._add_parties(flow)

    def _add_parties(self, flow: Flow) -> None:
        key = (SETUP if flow.iteration == SETUP else 0, flow.sender, flow.receiver, flow.kind)
        messages, frame = np.broadcast_arrays(flow.messages, flow.frame)
        wire = messages * (frame if flow.kind == HANDSHAKE else wire_size(frame))
        before = self.parties.get(key, (0, 0))
        self.parties[key] = (before[0] + messages, before[1] + wire)

    def by_party(self) -> dict[Key, int]:
        """Return the wire bytes by party, with one entry for every user that sends or receives frames."""
        return {key: wire for key, _, wire in self._each_party()}

    def party_rows(self) -> list[Row]:
        """Make rows by party, without counted bytes; payload bytes are not known by party."""
        rows = ((*key, messages, None, None, wire) for key, messages, wire in sorted(self._each_party()))
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]

    def _each_party(self) -> Iterator[tuple[Key, int, int]]:
        for (phase, sender, receiver, kind), (messages, wire) in self.parties.items():
            if "user" not in (sender, receiver):
                yield (phase, sender, receiver, kind), round(float(messages)), round(float(wire))
                continue
            often, each = np.broadcast_to(messages, self.n_users), np.broadcast_to(wire, self.n_users)
            for user in np.flatnonzero(often).tolist():
                one, other = (user_name(user) if end == "user" else end for end in (sender, receiver))
                yield (phase, one, other, kind), round(float(often[user])), round(float(each[user]))

    def whole_rows(self) -> list[Row]:
        """Make rows for the course of a run that was made: the numbers are whole. There are no counted bytes."""
        rows = []
        for key in sorted(self.rows):
            messages, payload, wire = map(round, self.rows[key])
            rows.append(dict(zip(COLUMNS, (*key, messages, payload, None, wire), strict=True)))
        return rows


# --- rows ------------------------------------------------------------------------------------------------------------


def joined_rows(measured: dict[Key, list[int]], predicted: dict[Key, Any] | None) -> list[Row]:
    """Join counted and predicted bytes into one row per key.

    A key that is missing on one side counts as 0 there. With None for `predicted`, the rows have no prediction.
    """
    rows = []
    for key in sorted({*measured, *(predicted or ())}):
        amounts = measured.get(key, [0, 0, 0])
        foretold = None if predicted is None else predicted.get(key, 0)
        rows.append(dict(zip(COLUMNS, (*key, *amounts, foretold), strict=True)))
    return rows


def grouped(rows: Iterable[Row], by: str | None, iterations: int) -> list[Row]:
    """Add up rows `by` iteration, edge, kind or party; with None, return all rows.

    By iteration there is a sum for each. Else there are sums of the set-up (−1), of all iterations (null), and of the
    end. By party, the end has its own sum only for the kinds that `mark_end` recognizes.
    """
    if by is None:
        return list(rows)
    kept = {"iteration": ("iteration",), "edge": ("sender", "receiver")}.get(by, ("sender", "receiver", "kind"))
    sums: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        labels = {name: row[name] if name in kept else None for name in COLUMNS[:4]}
        if by != "iteration":
            labels["iteration"] = row["iteration"] if row["iteration"] in (SETUP, iterations) else None
        entry = sums.setdefault(tuple(labels.values()), {**labels, **dict.fromkeys(COLUMNS[4:], 0)})
        for name in COLUMNS[4:]:
            entry[name] = None if row[name] is None else entry[name] + row[name]
    return sorted(sums.values(), key=_order)


def mark_end(rows: Iterable[Row], by_role: Iterable[Row], iterations: int) -> list[Row]:
    """Give `rows` by party the number of the end if their kind is sent at the end and, after the set-up, only then.

    By party, only the set-up is counted separately; `by_role` are rows of the same run that have every iteration.
    """
    times: dict[tuple[str, str, str], set[bool]] = defaultdict(set)
    for row in by_role:
        if row["iteration"] != SETUP:
            times[row["sender"], row["receiver"], row["kind"]].add(row["iteration"] >= iterations)
    marked = []
    for row in rows:
        edge = role_of(row["sender"]), role_of(row["receiver"]), row["kind"]
        ends = row["iteration"] != SETUP and times[edge] == {True}
        marked.append({**row, "iteration": iterations} if ends else row)
    return marked


def _order(row: Row) -> tuple[Any, ...]:
    """Return a sort key: set-up, iterations, end; users by their numbers."""
    iteration = 0 if row["iteration"] is None else row["iteration"]
    ends = [(role_of(party), user_index(party)) for party in (row["sender"] or "", row["receiver"] or "")]
    return (iteration, *ends, row["kind"] or "")


def matrix(
    rows: Iterable[Row], parties: tuple[str, ...], figure: str, iterations: range
) -> dict[str, dict[str, float]] | None:
    """Compute the mean of `figure` over these `iterations` by sender and receiver; None without iterations."""
    if not len(iterations):
        return None
    cells = {sender: dict.fromkeys(parties, 0.0) for sender in parties}
    for row in rows:
        if row["iteration"] in iterations:
            cells[row["sender"]][row["receiver"]] += row[figure] / len(iterations)
    return cells


def spread(counts: Counter[int]) -> dict[str, float | None]:
    """Compute mean, median and maximum of sizes; `counts` gives how often each size occurs."""
    if not counts:
        return dict.fromkeys(("mean", "median", "max"))
    sizes = np.array(sorted(counts))
    times = np.array([counts[int(size)] for size in sizes])
    ends, total = np.cumsum(times), int(times.sum())
    middle = [int(sizes[np.searchsorted(ends, place, "right")]) for place in ((total - 1) // 2, total // 2)]
    return {"mean": float(sizes @ times / total), "median": sum(middle) / 2, "max": int(sizes[-1])}


def edge_of(row: Row) -> str:
    return f"{row['sender']} → {row['receiver']}"


def when_of(iteration: int | None) -> str:
    return "all iterations" if iteration is None else "set-up" if iteration == SETUP else f"iteration {iteration}"


def by_kind(rows: Iterable[Row], iterations: int) -> list[Row]:
    """Add up rows by sender, receiver, kind and `WHEN`: sums over set-up and end, means over the iterations."""
    sums: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        t = row["iteration"]
        when = "set-up" if t == SETUP else "end" if t >= iterations else "iteration"
        key = (row["sender"], row["receiver"], row["kind"], when)
        labels = dict(zip(("sender", "receiver", "kind", "when"), key, strict=True))
        entry = sums.setdefault(key, {**labels, **dict.fromkeys(COLUMNS[4:], 0)})
        for name in COLUMNS[4:]:
            share = 1 if when != "iteration" else iterations
            entry[name] = None if row[name] is None else entry[name] + row[name] / share
    return [sums[key] for key in sorted(sums, key=lambda key: (WHEN.index(key[3]), key))]


def by_edge(rows: Iterable[Row], iterations: int, figure: str) -> dict[tuple[str, str, str], float]:
    """Add up the bytes of `by_kind` by (when, sender, receiver)."""
    sums: dict[tuple[str, str, str], float] = defaultdict(float)
    for row in by_kind(rows, iterations):
        sums[row["when"], row["sender"], row["receiver"]] += row[figure]
    return dict(sums)


def chosen_rows(rows: list[Row], party: str | None, top: int | None) -> dict[str, Any]:
    """Choose the rows of one `party` (or of all) and, of these, the `top` largest.

    `rows` are the chosen rows; `chosen` gives their number, and the sums over all rows of that party (or of all).
    """
    own = [row for row in rows if party is None or party in (row["sender"], row["receiver"])]
    sums = {name: _sum(row[name] for row in own) for name in COLUMNS[4:]}
    shown = own if top is None else sorted(own, key=_weight, reverse=True)[:top]
    return {"rows": shown, "chosen": {"party": party, "top": top, "rows": len(shown), "of": len(own), **sums}}


def _weight(row: Row) -> float:
    amounts = (row["wire_bytes"], row["predicted_bytes"])
    return float(next((amount for amount in amounts if amount is not None), 0))


def _sum(amounts: Iterable[Any]) -> Any:
    """Add up `amounts`; None if one of them is None, which means not known."""
    listed = list(amounts)
    return None if None in listed else sum(listed)
