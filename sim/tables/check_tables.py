"""Print the results of `keyhole verify` and `keyhole replay`."""

from __future__ import annotations

from typing import Any

from sim.console.console import count_the_rest, out, print_table

MOST_ROWS = 20


def show_verification(found: dict[str, Any]) -> None:
    read = f"{found['views']} views with {found['records']} records"
    if found["findings"]:
        rows = [
            (row["file"], "" if row["record"] is None else row["record"], row["what"])
            for row in found["findings"][:MOST_ROWS]
        ]
        print_table(f"Findings in {read}", ("file", "record", "what"), rows)
        count_the_rest(found["findings"], MOST_ROWS)
    else:
        nothing = "so only the other files were checked: they fit"
        out.print(f"{read}, {'and everything that was checked fits' if found['views'] else nothing}.")
    for note in found["notes"][:MOST_ROWS]:
        out.print(f"Note: {note}", markup=False)
    count_the_rest(found["notes"], MOST_ROWS)
    out.print(f"Not covered: {'; '.join(found['not_covered'])}.", markup=False)
    known = {True: "the one given", False: "not the one given", None: "compare it with the one that the run printed"}
    out.print(f"anchor  {found['anchor'] or 'none'} ({known[found['anchor_matches']]})", soft_wrap=True)


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
        out.print(f"{stopped} of them stop before their end and were replayed up to there.")
    if not other:
        return
    cells = []
    for first in (row["first_difference"] for row in other[:MOST_ROWS]):
        digests = [(first[side] or "–")[:12] for side in ("recorded", "derived")]
        cells.append((first["party"], first["record"], first["kind"] or "–", *digests, first["what"]))
    print_table("First differences", ("party", "record", "kind", "recorded", "derived", "what"), cells)
    count_the_rest(other, MOST_ROWS)


def sentence_of_difference(found: dict[str, Any]) -> str:
    broken = [row for row in found["parties"] if row["broken"]]
    row = (broken or [row for row in found["parties"] if not row["identical"]])[0]
    first = row["first_difference"]
    if found["platform"] == "other" and not broken:
        return f"Other platform, differs first at {row['party']}, record {first['record']} ({first['kind']})."
    digests = f": recorded {first['recorded']}, derived {first['derived']}" if first["derived"] else ""
    return f"{found['run']} does not replay: {row['party']}, record {first['record']}, {first['what']}{digests}."
