"""Check every field that each party received against the leakage policy of the scheme.

Every view that the run keeps is read, and every received frame is decoded strictly. Three things occur in views but in
no leakage policy, and have rows of their own: `Hello` (harmless only if it repeats what its receiver says, which is
checked), notes and events (`Again`, the clock, users coming and going), and refused frames (a view keeps only their
reason and digest; `declared` is null).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from protocol.party.role import user_index
from protocol.party.view import EVENT, RECEIVED, REJECTED, Record
from protocol.schemes.base import Leak
from protocol.wire.codec import WIRE_VERSION
from protocol.wire.messages import EVENTS, Hello, Message, Publication
from sim.audit.findings import Finding
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits, read_message

USER = "user"  # all users together
MOST_EXAMPLES = 3  # places (file, record) that a finding names

_NOTES = {"Again": ("sender", "received"), "Refused": ("reason", "count")}
_OUTSIDE = {
    "Hello": "version, run and parameters: its receiver says the same",
    "Again": "how many frames the sender has, after a restart or a silence",
    "Refused": "that a stranger was turned away",
    "Deadline": "the clock",
    "Churn": "the user's own coming and going",
    "Due": "whose word on coming and going is to be waited for",
    "Gone": "that a user's process has ended for good",
    "Barred": "that a user flooded it with frames that were refused",
}

_ODD_HELLO = "a Hello that does not say what its receiver says: it could carry anything"

Key = tuple[str, str, str, str]  # plane, party or USER, kind, field


@dataclass(slots=True)
class _Entry:
    count: int = 0
    parties: set[str] = field(default_factory=set)
    examples: list[tuple[str, int]] = field(default_factory=list)  # the first few, as (file, record)

    def add(self, party: str, file: str, record: int) -> None:
        self.count += 1
        self.parties.add(party)
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append((file, record))


def take(case: Case, parties: Collection[str] | None = None) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return a row for each field, and findings.

    A row is {"party", "kind", "field", "declared", "count", "plane", "parties", "words"}. All users are the one party
    "user", and "parties" counts those that received the field. "plane" is "message", "session", "event" or "rejected".
    A declared field that was never received has count 0, or null if no view of that party is kept. Only the views of
    `parties` are read (None: all).
    """
    found: dict[Key, _Entry] = {}
    odd_hellos: dict[str, _Entry] = {}
    read = case.kept if parties is None else case.kept & frozenset(parties)
    for party in case.parties:
        if party in read:
            _read(case, party, found, odd_hellos)
    words = {("message", leak.receiver, leak.kind, leak.field): _said(case, leak) for leak in case.card.scheme.leakage}
    rows = [_row(key, entry, words) for key, entry in found.items()]
    rows += [_missing(read, key, words[key]) for key in words if key not in found]
    undeclared = [key for key in found if key[0] == "message" and key not in words]
    findings = [
        _finding(key[1], f"the field {key[3]} of {key[2]}, which the leakage policy does not declare", found[key])
        for key in undeclared
    ]
    findings += [_finding(party, _ODD_HELLO, entry) for party, entry in odd_hellos.items()]
    order = {role: at for at, role in enumerate((*case.card.scheme.servers, USER))}
    return sorted(rows, key=lambda row: order.get(row["party"], len(order))), findings


def _said(case: Case, leak: Leak) -> str:
    """Return the scheme's own words for `leak`; with `--publish rated` users are sent fewer factors."""
    less = leak.kind == Publication.__name__ and case.card.params.publish == "rated"
    return leak.words.replace("of all items", "of its items") if less else leak.words


def _read(case: Case, party: str, found: dict[Key, _Entry], odd_hellos: dict[str, _Entry]) -> None:
    shown, file = USER if user_index(party) >= 0 else party, case.file(party)
    for record in Exhibits(case, (party,)).records(party):
        if record.type == RECEIVED:
            message = read_message(case, party, record).message
            if isinstance(message, Hello) and not _says_the_same(case, message):
                odd_hellos.setdefault(shown, _Entry()).add(party, file, record.number)
            plane = "session" if isinstance(message, Hello) else "message"
            names = _field_names(message)
            kind = type(message).__name__
        elif record.type in (EVENT, REJECTED):
            plane, kind, names = _outside(record)
        else:
            continue
        for name in names:
            found.setdefault((plane, shown, kind, name), _Entry()).add(party, file, record.number)


def _field_names(message: Message) -> tuple[str, ...]:
    return tuple(type(message).__dataclass_fields__)


def _outside(record: Record) -> tuple[str, str, tuple[str, ...]]:
    """Return (plane, kind, fields) of a record that is not an accepted message."""
    if record.type == REJECTED:
        return "rejected", "rejected", (str(record.fields[1]),)
    kind = str(record.fields[0])
    if kind in EVENTS:
        return "event", kind, tuple(entry.name for entry in dataclasses.fields(EVENTS[kind]))
    return "session", kind, _NOTES.get(kind, ("fields",))


def _says_the_same(case: Case, hello: Hello) -> bool:
    same = (WIRE_VERSION, case.card.run_id, case.card.params_digest)
    return (hello.wire_version, hello.run_id, hello.params_digest) == same


def _row(key: Key, entry: _Entry, words: dict[Key, str]) -> dict[str, Any]:
    plane, party, kind, name = key
    if plane == "message":
        declared, said = key in words, words.get(key)
    elif plane == "rejected":
        declared, said = None, "a refused frame: the view keeps its digest, not its contents"
    else:
        declared, said = kind in _OUTSIDE, _OUTSIDE.get(kind)
    return {
        "party": party,
        "kind": kind,
        "field": name,
        "declared": declared,
        "count": entry.count,
        "plane": plane,
        "parties": len(entry.parties),
        "words": said,
    }


def _missing(views: Collection[str], key: Key, said: str) -> dict[str, Any]:
    """Build the row of a declared field that is in no view: not received, or no view of that role was read."""
    plane, party, kind, name = key
    read = sum((USER if user_index(each) >= 0 else each) == party for each in views)
    return {
        "party": party,
        "kind": kind,
        "field": name,
        "declared": True,
        "count": 0 if read else None,
        "plane": plane,
        "parties": 0 if read else None,
        "words": said,
    }


def _finding(party: str, what: str, entry: _Entry) -> Finding:
    return Finding(
        id="undeclared-field",
        title=f"The {'users' if party == USER else party.replace('_', ' ')} received {what}.",
        coalition=(party,),
        severity="break",
        claimed=0,
        measured=entry.count,
        chance=0,
        confidence="exact: counted in the views",
        evidence=f"received {entry.count} times by {len(entry.parties)} of the parties: {_places(entry)}",
    )


def _places(entry: _Entry) -> str:
    named = ", ".join(f"record {record} of {file}" for file, record in entry.examples)
    return named if entry.count <= len(entry.examples) else f"the first are {named}"
