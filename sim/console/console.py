"""Console output for people: tables on stdout, progress on stderr and only on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from protocol.errors import Reason
from protocol.schemes import is_ours
from sim.foreign.plain_text import visible

if TYPE_CHECKING:
    from protocol.schemes import Scheme

RECORDS_OF_A_PAGE = 50


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # a reader such as head has closed the pipe, which is not an error


class _Visible(RenderHook):
    """A hook that keeps control characters in printed text from reaching the terminal."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Cleaned(renderable) for renderable in renderables]


@dataclass(frozen=True, slots=True)
class _Cleaned:
    inner: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.inner, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


out = _Console(highlight=False)
out.push_render_hook(_Visible())
err = Console(stderr=True, highlight=False)


def number(value: Any, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def figure(epsilon: Any) -> str:
    """Format `epsilon` to three digits; infinity is already a string."""
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


def counted(number: int, what: str) -> str:
    """Format `number` with `what` it counts: "1 item", "2,000 items"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def plain_table(title: str, *columns: str) -> Table:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    return table


def show_datasets(rows: list[dict[str, Any]]) -> None:
    """Print a few lines for each data set, with names, paths and commands unbroken so that they can be copied."""
    for row in rows:
        out.print(f"[bold]{escape(row['name'])}[/]: {escape(row['title'])}", soft_wrap=True)
        sizes = [f"{row[what]:,} {what}" for what in ("users", "items", "ratings") if row[what] is not None]
        out.print(f"  {', '.join(sizes) or 'of any size'}", markup=False)
        out.print(f"  {row['where'] or 'not here'}", markup=False, soft_wrap=True)
        out.print(f"  {row['how']}", markup=False, soft_wrap=True)


def show_abort(summary: dict[str, Any], scheme: Scheme) -> None:
    """Print how far an aborted run got and why it ended."""
    _show_run(summary, scheme)
    out.print(f"[bold red]aborted[/]: {escape(summary['abort']['sentence'])}")
    out.print(f"anchor        {summary['anchor'] or 'none'} (so far)", markup=False)


def show_summary(summary: dict[str, Any], scheme: Scheme) -> None:
    """Print all figures of a completed run, and its digests."""
    _show_run(summary, scheme)
    _show_accuracy(summary, "plain" if scheme.factorizes else "without protection")
    _show_bytes(summary)
    _show_parties(scheme)
    _show_privacy(summary["privacy"])
    out.print(f"item factors  {summary['item_factors_sha256']}", markup=False)
    trust = "" if is_ours(scheme) else " --trust-scheme"
    out.print(f"Bytes:        keyhole bandwidth {summary['run']}{trust}", soft_wrap=True, markup=False)
    if summary["views"]:
        last = max(summary["views"])
        out.print(f"See more:     keyhole view {summary['run']} {last}{trust}", soft_wrap=True, markup=False)


def _show_run(summary: dict[str, Any], scheme: Scheme) -> None:
    processes = escape(", ".join(f"{count} {role}" for role, count in summary["processes"].items()))
    out.print(
        f"[bold]{escape(summary['scheme'])}[/] on {escape(summary['data'])}: "
        f"{summary['users']} users, {summary['items']} items, "
        f"{length(scheme.factorizes, summary['iterations'], summary['dim'])}; processes: {processes}"
    )
    seed = f"seed {summary['seed']}"
    out.print(f"{seed} (given: simulation, not private)" if summary["simulation"] else f"{seed} (fresh)")
    for note in (*summary["notes"], *disturbances(summary)):
        out.print(note, markup=False)


def length(factorizes: bool, iterations: int, dim: int) -> str:
    if factorizes:
        return f"{iterations:,} iterations, dim {dim}"
    return "one round" if iterations == 1 else f"{iterations} rounds"


def disturbances(summary: Mapping[str, Any]) -> list[str]:
    """Report in sentences what went wrong during the run and was recovered from, if anything."""
    told = []
    if summary["restarts"]:
        told.append(f"{summary['restarts']} restarts of processes")
    if summary["gone"]:
        told.append(f"{len(summary['gone'])} users gone for good")
    refused = {kind: n for kind, n in summary["rejected"].items() if kind != Reason.REPLAYED.name}
    for what, counts in (("frames refused", refused), ("strangers turned away", summary["strangers"])):
        if counts:
            told.append(f"{sum(counts.values())} {what} ({', '.join(f'{n} {kind}' for kind, n in counts.items())})")
    twice = summary["rejected"].get(Reason.REPLAYED.name)
    again = f"{twice} duplicates were ignored: a party that is asked again after a time-out sends the same bytes."
    return [*([again] if twice else []), *([f"Disturbed: {'; '.join(told)}."] if told else [])]


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
        table.add_row(escape(edge.replace("->", " → ")), size(count))
    user = summary["bytes"]["per_user_iteration"]
    table.add_row("one user, down", f"{size(user['down_mean'])} (max {size(user['down_max'])})")
    table.add_row("one user, up", f"{size(user['up_mean'])} (max {size(user['up_max'])})")
    out.print(table)
    out.print(f"{number(seconds['iteration_median'])} s per iteration (median). {times(seconds)}")


def times(seconds: Mapping[str, Any]) -> str:
    """Break the total time down into parts that add up to it."""
    parts = [("to start", seconds["startup"]), ("iterating", seconds.get("iterations"))]
    known = [(words, value) for words, value in parts if value is not None]
    rest = seconds["total"] - sum(value for _, value in known)
    if rest < 0:  # some iterations ran before the run was resumed
        return f"{seconds['total']:.1f} s since it was resumed."
    told = ", ".join(f"{value:.1f} {words}" for words, value in [*known, ("for the rest", rest)])
    return f"{seconds['total']:.1f} s: {told}."


def _show_all_bytes(summary: dict[str, Any]) -> None:
    """Print the bytes of a scheme without iterations."""
    table = plain_table("Wire bytes of the whole run (measured)", "edge", "in all", "for each user")
    for edge, count in summary["bytes"]["edges"].items():
        each = size(count / summary["users"]) if "user" in edge else ""
        table.add_row(escape(edge.replace("->", " → ")), size(count), each)
    out.print(table)
    out.print(times(summary["seconds"]))


def _show_parties(scheme: Scheme) -> None:
    """Print what each party may learn, labelled as the scheme's own declaration."""
    table = plain_table("What each party may learn (declared by the scheme, not measured)", "party", "learns")
    for party in scheme.parties():
        words = dict.fromkeys(leak.words for leak in scheme.leakage if leak.receiver == party)
        table.add_row(party, "; ".join(words))
    out.print(table)


def _show_privacy(privacy: dict[str, Any]) -> None:
    """Print the claim, labelled as a claim, and the ε that the accountant computes for all releases together."""
    claimed, accounted = privacy["claimed_epsilon"], privacy["accounted"]
    if claimed is None:
        return
    out.print(f"Claimed: ε = {figure(claimed)} ({privacy['unit']}).", markup=False)
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
        out.print(f"Accounted: ε = {figure(accounted['epsilon'])} at {at} ({accounted['method']}).", markup=False)


def show_records(records: Iterable[dict[str, Any]], party: str) -> None:
    """Print `records` page by page, as a view may exceed memory; `party` is the name to print."""
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
    """Format `record` as table cells: number, iteration, what it is, bytes, and a line for each field."""
    other = f"\nfrom {record['sender']}" if record["type"] in ("received", "rejected") else ""
    other = f"\nto {record['receiver']}" if record["type"] == "sent" else other
    kind = "" if record["kind"] == record["type"] else f" {record['kind']}"
    units = {name: f" ({words})" for name, words in record["units"].items()}
    fields = [f"{name}{units.get(name, '')} = {_brief(value)}" for name, value in record["fields"].items()]
    if record["sender_head"]:
        fields.append(f"sender_head = {_brief(record['sender_head'])}")
    when = "–" if record["iteration"] is None else "set-up" if record["iteration"] < 0 else str(record["iteration"])
    what = f"{record['type']}{kind}{other}"
    return str(record["record"]), when, what, str(record["bytes"]), "\n".join(fields)


def show_further(further: int, command: str) -> None:
    """Print how many records a page left out, and the `command` that shows them."""
    out.print(f"{further} more {'record' if further == 1 else 'records'}: {command}", soft_wrap=True, markup=False)


def _brief(value: Any) -> str:
    if isinstance(value, dict) and "shape" in value:
        first = ", ".join(f"{entry:.4g}" if isinstance(entry, float) else str(entry) for entry in value["first"])
        return f"{value['dtype']}{value['shape']}: {first} …"
    if isinstance(value, dict):
        return f"{value['keys']} keys of {value['bytes_each']} bytes"
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "…"
