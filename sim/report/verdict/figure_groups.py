"""The figures behind the tiles, and the bytes of a run beside those of the paper."""

from __future__ import annotations

from typing import Any

from sim.bandwidth import paper_bytes
from sim.console.console import size
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render
from sim.tables.run_figures import FigureGroup, accuracy, facts, own_bytes


def section(run: ReportedRun) -> Section:
    about = run.summary, run.case.card
    done = sum(line["iteration"] >= 0 for line in run.lines)
    given = {"accuracy": accuracy(*about), "traffic": traffic(run), "facts": facts(*about, done)}
    return Section("figures", "Figures of the run", render("figures.html", **given), "Figures")


# --- bytes -----------------------------------------------------------------------------------------------------------


def traffic(run: ReportedRun) -> tuple[FigureGroup, FigureGroup | None]:
    """Make two cards of bytes: of this run at its size, and of the paper at the paper's size."""
    own, paper = own_bytes(run.summary, run.case.card), _paper_bytes(run)
    if paper is None:
        own.notes.append("The paper gives no byte figures for a scheme like this one.")
    return own, paper


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
