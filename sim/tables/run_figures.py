"""The figures of a run: how accurate it was, what it cost in bytes, how it went; for the terminal and for the page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from protocol.card import Card, all_parties
from protocol.schemes import Scheme, is_ours
from sim.console.console import counted, figure, number, out, pairs_table, print_table, size
from sim.tables.audit_tables import show_colluders

Document = dict[str, Any]

NOT_MEASURED = "not measured"
_COSTS = {"train_mae": "train MAE", "test_rmse": "test RMSE"}


@dataclass(frozen=True, slots=True)
class FigureGroup:
    title: str
    caption: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)  # the reasons, shown on request


# --- accuracy --------------------------------------------------------------------------------------------------------


def accuracy(summary: Document, card: Card) -> FigureGroup:
    """Compare the test RMSE with that of the run without protection, and of guesses that need no protocol at all."""
    found, name = summary["accuracy"], card.scheme.name
    mine, beside = found["test_rmse"], "plain" if card.scheme.factorizes else "the same without protection"
    rows = [["this run", _figure(mine), ""]]
    rows.append([beside, _figure(found["plain"]["test_rmse"]), _against(mine, found["plain"]["test_rmse"])])
    below = found.get("on_device") or []
    for floor in below:
        rows.append([f"{floor['title']} *", _figure(floor["test_rmse"]), _against(mine, floor["test_rmse"])])
    low, high = card.params.rating_range
    held_out = summary["ratings"]["test"]
    caption = f"Test RMSE on {held_out:,} held-out ratings from {low:g} to {high:g}; less is better."
    train = f"Train MAE: {_figure(found['train_mae'])} ({beside}: {_figure(found['plain']['train_mae'])})."
    rest = f"Train RMSE: {_figure(found['train_rmse'])}. Test MAE: {_figure(found['test_mae'])}."
    unknown = "What needs no protocol was not measured when this was run."
    notes = [train, rest, "* Nothing leaves the device: a guess that needs no protocol." if below else unknown]
    if (cost := found.get("factor_bits")) is not None:
        errors = (f"{words} {_signed(cost[f'{name}_cost'])}" for name, words in _COSTS.items())
        words = f"{cost['bits']}-bit factors instead of 32-bit ones: {', '.join(errors)}"
        notes.append(f"{words} (measured on {cost['measured_on']}, same data and seed).")
    if not summary["completed"]:
        notes.append("The run did not complete, so there is no result to measure.")
    if not held_out:
        notes.append("No rating was held out (--test-fraction 0), so there is no test figure.")
    elif mine is None and summary["completed"]:
        notes.append("The run has no result that predicts a rating, so there is no error to measure.")
    elif mine is not None and below:
        notes.append(_beaten(name, mine, below))
    return FigureGroup("Accuracy (measured)", caption, ["", "test RMSE", "this run is"], rows, notes)


def _figure(value: float | None) -> str:
    return NOT_MEASURED if value is None else number(value)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2g}"


def _against(mine: float | None, other: float | None) -> str:
    """Say how this run compares with another figure."""
    if mine is None or other is None:
        return "not compared"
    gap = other - mine
    return "equal" if abs(gap) < 5e-4 else f"better by {gap:.3f}" if gap > 0 else f"worse by {-gap:.3f}"


def _beaten(name: str, mine: float, below: list[dict[str, Any]]) -> str:
    beaten = [floor["title"] for floor in below if mine < floor["test_rmse"]]
    if not beaten:
        return f"{name} beats none of the guesses in which nothing leaves the device."
    if len(beaten) == len(below):
        return f"{name} beats every guess in which nothing leaves the device."
    others = [floor["title"] for floor in below if floor["title"] not in beaten]
    return f"{name} beats {_listed(beaten)}, and does not beat {_listed(others)}."


def _listed(titles: list[str]) -> str:
    return " and ".join(f"“{title}”" for title in titles)


# --- bytes -----------------------------------------------------------------------------------------------------------


def own_bytes(summary: Document, card: Card) -> FigureGroup:
    counted = summary["bytes"]
    how = "counted as for a wire" if summary["transport"] == "inprocess" else "measured"
    per_iteration = counted["per_iteration"]
    rows = [[edge.replace("->", " → "), size(count)] for edge, count in (per_iteration or counted["edges"]).items()]
    user = counted["per_user_iteration"]
    if per_iteration and user["down_mean"] is not None:
        rows += [
            [f"one user, {way}", f"{size(user[way + '_mean'])} (max {size(user[way + '_max'])})"]
            for way in ("down", "up")
        ]
    dim = f", dim {summary['dim']}" if card.scheme.factorizes else ""
    sizes = f"{summary['users']:,} users, {summary['items']:,} items{dim}, wire {summary['wire']}"
    what = "Mean of an iteration" if per_iteration else "The whole run"
    notes = [f"{size(counted['total'])} in all, with the set-up."]
    if not per_iteration and card.scheme.factorizes and not summary["completed"]:
        notes.append("No iteration completed, so there is no mean.")
    return FigureGroup(f"Wire bytes ({how})", f"{what}, at this run's size: {sizes}.", ["edge", "bytes"], rows, notes)


# --- the run ---------------------------------------------------------------------------------------------------------


def facts(summary: Document, card: Card, done: int = 0) -> list[tuple[str, str]]:
    """List facts from the summary as (what, words); `done` is how many iterations, or rounds, ended, if known."""
    processes = ", ".join(f"{role}: {count}" for role, count in summary["processes"].items())
    if summary["transport"] == "inprocess":
        processes = "one for all parties"
    steps = f" in {counted(done, 'iteration' if card.scheme.factorizes else 'round')}" if done else ""
    seed = "given: a simulation, whose masks are not private" if summary["simulation"] else "fresh, drawn for this run"
    found = [
        ("ended", _end(summary)),
        ("processes", processes),
        ("transport, wire", f"{summary['transport']}, {summary['wire']}"),
        ("ring", _ring(summary["ring"], card)),
        ("seconds", _seconds(summary["seconds"])),
        ("drop-outs", f"{summary['dropouts']}{steps}"),
        ("restarts, gone", f"processes restarted: {summary['restarts']}; users gone for good: {len(summary['gone'])}"),
        ("refused", f"{_counts(summary['rejected'], 'messages')}; {_counts(summary['strangers'], 'strangers')}"),
        ("views", f"{len(summary['views'])} of {len(all_parties(card.scheme, summary['users']))} parties kept one"),
        ("seed", seed),
        ("anchor", summary["anchor"] or "none: no views were kept"),
    ]
    return found + [("note", note) for note in summary["notes"]]


def _end(summary: dict[str, Any]) -> str:
    abort = summary["abort"]
    return "completed" if abort is None else f"aborted: {abort['sentence']}"


def _ring(ring: Document, card: Card) -> str:
    if not any(leak.uniform for leak in card.scheme.leakage):
        return "none: nothing is masked"
    return f"{ring['bits']} bits, {ring['fraction_bits']} of them behind the point"


def _seconds(seconds: dict[str, Any]) -> str:
    median, p95 = seconds["iteration_median"], seconds["iteration_p95"]
    each = f"; an iteration {median:.3g} (median), {p95:.3g} (95 %)" if median is not None else ""
    start = "start not timed" if seconds["startup"] is None else f"{seconds['startup']:.1f} to start"
    return f"{seconds['total']:.1f} in all, {start}{each}"


def _counts(counts: dict[str, int], what: str) -> str:
    kinds = ", ".join(f"{number_} {kind}" for kind, number_ in counts.items())
    return f"{sum(counts.values())} {what}" + (f" ({kinds})" if kinds else "")


# --- on a terminal ---------------------------------------------------------------------------------------------------


def show_figures(summary: Document, card: Card) -> None:
    """Print all figures of a completed run, and its digests."""
    for group in (accuracy(summary, card), own_bytes(summary, card)):
        print_table(group.title, group.columns, group.rows)
        for note in (group.caption, *group.notes):
            out.print(note, markup=False)
    out.print(pairs_table(facts(summary, card)))
    _show_parties(card.scheme)
    _show_privacy(summary["privacy"])
    out.print(f"item factors  {summary['item_factors_sha256']}", markup=False)
    trust = "" if is_ours(card.scheme) else " --trust-scheme"
    out.print(f"Bytes:        keyhole bandwidth {summary['run']}{trust}", soft_wrap=True, markup=False)
    if summary["views"]:
        last = max(summary["views"])
        out.print(f"See more:     keyhole view {summary['run']} {last}{trust}", soft_wrap=True, markup=False)


def _show_parties(scheme: Scheme) -> None:
    """Print what each party may learn, labelled as the scheme's own declaration."""
    rows = [
        (party, "; ".join(dict.fromkeys(leak.words for leak in scheme.leakage if leak.receiver == party)))
        for party in scheme.parties()
    ]
    print_table("What each party may learn (declared by the scheme, not measured)", ("party", "learns"), rows)


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
    show_colluders(accounted)
