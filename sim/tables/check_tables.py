"""Print the results of `keyhole verify` and `keyhole replay`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from sim.console.console import err, out, plain_table
from sim.foreign.untrusted import view_files

MOST_ROWS = 20


class ReadingProgress:
    """A progress bar over the bytes of all views, shown only on a terminal."""

    def __init__(self, folder: Path, what: str, enabled: bool) -> None:
        self._progress: Progress | None = None
        if enabled and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._progress = Progress(*columns, console=err, transient=True)
            total = sum((folder / name).stat().st_size for name in view_files(folder))
            self._task = self._progress.add_task(what, total=total)

    def __enter__(self) -> ReadingProgress:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._progress:
            self._progress.stop()

    def __call__(self, count: int) -> None:
        if self._progress:
            self._progress.advance(self._task, count)


def show_verification(found: dict[str, Any]) -> None:
    read = f"{found['views']} views with {found['records']} records"
    if found["findings"]:
        table = plain_table(f"Findings in {read}", "file", "record", "what")
        for row in found["findings"][:MOST_ROWS]:
            number = "" if row["record"] is None else str(row["record"])
            table.add_row(escape(row["file"]), number, escape(row["what"]))
        out.print(table)
        _count_the_rest(found["findings"])
    else:
        nothing = "so only the other files were checked: they fit"
        out.print(f"{read}, {'and everything that was checked fits' if found['views'] else nothing}.")
    for note in found["notes"][:MOST_ROWS]:
        out.print(f"Note: {note}", markup=False)
    _count_the_rest(found["notes"])
    out.print(f"Not covered: {'; '.join(found['not_covered'])}.", markup=False)
    known = {True: "the one given", False: "not the one given", None: "compare it with the one that the run printed"}
    out.print(f"anchor  {found['anchor'] or 'none'} ({known[found['anchor_matches']]})", soft_wrap=True)


def _count_the_rest(rows: list[Any]) -> None:
    if len(rows) > MOST_ROWS:
        out.print(f"… and {len(rows) - MOST_ROWS} more: --json has all of them.")


def sentence_of_findings(found: dict[str, Any]) -> str:
    count, first = len(found["findings"]), found["findings"][0]
    where = first["file"] if first["record"] is None else f"{first['file']}, record {first['record']},"
    rest = "" if count == 1 else f" (the first of {count} findings)"
    return f"{found['run']} does not verify: {where} {first['what']}{rest}."


def show_replay(found: dict[str, Any]) -> None:
    rows = found["parties"]
    other = [row for row in rows if not row["identical"]]
    records, frames = sum(row["records"] for row in rows), sum(row["frames"] for row in rows)
    done = f"{len(rows)} of {len(rows)} views" if not other else f"{len(rows) - len(other)} of {len(rows)} views"
    out.print(f"{done} replay to the same bytes: {records} records, {frames} frames sent.")
    stopped = sum(row["identical"] and not row["ended"] for row in rows)
    if stopped:
        out.print(f"{stopped} of them stop before their end and were replayed as far as they go.")
    if not other:
        return
    table = plain_table("First differences", "party", "record", "kind", "recorded", "derived", "what")
    for row in other[:MOST_ROWS]:
        first = row["first_difference"]
        digests = [(first[side] or "–")[:12] for side in ("recorded", "derived")]
        table.add_row(row["party"], str(first["record"]), escape(first["kind"] or "–"), *digests, escape(first["what"]))
    out.print(table)
    _count_the_rest(other)


def sentence_of_difference(found: dict[str, Any]) -> str:
    broken = [row for row in found["parties"] if row["broken"]]
    row = (broken or [row for row in found["parties"] if not row["identical"]])[0]
    first = row["first_difference"]
    if found["platform"] == "other" and not broken:
        return f"Other platform, differs first at {row['party']}, record {first['record']} ({first['kind']})."
    digests = f": recorded {first['recorded']}, derived {first['derived']}" if first["derived"] else ""
    return f"{found['run']} does not replay: {row['party']}, record {first['record']}, {first['what']}{digests}."
