"""Run a tiny exchange of the scheme before the fork, so that whatever is loaded or allocated on first use is there.

Memory that a process allocates is its own; memory that the zygote has allocated is shared by all processes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import zmq

from actors.blame import is_own
from actors.keys import Secret
from actors.metering.observer import HeldOut, Observer
from actors.metering.recorder import Figures, own_memory
from actors.stage import Performer
from actors.timers import Patience
from actors.transport.zeromq import ClientEnd, Context, Gate, ServerEnd, make_key_pair
from protocol.card import Card, Seat, all_parties, make_run_id, seat_party, tape_seed
from protocol.everyone_online import everyone_stays
from protocol.party.party import Step
from protocol.party.role import Effects, Role, Send, UserInput
from protocol.party.signing import make_signer
from protocol.play import play
from protocol.wire.messages import SETUP, Event, Message

_USERS, _ITEMS, _ITERATIONS = 2, 3, 20


def warm_up(card: Card) -> None:
    """Run the exchange of `card`; the failure of a person's own scheme is ignored, as it may work at full size."""
    try:
        _run_small(card)
    except (Exception, SystemExit):
        if not is_own(card.scheme):
            raise
    _open_and_close_sockets()
    own_memory()


def _run_small(card: Card) -> None:
    assert card.codec and card.params_digest and card.setting  # made here, shared by every child
    prepared = card.scheme.rehearsed(card.params)
    sizes = {"n_users": _USERS, "n_items": _ITEMS, "max_raters": _USERS, "online": _USERS, "committers": _USERS}
    sizes["min_contributors"] = min(_USERS, card.params.min_contributors)
    sizes["iterations"] = _ITERATIONS
    known = {entry.name for entry in dataclasses.fields(prepared)}
    changed: dict[str, Any] = {name: size for name, size in sizes.items() if name in known}
    params = dataclasses.replace(prepared, **changed)
    names = all_parties(card.scheme, _USERS)
    small = dataclasses.replace(card, params=params, run_id=make_run_id(params, names, bytes(32)))
    _exchange(small, names)


def _exchange(card: Card, names: list[str]) -> None:
    """Run every role once."""
    observer, patience = Observer(card.params), Patience[str](1.0)
    roles: dict[str, Role] = {name: _FramedRole(_Rehearsed(card, name, observer), patience) for name in names}
    for _ in play(roles, everyone_stays(_USERS)):
        pass


class _Rehearsed(Performer):
    """A party with a made-up seed and made-up ratings; its view is kept nowhere."""

    def __init__(self, card: Card, name: str, observer: Observer) -> None:
        ratings, is_server = np.full(_ITEMS, card.params.rating_max), name in card.scheme.servers
        inputs = UserInput(np.arange(_ITEMS, dtype=np.uint32), ratings)
        held_out = HeldOut(inputs.items, ratings)
        seat = Seat(name, tape_seed(bytes(32), name), None if is_server else inputs, make_signer(bytes(32), name))
        secret = Secret.from_dict(Secret(seat, make_key_pair(), held_out).to_dict())
        figures = Figures(name, () if is_server else None, SETUP - 1, lambda _: None, observer, held_out)
        super().__init__(card, secret.seat, figures, None)
        self.party, _ = seat_party(card, secret.seat, with_view=True)
        self.sent: list[Send] = []

    def hand_over(self, to: str, frame: bytes) -> None:
        self.sent.append(Send(to, frame))

    def schedule(self, iteration: int) -> None:
        pass


class _FramedRole(Role):
    """A party that speaks in frames, and is performed and metered as in a run."""

    def __init__(self, performer: _Rehearsed, patience: Patience[str]) -> None:
        self._performer, self._patience = performer, patience

    def start(self) -> Effects:
        return self._perform(self._performer.begin())

    def tick(self, event: Event) -> Effects:
        return self._perform(self._performer.party.tick(event))

    def receive(self, sender: str, message: Message) -> Effects:
        self._patience.watch(sender)
        self._patience.heard(sender, [sender])
        step = self._performer.receive(sender, message)
        self._patience.seconds(), self._patience.overdue()
        return self._perform(step)

    def _perform(self, step: Step) -> Effects:
        self._performer.sent = []
        self._performer.perform(step)
        self.iteration = self._performer.party.role.iteration
        return list(self._performer.sent)


def _open_and_close_sockets() -> None:
    """Use sockets once in a context that is closed again, since its threads would not survive the fork."""
    context: Context = zmq.Context()
    server, client = make_key_pair(), make_key_pair()
    gate = Gate(context)
    end = ServerEnd(context, gate, "server", "tcp://127.0.0.1:*", server, {client.public: "client"}, 1000)
    other = ClientEnd(context, "server", end.address, client, 1000)
    poller = zmq.Poller()
    poller.register(end.socket, zmq.POLLIN)
    poller.register(other.socket, zmq.POLLIN)
    other.send("server", b"hello")
    poller.poll(1000)
    end.receive()
    end.send("client", b"hello")
    poller.poll(1000)
    other.receive()
    end.close()
    other.close()
    gate.close()
    context.term()
