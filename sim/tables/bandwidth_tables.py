"""Print the results of `keyhole bandwidth`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from rich.markup import escape
from rich.text import Text

from sim.console.console import count_the_rest, duration, length, out, print_table, size
from sim.folder.traffic import Row, chosen_rows, edge_of

Cells = dict[str, dict[str, float]]  # sender, receiver

MOST_ROWS = 20
_WHEN = {"set-up": "Set-up", "iteration": "Iteration, mean", "end": "At the end"}


def show(document: dict[str, Any]) -> None:
    """Print one screen: everything, or only the table that was asked for."""
    _show_head(document)
    if "projection" in document:
        _show_prediction(document)
    elif "run_wire" in document:
        _show_other_wire(document)
    else:
        _show_run(document)


def _show_run(document: dict[str, Any]) -> None:
    _show_match(document)
    if _asks_for_rows(document):
        _show_rows(document)
        return
    _show_kinds(document["kinds"], measured=True)
    how = "counted" if document["transport"] == "inprocess" else "measured"
    _show_matrix(document["matrix"], document["setup_matrix"], how)
    _show_user(document["per_user_iteration"], f"{how}, medians and maxima over users and iterations")
    _show_paper(document["paper"])
    _show_apart(document["apart"], document["apart_note"])


def _show_prediction(document: dict[str, Any]) -> None:
    _show_basis(document)
    if _asks_for_rows(document):
        _show_rows(document)
        return
    _show_kinds(document["kinds"], measured=False)
    _show_matrix(document["matrix"], document["setup_matrix"], "predicted")
    _show_user(document["per_user_iteration"], "predicted, median and largest user who takes part")
    _show_projection(document["projection"])
    _show_paper(document["paper"])


def _show_other_wire(document: dict[str, Any]) -> None:
    """Print the bytes that this run would have taken in the other wire form."""
    own, other, total = document["run_wire"], document["wire"], document["total"]
    words = f"{total['predicted_bytes']:,} bytes by formula with --wire {other}, for the same users and iterations; "
    out.print(f"{words}{total['run_bytes']:,} were counted in this run, with {own}.")
    _show_supports(document)
    if _asks_for_rows(document):
        _show_rows(document)
        return
    title = f"Wire bytes, {own} as counted and {other} by formula (iterations: mean of one)"
    rows = []
    for row in document["edges"]:
        ratio = f"{row['predicted_bytes'] / row['run_bytes']:.3g}" if row["run_bytes"] else "–"
        rows.append((row["when"], edge_of(row), _amount(row["run_bytes"]), _amount(row["predicted_bytes"]), ratio))
    columns = ("when", "from → to", own, other, f"{other} / {own}")
    print_table(title, columns, rows, numbers=3, narrow=True)
    _show_kinds(document["kinds"], measured=False)


def _show_supports(document: dict[str, Any]) -> None:
    """Print a note if the items that users rated are taken from the views."""
    if document["supports"]["from"] == "views":
        note = document["supports"]["note"]
        out.print(f"{note} What each user rated is from the views instead.", markup=False, soft_wrap=True)


def _asks_for_rows(document: dict[str, Any]) -> bool:
    return bool(document["by"] or document["chosen"]["top"])


def _show_head(document: dict[str, Any]) -> None:
    ring = [f"{document['ring_bits']} ring bits"] if document["paper"] else []  # has a third party
    forms = [f"wire {document['wire']}", *ring]
    if document["factorizes"]:
        forms.append(f"{document['factor_bits']}-bit factors")
    turns = length(document["factorizes"], document["iterations"], document["dim"])
    out.print(
        f"[bold]{escape(document['scheme'])}[/] on {escape(document['data'])}: {document['users']:,} users, "
        f"{document['items']:,} items, {turns}; {', '.join(forms)}"
    )


def _show_match(document: dict[str, Any]) -> None:
    total = document["total"]
    where = "on the wire were counted" if document["transport"] != "inprocess" else "were counted as for a wire"
    said = f"{total['wire_bytes']:,} bytes {where}"
    if total["predicted_bytes"] is not None:
        said += f", the formula gives {total['predicted_bytes']:,}"
    if total["undelivered_bytes"]:
        said += f"; {total['undelivered_bytes']:,} of them did not leave, as their receivers had gone"
    if total["apart_bytes"]:
        said += f"; {total['apart_bytes']:,} more are apart from the protocol's course"
    if total["lost_bytes"]:
        said += f"; {total['lost_bytes']:,} were handed over just when their receiver closed, and sent again"
    if total["kernel_bytes"] is not None:
        said += f"; the kernel counted {total['kernel_bytes']:,} in all"
    out.print(f"{said}.")
    _show_supports(document)
    if total["kernel_bytes"] is None:
        why = document["kernel_note"] or "no reason is recorded"
        out.print(f"The kernel's count is not known: {why}", markup=False)
    if document["prediction_note"] is not None:
        out.print(f"Not predicted: {document['prediction_note']}", markup=False)
    if document["prediction_note"] is not None and not document["differences"]:
        return
    if document["match"]:
        agree = "Count and formula are equal"
        kernel = ", and the kernel agrees on every connection" if document["kernel_match"] else ""
        out.print(f"[bold green]{agree}[/], row by row{kernel}.")
        return
    out.print(f"[bold red]They differ[/] in {len(document['differences'])} places:")
    for sentence in document["differences"][:MOST_ROWS]:
        out.print(f"  {sentence}", markup=False)
    count_the_rest(document["differences"], MOST_ROWS)


def _show_basis(document: dict[str, Any]) -> None:
    total = document["total"]["predicted_bytes"]
    online = document["online"]
    if document["basis"] == "exact":
        out.print(f"Predicted, exactly: {total:,} bytes on the wire in all. Nothing was run.")
    else:
        present = f"{online['present']:,.1f} users online and {online['invited']:,.1f} invited on average"
        out.print(f"Predicted, an expectation: {size(total)} on the wire in all, {present}. Nothing was run.")
    for note in document["notes"]:
        out.print(note, markup=False)


def _show_kinds(rows: Iterable[Row], measured: bool) -> None:
    columns = ("kind", "from → to", "messages", *(("measured",) if measured else ()), "predicted")
    cells: list[Sequence[Any] | None] = []
    for when, of_phase in itertools.groupby(rows, key=lambda row: row["when"]):
        cells += [None, [Text(_WHEN[when], "bold")]]
        for row in of_phase:
            figures = [row["messages"], *([row["wire_bytes"]] if measured else []), row["predicted_bytes"]]
            cells.append([row["kind"], edge_of(row), *map(_amount, figures)])
    print_table("Wire bytes by kind", columns, cells, numbers=len(columns) - 2, whole=1, narrow=True)


def _show_matrix(cells: Cells | None, setup: Cells | None, how: str) -> None:
    title = f"Wire bytes of an iteration from the left to the top ({how}, mean)"
    if cells is None:
        title, cells = f"Wire bytes of the set-up from the left to the top ({how})", setup or {}
    rows = [(sender, *(_amount(n) if n else "" for n in receivers.values())) for sender, receivers in cells.items()]
    print_table(title, ("", *cells), rows, numbers=len(cells))


def _show_user(figures: dict[str, Any] | None, how: str) -> None:
    if figures is None or figures["down_max"] is None:
        return
    pairs = ((way, _amount(figures[f"{way}_median"]), _amount(figures[f"{way}_max"])) for way in ("down", "up"))
    ways = [f"{median} (largest {most}) {way}" for way, median, most in pairs]
    out.print(f"One user in one iteration: {', '.join(ways)} bytes ({how}).")


def _show_paper(comparison: dict[str, Any] | None) -> None:
    if comparison is None:
        return
    sizes = f"{comparison['items_per_user']} items at dim {comparison['dim']}, {comparison['items']:,} items in all"
    title = f"Beside the paper ({comparison['source']}): {sizes}, {comparison['ring_bits']} ring bits"
    columns, names = ("the paper", "--wire paper", "--wire compact"), ("paper", "wire_paper", "wire_compact")
    rows = [(row["what"], *(_amount(row[name]) for name in names)) for row in comparison["rows"]]
    print_table(title, ("bytes per iteration", *columns), rows, numbers=3)
    for row in comparison["rows"]:
        out.print(f"{row['what'].capitalize()}: {row['why']}", markup=False)
    out.print(f"({comparison['basis']})")


def _show_apart(rows: list[Row], note: str | None) -> None:
    """Print the sums of `rows` by role; the JSON has them by party."""
    if note:
        out.print(f"Apart from the protocol's own course: {note}", markup=False)
    if not rows:
        return
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        key = (row["what"], row["sender"].partition(":")[0], row["receiver"].partition(":")[0])
        entry = sums.setdefault(key, [0, 0])
        entry[0] += row["messages"]
        entry[1] += row["wire_bytes"]
    cells = [(what, f"{end} → {other}", *map(_amount, amounts)) for (what, end, other), amounts in sorted(sums.items())]
    print_table("Apart from the protocol's own course", ("what", "from → to", "messages", "wire"), cells, numbers=2)


def _show_projection(figures: dict[str, Any]) -> None:
    seconds, servers = figures["iteration_seconds"], figures["servers"]
    title = f"Totals of each server, an iteration every {seconds:g} s"
    rows = [
        (f"{way} {when}", *(size(row[f"{way}_{name}"]) for row in servers.values()))
        for way in ("sent", "received")
        for when, name in (("in the set-up", "setup"), ("per iteration", "per_iteration"), ("per day", "per_day"))
    ]
    print_table(title, ("", *servers), rows, numbers=len(servers))
    if figures["links"]:
        rows = []
        for row in figures["links"]:
            names = (f"{name}_seconds" for name in ("down", "up", "iteration"))
            cells = ((duration(row[f"{name}_{what}"], ".3g") for what in ("median", "max")) for name in names)
            rows.append((row["name"], *(f"{median} ({most})" for median, most in cells)))
        columns = ("link", "down", "up", "least in all")
        print_table("Time of one user in an iteration, median (largest)", columns, rows)
        out.print(f"{figures['formula']}.", markup=False)
    out.print(f"Assumed: {' '.join(figures['assumptions'])}", markup=False)
    for warning in figures["warnings"]:
        out.print(warning, markup=False)


def _show_rows(document: dict[str, Any]) -> None:
    """Print the rows; by party only the largest, unless a number was asked for. Only JSON and CSV have the payload."""
    by, chosen = document["by"], document["chosen"]
    many = by == "party" and chosen["party"] is None and chosen["top"] is None
    rows = chosen_rows(document["rows"], None, MOST_ROWS)["rows"] if many else document["rows"]
    measured = any(row["wire_bytes"] is not None for row in rows)
    labels = ["when", "from → to", "kind"][: {"iteration": 1, "edge": 2}.get(by, 3)]
    columns = ("messages", *(("measured",) if measured else ()), "predicted")
    title = f"Wire bytes by {by}" if by else "Wire bytes"
    largest = f", the {len(rows)} largest rows" if len(rows) < chosen["of"] else ""
    names = ("messages", *(("wire_bytes",) if measured else ()), "predicted_bytes")
    cells: list[Sequence[Any] | None] = []
    for row in rows:
        own = [_when(row["iteration"], document["iterations"]), edge_of(row), row["kind"] or ""][: len(labels)]
        cells.append([*own, *(_amount(row[name]) for name in names)])
    cells += [None, ["total", *[""] * (len(labels) - 1), *(_amount(chosen[name]) for name in names)]]
    print_table(f"{title}{largest}", (*labels, *columns), cells, numbers=len(columns), narrow=True)
    if len(rows) < chosen["of"]:
        left = chosen["of"] - len(rows)
        out.print(f"{left:,} smaller rows are not shown: --top {chosen['of']} shows all, and so do --json and --csv.")


def _when(iteration: int | None, iterations: int) -> str:
    if iteration is None:
        return "iterations"
    return "set-up" if iteration < 0 else "end" if iteration >= iterations else str(iteration)


def _amount(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count:,.0f}" if round(count, 6) == round(count) or abs(count) >= 1000 else f"{count:,.1f}"


