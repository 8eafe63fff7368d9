"""The errors, by cause.

* `Rejected`: the peer's fault. The message is refused, one record says why, and the role is unchanged.
* `Aborted`: no single message is wrong, but this run cannot go on.
* `SchemeFailed`: the same, because of a mistake in a custom scheme.
* `BadInput`: the person's request cannot be carried out; the sentence says what to change.
* `Bug`: a fault of Keyhole itself.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from enum import Enum


class Reason(Enum):
    """Why a frame was refused or a run was aborted. The value is the sentence that the person reads."""

    # the frame
    OVERSIZED = "the frame is larger than any message of this run can be"
    MALFORMED = "the frame is not a message of this scheme"
    NOT_CANONICAL = "the frame is not the canonical encoding of its message"
    # the session
    VERSION = "the peer runs another wire version, another run or other parameters"
    REPLAYED = "the frame was accepted before"
    CONFLICT = "other bytes were accepted under this sequence number"
    GAP = "an earlier frame of this peer is missing"
    # the message
    UNKNOWN_SENDER = "the sender has no part in this step"
    WRONG_KIND = "this kind of message is not expected now"
    WRONG_ITERATION = "the message belongs to another iteration"
    WRONG_LENGTH = "the message does not have the expected number of entries"
    UNKNOWN_ITEM = "the message names an item that does not exist or was not agreed"
    DUPLICATE_ITEM = "the message names an item twice"
    UNSORTED_ITEMS = "the message does not name its items in increasing order"
    OUT_OF_RANGE = "a value is outside the range that the parameters allow"
    DUPLICATE = "this party has already answered this iteration"
    FLOOD = "this party has sent more frames that were refused than any fault explains"
    # the run
    DISAGREEMENT = "recommender and third party do not agree on who contributed"
    TOO_FEW_ONLINE = "fewer users are online than the noise needs committers"
    TOO_FEW_SHARES = "fewer users contributed than the noise needs, so nothing is released"
    TOO_LITTLE_NOISE = "the parameters state less noise than their ε needs, so this user adds nothing"
    DIVERGED = "the item factors left the range in which users can be sent them"
    STALLED = "nothing has moved for several deadlines"
    DISK_FULL = "a view could not be written"
    PARTY_DIED = "the process of a party ended before the run did"
    INTERRUPTED = "the run was interrupted"
    SCHEME_FAILED = "the scheme's own code failed"


class Rejected(Exception):
    """A peer's frame was refused."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"{reason.name}: {reason.value}")
        self.reason = reason


class Aborted(Exception):
    """The run cannot go on."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.name}: {reason.value}" + (f" ({detail})" if detail else ""))
        self.reason = reason
        self.detail = detail


class SchemeFailed(Aborted):
    """The code of a custom scheme raised an exception; `trace` is the part of the traceback inside that code."""

    def __init__(self, detail: str, trace: str = "") -> None:
        super().__init__(Reason.SCHEME_FAILED, detail)
        self.trace = trace


class BadInput(Exception):
    """One sentence that tells the person what to change; the command ends with exit code 2."""


class Bug(Exception):
    """Keyhole did something that its own design rules out."""


class During(str):
    """A note on an exception: the party, and what it was doing when the exception arose."""


def note_during(error: BaseException, party: str, doing: str) -> None:
    """Note on `error` that it arose in `party` while `doing` something, unless an inner call has noted it."""
    if not any(isinstance(note, During) for note in getattr(error, "__notes__", ())):
        error.add_note(During(f"{party}, {doing}"))


@contextlib.contextmanager
def during(party: str, doing: str) -> Iterator[None]:
    """Add the note of `note_during` to every exception that is raised inside the block."""
    try:
        yield
    except (Exception, SystemExit) as error:
        note_during(error, party, doing)
        raise


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggest the one of `names` nearest to an unknown `name`, to end a sentence with; return "" if none is near."""
    known = {known.lower(): known for known in names}
    nearest = difflib.get_close_matches(name.lower(), known, 1)
    return f" (did you mean {known[nearest[0]]}?)" if nearest else ""
