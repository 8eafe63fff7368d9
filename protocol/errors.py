"""What can go wrong, by whose fault it is.

* `Rejected`: the peer's fault. The message is refused, one record says why, and the role is as it was.
* `Aborted`: nobody's message is wrong by itself, but this run cannot go on.
* `SchemeFailed`: the same, by a mistake in a scheme of one's own.
* `BadInput`: what the person asked for cannot be done; the sentence says what to change.
* `Bug`: ours.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from enum import Enum


class Reason(Enum):
    """Why a frame was refused or a run was aborted. The value is the sentence that people read."""

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
    # the run
    DISAGREEMENT = "recommender and third party do not agree on who contributed"
    TOO_FEW_ONLINE = "fewer users are online than the noise needs committers"
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
    """Code of a scheme of one's own raised what it should not; `trace` is the part of the traceback that is its own."""

    def __init__(self, detail: str, trace: str = "") -> None:
        super().__init__(Reason.SCHEME_FAILED, detail)
        self.trace = trace


class BadInput(Exception):
    """One sentence that tells the person what to change; the command ends with exit code 2."""


class Bug(Exception):
    """Keyhole did something that its own design rules out."""


class During(str):
    """A note on an exception: which party was doing what when it arose."""


def note_during(error: BaseException, party: str, doing: str) -> None:
    """Note it, unless somebody further inside has."""
    if not any(isinstance(note, During) for note in getattr(error, "__notes__", ())):
        error.add_note(During(f"{party}, {doing}"))


@contextlib.contextmanager
def during(party: str, doing: str) -> Iterator[None]:
    """Do the same for whatever is raised inside."""
    try:
        yield
    except (Exception, SystemExit) as error:
        note_during(error, party, doing)
        raise


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Say which of the names is nearest to one that is unknown, to stand behind a sentence; "" if none is near."""
    known = {known.lower(): known for known in names}
    nearest = difflib.get_close_matches(name.lower(), known, 1)
    return f" (did you mean {known[nearest[0]]}?)" if nearest else ""
