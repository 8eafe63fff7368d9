"""The bytes that a run folder states: `iterations.jsonl` and `bandwidth.json`, read as a whole and compared.

The rows of all lines and of the end, the rows by party, and the summary describe the same run. If they contradict each
other, one of them was changed, and `Broken` says where.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.params import MOST_ITERATIONS
from protocol.party.role import role_of
from protocol.party.view import Broken
from protocol.wire.framing import Traffic
from protocol.wire.messages import SETUP
from sim.folder.folder import FORMAT
from sim.foreign import untrusted
from sim.foreign.bounds import FIGURE, MOST_WHOLE, check_form

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
    most = untrusted.most_bytes(len(ledger.known))
    try:
        number = 0
        for number, text in enumerate(untrusted.read_lines(folder, LINES, most, MOST_ITERATIONS + 1), 1):
            _read_line(ledger, text, number)
    except (OSError, ValueError) as error:
        raise Broken(f"{LINES} cannot be read ({_why(error)})") from error
    if not number:
        raise Broken(f"{LINES} is empty")
    try:
        ledger.document = untrusted.read_json(folder, TOTALS, most)
        _add_totals(ledger)
    except OSError as error:
        raise Broken(f"{TOTALS} cannot be read ({_why(error)})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Broken(f"{TOTALS} is damaged ({_why(error)})") from error
    _check(ledger, summary)
    return ledger


def _read_line(ledger: Ledger, text: bytes, number: int) -> None:
    try:
        _add_line(ledger, untrusted.parse_json(text), expected=number - 2)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Broken(f"line {number} of {LINES} is damaged ({_why(error)})") from error


def read_iterations(folder: Path, n_users: int) -> list[dict[str, Any]]:
    """Read the lines of `iterations.jsonl` and check the entries that are shown; `Broken` if one is damaged."""
    form: dict[str, Any] = {"iteration": (int,), "bytes": (int,), "rows": (list,), "course": (dict,)}
    form |= dict.fromkeys(("seconds", "online", "contributors", "dropouts", "train_mae"), FIGURE)
    lines: list[dict[str, Any]] = []
    try:
        for text in untrusted.read_lines(folder, LINES, untrusted.most_bytes(n_users), MOST_ITERATIONS + 1):
            line = untrusted.parse_json(text)
            check_form(line, form, f"line {len(lines) + 1}")
            lines.append(line)
    except FileNotFoundError:
        raise Broken(f"{LINES} is not there") from None
    except ValueError as error:
        raise Broken(f"{LINES} is damaged ({_why(error)})") from error
    return lines


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split()) or type(error).__name__


# --- reading ---------------------------------------------------------------------------------------------------------


def _add_line(ledger: Ledger, line: dict[str, Any], expected: int) -> None:
    iteration = line["iteration"]
    if type(iteration) is not int or iteration != expected:
        raise ValueError(f"it is of iteration {iteration}, where {expected} belongs")
    rows = [_traffic(row, set(map(role_of, ledger.known))) for row in line["rows"]]
    _add(ledger.rows, rows)
    own = [row for row in rows if row.iteration == iteration]
    if line["bytes"] != sum(row.wire_bytes for row in own):
        raise ValueError("its bytes are not those of its rows")
    facts = _facts(line["course"])
    if iteration == SETUP:
        ledger.setup = facts
        return
    ledger.turns.append(facts)
    for way, counts, ends in (("down", ledger.down, "receiver"), ("up", ledger.up, "sender")):
        spread = {count_of(size): count_of(users) for size, users in line["users"][way]}
        if sum(size * users for size, users in spread.items()) != _of_users(own, ends):
            raise ValueError(f"what users have {way} is not what its rows say")
        counts.update({size: users for size, users in spread.items() if size})


def is_line(line: Any, expected: int, roles: Iterable[str]) -> bool:
    """Tell whether this is the line of this iteration in a run of these roles."""
    try:
        _add_line(Ledger(known=frozenset(roles)), line, expected)
        figures = [line["seconds"], line["train_mae"]]
        count_of(line["dropouts"] or 0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return {type(None), int, float}.issuperset(map(type, figures))


def _of_users(rows: Iterable[Traffic], end: str) -> int:
    return sum(row.wire_bytes for row in rows if getattr(row, end) == "user")


def _add_totals(ledger: Ledger) -> None:
    document = ledger.document
    if document["format"] != FORMAT:
        raise ValueError(f"it has format {document['format']}, and this Keyhole reads format {FORMAT}")
    _add(ledger.rows, [_traffic(row, set(map(role_of, ledger.known))) for row in document["rows"]])
    if ledger.parties_note is not None:  # the users of a crowd have one sum
        _text(ledger.parties_note)
    ends = ledger.known if ledger.parties_note is None else frozenset(map(role_of, ledger.known))
    _add(ledger.parties, [_traffic(row, ends) for row in document["parties"]])
    ledger.end = _facts(document["course"])
    for what, sender, receiver, *counts in document["apart"]:
        pair = _one_of(ends, sender), _one_of(ends, receiver)
        ledger.apart.append(Apart(_text(what), *pair, *_three(counts)))
    _check_kernel(ends, document["kernel"], document["kernel_note"])
    if document["apart_note"] is not None:
        _text(document["apart_note"])


def _check_kernel(known: AbstractSet[str], kernel: Any, note: Any) -> None:
    """Check the `kernel` counts: one for each server and party, or a `note` why there are no counts."""
    if (kernel is None) != (type(note) is str):
        raise ValueError("it must have either counts of the kernel or a sentence why there are none")
    pairs = []
    for server, party, *counts in [] if kernel is None else kernel:
        pairs.append((_one_of(known, server), _one_of(known | {""}, party)))
        _three(counts)
    if len(set(pairs)) < len(pairs):
        raise ValueError("it has two counts of the kernel for the same connection")


def _add(sums: dict[Key, list[int]], rows: Iterable[Traffic]) -> None:
    for row in rows:
        entry = sums[row.iteration, row.sender, row.receiver, row.kind]
        for place, amount in enumerate((row.messages, row.payload_bytes, row.wire_bytes)):
            entry[place] += amount


def _traffic(row: list[Any], ends: AbstractSet[str]) -> Traffic:
    iteration, sender, receiver, kind, *counts = row
    if type(iteration) is not int or not SETUP <= iteration <= MOST_ITERATIONS:
        raise ValueError(f"a row is of iteration {str(iteration)[:40]}")
    return Traffic(iteration, _one_of(ends, sender), _one_of(ends, receiver), _text(kind), *_three(counts))


def _three(counts: list[Any]) -> tuple[int, int, int]:
    first, second, third = map(count_of, counts)
    return first, second, third


def _one_of(known: AbstractSet[str], value: Any) -> str:
    if type(value) is not str or value not in known:
        raise ValueError(f"{str(value)[:40]!r} is not a party of this run")
    return value


def count_of(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST_WHOLE:
        raise ValueError(f"{str(value)[:40]!r} is not a count")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{str(value)[:40]!r} is not a text")
    return value


def _facts(value: Any) -> Facts:
    if type(value) is not dict:
        raise ValueError("its course is not a table")
    return value


# --- comparing -------------------------------------------------------------------------------------------------------


def _check(ledger: Ledger, summary: dict[str, Any]) -> None:
    by_role: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    _add(by_role, (Traffic(_phase(it), _side(s), _side(r), k, *n) for (it, s, r, k), n in ledger.parties.items()))
    rows: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    _add(rows, (Traffic(_phase(it), s, r, k, *n) for (it, s, r, k), n in ledger.rows.items()))
    for key in sorted({*by_role, *rows}):
        if by_role.get(key) != rows.get(key):
            when, sender, receiver, kind = "in the set-up" if key[0] < 0 else "after it", *key[1:]
            raise Broken(f"{TOTALS} has other bytes by party than by role: {kind} from {sender} to {receiver} {when}")
    claimed, found = summary["bytes"]["total"], ledger.on_the_wire
    if claimed != found:
        raise Broken(f"{SUMMARY} says {claimed} bytes in all, and {LINES} with {TOTALS} has {found}")


def _phase(iteration: int) -> int:
    return SETUP if iteration == SETUP else 0


def _side(party: str) -> str:
    return role_of(party)
