"""The figures behind the tiles: how accurate the run was, what it cost in bytes, and how it went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.bandwidth import paper_bytes
from sim.console.console import counted, number, size
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render

NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class FigureGroup:
    title: str
    caption: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)  # the reasons, shown on request


def section(run: ReportedRun) -> Section:
    given = {"accuracy": accuracy(run), "traffic": traffic(run), "facts": facts(run)}
    return Section("figures", "Figures of the run", render("figures.html", **given), "Figures")


# --- accuracy --------------------------------------------------------------------------------------------------------


def accuracy(run: ReportedRun) -> FigureGroup:
    """Compare the test RMSE with that of the run without protection, and of guesses that need no protocol at all."""
    found, name = run.summary["accuracy"], run.scheme.name
    mine, beside = found["test_rmse"], "plain" if run.scheme.factorizes else "the same without protection"
    rows = [["this run", _figure(mine), ""]]
    rows.append([beside, _figure(found["plain"]["test_rmse"]), _against(mine, found["plain"]["test_rmse"])])
    below = found.get("on_device") or []
    for floor in below:
        rows.append([f"{floor['title']} *", _figure(floor["test_rmse"]), _against(mine, floor["test_rmse"])])
    low, high = run.params.rating_min, run.params.rating_max
    held_out = run.summary["ratings"]["test"]
    caption = f"Test RMSE on {held_out:,} held-out ratings from {low:g} to {high:g}; less is better."
    train = f"Train MAE: {_figure(found['train_mae'])} ({beside}: {_figure(found['plain']['train_mae'])})."
    unknown = "What needs no protocol was not measured when this was run."
    notes = [train, "* Nothing leaves the device: a guess that needs no protocol." if below else unknown]
    if not run.summary["completed"]:
        notes.append("The run did not complete, so there is no result to measure.")
    if not held_out:
        notes.append("No rating was held out (--test-fraction 0), so there is no test figure.")
    elif mine is None and run.summary["completed"]:
        notes.append("The run has no result that predicts a rating, so there is no error to measure.")
    elif mine is not None and below:
        notes.append(_beaten(name, mine, below))
    return FigureGroup("Accuracy (measured)", caption, ["", "test RMSE", "this run is"], rows, notes)


def _figure(value: float | None) -> str:
    return NOT_MEASURED if value is None else number(value)


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


def traffic(run: ReportedRun) -> tuple[FigureGroup, FigureGroup | None]:
    """Make two cards of bytes: of this run at its size, and of the paper at the paper's size."""
    return _own_bytes(run), _paper_bytes(run)


def _own_bytes(run: ReportedRun) -> FigureGroup:
    counted, summary = run.summary["bytes"], run.summary
    how = "counted as for a wire" if summary["transport"] == "inprocess" else "measured"
    per_iteration = counted["per_iteration"]
    rows = [[_edge(edge), size(count)] for edge, count in (per_iteration or counted["edges"]).items()]
    user = counted["per_user_iteration"]
    if per_iteration and user["down_mean"] is not None:
        rows += [
            [f"one user, {way}", f"{size(user[way + '_mean'])} (max {size(user[way + '_max'])})"]
            for way in ("down", "up")
        ]
    dim = f", dim {summary['dim']}" if run.scheme.factorizes else ""
    sizes = f"{summary['users']:,} users, {summary['items']:,} items{dim}, wire {summary['wire']}"
    what = "Mean of an iteration" if per_iteration else "The whole run"
    notes = [f"{size(counted['total'])} in all, with the set-up."]
    if not per_iteration and run.scheme.factorizes and not summary["completed"]:
        notes.append("No iteration completed, so there is no mean.")
    if _comparison(run) is None:
        notes.append("The paper gives no byte figures for a scheme like this one.")
    return FigureGroup(f"Wire bytes ({how})", f"{what}, at this run's size: {sizes}.", ["edge", "bytes"], rows, notes)


def _paper_bytes(run: ReportedRun) -> FigureGroup | None:
    found = _comparison(run)
    if found is None:
        return None
    rows = [
        [row["what"], f"≤ {size(row['paper'])}", *(size(row[name]) for name in ("wire_paper", "wire_compact"))]
        for row in found["rows"]
    ]
    rated = f"{found['items_per_user']} rated by each"
    sizes = f"{found['users']:,} users, {found['items']:,} items, {rated}, dim {found['dim']}"
    return FigureGroup(
        "Beside the paper (by formula, not run)",
        f"Bytes of an iteration at the size that {found['source']} names: {sizes}, {found['ring_bits']} ring bits. The "
        "paper's own figures, and Keyhole's in both wire forms.",
        ["", "the paper", "wire paper", "wire compact"],
        rows,
        folded=[f"{row['what'].capitalize()}: {row['why']}" for row in found["rows"]],
    )


def _comparison(run: ReportedRun) -> dict[str, Any] | None:
    """Compare with the paper; None also for a custom scheme that sends nothing in an iteration."""
    found = paper_bytes.comparison(run.scheme, run.params)
    sent = found is not None and any(row["wire_compact"] for row in found["rows"])
    return found if sent else None


def _edge(edge: str) -> str:
    return edge.replace("->", " → ")


# --- the run ---------------------------------------------------------------------------------------------------------


def facts(run: ReportedRun) -> list[tuple[str, str]]:
    """List facts from the summary as (what, words)."""
    summary = run.summary
    processes = ", ".join(f"{role}: {count}" for role, count in summary["processes"].items())
    if summary["transport"] == "inprocess":
        processes = "one for all parties"
    seed = "given: a simulation, whose masks are not private" if summary["simulation"] else "fresh, drawn for this run"
    found = [
        ("ended", _end(summary)),
        ("processes", processes),
        ("transport, wire", f"{summary['transport']}, {summary['wire']}"),
        ("ring", _ring(run)),
        ("seconds", _seconds(summary["seconds"])),
        ("drop-outs", f"{summary['dropouts']}{_steps(run)}"),
        ("restarts, gone", f"processes restarted: {summary['restarts']}; users gone for good: {len(summary['gone'])}"),
        ("refused", f"{_counts(summary['rejected'], 'messages')}; {_counts(summary['strangers'], 'strangers')}"),
        ("views", f"{len(summary['views'])} of {len(run.case.parties)} parties kept one"),
        ("seed", seed),
        ("anchor", summary["anchor"] or "none: no views were kept"),
    ]
    return found + [("note", note) for note in summary["notes"]]


def _steps(run: ReportedRun) -> str:
    """Count the iterations, or rounds, that ended."""
    done = sum(line["iteration"] >= 0 for line in run.lines)
    what = "iteration" if run.scheme.factorizes else "round"
    return f" in {counted(done, what)}" if done else ""


def _end(summary: dict[str, Any]) -> str:
    abort = summary["abort"]
    return "completed" if abort is None else f"aborted: {abort['sentence']}"


def _ring(run: ReportedRun) -> str:
    if not any(leak.uniform for leak in run.scheme.leakage):
        return "none: nothing is masked"
    ring = run.summary["ring"]
    return f"{ring['bits']} bits, {ring['fraction_bits']} of them behind the point"


def _seconds(seconds: dict[str, Any]) -> str:
    median, p95 = seconds["iteration_median"], seconds["iteration_p95"]
    each = f"; an iteration {median:.3g} (median), {p95:.3g} (95 %)" if median is not None else ""
    start = "start not timed" if seconds["startup"] is None else f"{seconds['startup']:.1f} to start"
    return f"{seconds['total']:.1f} in all, {start}{each}"


def _counts(counts: dict[str, int], what: str) -> str:
    kinds = ", ".join(f"{number_} {kind}" for kind, number_ in counts.items())
    return f"{sum(counts.values())} {what}" + (f" ({kinds})" if kinds else "")
