"""A party's role, run again from its own view: what it works out for itself is part of what it knows."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.errors import Aborted
from protocol.messages import EVENTS, Hello
from protocol.party import read_event
from protocol.roles import Role
from protocol.view import EVENT, INPUT, RECEIVED, Record
from sim.audit.exhibits import Exhibits, read_input, read_message
from sim.evidence import Case


def replayed(case: Case, party: str) -> Iterator[Role]:
    """The role of a party before its first message and after each; it ends where the role ended the run."""
    role: Role | None = None
    for record in Exhibits(case, (party,)).records(party):
        if record.type == INPUT:
            brought = read_input(party, record)
            role = case.card.scheme.make_role(party, case.card.setting, brought.tape, brought.inputs)
            role.start()
            yield role
        elif role and record.type in (EVENT, RECEIVED):
            try:
                _hand(case, party, role, record)
            except Aborted:
                return
            yield role


def _hand(case: Case, party: str, role: Role, record: Record) -> None:
    if record.type == EVENT:
        if record.fields[0] in EVENTS:
            role.tick(read_event(*record.fields))
        return
    seen = read_message(case, party, record)
    if not isinstance(seen.message, Hello):
        role.receive(seen.sender, seen.message)
