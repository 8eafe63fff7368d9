"""The whole protocol, straight down the page: all roles in one process, without frames, sockets or clocks.

A user brings its ratings, answers what it is sent with numbers that it makes of them, and ends with its predictions.
The third party, if the scheme has one, adds up the values that users mask, and passes on sums alone.
The recommender leads the iterations and publishes what it makes of the sums.
The world outside tells users when they come online or leave, and the recommender how many did (`events`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from protocol.arithmetic.tape import Tape
from protocol.card import Card, Seat
from protocol.party.role import RECOMMENDER, Done, Effects, Role, Send
from protocol.wire.messages import SETUP, Event, Message

EventsFor = Callable[[int], list[tuple[str, Event]]]  # the outside events before an iteration, with their receivers

# One input of a role: (party, sender, given). No sender: an event. An act adds its effects; none given: the start.
Cue = tuple[str, str | None, Any]
Act = tuple[str, str | None, Any, Effects]


def make_roles(card: Card, seats: Iterable[Seat]) -> dict[str, Role]:
    """Make the role of each of `seats`, with its own input and its own random tape."""
    make, setting = card.make_role, card.setting
    return {seat.party: make(seat.party, setting, Tape(seat.tape_seed), seat.inputs) for seat in seats}


def play(roles: Mapping[str, Role], events: EventsFor = lambda iteration: []) -> Iterator[Act]:
    """Let `roles` send each other messages until none is left, and yield every act; a deadline never passes."""
    waiting: deque[tuple[str, str, Message]] = deque()  # (receiver, sender, message)
    done: set[str] = set()

    def sent(party: str, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                waiting.append((effect.to, party, effect.message))
            elif isinstance(effect, Done):
                done.add(party)

    def cues() -> Iterator[Cue]:
        leader, told = roles[RECOMMENDER], SETUP - 1  # the latest iteration about which the world has spoken
        while True:
            if told < leader.iteration and RECOMMENDER not in done:
                told = max(leader.iteration, 0)
                for party, event in events(told):
                    yield party, None, event
            if not waiting:
                return
            yield waiting.popleft()

    return perform(roles, cues(), sent)


def perform(roles: Mapping[str, Role], cues: Iterable[Cue], sent: Callable[[str, Effects], None]) -> Iterator[Act]:
    """Give every role its start, and then what `cues` say; yield every act.

    `sent` is told the effects of an act before the next cue is asked for. Cues are the messages that wait (`play`), or
    what one view or all views of a run recorded, deadlines included (`rerun` and `Together` of the audit).
    """
    for party, role in roles.items():
        effects = role.start()
        sent(party, effects)
        yield party, None, None, effects
    for party, sender, given in cues:
        role = roles[party]
        effects = role.tick(given) if sender is None else role.receive(sender, given)
        sent(party, effects)
        yield party, sender, given, effects
