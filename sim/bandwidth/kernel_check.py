"""Compare the metered bytes with the kernel's counts: per connection, to the byte."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.metering.meter import RECONNECT, RESEND, UNDELIVERED
from protocol.wire.framing import ANSWERING_BYTES, DIALLING_BYTES, HANDSHAKE
from sim.console.console import counted

Pair = tuple[str, str]  # server, client


@dataclass(slots=True)
class _Counts:
    connections: int = 0
    received: int = 0  # by the server
    sent: int = 0

    def less_silent(self, connections: int) -> _Counts:
        """Subtract `connections` over which nothing but a handshake passed."""
        received = self.received - connections * DIALLING_BYTES
        return _Counts(self.connections - connections, received, self.sent - connections * ANSWERING_BYTES)


def compare(document: dict[str, Any]) -> tuple[int | None, list[str]]:
    """Compare both counts in `document`, which is `bandwidth.json`.

    The result is (all bytes that the kernel counted, a sentence for each connection that differs). Without kernel
    counts it is (None, []), and `kernel_note` says why.
    """
    if document["kernel"] is None:
        return None, []
    kernel, metered = _kernel(document), _metered(document)
    for pair, size in _lost(document, kernel, metered).items():
        metered[pair].sent -= size
    silent: dict[str, int] = defaultdict(int)  # by server: connections that carried only a handshake
    differences = []
    for pair in sorted(metered.keys() | {(server, party) for server, party in kernel if party}):
        ours, theirs = metered.get(pair, _Counts()), kernel.get(pair, _Counts())
        unheard = max(0, ours.connections - theirs.connections)
        silent[pair[0]] += unheard
        differences += _differences(pair, ours.less_silent(unheard), theirs)
    for server in sorted({server for server, _ in kernel.keys() | metered.keys()}):
        expected = _Counts().less_silent(-silent[server])
        differences += _differences((server, ""), expected, kernel.get((server, ""), _Counts()))
    return sum(counts.received + counts.sent for counts in kernel.values()), differences


def lost(document: dict[str, Any]) -> int:
    """Count the bytes handed over just as their receiver closed at the end of its turn: metered, and sent again later.

    libzmq accepts them silently, so only the kernel's count reveals them. The bytes that were sent again to a party
    are an upper bound of what it can have lost this way.
    """
    if document["kernel"] is None:
        return 0
    return sum(_lost(document, _kernel(document), _metered(document)).values())


def _lost(document: dict[str, Any], kernel: Mapping[Pair, _Counts], metered: Mapping[Pair, _Counts]) -> dict[Pair, int]:
    if "connected" not in document.get("course", {}):  # users stay connected, so nothing is lost
        return {}
    resent = {(sender, receiver): wire for what, sender, receiver, _, _, wire in document["apart"] if what == RESEND}
    missing = {pair: metered[pair].sent - kernel[pair].sent for pair in resent if pair in kernel and pair in metered}
    return {pair: size for pair, size in missing.items() if 0 < size <= resent[pair]}


def _kernel(document: dict[str, Any]) -> dict[Pair, _Counts]:
    return {(server, party): _Counts(*counts) for server, party, *counts in document["kernel"]}


def _metered(document: dict[str, Any]) -> dict[Pair, _Counts]:
    """Sum everything metered by connection, apart from the protocol's course or not, except what never left."""
    rows = [(kind, sender, receiver, n, wire) for _, sender, receiver, kind, n, _, wire in document["parties"]]
    rows += [(what, sender, receiver, n, wire) for what, sender, receiver, n, _, wire in document["apart"]]
    between = (DIALLING_BYTES + ANSWERING_BYTES) / 2  # the dialling side of a handshake sends more
    dialled = {
        (receiver, sender)
        for kind, sender, receiver, n, wire in rows
        if kind in (HANDSHAKE, RECONNECT) and wire > n * between
    }
    found: dict[Pair, _Counts] = defaultdict(_Counts)
    for kind, sender, receiver, n, wire in rows:
        up = (receiver, sender) in dialled
        counts = found[(receiver, sender) if up else (sender, receiver)]
        amount = -wire if kind == UNDELIVERED else wire
        if up:
            counts.received += amount
            counts.connections += n if kind in (HANDSHAKE, RECONNECT) else 0
        else:
            counts.sent += amount
    return found


def _differences(pair: Pair, ours: _Counts, theirs: _Counts) -> list[str]:
    if ours == theirs:
        return []
    server, party = pair
    who = party or "parties that said nothing"
    return [
        f"{server} and {who}: metered {_words(ours)}; the kernel counted {_words(theirs)} "
        f"({theirs.received - ours.received:+} and {theirs.sent - ours.sent:+} bytes)."
    ]


def _words(counts: _Counts) -> str:
    connections = counted(counts.connections, "connection")
    return f"{counts.received} bytes received and {counts.sent} sent over {connections}"
