"""A party's role once more, from its own view: what it computed is knowledge of whoever holds the view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from protocol.errors import Aborted
from protocol.messages import EVENTS, Hello
from protocol.party import read_event
from protocol.roles import Effects, Role
from protocol.view import EVENT, RECEIVED, Record
from sim.audit.exhibits import Exhibits, read_message


class Turn(NamedTuple):
    given: Any  # a message or an event; None: the start
    effects: Effects
    role: Role  # after it


def rerun(exhibits: Exhibits, party: str, prepare: Callable[[Role], None] = lambda role: None) -> Iterator[Turn]:
    """Every input that the role took, in order, and what it did; `prepare` may listen in on the fresh role."""
    card, brought = exhibits.case.card, exhibits.brought(party)
    role = card.scheme.make_role(party, card.setting, brought.tape, brought.inputs)
    prepare(role)
    yield Turn(None, role.start(), role)
    for record in exhibits.records(party):
        try:
            turn = _repeat(exhibits, party, role, record)
        except Aborted:  # the run ended here
            return
        if turn is not None:
            yield turn


def _repeat(exhibits: Exhibits, party: str, role: Role, record: Record) -> Turn | None:
    if record.type == RECEIVED:
        seen = read_message(exhibits.case, party, record)
        if isinstance(seen.message, Hello):
            return None
        return Turn(seen.message, role.receive(seen.sender, seen.message), role)
    if record.type == EVENT and record.fields[0] in EVENTS:
        event = read_event(*record.fields)
        return Turn(event, role.tick(event), role)
    return None


def listen(role: Any, name: str, on_result: Callable[..., None]) -> None:
    """`on_result(result, arguments…)` after every call of a method; a role without that method stays as it is."""
    inner = getattr(role, name, None)
    if inner is None:
        return

    def outer(*arguments: Any) -> Any:
        result = inner(*arguments)
        on_result(result, *arguments)
        return result

    setattr(role, name, outer)
