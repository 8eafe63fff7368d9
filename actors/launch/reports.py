"""The messages between the launcher and the processes that it starts; none of them ever reaches another party.

A message travels as a list: the name of its class, then its fields. `read` is the one place that turns such a list into
a message again, and refuses a list that is not one: both ends are of the same Keyhole, so that would be a bug.
"""

from __future__ import annotations

import sys
import types
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from protocol.errors import Aborted, BadInput, Bug, Reason, SchemeFailed
from protocol.party.role import Facts
from protocol.party.view import Broken

# --- from a host -----------------------------------------------------------------------------------------------------


class Started(NamedTuple):  # a process has taken the order to host `parties`
    pid: int
    parties: list[str]


class Listens(NamedTuple):  # a server can be reached
    party: str
    endpoint: str


class Missed(NamedTuple):  # frames of `server` wait for `users` that are not connected
    server: str
    users: list[str]


class Alive(NamedTuple):  # the host of a crowd works; `heard` counts the frames that it has accepted
    host: str
    heard: int


class Waits(NamedTuple):  # a party waits for others: the first few by name, and how many `more`
    party: str
    iteration: int
    done: bool
    awaited: list[str]
    more: int


class Joining(NamedTuple):  # the recommender has heard from this number of `users` in the set-up
    users: int


class Replaying(NamedTuple):  # the replay of a view has reached `iteration`
    party: str
    iteration: int


class Resumed(NamedTuple):  # a party has replayed its view, which has sent and received these numbers of frames by peer
    party: str
    iteration: int
    sent: dict[str, int]
    received: dict[str, int]


class Finished(NamedTuple):  # a server has finished an iteration; below 0 it is the set-up
    party: str
    iteration: int
    seconds: float | None
    invited: int
    contributors: int
    course: Facts
    tally: list[Any]


class Ended(NamedTuple):  # a party is done
    party: str
    view: list[Any] | None  # records, head of the chain
    result: str | None
    rejected: dict[str, int]
    uss: int | None
    course: Facts
    figures: Facts
    tally: list[Any]


class Closed(NamedTuple):  # a server has closed its connections (`recorder.py`, `outcome.py`)
    party: str
    strangers: dict[str, int]
    parties: list[Any]
    by_party: bool
    apart: list[Any]
    again: bool
    kernel: list[Any] | None
    kernel_note: str | None
    peak: int | None
    tally: list[Any]


class Failed(NamedTuple):  # a host ends because of an error of this `kind`
    party: str
    kind: str
    words: str
    more: str = ""

    @classmethod
    def of(cls, party: str, error: Exception) -> Failed:
        if isinstance(error, SchemeFailed):
            return cls(party, "scheme", error.detail, error.trace)
        if isinstance(error, Aborted):
            return cls(party, "abort", error.detail or party, error.reason.name)
        if isinstance(error, Broken):
            return cls(party, "view", f"{party}: {error}")
        return cls(party, "input" if isinstance(error, BadInput) else "bug", str(error))

    @property
    def exit_code(self) -> int:
        """Return the exit code of the process."""
        return {"abort": 5, "view": 4, "input": 2, "scheme": 2}.get(self.kind, 1)

    def error(self) -> Exception:
        """Make the exception again."""
        if self.kind == "scheme":
            return SchemeFailed(self.words, self.more)
        if self.kind == "abort":
            return Aborted(Reason[self.more], self.words)
        return {"view": Broken, "input": BadInput}.get(self.kind, Bug)(self.words)


# --- from the zygote -------------------------------------------------------------------------------------------------


class Exited(NamedTuple):
    pid: int
    code: int


# --- to the zygote ---------------------------------------------------------------------------------------------------


class Common(NamedTuple):  # the settings that every process of a run has
    path: list[str]  # folders to import from
    roster: dict[str, Any]
    run_folder: str
    deadline: float
    faults: list[Any] | None
    connected: int | None
    silence: float | None


class Fork(NamedTuple):
    processes: int


class Stop(NamedTuple):
    pass


# --- to a host -------------------------------------------------------------------------------------------------------


class Hosting(NamedTuple):  # the order to host `parties`; `connected` is how many of a crowd may be connected at once
    parties: list[str]
    secrets: list[dict[str, Any]]
    views: list[str]
    endpoints: dict[str, str]
    bind: dict[str, str]
    resume: list[str]
    reported: int
    incarnation: int
    connected: int | None


class Happens(NamedTuple):  # an event from outside the protocol happens to `party`
    party: str
    kind: str
    fields: list[Any]


class Call(NamedTuple):  # `server` has frames for `users`, which are to connect
    server: str
    users: list[str]


class Restarted(NamedTuple):  # frames on their way to and from `server` are lost
    server: str


class Ask(NamedTuple):  # report what each party waits for (`Waits`)
    pass


class Quit(NamedTuple):  # every party is done
    pass


def _accepted(hint: Any) -> tuple[type, ...]:
    """List the classes that a value of the type `hint` may have."""
    if isinstance(hint, types.UnionType):
        return tuple(one for part in get_args(hint) for one in _accepted(part))
    return (float, int) if hint is float else (get_origin(hint) or hint,)


_CLASSES = {name: cls for name, cls in vars(sys.modules[__name__]).items() if hasattr(cls, "_fields")}
_TAKES = {name: tuple(_accepted(get_type_hints(cls)[field]) for field in cls._fields) for name, cls in _CLASSES.items()}


def write(message: tuple[Any, ...]) -> list[Any]:
    """Make the list as which `message` travels."""
    return [type(message).__name__, *message]


def read(values: Any) -> Any:
    """Make the message that `values` states; raise `Bug` for what states none."""
    name, *fields = values if isinstance(values, list) and values else [None]
    if not isinstance(name, str) or name not in _TAKES:
        raise Bug(f"A process of the run sent a message of no known kind: {name!r}.")
    if len(fields) != len(_TAKES[name]) or not all(map(isinstance, fields, _TAKES[name])):
        raise Bug(f"A process of the run sent a {name} with other fields than it has: {fields!r}.")
    return _CLASSES[name](*fields)
