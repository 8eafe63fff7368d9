"""Delivery once and in order, by a sequence number per peer and direction.

* the next number is accepted; a frame that is understood uses up its number even if the role then refuses it
* an earlier number with the same bytes is a resend (REPLAYED), with other bytes it is evidence (CONFLICT)
* a later number means that something is missing (GAP)
* number 0 of each direction is a Hello with this run's version, id and parameters (VERSION)
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

from protocol.errors import Reason, Rejected
from protocol.wire.messages import Hello, Message

REMEMBERED = 64  # digests kept per peer; an older resend counts as replayed without a comparison


class Session:
    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self._sent: dict[str, int] = defaultdict(int)
        self._received: dict[str, int] = defaultdict(int)
        self._digests: dict[str, list[bytes]] = defaultdict(list)  # lists: even a short deque takes the memory of 64

    def next_to(self, receiver: str) -> int:
        return self._sent.get(receiver, 0)

    def sent(self, receiver: str) -> None:
        self._sent[receiver] += 1

    def check(self, sender: str, sequence: int, frame: bytes, message: Message) -> None:
        """Raise `Rejected` unless this is the next frame of that sender; nothing changes."""
        expected = self._received.get(sender, 0)
        if sequence > expected:
            raise Rejected(Reason.GAP)
        if sequence < expected:
            raise Rejected(self._again(sender, expected - sequence, frame))
        if sequence == 0 and not self._same_run(message):
            raise Rejected(Reason.VERSION)
        if sequence > 0 and isinstance(message, Hello):
            raise Rejected(Reason.WRONG_KIND)

    def accept(self, sender: str, frame: bytes) -> None:
        self.note(sender, frame_digest(frame))

    def note(self, sender: str, digest: bytes) -> None:
        """Record that a frame with this SHA-256 `digest` has used up its number."""
        self._received[sender] += 1
        known = self._digests[sender]
        known.append(digest)
        if len(known) > REMEMBERED:
            del known[0]

    def received_from(self, sender: str) -> int:
        return self._received.get(sender, 0)

    def counts(self) -> list[Any]:
        """Return the whole state as plain values."""
        return [dict(self._sent), dict(self._received), dict(self._digests)]

    def go_on_from(self, counts: list[Any]) -> None:
        sent, received, digests = counts
        self._sent.update(sent)
        self._received.update(received)
        for peer, known in digests.items():
            self._digests[peer].extend(known)

    def _again(self, sender: str, back: int, frame: bytes) -> Reason:
        digests = self._digests[sender]
        known = digests[-back] if back <= len(digests) else None
        return Reason.CONFLICT if known is not None and known != frame_digest(frame) else Reason.REPLAYED

    def _same_run(self, message: Message) -> bool:
        if not isinstance(message, Hello):
            return False
        ours = self.hello
        return (message.wire_version, message.run_id, message.params_digest) == (
            ours.wire_version,
            ours.run_id,
            ours.params_digest,
        )


def frame_digest(frame: bytes) -> bytes:
    return hashlib.sha256(frame).digest()
