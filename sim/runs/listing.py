"""List the runs in a folder, and compare two of them side by side. Run folders are treated as untrusted data.

Neither imports a scheme: names, figures and bytes are in the files.
"""

from __future__ import annotations

import fcntl
import math
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.card import Card, all_parties
from protocol.errors import BadInput
from protocol.party.role import role_of
from protocol.party.view import Broken
from sim.audit.findings import QUESTIONS
from sim.folder.byte_records import read_ledger
from sim.folder.folder import read_run, read_summary, take_lock
from sim.folder.forms import AuditFile
from sim.folder.traffic import WHEN, by_kind, joined_rows
from sim.foreign import untrusted
from sim.views.evidence import at_rest

AUDIT = "audit.json"
VERDICTS = ("within-claims", "beyond-claims")
CLAIMS = ("holds", "refuted", "not-tested")
MOST_RUNS = 10_000  # folders that are looked into
MOST_TEXT = 200  # characters of a value whose type JSON does not have
_CONFIGURED = ("scheme", "data", "users", "iterations", "wire", "seed", "epsilon")
_LEARNED = ("stands_for", "determines", "works_out", "measured")
_ACCURACY = ("test_rmse", "test_mae", "train_rmse", "train_mae")
_ACCOUNTED = ("epsilon", "basic", "advanced", "tight")

Row = dict[str, Any]


def is_live(folder: Path) -> bool:
    """Tell whether a process holds the lock of this run, without keeping another process waiting for it."""
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # a copy without its lock, or a folder of another account
        return False
    try:
        take_lock(lock, folder, fcntl.LOCK_SH)
    except BadInput:
        return True
    finally:
        os.close(lock)
    return False


# --- the list --------------------------------------------------------------------------------------------------------


def list_runs(folder: Path) -> list[Row]:
    """List the runs in `folder`, or `folder` itself if it is a run, newest first; other folders are left out."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder: name one that has runs in it, or make a run with keyhole run.")
    places = [folder] if untrusted.is_there(folder, "run.toml") else _inside(folder)
    now = time.time()
    return sorted((_listed(place, now) for place in places), key=lambda row: (row["age_seconds"], row["run"]))


def _inside(folder: Path) -> list[Path]:
    try:
        places = [place for place, _ in zip(folder.iterdir(), range(MOST_RUNS), strict=False)]
    except OSError as error:
        raise BadInput(f"{folder} cannot be read ({error.strerror}): name another folder.") from error
    return [place for place in places if place.is_dir() and untrusted.is_there(place, "run.toml")]


def _listed(folder: Path, now: float) -> Row:
    row: Row = {"run": str(folder), **dict.fromkeys(_CONFIGURED), "test_rmse": None, "plain_test_rmse": None}
    row |= {"state": "damaged", "problem": None, "age_seconds": _age(folder, now)}
    try:
        document, card = read_run(folder, unloaded=True)
        row |= _configured(document, card)
        summary = read_summary(folder)
        row["state"] = _state(folder, summary)
        if summary is not None:
            row["test_rmse"] = summary["accuracy"]["test_rmse"]
            row["plain_test_rmse"] = summary["accuracy"]["plain"]["test_rmse"]
    except (BadInput, OSError) as problem:
        row["problem"] = str(problem)
    audited, note = read_audit(folder)
    asked, claim = audited.questions, audited.published_claim
    return row | {
        "verdict": audited.verdict if audited.verdict in VERDICTS else None,
        "asked": None if asked is None else [question for question in QUESTIONS if question in asked],
        "published_claim": claim.status if claim is not None and claim.status in CLAIMS else None,
        "not_shown": None if audited.not_shown is None else len(audited.not_shown),
        "audit_note": note,
    }


def _state(folder: Path, summary: Row | None) -> str:
    if summary is not None and summary["completed"]:
        return "completed"
    if is_live(folder):
        return "running"
    if summary is not None:
        return "aborted"
    return "by hand" if is_by_hand(folder) else "stopped"


def is_by_hand(folder: Path) -> bool:
    """Tell whether the parties of a run are started by hand: they keep views, but no summary and no lines."""
    return untrusted.is_there(folder, "roster.json")


def _configured(document: Row, card: Card) -> Row:
    run, params = document["run"], card.params
    values = (run["scheme"], _plain(run.get("data")), params.n_users, params.iterations, params.wire,
              _plain(run.get("seed")), params.epsilon)  # fmt: skip
    return dict(zip(_CONFIGURED, values, strict=True))


def _plain(value: Any) -> Any:
    """Convert `value`, from a configuration, to one that JSON has: TOML has dates and tables too."""
    return value if value is None or type(value) in (bool, int, float, str) else str(value)[:MOST_TEXT]


def _age(folder: Path, now: float) -> float:
    """Compute the seconds since the run was started, which is when its configuration was written."""
    try:
        return max(0.0, now - (folder / "run.toml").stat().st_mtime)
    except OSError:
        return math.inf


# --- what an audit has left -------------------------------------------------------------------------------------------


def read_audit(folder: Path) -> tuple[AuditFile, str | None]:
    """Read what an audit left in `folder`, empty if it cannot be read, and then say why."""
    command = f"keyhole audit {shlex.quote(str(folder))}"
    try:
        return untrusted.fit(untrusted.read_json(folder, AUDIT), AuditFile), None
    except FileNotFoundError:
        return AuditFile(), f"not audited: {command}"
    except OSError:
        return AuditFile(), f"{AUDIT} cannot be read: {command} makes it anew"
    except ValueError as error:
        return AuditFile(), f"{AUDIT} is damaged ({error}): {command} makes it anew"


def knowledge_of(audited: AuditFile) -> dict[str, Row]:
    """Collect what each party and coalition learns; users are only counted, as two runs have different ones."""
    found: dict[str, Row] = {}
    for row in audited.parties:
        name, number = who(row.members), 2
        while name in found:  # single users that differ in what they can work out
            name, number = f"{who(row.members)} ({number})", number + 1
        found[name] = {learned: getattr(row, learned) for learned in _LEARNED}
    return found


def who(members: Iterable[str]) -> str:
    counts = Counter(role_of(member) for member in members)
    users = counts.pop("user", 0)
    return " + ".join([*counts, *([f"{users} users" if users > 1 else "a user"] if users else [])])


# --- two runs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    folder: Path
    document: Row  # run.toml
    card: Card
    summary: Row | None
    audited: AuditFile
    notes: list[str]


def diff_runs(first: Path, second: Path) -> Row:
    """Make the document of `keyhole diff --json`: `first` and `second` in every row, null where a run has no value."""
    sides = [_side(folder) for folder in (first, second)]
    now = time.time()
    edges, kinds, totals = _bytes(sides)
    return {
        "runs": [_listed(side.folder, now) for side in sides],
        "configuration": _pairs([_settings(side) for side in sides], differing=True),
        "accuracy": _with_difference(_pairs([_accuracy(side) for side in sides])),
        "epsilon": _pairs([_epsilon(side) for side in sides]),
        "bytes": {"total": totals, "edges": edges, "kinds": kinds},
        "knowledge": _pairs([knowledge_of(side.audited) for side in sides]),
        "notes": [note for side in sides for note in side.notes],
    }


def _side(folder: Path) -> _Side:
    document, card = read_run(folder, unloaded=True)
    summary, (audited, note) = read_summary(folder), read_audit(folder)
    notes, command = [], f"keyhole resume {shlex.quote(str(folder))}"
    if summary is None:
        notes.append(f"{folder} has not completed, so it has no figures yet: {command}")
    elif not summary["completed"]:
        notes.append(f"{folder} did not complete: {command}")
    if note is not None:
        notes.append(f"Who learns what in {folder} is not known ({note}).")
    return _Side(folder, document, card, summary, audited, notes)


def _settings(side: _Side) -> Row:
    """List the settings as they were given or filled in, followed by what was derived from the data."""
    given = {name: value for name, value in side.document["run"].items() if name != "options"}
    options = side.document["run"].get("options")
    given |= {f"options.{name}": value for name, value in options.items()} if type(options) is dict else {}
    followed = {name: value for name, value in side.document["params"].items() if name not in given}
    platform = {f"platform.{name}": value for name, value in side.document["platform"].items()}
    return {name: _plain(value) for name, value in (given | followed | platform).items()}


def _accuracy(side: _Side) -> Row:
    if side.summary is None:
        return {}
    accuracy = side.summary["accuracy"]
    figures = {name: accuracy[name] for name in _ACCURACY}
    return {**figures, **{f"unprotected {name}": accuracy["plain"][name] for name in ("test_rmse", "train_mae")}}


def _epsilon(side: _Side) -> Row:
    if side.summary is None:
        return {}
    privacy = side.summary["privacy"]
    accounted = privacy["accounted"]
    figures = {"claimed": privacy["claimed_epsilon"], "unit": privacy["unit"]}
    figures |= {f"accounted {name}": accounted[name] for name in _ACCOUNTED if accounted.get(name) is not None}
    known = accounted.get("recommender")
    if known is not None:
        figures |= {f"to the recommender, {name} item": known[name] for name in ("median", "worst")}
    return figures


def _bytes(sides: list[_Side]) -> tuple[list[Row], list[Row], Row]:
    """Compare bytes (by edge, by kind, in total): sums of the set-up and the end, means of the iterations."""
    edges: list[dict[Any, Any]] = []
    kinds: list[dict[Any, Any]] = []
    for side in sides:
        by_edge: dict[Any, Any] = {}
        by_name: dict[Any, Any] = {}
        for row in _counted(side):
            edge = (row["when"], row["sender"], row["receiver"])
            by_edge[edge] = by_edge.get(edge, 0) + row["wire_bytes"]
            by_name[*edge, row["kind"]] = row["wire_bytes"]
        edges.append(by_edge)
        kinds.append(by_name)
    labels = ("when", "sender", "receiver", "kind")
    totals = [None if side.summary is None else side.summary["bytes"]["total"] for side in sides]
    return (
        _with_difference([_named(row, labels[:3]) for row in sorted(_pairs(edges), key=_order)]),
        [_named(row, labels) for row in sorted(_pairs(kinds), key=_order)],
        {"first": totals[0], "second": totals[1], "difference": _minus(totals[1], totals[0])},
    )


def _counted(side: _Side) -> list[Row]:
    """Read the rows by kind; if there are none, note the reason."""
    if side.summary is None or not side.summary["completed"]:
        return []
    try:
        with at_rest(side.folder):
            ledger = read_ledger(side.folder, side.summary, all_parties(side.card.scheme, side.card.params.n_users))
    except (BadInput, Broken) as reason:
        side.notes.append(f"The bytes of {side.folder} by kind are not known: {reason}.")
        return []
    return by_kind(joined_rows(ledger.rows, None), side.card.params.iterations)


def _order(row: Row) -> tuple[Any, ...]:
    when, *names = row["what"]
    return (WHEN.index(when), *names)


def _named(row: Row, labels: tuple[str, ...]) -> Row:
    return dict(zip(labels, row.pop("what"), strict=True)) | row


def _pairs(sides: list[dict[Any, Any]], differing: bool = False) -> list[Row]:
    """Make one row for everything that either of `sides` has, in order; `differing` leaves out what is equal."""
    first, second = sides
    return [
        {"what": what, "first": first.get(what), "second": second.get(what)}
        for what in dict.fromkeys([*first, *second])
        if not (differing and first.get(what) == second.get(what))
    ]


def _with_difference(rows: list[Row]) -> list[Row]:
    return [{**row, "difference": _minus(row["second"], row["first"])} for row in rows]


def _minus(one: Any, other: Any) -> float | None:
    return one - other if all(type(value) in (int, float) for value in (one, other)) else None
