"""Run a party's role again from its own view: any holder of the view knows what the role computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from protocol.errors import Aborted
from protocol.party.party import read_event
from protocol.party.role import Effects, Role
from protocol.party.view import EVENT, RECEIVED
from protocol.wire.messages import EVENTS, Event, Hello
from sim.views.exhibits import Exhibits, Seen, read_message


class RoleTurn(NamedTuple):
    given: Any  # a message or an event; None at the start
    effects: Effects
    role: Role  # its state after the turn


def rerun(exhibits: Exhibits, party: str, prepare: Callable[[Role], None] = lambda role: None) -> Iterator[RoleTurn]:
    """Yield every input of the role, in order, with its effects; `prepare` may hook into the fresh role."""
    card, brought = exhibits.case.card, exhibits.brought(party)
    role = card.scheme.make_role(party, card.setting, brought.tape, brought.inputs)
    prepare(role)
    yield RoleTurn(None, role.start(), role)
    for given in inputs_of(exhibits, party):
        try:
            if isinstance(given, Seen):
                yield RoleTurn(given.message, role.receive(given.sender, given.message), role)
            else:
                yield RoleTurn(given, role.tick(given), role)
        except Aborted:  # the run ended here
            return


def inputs_of(exhibits: Exhibits, party: str) -> Iterator[Seen | Event]:
    """Yield the inputs that the role of `party` was given after its start, in order."""
    for record in exhibits.records(party):
        if record.type == EVENT and record.fields[0] in EVENTS:
            yield read_event(*record.fields)
        elif record.type == RECEIVED:
            seen = read_message(exhibits.case, party, record)
            if not isinstance(seen.message, Hello):
                yield seen


def listen(role: Any, name: str, on_result: Callable[..., None]) -> None:
    """Call `on_result(result, arguments…)` after every call of the method `name`; ignore a role without it."""
    inner = getattr(role, name, None)
    if inner is None:
        return

    def outer(*arguments: Any) -> Any:
        result = inner(*arguments)
        on_result(result, *arguments)
        return result

    setattr(role, name, outer)
