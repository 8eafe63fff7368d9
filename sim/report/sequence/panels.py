"""The panel of an arrow or a party that is chosen: fields as their receiver saw them, and what was declared."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from protocol.party.role import role_of, user_index
from protocol.wire.messages import SETUP
from sim.audit.truth import ratings_of
from sim.console.console import counted, size
from sim.folder.traffic import when_of
from sim.report.reported_run import ReportedRun
from sim.report.section import table
from sim.report.sequence.arrows import Arrow
from sim.report.sequence.first_records import Scan
from sim.report.sequence.numbers_behind import UploadsBehind
from sim.report.sequence.pictures import pictures_of

MOST_TEXT = 40
_UNDECLARED = Markup('<span class="bad">not declared</span>')
_DIGEST = "32-byte digest"  # the only field of 32 bytes that is not secret


@dataclass(frozen=True, slots=True)
class Panel:
    key: str
    title: str
    back: str  # the link that chooses it
    words: Sequence[str] = ()
    tables: Sequence[Markup] = ()
    command: str = ""
    pictures: Sequence[Markup] = ()
    about: Sequence[str] = field(default_factory=list)  # sentences on the pictures


def spoken(role: str) -> str:
    return {"user": "users"}.get(role, role.replace("_", " "))


def party_key(role: str) -> str:
    return f"seq-party-{role}"


# --- an arrow --------------------------------------------------------------------------------------------------------


def arrow_panel(run: ReportedRun, arrow: Arrow, scan: Scan, truth: UploadsBehind) -> Panel:
    if arrow.connects:
        return _connection_panel(arrow)
    iteration, sender, receiver, kind = arrow.edge
    title = f"{arrow.name}: {spoken(sender)} → {spoken(receiver)}"
    when = "" if iteration == SETUP else f" in {when_of(iteration)}"
    amount = f"{arrow.amount} on the wire{when}, {size(arrow.payload_bytes)} of it frames."
    back = f"{arrow.key}-link"
    record = scan.examples.get(arrow.edge)
    if record is None:
        return Panel(arrow.key, title, back, [amount, _no_record(run, arrow)], [_declared_only(run, arrow)])
    party = record["receiver"]
    which = "It is" if arrow.messages == 1 else "One of them is"
    one = (
        f"{which}, in the view of {party}, record {record['record']}, from {record['sender']}: "
        f"a frame of {record['bytes']:,} bytes."
    )
    pictures = pictures_of(run, arrow, scan, truth)
    return Panel(
        arrow.key, title, back, [amount, one], [_fields(run, receiver, record)],
        view_command(run, party, iteration, kind), pictures.drawn, pictures.words,
    )  # fmt: skip


def view_command(run: ReportedRun, party: str, iteration: int, kind: str) -> str:
    return f"keyhole view {shlex.quote(str(run.folder))} {party} --iteration {iteration} --kind {kind}"


def _connection_panel(arrow: Arrow) -> Panel:
    first = arrow.first
    title = f"Connections of {spoken(first['sender'])} and {spoken(first['receiver'])}"
    words = [
        f"{size(arrow.wire_bytes)} on the wire. A handshake proves who is at the other end and agrees on keys; no view "
        "records it. A Hello names the version, the run and the digest of its parameters.",
        "Connections are drawn first, whenever they were made.",
    ]
    rows = [
        (f"{spoken(row['sender'])} → {spoken(row['receiver'])}", row["kind"], f"{row['messages']:,}",
         size(row["wire_bytes"]))
        for row in arrow.rows
    ]  # fmt: skip
    counted_ = table(("from, to", "kind", "number", "wire bytes"), rows, numeric=2)
    return Panel(arrow.key, title, f"{arrow.key}-link", words, [counted_])


def _no_record(run: ReportedRun, arrow: Arrow) -> str:
    receiver, kept = arrow.edge[2], run.case.kept
    if receiver not in map(role_of, kept):
        who = "No user keeps" if receiver == "user" else f"The {spoken(receiver)} keeps no"
        view = "a view" if receiver == "user" else "view"
        return f"{who} {view} in this run (--views {run.case.config.views}): what was in it is not recorded."
    return "None of the views that were read has a record of it: those who received it keep no view, or theirs ended."


def _fields(run: ReportedRun, receiver: str, record: dict[str, Any]) -> Markup:
    rows = []
    for name, value in record["fields"].items():
        unit = record["units"].get(name, "no unit")
        saw = Markup('{}<br><span class="aside">{}</span>').format(shown(value, unit), unit)
        rows.append((Markup("<code>{}</code>").format(name), saw, _declared(run, receiver, record["kind"], name)))
    return table(("field", "what the receiver saw", "declared by the scheme"), rows)


def _declared_only(run: ReportedRun, arrow: Arrow) -> Markup:
    _, _, receiver, kind = arrow.edge
    rows = [
        (leak.field, leak.words) for leak in run.scheme.leakage if (leak.receiver, leak.kind) == (receiver, kind)
    ]
    return table(("field", "declared by the scheme"), rows or [("none", "nothing is declared of this message")])


def _declared(run: ReportedRun, receiver: str, kind: str, name: str) -> str | Markup:
    """Quote the audit's row on this field, or without an audit the scheme's own words."""
    for row in run.audit.get("inventory") or []:
        if (row["party"], row["kind"], row["field"]) == (receiver, kind, name):
            return _row_words(row)
    said = {(leak.receiver, leak.kind, leak.field): leak.words for leak in run.scheme.leakage}
    return said.get((receiver, kind, name)) or _UNDECLARED


def shown(value: Any, unit: str) -> str:
    """Format `value` as `keyhole view` prints it, but without any byte of a key."""
    if isinstance(value, dict) and "shape" in value:
        first = ", ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in value["first"])
        shape = " × ".join(map(str, value["shape"]))
        more = " …" if math.prod(value["shape"]) > len(value["first"]) else ""
        return f"{shape}: {first}{more}" if first else "none"
    if isinstance(value, dict):
        return f"{counted(value['keys'], 'key')} of {value['bytes_each']} bytes, not shown"
    text = str(value)
    if isinstance(value, str) and unit != _DIGEST:
        return f"{len(text) // 2} bytes, not shown"
    return text if len(text) <= MOST_TEXT else f"{text[:16]}…"


# --- a party ---------------------------------------------------------------------------------------------------------


def party_panel(run: ReportedRun, role: str, back: str) -> Panel:
    """Make the panel of a server, or of all users together."""
    key, rows = party_key(role), _inventory(run, role)
    columns = ("kind", "field", "declared as", "times")
    received = [table(columns, rows, caption="Everything it received in the whole run", numeric=1)] if rows else []
    words = _users(run) if role == "user" else _server(run, role)
    if not rows:
        words.append("The scheme declares nothing that it may receive, and nothing is recorded.")
    return Panel(key, _title(run, role), back, words, received)


def _title(run: ReportedRun, role: str) -> str:
    return counted(run.params.n_users, "user") if role == "user" else spoken(role).capitalize()


def _inventory(run: ReportedRun, role: str) -> list[tuple[Any, ...]]:
    rows = [row for row in run.audit.get("inventory") or [] if row["party"] == role]
    return [
        (row["kind"], row["field"], _row_words(row), "not kept" if row["count"] is None else f"{row['count']:,}")
        for row in rows
    ]


def _row_words(row: dict[str, Any]) -> str | Markup:
    if row["declared"] is False:
        return _UNDECLARED
    return str(row["words"] or "no words")


def _server(run: ReportedRun, role: str) -> list[str]:
    brings = "It brings no data: its input is a seed for its random draws, which is not shown."
    view = run.summary["views"].get(role)
    if view is None:
        return [brings, f"It keeps no view in this run (--views {run.case.config.views})."]
    return [brings, f"Its view has {view['records']:,} records. The head of its chain is {view['head'][:16]}…"]


def _users(run: ReportedRun) -> list[str]:
    case = run.case
    kept = [party for party in case.parties if user_index(party) >= 0 and party in case.kept]
    train = run.summary["ratings"]["train"]
    brings = f"Together they bring {train:,} ratings to train on."
    if not kept:
        return [brings, f"No user keeps a view in this run (--views {case.config.views})."]
    counts = [len(ratings_of(case, user).items) for user in kept if case.path(user).is_file()]
    own = f"{counted(len(kept), 'view')} of users {'is' if len(kept) == 1 else 'are'} kept; " + (
        f"these users bring {min(counts)} to {max(counts)} ratings each." if counts else "none has been written."
    )
    first = next(((name, run.summary["views"][name]) for name in kept if name in run.summary["views"]), None)
    if first is None:
        return [brings, own]
    name, view = first
    return [brings, own, f"For example, {name}: {view['records']:,} records, head of its chain {view['head'][:16]}…"]
