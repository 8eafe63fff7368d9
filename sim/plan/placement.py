"""The layout of the users of a run on this machine: a process each or packed, connected at once or in turns."""

from __future__ import annotations

from dataclasses import dataclass

from actors import capacity
from protocol.errors import BadInput

FEWEST_HOSTS, MOST_HOSTS = 2, 8


@dataclass(frozen=True, slots=True)
class Placement:
    users_per_process: int
    connected: int  # users that are connected at a time; the others wait for their turn
    notes: tuple[str, ...] = ()  # sentences for the person

    def turns(self, users: int) -> int | None:
        """Return how many of the `users` are connected at a time; None if that is all of them."""
        return self.connected if self.connected < users else None

    def processes(self, users: int) -> int:
        return -(-users // self.users_per_process)


@dataclass(frozen=True, slots=True)
class Demand:
    """The size of a run, as the layout depends on it."""

    users: int
    servers: int
    numbers: int  # in a user's message: items × dim
    takes_turns: bool  # a user may be without a connection for a while, as the scheme lets users come and go

    def need(self, per_process: int, connected: int = 0) -> capacity.Need:
        return capacity.need_of(self.users, per_process, self.servers, self.numbers, connected)


def lay_out(demand: Demand, asked: int | None) -> Placement:
    """Place `asked` users in each process; `BadInput` if that does not fit on this machine.

    With None, each user has a process of its own if that fits. Else the users are packed into few processes: one per
    core or, if that does not fit, more, in all `FEWEST_HOSTS` to `MOST_HOSTS`.
    """
    if asked is None and (lack := capacity.shortage(demand.need(1))):
        return _packed(demand, lack)
    per_process = asked or 1
    connected = _connected(demand, per_process)
    capacity.check(demand.need(per_process, connected))
    return Placement(per_process, connected, _turns(demand, connected))


def _packed(demand: Demand, lack: capacity.Lack) -> Placement:
    fewest = min(max(capacity.cores(), FEWEST_HOSTS), MOST_HOSTS, demand.users)
    for hosts in range(fewest, min(MOST_HOSTS, demand.users) + 1):
        per_process = -(-demand.users // hosts)
        connected = _connected(demand, per_process)
        need = demand.need(per_process, connected)
        if capacity.shortage(need) is None:
            capacity.check(need)
            layout = Placement(per_process, connected)
            words = (
                f"With a process for each user this run {lack.words}, so the {demand.users:,} users are packed into "
                f"{layout.processes(demand.users)} processes of up to {per_process:,}."
            )
            return Placement(per_process, connected, (words, *_turns(demand, connected)))
    short = capacity.shortage(need)
    assert short is not None
    raise BadInput(f"Even packed into {hosts} processes this run {short.sentence(packed=True)}")


def _connected(demand: Demand, per_process: int) -> int:
    """Compute how many users are connected at a time.

    These are all users if each has a process of its own, if users cannot take turns, or if fewer than
    `FEWEST_CONNECTED` could be connected at a time.
    """
    if not demand.takes_turns or per_process == 1:
        return demand.users
    most = capacity.most_connected(demand.users, -(-demand.users // per_process), demand.servers, demand.numbers)
    return most if most >= capacity.FEWEST_CONNECTED else demand.users


def _turns(demand: Demand, connected: int) -> tuple[str, ...]:
    if connected == demand.users:
        return ()
    words = f"At most {connected:,} of the {demand.users:,} users are connected at a time."
    return (f"{words} The others hold no connection until it is their turn.",)
