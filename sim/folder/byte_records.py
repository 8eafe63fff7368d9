"""The bytes that a run folder states: `iterations.jsonl` and `bandwidth.json`, read as a whole and compared.

The rows of all lines and of the end, the rows by party, and the summary describe the same run. If they contradict each
other, one of them was changed, and `Broken` says where.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.params import MOST_ITERATIONS
from protocol.party.role import role_of
from protocol.party.view import Broken
from protocol.wire.messages import SETUP
from sim.folder.forms import IterationLine, TotalsFile
from sim.foreign import untrusted

LINES, TOTALS, SUMMARY = "iterations.jsonl", "bandwidth.json", "summary.json"
UNDELIVERED = "undelivered"  # frames of the course whose receiver was not connected: they were never on the wire

Key = tuple[int, str, str, str]  # iteration, sender, receiver, kind
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Apart:
    """Traffic outside the protocol's own course, or frames of the course that were not delivered."""

    what: str
    sender: str
    receiver: str
    messages: int
    payload_bytes: int
    wire_bytes: int


@dataclass(slots=True)
class Ledger:
    rows: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))
    parties: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))  # phase −1 or 0 first
    apart: list[Apart] = field(default_factory=list)
    setup: Facts = field(default_factory=dict)
    turns: list[Facts] = field(default_factory=list)
    end: Facts = field(default_factory=dict)
    down: Counter[int] = field(default_factory=Counter)  # wire bytes of a user in an iteration -> how often they occur
    up: Counter[int] = field(default_factory=Counter)
    document: dict[str, Any] = field(default_factory=dict)  # bandwidth.json as it was read
    known: frozenset[str] = frozenset()  # all parties of the run

    @property
    def parties_note(self) -> Any:
        """Return the sentence why `parties` and `apart` do not list users singly; None if they do."""
        return self.document.get("parties_note")

    @property
    def wire_bytes(self) -> int:
        return sum(wire for _, _, wire in self.rows.values())

    @property
    def apart_bytes(self) -> int:
        return sum(row.wire_bytes for row in self.apart if row.what != UNDELIVERED)

    @property
    def on_the_wire(self) -> int:
        return self.wire_bytes + self.apart_bytes - self.undelivered_bytes

    @property
    def undelivered_bytes(self) -> int:
        """Add up the bytes that were not delivered; `rows` contain them too."""
        return sum(row.wire_bytes for row in self.apart if row.what == UNDELIVERED)


def read_ledger(folder: Path, summary: dict[str, Any], parties: Iterable[str]) -> Ledger:
    """Read and check the bytes of a completed run of these `parties`; `Broken` says what is wrong."""
    ledger = Ledger(known=frozenset(parties))
    number = 0
    for number, (line, facts) in enumerate(_lines(folder, len(ledger.known)), 1):
        with _broken(f"line {number} of {LINES}"):
            _add_line(ledger, line, facts["course"], expected=number - 2)
    if not number:
        raise Broken(f"{LINES} is empty")
    with _broken(TOTALS):
        ledger.document = untrusted.read_json(folder, TOTALS, untrusted.most_bytes(len(ledger.known)))
        _add_totals(ledger, untrusted.fit(ledger.document, TotalsFile))
    _check(ledger, summary)
    return ledger


def read_iterations(folder: Path, n_users: int) -> list[Facts]:
    """Read the lines of `iterations.jsonl` and check their form; `Broken` if one is damaged."""
    return [document for _, document in _lines(folder, n_users)]


def parse_line(text: bytes) -> tuple[IterationLine, Facts]:
    """Parse a line and check its form, but not what it says; return it typed, and as it stands there."""
    document = untrusted.parse_json(text)
    return untrusted.fit(document, IterationLine), document


def checked_line(text: bytes, expected: int, roles: Iterable[str]) -> Facts:
    """Parse the line of this iteration in a run of these roles; `ValueError` says why it is not that line."""
    line, document = parse_line(text)
    _add_line(Ledger(known=frozenset(roles)), line, document["course"], expected)
    return document


def _lines(folder: Path, n_users: int) -> Iterator[tuple[IterationLine, Facts]]:
    texts = untrusted.read_lines(folder, LINES, untrusted.most_bytes(n_users), MOST_ITERATIONS + 1)
    with _broken(LINES):
        for number, text in enumerate(texts, 1):
            with _broken(f"line {number} of {LINES}"):
                line = parse_line(text)
            yield line


@contextlib.contextmanager
def _broken(what: str) -> Iterator[None]:
    """Say as `Broken` why a file, or a line of it, cannot be read or is damaged."""
    try:
        yield
    except OSError as error:
        raise Broken(f"{what} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise Broken(f"{what} is damaged ({' '.join(str(error).split())})") from error


# --- adding up -------------------------------------------------------------------------------------------------------


def _add_line(ledger: Ledger, line: IterationLine, course: Facts, expected: int) -> None:
    if line.iteration != expected:
        raise ValueError(f"it is of iteration {line.iteration}, where {expected} belongs")
    _check_ends(set(map(role_of, ledger.known)), line.rows, "rows")
    add_amounts(ledger.rows, line.rows)
    own = [row for row in line.rows if row[0] == expected]
    if line.bytes != sum(row[-1] for row in own):
        raise ValueError("its bytes are not those of its rows")
    if expected == SETUP:
        ledger.setup = course
        return
    ledger.turns.append(course)
    for way, pairs, counts, end in (("down", line.users.down, ledger.down, 2), ("up", line.users.up, ledger.up, 1)):
        spread = dict(pairs)
        if sum(size * users for size, users in spread.items()) != sum(row[-1] for row in own if row[end] == "user"):
            raise ValueError(f"what users have {way} is not what its rows say")
        counts.update({size: users for size, users in spread.items() if size})


def _add_totals(ledger: Ledger, totals: TotalsFile) -> None:
    roles = set(map(role_of, ledger.known))
    ends = ledger.known if totals.parties_note is None else roles  # the users of a crowd have one sum
    _check_ends(roles, totals.rows, "rows")
    _check_ends(ends, totals.parties, "parties")
    _check_ends(ends, totals.apart, "apart")
    _check_ends({"", *ends}, [("", *row) for row in totals.kernel or ()], "kernel")
    add_amounts(ledger.rows, totals.rows)
    add_amounts(ledger.parties, totals.parties)
    ledger.end = ledger.document["course"]
    ledger.apart = [Apart(*row) for row in totals.apart]


def _check_ends(known: AbstractSet[str], rows: Iterable[tuple[Any, ...]], where: str) -> None:
    """Check that every row of the list at `where` has a sender and a receiver, or both ends, of this run."""
    for place, (_, *ends) in enumerate(row[:3] for row in rows):
        if strangers := [name for name in ends if name not in known]:
            raise ValueError(f"`$.{where}[{place}]`: {strangers[0][:40]!r} is not a party of this run")


def add_amounts(sums: dict[Key, list[int]], rows: Iterable[Sequence[Any]]) -> None:
    """Add `rows` to the `sums` of their amounts by iteration, sender, receiver and kind."""
    for iteration, sender, receiver, kind, *amounts in rows:
        entry = sums[iteration, sender, receiver, kind]
        for place, amount in enumerate(amounts):
            entry[place] += amount


# --- comparing -------------------------------------------------------------------------------------------------------


def _check(ledger: Ledger, summary: dict[str, Any]) -> None:
    by_role, rows = _by_phase(ledger.parties), _by_phase(ledger.rows)
    for key in sorted({*by_role, *rows}):
        if by_role.get(key) != rows.get(key):
            when, sender, receiver, kind = "in the set-up" if key[0] < 0 else "after it", *key[1:]
            raise Broken(f"{TOTALS} has other bytes by party than by role: {kind} from {sender} to {receiver} {when}")
    claimed, found = summary["bytes"]["total"], ledger.on_the_wire
    if claimed != found:
        raise Broken(f"{SUMMARY} says {claimed} bytes in all, and {LINES} with {TOTALS} has {found}")


def _by_phase(sums: dict[Key, list[int]]) -> dict[Key, list[int]]:
    """Add up `sums` by role, the set-up apart."""
    found: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    add_amounts(found, ((min(it, 0), role_of(s), role_of(r), kind, *n) for (it, s, r, kind), n in sums.items()))
    return found
