"""The section "Who sends what": the set-up and one iteration as sequence diagrams, from the run's own records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.wire.messages import SETUP
from sim.console.console import counted, size
from sim.report.reported_run import ReportedRun
from sim.report.section import Section, render
from sim.report.sequence.arrows import Diagram, Row, is_one_round, make_diagram, rows_of, typical_iteration
from sim.report.sequence.diagram_layout import lay_out
from sim.report.sequence.first_records import Scan, scan
from sim.report.sequence.numbers_behind import UploadsBehind
from sim.report.sequence.panels import Panel, arrow_panel, party_key, party_panel, spoken

ID, TITLE = "sequence", "Who sends what"


@dataclass(frozen=True, slots=True)
class Told:
    diagrams: list[Diagram]
    panels: list[Panel]
    notes: list[str]
    chosen: str  # the panel that is open at first


def section(run: ReportedRun) -> Section:
    told = tell(run)
    if told is None:
        words = "No bytes were told before the run ended, so there is nothing to draw."
        return Section(ID, TITLE, render("sequence.html", drawings=[], panels=[], notes=[words], chosen=""), "Messages")
    drawings = [_drawing(run, diagram) for diagram in told.diagrams]
    html = render("sequence.html", drawings=drawings, panels=told.panels, notes=told.notes, chosen=told.chosen)
    return Section(ID, TITLE, html, "Messages")


def tell(run: ReportedRun) -> Told | None:
    """Make the diagrams and panels, once: the top of the page shows the most telling panel too."""
    if ID not in run.shared:
        run.shared[ID] = _tell(run)
    found: Told | None = run.shared[ID]
    return found


def _tell(run: ReportedRun) -> Told | None:
    rows, notes = rows_of(run)
    if not rows:
        return None
    chosen = typical_iteration(run, rows)
    iterations = {row["iteration"] for row in rows} if is_one_round(run, rows) else {SETUP}
    found = scan(run.case, iterations | ({chosen} if chosen is not None else set()))
    diagrams = make_diagrams(run, rows, found, chosen)
    panels = make_panels(run, diagrams, found)
    told = [*([notes] if notes else []), *_notes(run, found)]
    return Told(diagrams, panels, told, _most_telling(diagrams, panels))


def make_diagrams(run: ReportedRun, rows: Sequence[Row], found: Scan, chosen: int | None) -> list[Diagram]:
    scheme, seen = run.scheme, found.orders
    if is_one_round(run, rows):
        words = "Nothing is repeated in this scheme, so this is every message of the run."
        return [make_diagram("run", "The whole run", words, rows, seen, scheme)]
    own = [row for row in rows if row["iteration"] == SETUP]
    words = f"Before the first iteration: {size(sum(row['wire_bytes'] for row in own))} in all."
    made = [make_diagram("setup", "Set-up", words, own, seen, scheme)]
    if chosen is None:
        return made
    own = [row for row in rows if row["iteration"] == chosen]
    total = size(sum(row["wire_bytes"] for row in own))
    words = f"The middle one of the iterations in which a user contributed: {total} in all."
    words += _elsewhere(run, rows, own)
    return [*made, make_diagram("iteration", f"Iteration {chosen}", words, own, seen, scheme)]


def _elsewhere(run: ReportedRun, rows: Sequence[Row], own: Sequence[Row]) -> str:
    """List the kinds that this iteration lacks and other iterations, or the end of the run, have."""
    drawn = {(row["sender"], row["receiver"], row["kind"]) for row in own}
    others: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        edge = (row["sender"], row["receiver"], row["kind"])
        if row["iteration"] != SETUP and edge not in drawn:
            others.setdefault(edge, []).append(row["iteration"])
    told = [
        f"{kind} ({spoken(sender)} → {spoken(receiver)}) "
        + ("at the end" if min(at) >= run.params.iterations else f"in {counted(len(at), 'other iteration')}")
        for (sender, receiver, kind), at in others.items()
    ]
    return f" Not in it: {'; '.join(told)}." if told else ""


def make_panels(run: ReportedRun, diagrams: Sequence[Diagram], found: Scan) -> list[Panel]:
    truth = UploadsBehind(run.case)
    panels = [arrow_panel(run, arrow, found, truth) for diagram in diagrams for arrow in diagram.arrows]
    back = diagrams[0].key
    parties = [party_panel(run, role, f"{party_key(role)}-{back}") for role in run.scheme.parties()]
    return [*panels, *parties]


def _most_telling(diagrams: Sequence[Diagram], panels: Sequence[Panel]) -> str:
    """Choose the panel that is open at first: one with a picture, of the last drawing if that has one."""
    last = {arrow.key for arrow in diagrams[-1].arrows}
    with_pictures = [panel.key for panel in panels if panel.pictures]
    return next((key for key in with_pictures if key in last), [*with_pictures, panels[0].key][0])


def _drawing(run: ReportedRun, diagram: Diagram) -> dict[str, Any]:
    roles = run.scheme.parties()
    users = counted(run.params.n_users, "user")
    names = [users if role == "user" else spoken(role) for role in roles]
    return {"diagram": diagram, "layout": lay_out(diagram, roles, names), "names": dict(zip(roles, names, strict=True))}


def _notes(run: ReportedRun, found: Scan) -> list[str]:
    words = [
        "One arrow stands for all messages of one kind from one role to another. The first of each stands behind "
        "everything that its sender had received and sent before. Choose an arrow or a party to see what "
        "its receiver saw. A colour says who sends."
    ]
    if not found.orders:
        words.append("No view was kept: the order is that in which the scheme lists its messages.")
    if run.case.config.transport == "inprocess":
        words.append("The run was in one process: its wire bytes are by formula.")
    return words
