"""The commands `keyhole view`, `keyhole verify` and `keyhole replay`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.errors import BadInput
from sim.cli.endings import UNVERIFIED, fail
from sim.cli.flags import AsJson, RunFolder
from sim.console import console
from sim.console.console import emit, say
from sim.console.progress import PERCENT, Progress
from sim.folder.naming import resolve
from sim.foreign.plain_text import one_line
from sim.foreign.untrusted import view_files
from sim.views import viewing


def view(
    run: RunFolder,
    party: Annotated[str, typer.Argument(metavar="PARTY", help="recommender, third_party or user:17.")],
    iteration: Annotated[int | None, typer.Option(help="Only this one; -1 is the set-up.")] = None,
    kind: Annotated[str | None, typer.Option(help="A message kind, or received, sent, rejected, event.")] = None,
    sender: Annotated[str | None, typer.Option(metavar="PARTY", help="Only what this party sent.")] = None,
    records: Annotated[str | None, typer.Option(metavar="A:B", help="From record A up to but without B.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most records. (50; all in JSON)")] = None,
    full: Annotated[bool, typer.Option("--full", help="With --json: every value of arrays and keys.")] = False,
    json_: AsJson = False,
) -> None:
    """Show what a party saw, record by record, with the unit of every field."""
    asked, party = party, resolve(run, party)
    sender = None if sender is None else resolve(run, sender)
    span = viewing.parse_records(records) if records else (0, None)
    wanted = viewing.Filter(iteration, kind, sender, *span)
    most = limit if json_ else limit or console.RECORDS_OF_A_PAGE
    chosen = viewing.Selection(viewing.read_view(run, party, full and json_), wanted, most)
    if json_:
        _print_json_rows(_some(chosen, party))
        return
    console.show_records(_some(chosen, party), party if asked == party else f"{asked} ({party})")
    if chosen.next_record is not None:
        further = chosen.count_further(viewing.count_records(run, party))
        given = (("--iteration", iteration), ("--kind", kind), ("--sender", sender), ("--limit", limit))
        flags = [f"{flag} {shlex.quote(str(value))}" for flag, value in given if value is not None]
        place = f"{shlex.quote(str(run))} {party} --records {chosen.next_record}:{span[1] or ''}"
        console.show_further(further, " ".join(["keyhole view", place, *flags]))


def _some(chosen: viewing.Selection, party: str) -> Iterator[dict[str, Any]]:
    """Yield the records of `chosen`; `BadInput` if there is not a single one."""
    yield from chosen
    if not chosen.shown:
        raise BadInput(chosen.nothing(party))


def _print_json_rows(records: Any) -> None:
    """Print one JSON array row by row, because a view may be larger than the memory."""
    first, refused = True, False
    try:
        for record in records:
            print("[" if first else ",", one_line(record), sep="", end="\n")
            first = False
    except BadInput:
        refused = True
        raise
    finally:  # close the array, even if a later record is damaged
        if not refused:
            print("[]" if first else "]")


def _print_findings(found: dict[str, Any], json_: bool, display: Callable[[dict[str, Any]], None]) -> None:
    """Print what was found. The exit code stays the verdict, even if a reader such as head stops reading."""
    try:
        emit(found, json_, display)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reading(run: Path, label: str, quiet: bool) -> Progress:
    """Make a display of the share of the views that has been read."""
    total = sum((run / name).stat().st_size for name in view_files(run))
    return Progress(label, total, PERCENT, quiet=quiet)


def verify(
    run: RunFolder,
    anchor: Annotated[str | None, typer.Option(metavar="HEX", help="The anchor that the run printed.")] = None,
    json_: AsJson = False,
) -> None:
    """Check that views, model and summary are what the parties wrote; findings name file and record."""
    from sim.tables import check_tables
    from sim.views import verify as verifying

    with _reading(run, "verifying", json_) as reading:
        found = verifying.verify(run, anchor, reading.advance)
    _print_findings(found, json_, check_tables.show_verification)
    if not found["verified"]:
        fail(check_tables.sentence_of_findings(found), UNVERIFIED)


def replay(
    run: RunFolder,
    party: Annotated[str | None, typer.Option(metavar="PARTY", help="Only this one. (all that keep a view)")] = None,
    json_: AsJson = False,
) -> None:
    """Run every role again from its view: byte for byte the same, or the first difference."""
    from sim.tables import check_tables
    from sim.views import replay as replaying

    with _reading(run, "replaying", json_) as reading:
        found = replaying.replay(run, None if party is None else resolve(run, party), reading.advance)
    _print_findings(found, json_, check_tables.show_replay)
    if found["identical"]:
        return
    sentence = check_tables.sentence_of_difference(found)
    if found["platform"] == "same" or any(row["broken"] for row in found["parties"]):
        fail(sentence, UNVERIFIED)
    say(sentence)
