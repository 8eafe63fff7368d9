"""What can go wrong, by whose fault it is.

* `Rejected`: the peer's fault. The message is refused, one record says why, and the role is as it was.
* `Aborted`: nobody's message is wrong by itself, but this run cannot go on.
* `BadInput`: what the person asked for cannot be done; the sentence says what to change.
* `Bug`: ours.
"""

from __future__ import annotations

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


class BadInput(Exception):
    """One sentence that tells the person what to change; the command ends with exit code 2."""


class Bug(Exception):
    """Keyhole did something that its own design rules out."""
