"""Print the result of `keyhole pair`: what one changed rating changes in whose view, and what it is worth to whom."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from sim.audit.pairs.exposure import accounted_of
from sim.console.console import count_the_rest, figure, out, plain_table

MOST_RECORDS = 30


def show_pair(found: dict[str, Any]) -> None:
    out.print(f"{found['pair']['words']}: the same tapes and events, run again.", markup=False)
    records = found["records"]
    records.sort(key=lambda row: (not row["leak"], row["iteration"]))
    table = plain_table("What differs in whose view, leaks first", "t", "view of", "record", "what", "rows", "most")
    for row in records[:MOST_RECORDS]:
        where = f"{row['kind']}.{row['field']}" if row["field"] else row["kind"]
        what = where if row["what"] == "values" else f"{where}: {row['what']}"
        rows = f"{row['rows']} of {row['of']}" if row["of"] else ""
        size = figure(row["largest"]) if row["largest"] is not None else ""
        cells = (row["iteration"], row["party"], row["record"], what, rows, size)
        table.add_row(*(escape(str(cell)) for cell in cells), style="bold red" if row["leak"] else None)
    out.print(table)
    count_the_rest(records, MOST_RECORDS)
    if not found["leaks"]:
        out.print("Only values of numbers differ: no kind, length, count or order of messages, and no other field.")
    for row in found["leaks"]:
        out.print(f"[bold red]Leak[/]: the rating decides {escape(row['words'])} ({row['times']} times).")
    if found["shift"] and found["shift"]["by_iteration"]:
        by_time = found["shift"]["by_iteration"]
        first, largest = by_time[min(by_time)], max(by_time.values())
        out.print(
            f"What noise protects moves by {figure(first)} of {found['shift']['unit']} in the first release, and by "
            f"{figure(largest)} at most."
        )
    show_losses(found["epsilon"], "ε of this pair, exactly")


def show_losses(rows: list[dict[str, Any]], title: str) -> None:
    """Print the ε of pairs to coalitions, beside what is accounted."""
    if not rows:
        return
    last = "if constant noise is known", "accounted so", "accounted, constant noise counted on"
    table = plain_table(title, "to whom", "what differs", "ε of the pair", "at δ", *last)
    for row in rows:
        known = row.get("epsilon_given_constant_noise")
        table.add_row(
            escape(" + ".join(row["coalition"])),
            escape(row.get("pair") or "one rating, lowest against highest"),
            figure(row["epsilon"]),
            f"{row['delta']:g}",
            "" if known is None else figure(known),
            *(" to ".join(map(figure, pair)) for pair in accounted_of(row)),
        )
    out.print(table)
