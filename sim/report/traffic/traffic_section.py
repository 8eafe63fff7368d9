"""The bytes of the run: by iteration, edge and kind, as they were counted and as the scheme's formula gives them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from protocol.errors import BadInput
from protocol.schemes import Scheme
from protocol.wire.framing import HANDSHAKE
from protocol.wire.messages import SETUP
from sim.console import console
from sim.console.console import size
from sim.folder.traffic import Row, by_kind, edge_of
from sim.report.charts import chart
from sim.report.charts.series import (
    colours,
    draw_stack,
    leading,
    legend_below,
    numbers,
    said,
    steps_of,
    unit_of,
    whole_numbers,
)
from sim.report.reported_run import Document, ReportedRun
from sim.report.section import Section, picture, render
from sim.report.traffic.traffic_bars import draw_bars

MOST_DIFFERENCES = 10


@dataclass(frozen=True)
class Counted:
    rows: list[Row]  # as in `keyhole bandwidth --json`; `predicted_bytes` is None where nothing is predicted
    n: int  # iterations that took place; 0: the scheme has none
    document: Document | None  # of `keyhole bandwidth --json`
    why: str = ""  # why there is no document
    word: str = "measured"  # "counted" in one process, where there was no wire to measure


def section(run: ReportedRun) -> Section:
    counted = count(run)
    edges = edges_of(counted.rows)
    painted = colours(_senders(counted.rows, edge_of))
    sums = by_kind(counted.rows, counted.n)
    charts: list[Markup | None] = []
    if any(0 <= row["iteration"] < counted.n for row in counted.rows):
        kinds = functools.partial(kind_order, run.scheme)
        iterated = [row for row in counted.rows if 0 <= row["iteration"] < counted.n]
        by_sender = colours(_senders(iterated, _kind_of))
        charts.append(_stack(counted, "kind", _kind_of, kinds, by_sender))
        charts.append(_stack(counted, "edge", edge_of, edges.index, painted))
    once = [row for row in sums if row["when"] != "iteration"]
    charts.append(draw_bars("traffic-once", "Wire bytes of the set-up and of the end", once, painted, counted.word))
    each = [row for row in sums if row["when"] == "iteration"]
    charts.append(draw_bars("traffic-each", "Wire bytes of one iteration, mean", each, painted, counted.word))
    html = render("traffic.html", **_words(run, counted), charts=[drawn for drawn in charts if drawn])
    return Section("bandwidth", "Bandwidth", html)


def count(run: ReportedRun) -> Counted:
    """Collect the bytes; of a run that did not complete, what its iterations reported, without a prediction."""
    n = sum(line["iteration"] > SETUP for line in run.lines)
    word = "counted" if run.summary["transport"] == "inprocess" else "measured"
    try:
        document = run.bandwidth
    except BadInput as error:
        return Counted([row for row in run.told_rows if row["iteration"] < n], n, None, str(error), word)
    if document["total"]["predicted_bytes"] is None:
        return Counted(document["rows"], n, None, str(document["prediction_note"]), word)
    return Counted(document["rows"], n, document, word=word)


def edges_of(rows: Sequence[Row]) -> list[str]:
    """List the edges in the same order for every run of a scheme, so that an edge keeps its colour."""
    return sorted({edge_of(row) for row in rows})


def _kind_of(row: Row) -> str:
    return str(row["kind"])


def _senders(rows: Sequence[Row], name: Callable[[Row], str]) -> dict[str, str]:
    """Find for each name the role that sends most of it; the largest comes first and so gets the darkest shade."""
    sums: dict[str, dict[str, int]] = {}
    for row in rows:
        own = sums.setdefault(name(row), {})
        own[row["sender"]] = own.get(row["sender"], 0) + row["wire_bytes"]
    largest = sorted(sums, key=lambda label: (-sum(sums[label].values()), label))
    return {label: max(sums[label], key=lambda role: sums[label][role]) for label in largest}


def kind_order(scheme: Scheme, kind: str) -> int:
    """Rank `kind` as the protocol lists its messages; what is no message comes last."""
    names = [message.__name__ for message in scheme.messages]
    return names.index(kind) if kind in names else len(names)


def by_iteration(rows: Sequence[Row], name: Callable[[Row], str], n: int, figure: str) -> dict[str, list[float]]:
    """Sum `figure` for each name in every iteration, without the set-up and the end."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if 0 <= row["iteration"] < n:
            found.setdefault(name(row), [0.0] * n)[row["iteration"]] += row[figure]
    return found


def _stack(
    counted: Counted,
    by: str,
    name: Callable[[Row], str],
    order: Callable[[str], Any],
    painted: Mapping[str, str],
) -> Markup:
    """Draw the bytes of every iteration as a stack of names; `painted` has a colour for each name."""
    found = by_iteration(counted.rows, name, counted.n, "wire_bytes")
    stack = leading({label: found[label] for label in sorted(found, key=order)})
    steps = steps_of(counted.n)
    largest = max((sum(values) for values in zip(*stack.values(), strict=True)), default=0.0)
    scale, unit = unit_of(largest)
    made, axes = chart.new_figure("iteration", f"wire bytes ({unit})", height=4.2)
    tops = draw_stack(axes, steps, stack, scale, painted)
    columns: dict[str, Any] = {label: _rounded(steps.mean(values)) for label, values in stack.items()}
    columns[counted.word] = _rounded(tops)
    if counted.document is not None:
        predicted = by_iteration(counted.rows, lambda row: "predicted", counted.n, "predicted_bytes")["predicted"]
        line = [value or 0.0 for value in steps.mean(predicted)]
        axes.stairs(
            [value / scale for value in line], steps.edges, baseline=None, color=chart.INK, linewidth=1.4,
            linestyle=(0, (4, 2)), label="predicted, in all",
        )  # fmt: skip
        columns["predicted"] = _rounded(line)
    whole_numbers(axes)
    legend_below(made, axes)
    rows, thinned = numbers(steps, list(columns.values()))
    words = said(
        _main_part(stack, counted.n, by), steps.words, thinned, "The set-up and the end have a chart of their own.",
        "A hue says who sends.",
    )
    title = f"Wire bytes by iteration and {by}"
    return picture(made, f"traffic-{by}", title, words, ["iteration", *(f"{label}, bytes" for label in columns)], rows)


def _rounded(values: Sequence[float | None]) -> list[str]:
    return ["not known" if value is None else f"{round(value):,}" for value in values]


def _main_part(stack: dict[str, list[float]], n: int, by: str) -> str:
    sums = {label: sum(values) for label, values in stack.items()}
    whole, most = sum(sums.values()), max(sums, key=lambda label: sums[label])
    if not whole:
        return "No bytes were sent in the iterations."
    share = f"{100 * sums[most] / whole:.0f} % of them"
    what = "are messages of the kind" if by == "kind" else "go from"
    return f"{size(whole / n)} in a mean iteration; {share} {what} {most.replace(' → ', ' to ')}."


# --- in words --------------------------------------------------------------------------------------------------------


def _words(run: ReportedRun, counted: Counted) -> dict[str, Any]:
    rows = counted.rows
    wire, payload = (sum(row[name] for row in rows) for name in ("wire_bytes", "payload_bytes"))
    hands = sum(row["wire_bytes"] for row in rows if row["kind"] == HANDSHAKE)
    parts = {
        "set-up": sum(row["wire_bytes"] for row in rows if row["iteration"] == SETUP),
        "iterations": sum(row["wire_bytes"] for row in rows if 0 <= row["iteration"] < counted.n),
        "end": sum(row["wire_bytes"] for row in rows if row["iteration"] >= counted.n),
    }
    return {
        "match": None if counted.document is None else counted.document["match"],
        "sentences": _compared(counted),
        "differences": [] if counted.document is None else counted.document["differences"][:MOST_DIFFERENCES],
        "parts": parts,
        "n": counted.n,
        "wire": wire,
        "overhead": {"payload": payload, "handshakes": hands, "rest": wire - payload - hands},
        "apart": [] if counted.document is None else _apart(counted.document),
    }


def _compared(counted: Counted) -> list[str]:
    """Compare the predicted bytes, the measured bytes and the kernel's own count in words."""
    if counted.document is None:
        return [f"Nothing is predicted beside what was counted. {counted.why}"]
    total, document = counted.document["total"], counted.document
    wire, predicted, kernel = (total[name] for name in ("wire_bytes", "predicted_bytes", "kernel_bytes"))
    extra = total["apart_bytes"] + total["undelivered_bytes"] + total["lost_bytes"]
    told = f"{wire:,} bytes in all were {'counted as for a wire' if counted.word == 'counted' else 'measured'}"
    as_predicted = wire == predicted and all(row["wire_bytes"] == row["predicted_bytes"] for row in counted.rows)
    if not as_predicted:
        places = console.counted(len(document["differences"]), "place")
        head = f"{told}, and the formula gives {predicted:,}: they differ in {places}."
    elif not document["match"]:
        return [f"{told}, and the formula gives as many, row by row; the kernel counted {kernel:,}."]
    elif kernel == wire:
        return [f"Predicted = measured = kernel, to the byte: {told}, row by row the same."]
    elif kernel is not None and extra:
        head = f"Predicted = {counted.word}, to the byte: {told}, row by row the same."
        return [head, f"The kernel counted {kernel:,}: the same, with what was apart from the protocol's course."]
    else:
        head = f"Predicted = {counted.word}, to the byte: {told}, row by row the same."
    if kernel is None:
        return [head, f"The kernel's count is not known: {document['kernel_note'] or 'no reason is recorded.'}"]
    return [head, f"The kernel counted {kernel:,}."]


def _apart(document: Document) -> list[str]:
    """List the bytes that the charts leave out, or include although they never left."""
    total, note = document["total"], document["apart_note"] or ""
    found = []
    if total["apart_bytes"]:
        what = "were apart from the protocol's course (sent again, refused, further connections): not in the charts."
        found.append(said(f"{total['apart_bytes']:,} more bytes {what}", note))
    if total["undelivered_bytes"]:
        found.append(f"{total['undelivered_bytes']:,} bytes of the course did not leave, as their receivers had gone.")
    if total["lost_bytes"]:
        lost = "were handed over just when their receiver closed, and sent again."
        found.append(f"{total['lost_bytes']:,} bytes {lost}")
    return found
