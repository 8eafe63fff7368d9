"""The traffic of a run as its driver reports it, added up regardless of when each row was reported."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from actors.metering.meter import row_key
from actors.metering.outcome import IterationDone, Outcome
from protocol.card import Card
from protocol.schemes import Shape
from protocol.wire.framing import Traffic
from sim.drivers.inprocess import InProcess
from sim.plan.expect import crowd_of, expect
from support.runs import Staged


def sum_rows(rows: Iterable[Traffic]) -> list[Traffic]:
    sums: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        entry = sums.setdefault(row_key(row), [0, 0, 0])
        for place, amount in enumerate((row.messages, row.payload_bytes, row.wire_bytes)):
            entry[place] += amount
    return sorted((Traffic(*key, *entry) for key, entry in sums.items()), key=dataclasses.astuple)


def added_up(told: Iterable[IterationDone], outcome: Outcome) -> list[Traffic]:
    """Add up the rows of all iterations and those reported at the end."""
    return sum_rows([*(row for done in told for row in done.tally.rows), *outcome.rest.rows])


def traffic_of(run: Staged) -> list[Traffic]:
    """Compute the traffic of a run in which nothing goes wrong."""
    told: list[IterationDone] = []
    outcome = InProcess(run.card, run.seats, on_iteration=told.append, **run.settings()).run()
    assert outcome.abort is None and outcome.apart == []
    return added_up(told, outcome)


def predicted_if_all_stay(card: Card, shape: Shape) -> list[Traffic]:
    """Predict the traffic by the scheme's formula; sums over groups of users are whole numbers, up to rounding."""
    course = expect(card.scheme, card.params, crowd_of(shape)).course
    rows = []
    for flow in card.scheme.predict(card.params, course):
        total = flow.total()
        assert total == pytest.approx([round(amount) for amount in total], rel=1e-9)
        if total[0]:
            rows.append(Traffic(flow.iteration, flow.sender, flow.receiver, flow.kind, *map(round, total)))
    return sum_rows(rows)


def rows_in(lines: Iterable[dict[str, Any]], bandwidth: dict[str, Any]) -> list[Traffic]:
    """Add up the traffic in the files of a run."""
    return sum_rows(Traffic(*row) for part in (*lines, bandwidth) for row in part["rows"])


def read_bandwidth(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "bandwidth.json").read_text("utf-8"))
    return document
