"""The audit of a run whose scheme is not loaded: the frames that each party received, by kind and size, and no verdict.

Leakage policy, messages and roles are the scheme's own code, so no other question can be asked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.party.role import role_of
from protocol.party.view import RECEIVED, REJECTED, SENT, Record
from sim.audit.answers.not_shown import not_shown
from sim.audit.claim import unknown
from sim.folder.unloaded import kind_of_frame
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

MOST_KINDS = 10_000  # kinds that have a row of their own; further ones are counted together

Key = tuple[str, str, str]  # plane, role of the receiver, kind


@dataclass(slots=True)
class _Sum:
    count: int = 0
    bytes: int = 0
    parties: set[str] = field(default_factory=set)


def audit_undecoded(case: Case, questions: Sequence[str]) -> dict[str, Any]:
    """Return a document like that of an audit; `verdict` is null, and each unasked question says why."""
    started = time.perf_counter()
    rows = take(case) if "inventory" in questions else None
    why = f"The scheme {case.config.scheme!r} is not loaded: add --trust-scheme if you trust its code."
    unanswered = {question: f"Not asked. {why}" for question in questions if question != "inventory"}
    return {
        "run": str(case.folder),
        "scheme": case.card.scheme.name,
        "verdict": None,
        "published_claim": unknown(why),
        "parties": [],
        "findings": [],
        "inventory": rows,
        **dict.fromkeys(("coalitions", "accounting", "pairs", "empirical", "statistics")),
        "known_weaknesses": [],
        "weaknesses": [],
        "questions": {} if rows is None else {"inventory": round(time.perf_counter() - started, 3)},
        "unanswered": unanswered,
        "not_shown": not_shown({}, unanswered),
        "nothing_to_ask": {},
        "false_alarm": 0.0,
    }


def take(case: Case) -> list[dict[str, Any]]:
    """Return rows like those of `inventory.take`, for whole frames.

    A frame is named by the number of its kind where it was received (`message`), and by the name of its kind where the
    sender's view tells it (`sent`).
    """
    found: dict[Key, _Sum] = {}
    for party in case.parties:
        if case.path(party).is_file():
            for record in Exhibits(case, (party,)).records(party):
                if (entry := _entry(party, record)) is not None:
                    _add(found, party, *entry)
    return [
        {
            "party": role,
            "kind": kind,
            "field": None,
            "declared": None,
            "count": one.count,
            "bytes": one.bytes,
            "plane": plane,
            "parties": len(one.parties),
            "words": "whole frames: the scheme is not loaded, so their fields are not known",
        }
        for (plane, role, kind), one in sorted(found.items())
    ]


def _entry(party: str, record: Record) -> tuple[Key, int] | None:
    if record.type == RECEIVED:
        return ("message", role_of(party), kind_of_frame(record.fields[1])), len(record.fields[1])
    if record.type == SENT:
        return ("sent", role_of(record.fields[0]), record.fields[1]), record.fields[3]
    if record.type == REJECTED:
        return ("rejected", role_of(party), record.fields[1]), record.fields[2]
    return None


def _add(found: dict[Key, _Sum], party: str, key: Key, size: int) -> None:
    if key not in found and len(found) >= MOST_KINDS:
        key = (key[0], "", "")
    one = found.setdefault(key, _Sum())
    one.count, one.bytes = one.count + 1, one.bytes + size
    one.parties.add(party)
