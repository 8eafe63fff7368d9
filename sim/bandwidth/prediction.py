"""`keyhole bandwidth --predict`: predict the bytes of a run from its flags; nothing is started or written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from protocol.attendance import Course, Turn
from protocol.errors import BadInput
from protocol.params import Params, require
from protocol.schemes import Scheme
from protocol.wire.framing import Flow
from protocol.wire.messages import SETUP
from sim.bandwidth import paper_bytes, projection
from sim.bandwidth.outline import SEEDLESS, Outline, outline
from sim.bandwidth.projection import ITERATION_SECONDS, links_of
from sim.folder.traffic import COLUMNS, Forecast, Row, by_kind, check_by, describe, grouped, matrix
from sim.plan.config import RunConfig
from sim.plan.expect import CERTAIN, Expected, expect

MOST_ITERATIONS = 20_000  # each adds rows to the document
_WHOLE = 1e-9  # relative rounding error of a whole number that is summed over groups of users
NO_ITERATIONS = "This scheme exchanges nothing in its iterations: all bytes are of its set-up and its end."


def predict(
    config: RunConfig,
    by: str | None = None,
    iteration_seconds: float = ITERATION_SECONDS,
    links: Iterable[str] = (),
) -> dict[str, Any]:
    """Make the document that `keyhole bandwidth --predict --json` prints."""
    check_by(by)
    if by == "party":
        raise BadInput("A prediction knows how many users there are, not which: use --by iteration, edge or kind.")
    known_links = links_of(links)
    plan = outline(config)
    scheme, params = plan.scheme, plan.params
    require(
        params.iterations <= MOST_ITERATIONS,
        f"A prediction lists every iteration: ask for at most {MOST_ITERATIONS}, further ones cost the same.",
    )
    expected = expect(scheme, params, plan.crowd, plan.config.join, plan.config.leave)
    forecast, last = Forecast(), _Last(params.iterations - 1)
    forecast.add(last.watch(scheme.predict(params, expected.course)))
    rows = rows_of(forecast)
    exact = _exact(scheme, params, expected) and _make_whole(rows)
    turns = range(params.iterations if last.flows else 0)
    user = projection.user_bytes(last.flows, _last_turn(expected).invited) if last.flows else None
    return {
        "basis": "exact" if exact else "expectation",
        **describe(scheme, params, plan.config.data),
        "ratings": plan.ratings,
        "described": not plan.made,
        "online": {"present": expected.online, "invited": expected.invited},
        "items_per_iteration": {"opened": _last_turn(expected).opened, "released": _last_turn(expected).released},
        "notes": _notes(plan, exact, bool(last.flows)),
        "by": by,
        "rows": grouped(rows, by, params.iterations),
        "total": {
            "payload_bytes": sum(row["payload_bytes"] for row in rows),
            "wire_bytes": None,
            "predicted_bytes": sum(row["predicted_bytes"] for row in rows),
            "kernel_bytes": None,
        },
        "match": None,
        "per_user_iteration": None if user is None else dataclasses.asdict(user),
        "matrix": matrix(rows, scheme.parties(), "predicted_bytes", turns),
        "setup_matrix": matrix(rows, scheme.parties(), "predicted_bytes", range(SETUP, 0)),
        "kinds": by_kind(rows, params.iterations),
        "projection": projection.project(
            rows, last.flows, user, scheme.servers, len(turns), iteration_seconds, known_links
        ),
        "paper": paper_bytes.comparison(scheme, params),
    }


class _Last:
    """A filter that passes all flows on and keeps those of the last iteration, whose number takes the most bytes."""

    def __init__(self, iteration: int) -> None:
        self._iteration = iteration
        self.flows: list[Flow] = []

    def watch(self, flows: Iterable[Flow]) -> Iterator[Flow]:
        for flow in flows:
            if flow.iteration == self._iteration:
                self.flows.append(flow)
            yield flow


def _last_turn(expected: Expected) -> Turn:
    *_, last = expected.course.turns
    return last


def _exact(scheme: Scheme, params: Params, expected: Expected) -> bool:
    if scheme.sizes_vary(params) or not expected.stays:
        return False
    return expected.doubt <= CERTAIN or not _items_matter(scheme, params, expected.course)


def _items_matter(scheme: Scheme, params: Params, course: Course) -> bool:
    """Tell whether one more item changes the bytes of an iteration."""
    (turn, *_), short = course.turns, dataclasses.replace(params, iterations=1)
    costs = set()
    for items in (1.0, 2.0):
        one = dataclasses.replace(turn, opened=items, released=items)
        flows = scheme.predict(short, dataclasses.replace(course, turns=(one,), attempts=()))
        costs.add(sum(flow.total()[2] for flow in flows))
    return len(costs) > 1


def rows_of(forecast: Forecast) -> list[Row]:
    """List the rows of `forecast`; `wire_bytes` is None, as nothing is measured."""
    return [
        dict(zip(COLUMNS, (*key, *forecast.rows[key][:2], None, forecast.rows[key][2]), strict=True))
        for key in sorted(forecast.rows)
    ]


def _make_whole(rows: list[Row]) -> bool:
    """Turn the figures of `rows` into integers; return False and change nothing if one of them is not whole."""
    figures = ("messages", "payload_bytes", "predicted_bytes")
    amounts = np.array([[row[name] for name in figures] for row in rows])
    whole = np.rint(amounts)
    if not np.all(np.abs(amounts - whole) <= _WHOLE * np.maximum(whole, 1)):
        return False
    for row, counts in zip(rows, whole.tolist(), strict=True):
        row.update(zip(figures, map(int, counts), strict=True))
    return True


def _notes(plan: Outline, exact: bool, iterates: bool) -> list[str]:
    notes = [note for note in plan.notes if not (exact and note == SEEDLESS)]
    if not iterates:
        notes.append(NO_ITERATIONS)
    if plan.config.faults is not None:
        notes.append("What --faults would make the parties send again is not in these figures.")
    return notes
