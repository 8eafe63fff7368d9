"""What people read of `keyhole bandwidth`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.markup import escape
from rich.table import Table

from sim.show import out, plain_table, size
from sim.traffic import COLUMNS, Row, when_of

Cells = dict[str, dict[str, float]]  # sender, receiver

MOST_ROWS = 20
_WHEN = {"set-up": "set-up", "iteration": "each iteration", "end": "end"}


def show_run(document: dict[str, Any]) -> None:
    """One screen: all of it, or the one table that was asked for."""
    _show_head(document)
    _show_match(document)
    if document["by"]:
        _show_rows(document["rows"], document["by"])
        return
    _show_kinds(document["kinds"], measured=True)
    _show_matrix(document["matrix"], document["setup_matrix"], "measured")
    _show_user(document["per_user_iteration"], "measured, medians and maxima over users and iterations")
    _show_paper(document["paper"])
    _show_apart(document["apart"])


def show_prediction(document: dict[str, Any]) -> None:
    _show_head(document)
    _show_basis(document)
    if document["by"]:
        _show_rows(document["rows"], document["by"])
        return
    _show_kinds(document["kinds"], measured=False)
    _show_matrix(document["matrix"], document["setup_matrix"], "predicted")
    _show_user(document["per_user_iteration"], "predicted, median and largest user who takes part")
    _show_projection(document["projection"])
    _show_paper(document["paper"])


def _show_head(document: dict[str, Any]) -> None:
    forms = [f"wire {document['wire']}", f"{document['ring_bits']} ring bits", f"{document['factor_bits']}-bit factors"]
    out.print(
        f"[bold]{escape(document['scheme'])}[/] on {escape(document['data'])}: {document['users']:,} users, "
        f"{document['items']:,} items, {document['iterations']:,} iterations, dim {document['dim']}; {', '.join(forms)}"
    )


def _show_match(document: dict[str, Any]) -> None:
    total = document["total"]
    said = f"{total['wire_bytes']:,} bytes on the wire were counted, the formula gives {total['predicted_bytes']:,}"
    if total["apart_bytes"]:
        said += f"; {total['apart_bytes']:,} more are apart from the protocol's course"
    if total["kernel_bytes"] is not None:
        said += f"; the kernel counted {total['kernel_bytes']:,} in all"
    out.print(f"{said}.")
    if total["kernel_bytes"] is None:
        out.print(f"The kernel's count is not known: {document['kernel_note'] or 'nobody said why'}", markup=False)
    if document["match"]:
        agree = "All of them are equal" if total["kernel_bytes"] is not None else "Both are equal"
        out.print(f"[bold green]{agree}[/], row by row.")
        return
    out.print(f"[bold red]They differ[/] in {len(document['differences'])} places:")
    for sentence in document["differences"][:MOST_ROWS]:
        out.print(f"  {sentence}", markup=False)
    _count_the_rest(document["differences"])


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
    columns = ("from → to", "kind", "when", "messages", "payload", *(("measured",) if measured else ()), "predicted")
    table = _numbers(plain_table("Wire bytes by edge and kind (means of the iterations)", *columns), 3)
    for row in _setup_together(rows):
        figures = [row["payload_bytes"], *([row["wire_bytes"]] if measured else []), row["predicted_bytes"]]
        edge = f"{row['sender']} → {row['receiver']}"
        table.add_row(edge, escape(row["kind"]), _WHEN[row["when"]], _amount(row["messages"]), *map(_amount, figures))
    out.print(table)


def _setup_together(rows: Iterable[Row]) -> list[Row]:
    """One row for each edge of the set-up, so that the table fits a screen; `--by kind` has them one by one."""
    together: dict[tuple[str, str], Row] = {}
    shown = []
    for row in rows:
        if row["when"] != "set-up":
            shown.append(row)
            continue
        edge = (row["sender"], row["receiver"])
        known = together.get(edge)
        if known is None:
            together[edge] = dict(row)
            continue
        known["kind"] += f", {row['kind']}"
        for name in COLUMNS[4:]:
            known[name] = None if row[name] is None else known[name] + row[name]
    return [*together.values(), *shown]


def _show_matrix(cells: Cells | None, setup: Cells | None, how: str) -> None:
    title = f"Wire bytes of an iteration from the left to the top ({how}, mean)"
    if cells is None:
        title, cells = f"Wire bytes of the set-up from the left to the top ({how})", setup or {}
    table = _numbers(plain_table(title, "", *cells), 1)
    for sender, receivers in cells.items():
        table.add_row(sender, *(_amount(count) if count else "" for count in receivers.values()))
    out.print(table)


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
    table = _numbers(plain_table(title, "bytes per iteration", "the paper", "--wire paper", "--wire compact"), 1)
    for row in comparison["rows"]:
        table.add_row(row["what"], *(_amount(row[name]) for name in ("paper", "wire_paper", "wire_compact")))
    out.print(table)
    for row in comparison["rows"]:
        out.print(f"{row['what'].capitalize()}: {row['why']}", markup=False)
    out.print(f"({comparison['basis']})")


def _show_apart(rows: list[Row]) -> None:
    """By role: the parties are in the JSON."""
    if not rows:
        return
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        key = (row["what"], row["sender"].partition(":")[0], row["receiver"].partition(":")[0])
        entry = sums.setdefault(key, [0, 0])
        entry[0] += row["messages"]
        entry[1] += row["wire_bytes"]
    table = _numbers(plain_table("Apart from the protocol's own course", "what", "from → to", "messages", "wire"), 2)
    for (what, sender, receiver), (messages, wire) in sorted(sums.items()):
        table.add_row(escape(what), f"{sender} → {receiver}", _amount(messages), _amount(wire))
    out.print(table)


def _show_projection(figures: dict[str, Any]) -> None:
    seconds = figures["iteration_seconds"]
    columns = [f"{way}, {when}" for way in ("sent", "received") for when in ("set-up", "per iteration", "per day")]
    table = _numbers(plain_table(f"Totals of each server, an iteration every {seconds:g} s", "server", *columns), 1)
    for server, row in figures["servers"].items():
        names = (f"{way}_{when}" for way in ("sent", "received") for when in ("setup", "per_iteration", "per_day"))
        table.add_row(server, *(size(row[name]) for name in names))
    out.print(table)
    if figures["links"]:
        table = plain_table("Time of one user in an iteration, median (largest)", "link", "down", "up", "least in all")
        for row in figures["links"]:
            names = (f"{name}_seconds" for name in ("down", "up", "iteration"))
            cells = ((row[f"{name}_median"], row[f"{name}_max"]) for name in names)
            table.add_row(escape(row["name"]), *(f"{_time(median)} ({_time(most)})" for median, most in cells))
        out.print(table)
        out.print(f"{figures['formula']}.", markup=False)
    out.print(f"Assumed: {' '.join(figures['assumptions'])}", markup=False)
    for warning in figures["warnings"]:
        out.print(warning, markup=False)


def _show_rows(rows: list[Row], by: str) -> None:
    shown = [name for name in COLUMNS if any(row[name] is not None for row in rows) or name == "iteration"]
    table = plain_table(f"By {by}", *(name.replace("_", " ") for name in shown))
    _numbers(table, sum(name in COLUMNS[:4] for name in shown))
    for row in rows:
        cells = {name: "" if row[name] is None else str(row[name]) for name in COLUMNS[1:4]}
        cells |= {name: "" if row[name] is None else _amount(row[name]) for name in COLUMNS[4:]}
        cells["iteration"] = when_of(row["iteration"])
        table.add_row(*(escape(cells[name]) for name in shown))
    out.print(table)


def _numbers(table: Table, first: int) -> Table:
    """Right-aligned from that column on."""
    for column in table.columns[first:]:
        column.justify = "right"
    return table


def _amount(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count:,.0f}" if round(count, 6) == round(count) or abs(count) >= 1000 else f"{count:,.1f}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _count_the_rest(rows: list[Any]) -> None:
    if len(rows) > MOST_ROWS:
        out.print(f"… and {len(rows) - MOST_ROWS} more: --json has all of them.")
