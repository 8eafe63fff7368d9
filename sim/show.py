"""What people read: tables on stdout, progress on stderr and only on a terminal."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from protocol.schemes import Scheme

RECORDS_OF_A_PAGE = 50


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # a reader such as head has seen enough; that is no error of ours


out = _Console(highlight=False)
err = Console(stderr=True, highlight=False)


class Live:
    """A progress bar with the latest iteration's seconds, training error and bytes."""

    def __init__(self, enabled: bool) -> None:
        self._progress: Progress | None = None
        if enabled and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, TextColumn("{task.fields[figures]}"), console=err, transient=True)

    def start(self, iterations: int) -> None:
        if self._progress:
            self._progress.start()
            self._task = self._progress.add_task("iterations", total=iterations, figures="starting the actors")

    def line(self, line: dict[str, Any]) -> None:
        if self._progress:
            error = "" if line["train_mae"] is None else f" · train MAE {line['train_mae']:.3f}"
            figures = f"{number(line['seconds'])} s{error} · {size(line['bytes'])}"
            self._progress.update(self._task, completed=line["iteration"] + 1, figures=figures)

    def stop(self) -> None:
        if self._progress:
            self._progress.stop()


def number(value: Any, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def figure(epsilon: Any) -> str:
    """An ε to three digits; infinity is a text already."""
    if epsilon is None or isinstance(epsilon, str):
        return epsilon or "–"
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{epsilon:.0f}"


def size(count: float | None) -> str:
    if count is None:
        return "–"
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count:.0f} B"


def plain_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def show_summary(summary: dict[str, Any], scheme: Scheme, show_verdict: Callable[[], bool]) -> None:
    """`show_verdict`: the audit's, per party; False: there is none."""
    processes = ", ".join(f"{count} {role}" for role, count in summary["processes"].items())
    out.print(
        f"[bold]{summary['scheme']}[/] on {summary['data']}: {summary['users']} users, {summary['items']} items, "
        f"{length(scheme.factorizes, summary['iterations'], summary['dim'])}; processes: {processes}"
    )
    seed = f"seed {summary['seed']}"
    out.print(f"{seed} (given: simulation, not private)" if summary["simulation"] else f"{seed} (fresh)")
    for note in summary["notes"]:
        out.print(note)
    if not summary["completed"]:
        out.print(f"[bold red]aborted[/]: {summary['abort']['sentence']}")
        out.print(f"anchor        {summary['anchor'] or 'none'} (so far)")
        return
    _show_accuracy(summary, "plain" if scheme.factorizes else "without protection")
    _show_bytes(summary)
    _show_disturbances(summary)
    if not show_verdict():
        _show_parties(scheme)
    _show_privacy(summary["privacy"])
    out.print(f"item factors  {summary['item_factors_sha256']}")
    out.print(f"anchor        {summary['anchor'] or 'none: no views were kept'}")
    if len(summary["views"]) == summary["users"] + len(scheme.servers):
        out.print(f"Audit:        keyhole audit {summary['run']}", soft_wrap=True, markup=False)
    out.print(f"Bytes:        keyhole bandwidth {summary['run']}", soft_wrap=True, markup=False)
    out.print(f"Page:         keyhole report {summary['run']}", soft_wrap=True, markup=False)
    if summary["views"]:
        out.print(f"See more:     keyhole view {summary['run']} {max(summary['views'])}", soft_wrap=True, markup=False)


def length(factorizes: bool, iterations: int, dim: int) -> str:
    if factorizes:
        return f"{iterations:,} iterations, dim {dim}"
    return "one round" if iterations == 1 else f"{iterations} rounds"


def _show_disturbances(summary: dict[str, Any]) -> None:
    """What went wrong and was mended, if anything did."""
    told = []
    if summary["restarts"]:
        told.append(f"{summary['restarts']} restarts of processes")
    if summary["gone"]:
        told.append(f"{len(summary['gone'])} users gone for good")
    for what, counts in (("frames refused", summary["rejected"]), ("strangers turned away", summary["strangers"])):
        if counts:
            told.append(f"{sum(counts.values())} {what} ({', '.join(f'{n} {kind}' for kind, n in counts.items())})")
    if told:
        out.print(f"Disturbed: {'; '.join(told)}.", markup=False)


def _show_accuracy(summary: dict[str, Any], beside: str) -> None:
    accuracy = summary["accuracy"]
    table = plain_table("Accuracy (measured)", "", summary["scheme"], beside)
    plain = accuracy["plain"]
    table.add_row("train MAE", number(accuracy["train_mae"]), number(plain["train_mae"]))
    table.add_row("train RMSE", number(accuracy["train_rmse"]), "")
    table.add_row("test MAE", number(accuracy["test_mae"]), "")
    table.add_row("test RMSE", number(accuracy["test_rmse"]), number(plain["test_rmse"]))
    out.print(table)
    if (cost := accuracy.get("factor_bits")) is not None:
        train, test = (_signed(cost[figure]) for figure in ("train_mae_cost", "test_rmse_cost"))
        words = f"{cost['bits']}-bit factors instead of 32-bit ones: train MAE {train}, test RMSE {test}"
        out.print(f"{words} (measured on {cost['measured_on']}, same data and seed).", markup=False)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2g}"


def _show_bytes(summary: dict[str, Any]) -> None:
    seconds = summary["seconds"]
    if not summary["bytes"]["per_iteration"]:
        _show_all_bytes(summary)
        return
    table = plain_table("Wire bytes per iteration (measured)", "edge", "mean")
    for edge, count in summary["bytes"]["per_iteration"].items():
        table.add_row(edge.replace("->", " → "), size(count))
    user = summary["bytes"]["per_user_iteration"]
    table.add_row("one user, down", f"{size(user['down_mean'])} (max {size(user['down_max'])})")
    table.add_row("one user, up", f"{size(user['up_mean'])} (max {size(user['up_max'])})")
    out.print(table)
    out.print(
        f"{number(seconds['iteration_median'])} s per iteration (median), {number(seconds['startup'], 1)} s to start, "
        f"{number(seconds['total'], 1)} s in all"
    )


def _show_all_bytes(summary: dict[str, Any]) -> None:
    """Of a scheme without iterations."""
    table = plain_table("Wire bytes of the whole run (measured)", "edge", "in all", "for each user")
    for edge, count in summary["bytes"]["edges"].items():
        table.add_row(edge.replace("->", " → "), size(count), size(count / summary["users"]) if "user" in edge else "")
    out.print(table)
    seconds = summary["seconds"]
    out.print(f"{number(seconds['startup'], 1)} s to start and publish, {number(seconds['total'], 1)} s in all")


def _show_parties(scheme: Scheme) -> None:
    """What each party may learn: the scheme's own declaration, printed as one."""
    table = plain_table("What each party may learn (declared by the scheme, not measured)", "party", "learns")
    for party in scheme.parties():
        words = dict.fromkeys(leak.words for leak in scheme.leakage if leak.receiver == party)
        table.add_row(party, "; ".join(words))
    out.print(table)


def _show_privacy(privacy: dict[str, Any]) -> None:
    """The claim as a claim, and beside it what the accountant makes of all releases together."""
    claimed, accounted = privacy["claimed_epsilon"], privacy["accounted"]
    if claimed is None:
        return
    out.print(f"Claimed: ε = {figure(claimed)} ({privacy['unit']}).")
    at = f"δ = {accounted['delta']:g}"
    if "basic" in accounted:
        out.print(
            f"Accounted as if every item were released in all {accounted['releases']} iterations, at {at}: basic "
            f"composition {figure(accounted['basic'])}, advanced {figure(accounted['advanced'])}, tight to a party "
            f"without the envelopes {figure(accounted['tight'])}."
        )
    if "recommender" in accounted:
        known = accounted["recommender"]
        out.print(
            f"To the recommender, who knows the envelopes: ε = {figure(known['median'])} for the median item, "
            f"{figure(known['p99'])} for the 99 % item, {figure(known['worst'])} for the worst, "
            f"{figure(known['direction_worst'])} in its worst direction."
        )
    else:
        out.print(f"Accounted: ε = {figure(accounted['epsilon'])} at {at} ({accounted['method']}).")


def show_records(records: Iterable[dict[str, Any]], party: str) -> None:
    """Page by page: a view may be larger than the memory."""
    title, rest = f"What {party} saw", iter(records)
    widths = (7, 6, 20, 8, max(20, out.width - 57))  # the same on every page; 16 columns are lines and spaces
    while page := list(itertools.islice(rest, RECORDS_OF_A_PAGE)):
        table = plain_table(title, "record", "t", "what", "bytes", "fields")
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        for record in page:
            table.add_row(*map(escape, cells(record)))
        out.print(table)
        title = f"What {party} saw, further"


def cells(record: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """Number, iteration, what it is, bytes, and a line for each field."""
    other = f"\nfrom {record['sender']}" if record["type"] in ("received", "rejected") else ""
    other = f"\nto {record['receiver']}" if record["type"] == "sent" else other
    kind = "" if record["kind"] == record["type"] else f" {record['kind']}"
    units = {name: f" ({words})" for name, words in record["units"].items()}
    fields = [f"{name}{units.get(name, '')} = {_brief(value)}" for name, value in record["fields"].items()]
    if record["sender_head"]:
        fields.append(f"sender_head = {_brief(record['sender_head'])}")
    when = "set-up" if record["iteration"] < 0 else str(record["iteration"])
    what = f"{record['type']}{kind}{other}"
    return str(record["record"]), when, what, str(record["bytes"]), "\n".join(fields)


def show_further(further: int, command: str) -> None:
    """How much a page left out, and how to see it."""
    out.print(f"{further} more {'record' if further == 1 else 'records'}: {command}", soft_wrap=True, markup=False)


def _brief(value: Any) -> str:
    if isinstance(value, dict) and "shape" in value:
        first = ", ".join(f"{entry:.4g}" if isinstance(entry, float) else str(entry) for entry in value["first"])
        return f"{value['dtype']}{value['shape']}: {first} …"
    if isinstance(value, dict):
        return f"{value['keys']} keys of {value['bytes_each']} bytes"
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "…"
