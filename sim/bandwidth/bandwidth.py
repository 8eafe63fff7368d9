"""`keyhole bandwidth RUN`: the bytes of a run as they were counted, beside those that the scheme's formula gives.

The formula needs the parameters and the course of the run: which users were present, invited and contributed. Both
servers reported that during the run; what each user rated follows from the data and the seed, or from the views.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from protocol.arrays import Floats
from protocol.attendance import Attempt, Course, Turn, read_spans
from protocol.errors import BadInput
from protocol.params import WIRES, Params, require
from protocol.party.view import Broken
from protocol.schemes import Scheme
from protocol.wire.messages import SETUP
from sim.bandwidth import kernel_check, paper_bytes
from sim.bandwidth.supports import Supports, supports_of
from sim.data.ratings import Column
from sim.folder.byte_records import SUMMARY, Facts, Ledger, read_ledger
from sim.folder.folder import summary_of
from sim.folder.naming import read_names
from sim.folder.traffic import (
    Forecast,
    Row,
    by_edge,
    by_kind,
    check_by,
    chosen_rows,
    describe,
    grouped,
    joined_rows,
    mark_end,
    matrix,
    spread,
    when_of,
)
from sim.folder.unloaded import is_loaded
from sim.views.evidence import Case, at_rest, open_case

_SPANS = re.compile(r"(\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*)?")


def bandwidth(
    folder: Path,
    by: str | None = None,
    *,
    wire: str | None = None,
    user: str | None = None,
    top: int | None = None,
) -> dict[str, Any]:
    """Make the document that `keyhole bandwidth RUN --json` prints.

    `wire` predicts the same run in that wire form, `user` limits the rows to those of one user, and `top` limits them
    to that number of largest rows.
    """
    check_by(by)
    require(user is None or by in (None, "party"), f"--user gives rows by party: leave --by {by} out.")
    case = open_case(folder, unloaded=True)
    party = None if user is None else read_names(folder).find_user(user, case.card.params.n_users, folder)
    by = "party" if party is not None else by
    with at_rest(folder):
        summary = _completed(folder)
        ledger = read_ledger(folder, summary, case.parties)
    if by == "party" and ledger.parties_note is not None:
        raise BadInput(f"{ledger.parties_note} Use --by iteration, edge or kind.")
    if wire not in (None, case.card.params.wire):
        document = _on_other_wire(case, ledger, str(wire), by)
    elif is_loaded(case.card):
        supports = supports_of(case)
        document = _document(case, ledger, _forecast(case, case.card.params, ledger, supports, by), by, supports)
    else:
        unknown = Supports(None, None, _not_predicted(case.config.scheme))
        document = _document(case, ledger, None, by, unknown)
    return document | chosen_rows(document["rows"], party, top)


def _forecast(case: Case, params: Params, ledger: Ledger, supports: Supports, by: str | None) -> Forecast | None:
    if supports.rated is None:
        return None
    scheme = case.card.scheme
    forecast = Forecast(params.n_users if by == "party" else 0)
    forecast.add(scheme.predict(params, course_of(scheme, params, supports.rated, ledger)))
    return forecast


def _completed(folder: Path) -> dict[str, Any]:
    again = f"resume it first with keyhole resume {folder}"
    try:
        summary = summary_of(folder)
    except FileNotFoundError:
        raise BadInput(f"{folder} has not completed: {again}.") from None
    except (OSError, ValueError) as error:
        raise Broken(f"{SUMMARY} is damaged ({error})") from error
    require(summary["completed"], f"The run in {folder} did not complete: {again}.")
    return summary


# --- the course of a run that was made -------------------------------------------------------------------------------


class Turns:
    """The iterations of a run as its servers reported them; can be iterated over more than once."""

    def __init__(self, scheme: Scheme, params: Params, rated: Column, ledger: Ledger) -> None:
        self._scheme, self._params, self._facts = scheme, params, ledger.turns
        shape, ones = (len(rated.counts), params.n_items), np.ones(len(rated.items), np.int64)
        self._rated = csr_matrix((ones, rated.items, rated.starts), shape=shape).T.tocsr()
        self._raters = self._count(np.ones(len(rated.counts)))

    def _count(self, users: Floats) -> npt.NDArray[np.int64]:
        counts: npt.NDArray[np.int64] = self._rated @ users.astype(np.int64)
        return counts

    def __iter__(self) -> Iterator[Turn]:
        n_users = self._params.n_users
        counted = {_all(n_users): self._raters}  # by the text that names the users; most turns repeat the one before
        for facts in self._facts:
            texts = _invited(facts, n_users), _contributors(facts, n_users)
            invited, contributors = (members(text, n_users) for text in texts)
            pairs = zip(texts, (invited, contributors), strict=True)
            counted = {text: counted[text] if text in counted else self._count(users) for text, users in pairs}
            opened, released = self._scheme.items_of(self._params, self._raters, *(counted[text] for text in texts))
            present, absent = (members(facts.get(name, ""), n_users) for name in ("present", "absent"))
            proved = members(facts["proved"], n_users) if "proved" in facts else None
            yield Turn(invited, contributors, present, absent, float(opened.sum()), float(released.sum()), proved)


def course_of(scheme: Scheme, params: Params, rated: Column, ledger: Ledger) -> Course:
    """Rebuild the course of a run from its `ledger`, with every user as a group of its own."""
    n_users = params.n_users
    attempts = _attempts(ledger, n_users)
    finished = members(ledger.end.get("finished", _all(n_users)), n_users)
    invited, greeted = np.zeros(n_users), np.zeros(n_users)
    for facts in ledger.turns:
        invited = np.maximum(invited, members(_invited(facts, n_users), n_users))
        wrote = facts.get("proved", _contributors(facts, n_users))
        greeted = np.maximum(greeted, members(wrote, n_users))
    for attempt in attempts:
        greeted = np.maximum(greeted, attempt.answered)
    # a user that was invited and is present at the end has answered, if only too late
    greeted = np.maximum(greeted, invited * finished)
    return Course(
        supports=rated.counts,
        users=np.ones(n_users),
        joined=members(ledger.setup.get("joined", _all(n_users)), n_users),
        welcomed=members(ledger.setup.get("welcomed", _all(n_users)), n_users),
        greeted=greeted,
        finished=finished,
        turns=Turns(scheme, params, rated, ledger),
        attempts=attempts,
        cells=_cells(ledger, n_users),
        in_turns="connected" in ledger.end,
    )


def _attempts(ledger: Ledger, n_users: int) -> tuple[Attempt, ...]:
    """Rebuild the commitment attempts from the recommender's set-up line and the third party's first iteration."""
    told: Facts = {}
    for facts in (ledger.setup, *ledger.turns[:1]):
        told |= {name: facts[name] for name in ("commitments", "answered") if name in facts}
    commitments, answers = told.get("commitments", ()), told.get("answered", ())
    if len(commitments) != len(answers):
        raise Broken(f"iterations.jsonl has {len(commitments)} commitments and {len(answers)} answers to them")
    attempts = []
    for entry, answered in zip(commitments, answers, strict=True):
        asked, shares = np.zeros(n_users), np.zeros(n_users)
        for items, users in entry["asked"].items():
            chosen = members(users, n_users)
            asked, shares = asked + chosen, shares + int(items) * chosen
        attempts.append(Attempt(asked, shares, members(answered, n_users), entry["opened"], entry["sealed"]))
    return tuple(attempts)


def _cells(ledger: Ledger, n_users: int) -> Floats | None:
    """Read how many entries each user uploaded, if the recommender reported it."""
    told = next((facts["cells"] for facts in (ledger.setup, *ledger.turns) if "cells" in facts), None)
    if told is None:
        return None
    if len(told) != n_users:
        raise Broken(f"what iterations.jsonl tells of uploads is not one number for each of {n_users} users")
    return np.array(told, np.float64)


def _all(n_users: int) -> str:
    return f"0-{n_users - 1}"


def _invited(facts: Facts, n_users: int) -> Any:
    """Name the invited users: all of them, where a scheme does not say."""
    return facts.get("invited", _all(n_users))


def _contributors(facts: Facts, n_users: int) -> Any:
    return facts.get("contributors", _invited(facts, n_users))


def members(text: Any, n_users: int) -> Floats:
    """Mark every user that `text` names with 1."""
    if type(text) is not str or not _SPANS.fullmatch(text):
        raise Broken(f"{str(text)[:40]!r} in the course of the run names no users")
    if any(int(number) >= n_users for number in re.findall(r"\d+", text)):
        raise Broken(f"the course of the run names a user beyond the {n_users} that there are")
    marks = np.zeros(n_users)
    marks[read_spans(text)] = 1.0
    return marks


# --- the document ----------------------------------------------------------------------------------------------------


def _document(
    case: Case, ledger: Ledger, forecast: Forecast | None, by: str | None, supports: Supports
) -> dict[str, Any]:
    """Make the document; without a `forecast` nothing is predicted, and `match` covers the kernel's count alone."""
    scheme, params = case.card.scheme, case.card.params
    predicted = None if forecast is None else {key: round(wire) for key, (_, _, wire) in forecast.rows.items()}
    rows = joined_rows(ledger.rows, predicted)
    kernel_bytes, differences = kernel_check.compare(ledger.document)
    lost = kernel_check.lost(ledger.document)
    on_the_wire = ledger.on_the_wire - lost
    if kernel_bytes is not None and kernel_bytes != on_the_wire:
        differences.append(f"The kernel counted {kernel_bytes} bytes in all, and Keyhole {on_the_wire}.")
    sentences = [*_differences(rows), *differences]
    shown = rows
    if by == "party":
        by_party = joined_rows(ledger.parties, None if forecast is None else forecast.by_party())
        shown = mark_end(by_party, rows, params.iterations)
    user = {f"down_{name}": value for name, value in spread(ledger.down).items()}
    user |= {f"up_{name}": value for name, value in spread(ledger.up).items()}
    roles, turns = scheme.parties(), range(len(ledger.turns))
    return {
        "run": str(case.folder),
        **describe(scheme, params, case.config.data),
        "transport": case.config.transport,
        "by": by,
        "rows": grouped(shown, by, params.iterations),
        "total": {
            "payload_bytes": sum(row["payload_bytes"] for row in rows),
            "wire_bytes": ledger.wire_bytes,
            "predicted_bytes": None if predicted is None else sum(predicted.values()),
            "kernel_bytes": kernel_bytes,
            "apart_bytes": ledger.apart_bytes,
            "undelivered_bytes": ledger.undelivered_bytes,
            "lost_bytes": lost,
        },
        "match": None if forecast is None and kernel_bytes is None else not sentences,
        "prediction_note": None if forecast is not None else supports.note,
        "supports": {"from": supports.source, "note": supports.note},
        "kernel_match": None if kernel_bytes is None else not differences,
        "differences": sentences,
        "kernel_note": ledger.document["kernel_note"],
        "apart_note": ledger.document["apart_note"],
        "parties_note": ledger.parties_note,
        "apart": [dataclasses.asdict(row) for row in ledger.apart],
        "per_user_iteration": user,
        "matrix": matrix(rows, roles, "wire_bytes", turns),
        "setup_matrix": matrix(rows, roles, "wire_bytes", range(SETUP, 0)),
        "kinds": by_kind(rows, params.iterations),
        "paper": paper_bytes.comparison(scheme, params),
    }


def _on_other_wire(case: Case, ledger: Ledger, wire: str, by: str | None) -> dict[str, Any]:
    """Predict the same course in the other wire form, in which nothing was sent: every figure is by formula."""
    scheme, own = case.card.scheme, case.card.params
    if not is_loaded(case.card):
        raise BadInput(_not_predicted(case.config.scheme))
    require("wire" in scheme.flags, f"The scheme {scheme.name} has one form of messages only: leave --wire out.")
    require(wire in WIRES, f"--wire must be one of {', '.join(WIRES)}, not {wire!r}.")
    words = "The paper's form sends 32-bit numbers, and this run has 16-bit factors: there is no such run."
    require(own.factor_bits == 32 or wire == "compact", words)
    params, supports = dataclasses.replace(own, wire=wire), supports_of(case)
    forecast = _forecast(case, params, ledger, supports, by)
    if forecast is None:
        raise BadInput(f"{supports.note}")
    rows = forecast.whole_rows()
    shown = rows if by != "party" else mark_end(forecast.party_rows(), rows, params.iterations)
    counted = by_edge(joined_rows(ledger.rows, None), params.iterations, "wire_bytes")
    other = by_edge(rows, params.iterations, "predicted_bytes")
    roles, turns = scheme.parties(), range(len(ledger.turns))
    return {
        "run": str(case.folder),
        **describe(scheme, params, case.config.data),
        "transport": case.config.transport,
        "run_wire": own.wire,
        "by": by,
        "rows": grouped(shown, by, params.iterations),
        "total": {
            "payload_bytes": sum(row["payload_bytes"] for row in rows),
            "wire_bytes": None,
            "predicted_bytes": sum(row["predicted_bytes"] for row in rows),
            "kernel_bytes": None,
            "run_bytes": ledger.wire_bytes,
        },
        "match": None,
        "supports": {"from": supports.source, "note": supports.note},
        "edges": [
            dict(zip(("when", "sender", "receiver"), edge, strict=True))
            | {"run_bytes": counted.get(edge, 0), "predicted_bytes": other.get(edge, 0)}
            for edge in dict.fromkeys([*counted, *other])
        ],
        "matrix": matrix(rows, roles, "predicted_bytes", turns),
        "setup_matrix": matrix(rows, roles, "predicted_bytes", range(SETUP, 0)),
        "kinds": by_kind(rows, params.iterations),
        "paper": paper_bytes.comparison(scheme, params),
    }


def _differences(rows: Iterable[Row]) -> list[str]:
    return [
        f"{when_of(row['iteration'])}, {row['kind']} from {row['sender']} to {row['receiver']}: "
        f"{row['wire_bytes']} bytes were counted, and the formula gives {row['predicted_bytes']}."
        for row in rows
        if row["predicted_bytes"] is not None and row["wire_bytes"] != row["predicted_bytes"]
    ]


def _not_predicted(scheme: str) -> str:
    return f"The scheme {scheme!r} is not loaded, and its formula is part of it: add --trust-scheme if you trust it."
