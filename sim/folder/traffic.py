"""Rows of traffic: by formula, beside what was counted, added up by iteration, edge, kind or party."""

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
        "factorizes": scheme.factorizes,  # else it has neither iterations nor a dimension
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
    """Sums of flows by (iteration, sender, receiver, kind), and for each user if there are groups of one."""

    n_users: int = 0  # 0: not by party
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
        """Wire bytes, one row for every user that exchanges something."""
        return {key: wire for key, _, wire in self._each_party()}

    def party_rows(self) -> list[Row]:
        """Give the same as rows of which nothing was counted; payload bytes are not known by party."""
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
        """Give the rows of a course that was taken: its numbers are whole, and nothing of it was counted."""
        rows = []
        for key in sorted(self.rows):
            messages, payload, wire = map(round, self.rows[key])
            rows.append(dict(zip(COLUMNS, (*key, messages, payload, None, wire), strict=True)))
        return rows


# --- rows ------------------------------------------------------------------------------------------------------------


def joined_rows(measured: dict[Key, list[int]], predicted: dict[Key, Any] | None) -> list[Row]:
    """One row for every key of either side; what only one side has is 0 on the other. None: nothing is predicted."""
    rows = []
    for key in sorted({*measured, *(predicted or ())}):
        amounts = measured.get(key, [0, 0, 0])
        foretold = None if predicted is None else predicted.get(key, 0)
        rows.append(dict(zip(COLUMNS, (*key, *amounts, foretold), strict=True)))
    return rows


def grouped(rows: Iterable[Row], by: str | None, iterations: int) -> list[Row]:
    """`iteration`: the sum of each; else the set-up (−1), all iterations together (null), and the end.

    By party the end is known apart only where `mark_end` could tell it by its kinds.
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
    """Give `rows` by party the number of the end where their kind is sent at the end and at no other time.

    By party the set-up alone is counted apart; `by_role` are rows of the same run that know every iteration.
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
    """Set-up, iterations, end; users by their numbers."""
    iteration = 0 if row["iteration"] is None else row["iteration"]
    ends = [(role_of(party), user_index(party)) for party in (row["sender"] or "", row["receiver"] or "")]
    return (iteration, *ends, row["kind"] or "")


def matrix(
    rows: Iterable[Row], parties: tuple[str, ...], figure: str, iterations: range
) -> dict[str, dict[str, float]] | None:
    """Sender × receiver, the mean over these iterations; None if there are none."""
    if not len(iterations):
        return None
    cells = {sender: dict.fromkeys(parties, 0.0) for sender in parties}
    for row in rows:
        if row["iteration"] in iterations:
            cells[row["sender"]][row["receiver"]] += row[figure] / len(iterations)
    return cells


def spread(counts: Counter[int]) -> dict[str, float | None]:
    """Mean, median and largest of sizes that occur so often."""
    if not counts:
        return dict.fromkeys(("mean", "median", "max"))
    sizes = np.array(sorted(counts))
    times = np.array([counts[int(size)] for size in sizes])
    ends, total = np.cumsum(times), int(times.sum())
    middle = [int(sizes[np.searchsorted(ends, place, "right")]) for place in ((total - 1) // 2, total // 2)]
    return {"mean": float(sizes @ times / total), "median": sum(middle) / 2, "max": int(sizes[-1])}


def when_of(iteration: int | None) -> str:
    return "all iterations" if iteration is None else "set-up" if iteration == SETUP else f"iteration {iteration}"


def by_kind(rows: Iterable[Row], iterations: int) -> list[Row]:
    """One row for sender, receiver, kind and when: sums of the set-up and of the end, means of the iterations."""
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
    """Add up bytes by (when, sender, receiver), as `by_kind` has them."""
    sums: dict[tuple[str, str, str], float] = defaultdict(float)
    for row in by_kind(rows, iterations):
        sums[row["when"], row["sender"], row["receiver"]] += row[figure]
    return dict(sums)


def chosen_rows(rows: list[Row], party: str | None, top: int | None) -> dict[str, Any]:
    """Choose the rows of one party, and of these the largest: `rows`, and in `chosen` how many and what they add up to.

    The sums are of all rows of that party, or of everybody.
    """
    own = [row for row in rows if party is None or party in (row["sender"], row["receiver"])]
    sums = {name: _sum(row[name] for row in own) for name in COLUMNS[4:]}
    shown = own if top is None else sorted(own, key=_weight, reverse=True)[:top]
    return {"rows": shown, "chosen": {"party": party, "top": top, "rows": len(shown), "of": len(own), **sums}}


def _weight(row: Row) -> float:
    amounts = (row["wire_bytes"], row["predicted_bytes"])
    return float(next((amount for amount in amounts if amount is not None), 0))


def _sum(amounts: Iterable[Any]) -> Any:
    """None if one of them is not known."""
    listed = list(amounts)
    return None if None in listed else sum(listed)
